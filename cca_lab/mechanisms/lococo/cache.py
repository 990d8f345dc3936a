"""The decode-time cache of LoCoCo: M slots, and the raw tokens since the last compression.

It stores the columns [slots ; raw] of the mechanism in that order. A segment is closed after B
tokens, or, with borders="calls", also when a call ends. More than M columns are then compressed.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.attention.rotary import Rotation
from cca_lab.attention.row import attend_row
from cca_lab.mechanisms.caching import ragged
from cca_lab.mechanisms.caching.base import CacheSizes, MechanismCache
from cca_lab.mechanisms.caching.state import (
    NO_TOKENS,
    Copies,
    Draw,
    GrowingBuffers,
    State,
    Stored,
    none_of,
)
from cca_lab.mechanisms.indices import compresses, fill
from cca_lab.mechanisms.lococo import Compressor, LoCoCo
from cca_lab.mechanisms.lococo.memory import attention_received, compression_matrix, mix


class Borrowed:
    """A module that a cache uses but does not own: a copy of the cache shares it."""

    def __init__(self, module: nn.Module | None) -> None:
        self.module = module

    def __deepcopy__(self, memo: dict[int, Any]) -> "Borrowed":
        return self


class LoCoCoState(Stored):
    """Slots and raw tokens of one layer, for rows with the same segment borders, see `ragged.Row`.

    Attributes:
        seen: tokens read so far.
        open: tokens of the segment that is not closed yet.
        key, value: of the columns [slots ; raw], (B, Hk, N, D) each.
        received: accumulated attention of the columns, (B, Hk, N), or None if not needed.
    """

    key = value = NO_TOKENS
    stored = ("key", "value", "received")
    columns = ("key",), ("value",)

    def __init__(self, mechanism: LoCoCo, compressor: Borrowed | None = None) -> None:
        if not isinstance(mechanism.segment, int):
            raise ValueError(f"segment: got {mechanism.segment}, wanted one number for a cache; "
                             "with borders='calls' each call begins a segment")
        self.mechanism, self.compressor = mechanism, compressor or Borrowed(None)
        self.segment, self.seen, self.open = mechanism.segment, 0, 0
        self.remembers, self.backend = mechanism.scored, mechanism.backend
        self.received: Tensor | None = None
        self.buffers: Copies = GrowingBuffers()

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None = None) -> Tensor:
        """Process T new tokens, see `State.step`."""
        if self.seen == 0:
            self.key, self.value = none_of(key), none_of(value)
        outputs, start, length = [], 0, key.shape[2]
        while start < length:
            taken, full = fill(self.open, length - start, self.segment)
            now = slice(start, start + taken)
            q, k, v = (query, key, value) if taken == length else (
                x[:, :, now] for x in (query, key, value))
            outputs.append(self._read(q, k, v, scale))
            if full:
                self.close(query, scale)
            start = now.stop
        if self.mechanism.borders == "calls" and self.open:
            self.close(query, scale)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)

    def _read(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Process tokens of one segment."""
        self.store(query, key, value, scale, None)
        return self._attend(query, scale)

    def room(self) -> int:
        """Return the number of tokens after which the segment is closed."""
        return self.segment - self.open

    def store(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Store tokens of one segment, and the attention that they pay."""
        if self.open == 0 and self.mechanism.scores == "last" and self.received is not None:
            self.received = torch.zeros_like(self.received)
        self.key = self.buffers.append("key", self.key, key)
        self.value = self.buffers.append("value", self.value, value)
        rows, columns = key.shape[2], self.key.shape[2]
        if self.mechanism.scored:
            accumulated = attention_received(query, self.key, scale)
            if self.received is not None:
                accumulated[..., : columns - rows] += self.received
            self.received = accumulated
        self.seen += rows
        self.open += rows

    def _attend(self, query: Tensor, scale: float) -> Tensor:
        """Attend to the columns and the chunk's own past."""
        if query.shape[2] == 1:
            return attend_row(query, [self.key], [self.value], scale=scale, backend=self.backend)
        visible = causal_intervals(query.shape[2], self.key.shape[2])
        return interval_attention(query, self.key, self.value, visible, scale=scale,
                                  backend=self.backend)

    def close(self, last_query: Tensor, scale: float) -> None:
        """Close the segment, and mix all columns into the slots if they are more than M."""
        self.open = 0
        if not compresses(self.key.shape[2], self.mechanism.slots):
            return
        weights = compression_matrix(self.key, self.value, self.received, self.mechanism,
                                     self.compressor.module)
        self.key, self.value = mix(weights, self.key), mix(weights, self.value)
        self.buffers.forget("key", "value")
        if self.received is not None:
            self.received = (weights.detach() @ self.received[..., None])[..., 0]

    def join(self, states: Sequence[Any]) -> list[State]:
        """Return one state for rows of different length, see `ragged`."""
        if self.mechanism.borders == "text":
            return ragged.joined(states)
        full = all(state.key.shape[2] == self.mechanism.slots for state in states)
        return [self.joined(states)] if full else list(states)

    def fill(self, length: int, heads: int, draw: Draw) -> None:
        """Fill the state as after `length` tokens."""
        self.seen, self.open, entries = length, length % self.segment, self.mechanism.cache_entries(
            length)
        self.key, self.value = (draw(entries) for _ in range(2))
        self.received = draw(entries)[..., 0].abs().float() if self.mechanism.scored else None


class LoCoCoCache(MechanismCache[LoCoCo]):
    """The cache for LoCoCo: `model.generate(ids, past_key_values=LoCoCoCache(model))`.

    It stores at most M entries between segments, and up to B - 1 more of an open segment (which
    the paper does not count), whatever the length of the text. It uses the compressors of the
    model for which it was made.

    The outputs equal those of one forward over the whole text whose segments have the same
    borders. With borders="text" segments are counted from the first token, so prefill and
    decoding, in chunks of any size, always agree with that forward. With borders="calls" each
    call begins a segment, so a decoded token is a segment of its own, as in the paper (Section
    3.3) and the public code: outputs agree with a forward whose option `segment` is the list
    of these sizes, and not with one in which the text is prefilled.

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
