"""Static caches: a decoding step of one shape, which `torch.compile` holds in a graph."""

import copy
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
from cca_lab.mechanisms.caching.static import Progress, StaticLayer
from cca_lab.mechanisms.cca.static_cache import CCALayer
from cca_lab.mechanisms.streaming.static_cache import StreamingLLMLayer
from cca_lab.settings import check_integers

LAYERS: dict[str, Any] = {"cca": CCALayer, "mean_pooling": CCALayer,
                          "streaming_llm": StreamingLLMLayer, "lm_infinite": StreamingLLMLayer}


class StaticCache(MechanismCache[Any]):
    """A cache of fixed size, which `generate(cache_implementation="static")` makes.

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
        config: Any = getattr(model, "config", model)
        name = mechanism_in(config).name
        if name not in LAYERS:
            raise ValueError(f"model: got one with {name!r} attention, wanted one of "
                             f"{', '.join(LAYERS)} for a static cache; take the growing one")
        growing, self.progress = CACHES[name](config), Progress(longest)
        self.attention, self.config, self.reader = growing.attention, config, None
        self.padding, self.choice = growing.padding, copy.deepcopy(getattr(config, CHOICE))
        Cache.__init__(self, layers=[
            LAYERS[name](self.attention.at_layer(number), layer, self.progress, first=number == 0,
                         last=layer is growing.layers[-1])
            for number, layer in enumerate(growing.layers)])

    @property
    def compiles(self) -> bool:
        """Whether a model is being compiled that reads tokens behind the prompt."""
        return self.progress.held and torch.compiler.is_compiling()

    def mechanism_in(self, config: PreTrainedConfig) -> Mechanism:
        """Return the mechanism that a config switches on, in a way that can be compiled."""
        same = config._attn_implementation == IMPLEMENTATION and \
            getattr(config, CHOICE, None) == self.choice
        return self.attention if self.compiles and same else mechanism_in(config)

    def begin_forward(self, config: PreTrainedConfig, mechanism: Mechanism) -> None:
        """Begin to read a chunk; where a model is being compiled, no number is looked at."""
        known = mechanism is self.attention and (self.reader is None or self.reader is config)
        if not (self.compiles and known):
            super().begin_forward(config, mechanism)

    def record(self, ids: Tensor | None) -> None:
        """Remember the token ids of the next chunk, unless it is too long and will be refused."""
        first, seen = self.layers[0], self.progress.seen
        if not self.progress.held:
            super().record(ids)
        elif ids is None:
            first.ids = None
        elif first.ids is not None and (
                self.compiles or first.columns + ids.shape[1] <= first.longest):
            first.ids.index_copy_(1, seen + torch.arange(ids.shape[1], device=seen.device), ids)

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4) -> int:
        """Return `nbytes()` after any prompt."""
        sizes = CacheSizes.of(self.config, batch=batch, itemsize=itemsize)
        each = sizes.heads // sizes.kv_heads if getattr(self.attention, "per_query_head", 0) else 1
        return sum(each * (sizes.entries(layer.size) + sizes.entries(layer.far_size) // 2)
                   + sizes.tables(layer.positions) for layer in self.layers)
