"""Static caches: a decoding step of one shape, which `torch.compile` holds in one graph.

    model.generate(ids, cache_implementation="static")
    model(prompt, past_key_values=cache)  # cache = StaticCache(model, 4096), then a token at a time
"""

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PreTrainedConfig, PreTrainedModel

from cca_lab.mechanisms import Mechanism
from cca_lab.mechanisms.caches import CACHES
from cca_lab.mechanisms.caching.base import (
    CHOICE,
    IMPLEMENTATION,
    CacheSizes,
    MechanismCache,
    mechanism_in,
)
from cca_lab.mechanisms.caching.static import FormOf, Progress, StaticLayer
from cca_lab.mechanisms.cca.static import CCAForm
from cca_lab.mechanisms.streaming.static import LMInfiniteForm, StreamingLLMForm
from cca_lab.settings import check_integers

FORMS: dict[str, FormOf] = {"cca": CCAForm, "mean_pooling": CCAForm,
                            "streaming_llm": StreamingLLMForm, "lm_infinite": LMInfiniteForm}


class StaticCache(MechanismCache[Any]):
    """A cache of fixed size for texts of one length, which a compiled model decodes with.

    It gives what the mechanism's growing cache gives. The first call reads the prompt, outside of a
    compiled graph; every later token is a step of the same shapes, whatever the length.

    Args:
        model: a model after `swap_attention`, or its config.
        longest: tokens of the longest text, prompt and continuation.

    Raises:
        ValueError: if the mechanism's cache has no static form.
    """

    layers: list[StaticLayer]  # type: ignore[assignment]

    def __init__(self, model: PreTrainedModel | PreTrainedConfig, longest: int) -> None:
        check_integers(1, longest=longest)
        name = mechanism_in(getattr(model, "config", model)).name
        if name not in FORMS:
            raise ValueError(f"model: got one with {name!r} attention, wanted one of "
                             f"{', '.join(FORMS)} for a static cache; leave it out")
        growing = CACHES[name](model)
        self.attention, self.config = growing.attention, growing.config
        self.choice = getattr(self.config, CHOICE)
        self.reader, self.padding, self.progress = None, growing.padding, Progress(longest)
        last = len(growing.layers) - 1
        Cache.__init__(self, layers=[
            StaticLayer(layer.new_state, self.padding,
                        FORMS[name](self.attention.at_layer(number), longest), self.progress,
                        last=number == last) for number, layer in enumerate(growing.layers)])

    @property
    def compiles(self) -> bool:
        """Whether the model is being compiled and its next token is read by the static form."""
        return self.progress.held and torch.compiler.is_compiling()

    def mechanism_in(self, config: PreTrainedConfig) -> Mechanism:
        """Return the mechanism that a config switches on; a compiled model looks it up here."""
        same = config._attn_implementation == IMPLEMENTATION and \
            getattr(config, CHOICE, None) == self.choice
        return self.attention if self.compiles and same else mechanism_in(config)

    def begin_forward(self, config: PreTrainedConfig, mechanism: Mechanism) -> None:
        """Begin to read a chunk, see `MechanismCache.begin_forward`; a compiled model looks at no
        number."""
        if not self.compiles or mechanism is not self.attention:
            super().begin_forward(config, mechanism)

    def record(self, ids: Tensor | None) -> None:
        """Remember the token ids of the next chunk, unless it is too long and will be refused."""
        first, seen = self.layers[0], self.progress.seen
        if not self.progress.held or seen is None:
            super().record(ids)
        elif ids is None:
            first.ids = None
        elif first.ids is not None and (
                self.compiles or first.columns + ids.shape[1] <= first.longest):
            first.ids.index_copy_(1, seen + torch.arange(ids.shape[1], device=seen.device), ids)

    @classmethod
    def bytes_of(cls, mechanism: Mechanism, length: int, sizes: CacheSizes) -> int:
        """Return the bytes of a cache for texts of at most `length` tokens."""
        form = FORMS[mechanism.name](mechanism, length)
        heads = sizes.heads if getattr(mechanism, "per_query_head", False) else sizes.kv_heads
        buffers = sizes.entries(form.columns) // sizes.kv_heads * heads
        return sizes.layers * (buffers + 2 * form.positions * sizes.head_dim * sizes.itemsize)
