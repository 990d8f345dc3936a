"""The models that an explorer opens, and what the attention of their layers is given."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from cca_lab import files
from cca_lab.attention.arguments import check_tensors, scale_of
from cca_lab.mechanisms import Mechanism
from cca_lab.mechanisms.caches import CACHES, CacheSizes
from cca_lab.mechanisms.caching.base import mechanism_named_in
from cca_lab.models import load_pretrained
from cca_lab.models.checkpoints import quiet
from cca_lab.models.inputs import check_length, check_token_ids
from cca_lab.models.interface import MODULE
from cca_lab.models.plugin import attention_modules, attention_of, check_family
from cca_lab.views.explorer.reading import Inputs

LISTENING = "cca_lab_listening"  # transformers' name of the attention function below
HEARD, TABLES = "cca_lab_heard", "cca_lab_tables"
MOST_TOKENS = 1024
MOST_KEPT = 4  # forward passes that a source remembers


class ModelText:
    """A model that reads one text, or token ids (L,): a source of the inputs of its layers."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None,
                 text: str | Tensor, name: str = "") -> None:
        check_family(model)
        if isinstance(text, str):
            if tokenizer is None:
                raise ValueError(
                    "tokenizer: got none for a text, wanted the model's; or pass token ids")
            text = torch.tensor(tokenizer.encode(text, verbose=False), dtype=torch.int64)
        check_tensors(text=text)
        ids = text.reshape(1, -1)
        if not 1 <= ids.shape[1] <= MOST_TOKENS:
            raise ValueError(
                f"text: got {ids.shape[1]} tokens, wanted 1 to {MOST_TOKENS}; shorten it")
        check_token_ids(model, "text", ids)
        check_length(model, "text", ids.shape[1])
        self.model, self.ids = model, ids.to(model.device)
        self.name = name or str(model.config.model_type)
        self.words = tuple(str(token if tokenizer is None else tokenizer.decode([token]))
                           for token in ids[0].tolist())
        self.sizes = CacheSizes.of(model.config, itemsize=next(model.parameters()).element_size())
        self.layers, self.heads = self.sizes.layers, self.sizes.heads
        self._kept: dict[str, list[Inputs]] = {}

    def inputs(self, layer: int, mechanism: Mechanism, everywhere: bool) -> Inputs:
        """Return what a layer is given by the model as it attends, or `everywhere` with this."""
        attending = mechanism if everywhere else attention_of(self.model)
        key = repr(attending)
        if key not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = heard(self.model, self.ids, attending)
        return self._kept[key][layer]._replace(module=trained(self.model, layer, mechanism))

    def cache_bytes(self, mechanism: Mechanism) -> tuple[int | None, int | None]:
        """Return the bytes of one layer's cache after the text, and of full attention's."""
        length = len(self.words)
        full = self.sizes.entries(length)
        if mechanism.name == "full":
            return full, full
        try:
            cache = CACHES[mechanism.name]
            return cache.bytes_of(mechanism, length, self.sizes) // self.sizes.layers, full
        except (KeyError, ValueError):  # no cache, or one whose size depends on the calls
            return None, full


def trained(model: PreTrainedModel, layer: int, mechanism: Mechanism) -> nn.Module | None:
    """Return a copy in float64 of a layer's trained module of this mechanism, or None."""
    module = getattr(attention_modules(model)[layer], MODULE, None)
    same = module is not None and attention_of(model) == mechanism
    return copy.deepcopy(module).double() if same and module is not None else None


@torch.no_grad()
def heard(model: PreTrainedModel, ids: Tensor, mechanism: Mechanism) -> list[Inputs]:
    """Return what each layer's attention is given, in float64, if all attend with a mechanism."""
    given: list[Inputs] = []
    implementation, training = model.config._attn_implementation, model.training

    def hook(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, HEARD: (mechanism, given),
                      TABLES: kwargs.get("position_embeddings")}

    handles = [layer.register_forward_pre_hook(hook, with_kwargs=True)
               for layer in attention_modules(model)]
    try:
        model.eval()
        model.set_attn_implementation(LISTENING)
        model.base_model(input_ids=ids, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
        model.train(training)
        model.set_attn_implementation(implementation)
    return given


def listening_forward(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any,
                      scaling: float | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    """Note what a layer's attention is given, and attend; the signature is transformers' own."""
    mechanism, given = kwargs[HEARD]
    scale, rotation = scale_of(scaling, query.shape[-1]), kwargs[TABLES]
    tables = None if rotation is None else tuple(table.detach().double() for table in rotation)
    given.append(Inputs(query.double(), key.double(), value.double(), scale, tables))
    same = mechanism_named_in(module.config) == mechanism
    trained_module = getattr(module, MODULE, None) if same else None
    query, key = query.to(value.dtype), key.to(value.dtype)
    out = mechanism.at_layer(module.layer_idx).attention(
        query, key, value, scale=scale, rotation=rotation, module=trained_module)
    return out.transpose(1, 2), None


def no_mask(**kwargs: Any) -> None:
    """Stand in for transformers' masks: one text without padding needs none."""


AttentionInterface.register(LISTENING, listening_forward)
AttentionMaskInterface.register(LISTENING, no_mask)


class Library:
    """Models by name, loaded when first opened: the given one and those that are shipped.

    `name` and `text` are those opened last; no text if token ids were given.
    """

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        shipped = {folder.name: folder for folder in sorted(files.models_folder().iterdir())
                   if (folder / "config.json").is_file()}
        self._open: dict[str, tuple[Any, Any]] = {}
        self._folders: dict[str, str] = {name: str(folder) for name, folder in shipped.items()}
        self.text: str | None = None
        if isinstance(model, str | Path):
            if tokenizer is not None:
                raise ValueError(
                    "tokenizer: got one beside a folder, wanted none; it is loaded with the model")
            self.name = Path(model).name
            if str(model) not in shipped:
                self._folders[self.name] = str(model)
        else:
            self.name = Path(str(getattr(getattr(model, "config", None), "name_or_path",
                                         ""))).name or "model"
            self._open[self.name] = model, tokenizer
        self._given: str | Tensor = ""

    @property
    def names(self) -> list[str]:
        """The models that can be opened: the given one first."""
        return sorted({*self._folders, *self._open}, key=lambda name: (name != self.name, name))

    def open(self, name: str | None, text: str | Tensor | None) -> ModelText:
        """Return a model that reads a text; None for the one opened last."""
        name, given = self.name if name is None else name, self._given if text is None else text
        if name not in self.names:
            raise ValueError(f"model: got {name!r}, wanted one of {', '.join(self.names)}")
        if name not in self._open:
            quiet()
            self._open[name] = load_pretrained(self._folders[name])
        source = ModelText(*self._open[name], given, name)
        self.name, self._given, self.text = name, given, given if isinstance(given, str) else None
        return source
