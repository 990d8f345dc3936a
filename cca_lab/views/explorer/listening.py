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
from cca_lab.models import load_pretrained
from cca_lab.models.checkpoints import quiet
from cca_lab.models.inputs import check_length
from cca_lab.models.interface import MODULE
from cca_lab.models.plugin import attention_modules, attention_of, check_family
from cca_lab.views.explorer.reading import Inputs

LISTENING = "cca_lab_listening"  # transformers' name of the attention function below
HEARD, TABLES = "cca_lab_heard", "cca_lab_tables"
MOST_TOKENS = 1024


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
        check_length(model, "text", ids.shape[1])
        self.model, self.ids = model, ids.to(model.device)
        self.name = name or str(model.config.model_type)
        self.words = tuple(str(token if tokenizer is None else tokenizer.decode([token]))
                           for token in ids[0].tolist())
        self.sizes = CacheSizes.of(model.config, itemsize=next(model.parameters()).element_size())
        self.layers, self.heads = self.sizes.layers, self.sizes.heads
        self._heard: tuple[Mechanism, list[Inputs]] | None = None  # and how the model attended

    def inputs(self, layer: int, mechanism: Mechanism) -> Inputs:
        """Return what a layer is given by the model as it attends."""
        attending = attention_of(self.model)
        if self._heard is None or self._heard[0] != attending:
            self._heard = attending, heard(self.model, self.ids)
        return self._heard[1][layer]._replace(module=trained(self.model, layer, mechanism))

    def cache_bytes(self, mechanism: Mechanism) -> tuple[int | None, int | None]:
        """Return the bytes of one layer's cache after the text, and of full attention's."""
        length = len(self.words)
        full = self.sizes.entries(length)
        if mechanism.name == "full":
            return full, full
        try:
            cache = CACHES[mechanism.name]
            return cache.bytes_of(mechanism, length, self.sizes) // self.sizes.layers, full
        except KeyError:  # no cache
            return None, full


def trained(model: PreTrainedModel, layer: int, mechanism: Mechanism) -> nn.Module | None:
    """Return a copy in float64 of a layer's trained module of this mechanism, or None."""
    module = getattr(attention_modules(model)[layer], MODULE, None)
    same = module is not None and attention_of(model) == mechanism
    return copy.deepcopy(module).double() if same and module is not None else None


@torch.no_grad()
def heard(model: PreTrainedModel, ids: Tensor) -> list[Inputs]:
    """Return what each layer's attention is given, in float64."""
    given: list[Inputs] = []
    mechanism = attention_of(model)
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
    query, key = query.to(value.dtype), key.to(value.dtype)
    out = mechanism.at_layer(module.layer_idx).attention(
        query, key, value, scale=scale, rotation=rotation, module=getattr(module, MODULE, None))
    return out.transpose(1, 2), None


def no_mask(**kwargs: Any) -> None:
    """Stand in for transformers' masks: one text without padding needs none."""


AttentionInterface.register(LISTENING, listening_forward)
AttentionMaskInterface.register(LISTENING, no_mask)


def opened(model: Any, tokenizer: Any = None) -> tuple[Any, Any, str]:
    """Return a model, its tokenizer and its name; loaded if it is a folder or a shipped name."""
    if not isinstance(model, str | Path):
        name = str(getattr(getattr(model, "config", None), "name_or_path", ""))
        return model, tokenizer, Path(name).name or "model"
    if tokenizer is not None:
        raise ValueError(
            "tokenizer: got one beside a folder, wanted none; it is loaded with the model")
    shipped = files.models_folder() / model
    quiet()
    folder = shipped if (shipped / "config.json").is_file() else model
    return *load_pretrained(str(folder)), Path(model).name
