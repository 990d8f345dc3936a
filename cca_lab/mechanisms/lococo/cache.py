"""The decode-time cache of LoCoCo: M slots, and the raw tokens since the last compression.

It stores the columns [slots ; raw] of the mechanism in that order. After each B tokens a segment is
closed, and more than M columns are compressed.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms.caching.base import CacheSizes, MechanismCache
from cca_lab.mechanisms.caching.segmented import Segmented
from cca_lab.mechanisms.caching.state import NO_TOKENS, Draw, Row
from cca_lab.mechanisms.indices import compresses
from cca_lab.mechanisms.lococo import Compressor, LoCoCo
from cca_lab.mechanisms.lococo.memory import attention_received, compression_matrix, mix


class Borrowed:
    """A module that a cache uses but does not own: a copy of the cache shares it."""

    def __init__(self, module: nn.Module | None) -> None:
        self.module = module

    def __deepcopy__(self, memo: dict[int, Any]) -> "Borrowed":
        return self


class LoCoCoState(Segmented):
    """Slots and raw tokens of one layer, for rows with the same segment borders.

    Attributes:
        seen, open: tokens read so far, and those of the segment that is not closed yet.
        key, value: of the columns [slots ; raw], (B, Hk, N, D) each.
        received: accumulated attention of the columns, (B, Hk, N), or None if not needed.
    """

    key = value = NO_TOKENS
    stored = ("key", "value", "received")

    def __init__(self, mechanism: LoCoCo, compressor: Borrowed | None = None) -> None:
        super().__init__(mechanism)
        self.compressor = compressor or Borrowed(None)
        self.size, self.remembers = mechanism.segment, mechanism.scored
        self.received: Tensor | None = None

    def row(self, rotation: Rotation | None) -> Row | None:
        """Return what a token reads whose attention need not be added up."""
        return None if self.remembers else super().row(rotation)

    def store(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Store tokens of one segment, and the attention that they pay."""
        if self.open == 0 and self.mechanism.scores == "last" and self.received is not None:
            self.received = torch.zeros_like(self.received)
        super().store(query, key, value, scale, rotation)
        if self.mechanism.scored:
            accumulated = attention_received(query, self.key, scale)
            if self.received is not None:
                accumulated[..., : self.received.shape[2]] += self.received
            self.received = accumulated

    def close(self, last_query: Tensor, scale: float) -> None:
        """Close the segment, and mix all columns into the slots if they are more than M."""
        super().close(last_query, scale)
        if not compresses(self.key.shape[2], self.mechanism.slots):
            return
        weights = compression_matrix(self.key, self.value, self.received, self.mechanism,
                                     self.compressor.module)
        self.key, self.value = mix(weights, self.key), mix(weights, self.value)
        self.buffers.forget("key", "value")
        if self.received is not None:
            self.received = (weights.detach() @ self.received[..., None])[..., 0]

    def fill(self, length: int, heads: int, draw: Draw) -> None:
        """Fill the state as after `length` tokens."""
        self.seen, self.open, entries = length, length % self.size, self.mechanism.cache_entries(
            length)
        self.key, self.value = (draw(entries) for _ in range(2))
        self.received = draw(entries)[..., 0].abs().float() if self.mechanism.scored else None


class LoCoCoCache(MechanismCache[LoCoCo]):
    """The cache for LoCoCo: `model.generate(ids, past_key_values=LoCoCoCache(model))`.

    It stores at most M entries between segments, and up to B - 1 more of an open segment (which
    the paper does not count), whatever the length of the text. It uses the compressors of the
    model for which it was made.

    The outputs equal those of one forward over the whole text: segments are counted from its first
    token, whatever the chunks. In the public code each call begins a segment, so that a decoded
    token is a segment of its own.

    Raises:
        ValueError: also for a config instead of a model, if compressors are needed.
    """

    mechanism = LoCoCo
    state = LoCoCoState

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        parts = model.modules() if isinstance(model, nn.Module) else ()
        modules = [part for part in parts if isinstance(part, Compressor)]
        wanted = len(self.layers) if self.attention.convolved else 0
        if len(modules) != wanted:
            raise ValueError(
                f"model: got a {type(model).__name__} with {len(modules)} compressors, wanted "
                f"one with {wanted}; pass the model itself, after swap_attention")
        for layer, module in zip(self.layers, modules, strict=False):
            layer.new_state = partial(self.state, self.attention, compressor=Borrowed(module))
            layer.reset()

    @staticmethod
    def extra_bytes(mechanism: LoCoCo, length: int, sizes: CacheSizes) -> int:
        """Return a layer's bytes for accumulated attention: 4 per entry, 8 in float64."""
        if not mechanism.scored:
            return 0
        return sizes.batch * sizes.kv_heads * mechanism.cache_entries(length) * max(4,
                                                                                    sizes.itemsize)
