"""The decode-time caches of StreamingLLM and LM-Infinite: first and most recent tokens.

A chunk is appended, attends, and only then are the oldest recent tokens dropped, down to
min(t, sinks + recent) entries for each KV head after t tokens. LM-Infinite's local window includes
the row's own token, so recent = local - 1. Keys are stored as they come, rotated at their original
positions. Where a far token is read at another distance, the query that reads it is re-rotated
instead, and in LM-Infinite the global keys too; for that a few rotary tables are stored.

Differs from LM-Infinite's public code, which keeps every token and rotates all keys again at each
step: no later row reads a token that has left the window and is not global, so it is dropped here.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from cca_lab.attention import interval_attention
from cca_lab.attention.rotary import Rotation, at, first_row, turn
from cca_lab.attention.row import attend_row
from cca_lab.mechanisms import columns
from cca_lab.mechanisms.caching.base import CacheSizes, MechanismCache, has_rotary
from cca_lab.mechanisms.caching.state import (
    NO_TOKENS,
    ONE_CALL,
    Copies,
    Draw,
    GrowingBuffers,
    Row,
    State,
    Stored,
    in_one_call,
    none_of,
)
from cca_lab.mechanisms.indices import sink_dropped, sink_entries, sink_eviction
from cca_lab.mechanisms.streaming.lm_infinite import LMInfinite
from cca_lab.mechanisms.streaming.streaming_llm import StreamingLLM, far_and_near, intervals

PROMPTS = ("windowed", "dense")


class StreamingLLMState(Stored):
    """Sinks and recent tokens of one layer.

    Attributes:
        seen: tokens read so far.
        key, value: (B, Hk, min(seen, sinks + recent), D): the sinks, then the recent tokens.
        tables: cos and sin, (2, D), of the positions in `kept_positions` that have been read.
    """

    key = value = NO_TOKENS

    def __init__(self, mechanism: StreamingLLM, *, prompt: str = "windowed") -> None:
        self.sinks, self.recent, self.backend = mechanism.sinks, mechanism.recent, mechanism.backend
        self.prompt = prompt
        in_cache = mechanism.positions == "cache"
        self.kept_positions = {self.sinks + self.recent} if in_cache else set()
        self.forget()

    def forget(self) -> None:
        """Reset to the empty state."""
        self.seen = 0
        self.buffers: Copies = GrowingBuffers()
        self.tables: dict[int, Tensor] = {}

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T new tokens, see `State.step`."""
        if (output := in_one_call([self], query, key, value, scale, rotation)) is not None:
            return output
        if self.seen == 0:
            self.key, self.value = none_of(key), none_of(value)
        if rotation is not None and self.kept_positions:
            rotation = first_row(rotation)
            now = range(self.seen, self.seen + key.shape[2])
            for position in self.kept_positions.intersection(now):  # of later chunks
                self.tables[position] = torch.cat(at(rotation, [position - self.seen]), dim=1)[0]
        else:
            rotation = None
        self.key = self.buffers.append("key", self.key, key)
        self.value = self.buffers.append("value", self.value, value)
        output = self._attend(query, rotation, scale)
        self._evict()  # after the chunk has attended
        self.seen += key.shape[2]
        return output

    def row(self, rotation: Rotation | None) -> Row | None:
        """Return what a token reads that sees all entries where they are."""
        turns = rotation is not None and self.kept_positions
        if self.seen == 0 or turns or not self.recent or self.backend not in ONE_CALL:
            return None
        return Row([self.key], [self.value], self._grow,
                   *sink_eviction(self.key.shape[2] + 1, self.sinks, self.recent))

    def _grow(self, key: Tensor, value: Tensor, query: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Take the entries with a new one."""
        self.key, self.value = key, value
        self.seen += 1

    def _attend(self, query: Tensor, rotation: Rotation | None, scale: float) -> Tensor:
        """Attend to the stored tokens and the chunk's own past, the far part at its positions."""
        if query.shape[2] == 1 and rotation is None:  # it sees all that is stored
            return attend_row(query, [self.key], [self.value], scale=scale, backend=self.backend)
        # on the CPU, where intervals are built
        row = torch.arange(self.seen, self.seen + query.shape[2], device="cpu")
        dropped = sink_dropped(self.seen, self.sinks, self.recent)
        visible = intervals(row, self.sinks, self.recent + 1, dropped)
        # every row sees all stored tokens: a separate far part only after drops
        if self.prompt == "dense":
            visible[..., 0, 1], visible[..., 1, 0] = (self.sinks, self.sinks) if dropped else (0, 0)
        if rotation is None:
            return interval_attention(query, self.key, self.value, visible, scale=scale,
                                      backend=self.backend)
        far_query, far_key = self._far(query, row, rotation)
        parts = far_and_near(query, self.key, self.value, visible, far_query, far_key)
        return columns.attend(parts, scale, self.backend)

    def _far(self, query: Tensor, row: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Re-rotate the queries that attend to the sinks to their places in the cache.

        The place of row i is min(i, sinks + recent) if the prompt is windowed. If it is dense, the
        chunk follows the stored entries in its own order: all its queries re-rotate by one angle.
        """
        full = self.sinks + self.recent
        if self.prompt == "windowed":
            return self._turned(query, row, rotation, full), self.key
        if self.seen <= full:
            return query, self.key
        return turn(query, at(rotation, slice(0, 1)), self.table(full)), self.key

    def _turned(self, query: Tensor, row: Tensor, rotation: Rotation, limit: int) -> Tensor:
        """Re-rotate the query of row i to position min(i, limit)."""
        if int(row[-1]) <= limit:
            return query
        beyond = (row > limit).to(rotation[0].device)[:, None]
        cos, sin = (torch.where(beyond, kept, here)
                    for kept, here in zip(self.table(limit), rotation, strict=True))
        return turn(query, rotation, (cos, sin))

    def table(self, *positions: int) -> Rotation:
        """Return cos and sin of stored positions, (1, n, D) each."""
        cos, sin = torch.stack([self.tables[position] for position in positions], dim=1)
        return cos[None], sin[None]

    def _evict(self) -> None:
        """Drop the oldest recent tokens."""
        begin, end = sink_eviction(self.key.shape[2], self.sinks, self.recent)
        if begin < end:
            self.key = self.buffers.drop("key", self.key, begin, end)
            self.value = self.buffers.drop("value", self.value, begin, end)

    def fill(self, length: int, heads: int, draw: Draw) -> None:
        """Fill the state as after `length` tokens."""
        self.seen = length
        self.key, self.value = (draw(sink_entries(length, self.sinks,
                                                  self.recent)) for _ in range(2))

    def join(self, states: Sequence[Any]) -> list[State]:
        """Return one state once all rows are full, unless queries turn by a row's own angle."""
        full = self.sinks + self.recent
        turns = any(state.tables or state.seen < max(full, 1) for state in states)
        return list(states) if turns else [self.joined(states)]

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the state stores."""
        return [*super().tensors(), *self.tables.values()]

    def select(self, rows: Tensor) -> Self:
        """Return a new state with the given batch rows."""
        new = super().select(rows)
        new.tables = dict(self.tables)  # the same for all rows
        return new


class StreamingLLMCache(MechanismCache[StreamingLLM]):
    """The cache for StreamingLLM: `model.generate(ids, past_key_values=StreamingLLMCache(model))`.

    It stores at most sinks + recent entries per layer and KV head, however long the text.

    prompt="windowed": every row sees only its sinks and recent tokens. Prefill equals decode: any
    chunks give what a forward over the whole text gives. prompt="dense", as in the public code:
    every chunk attends in full to the stored tokens and its own past, and tokens are dropped after
    it. A text no longer than sinks + recent + 1, or one read token by token, gives the same as
    above. A longer prompt read at once gives full attention's output and other entries in deeper
    layers, so prefill does not equal decode.

    Args:
        model: a model after `swap_attention(model, "streaming_llm", ...)`, or its config.
        prompt: "windowed" or "dense".

    Raises:
        ValueError: for another attention or prompt, or positions="cache" in a model without rotary
            positions.
    """

    mechanism = StreamingLLM
    state = StreamingLLMState

    def __init__(self, model: PreTrainedModel | PreTrainedConfig, *,
                 prompt: str = "windowed") -> None:
        super().__init__(model)
        if prompt not in PROMPTS:
            raise ValueError(f"prompt: got {prompt!r}, wanted 'windowed' or 'dense'; the public "
                             "code's is 'dense'")
        if self.attention.positions == "cache" and not has_rotary(self.config):
            raise ValueError(
                "positions: got 'cache', wanted 'original', because this model adds its positions "
                "to the embeddings; call swap_attention(model, 'streaming_llm', ...) with that")
        for layer in self.layers:
            layer.new_state = partial(self.state, self.attention, prompt=prompt)
            layer.reset()

    @staticmethod
    def extra_bytes(mechanism: StreamingLLM, length: int, sizes: CacheSizes) -> int:
        """Return a layer's bytes for the rotary table to which queries re-rotate."""
        turned = mechanism.positions == "cache" and length > mechanism.sinks + mechanism.recent
        return sizes.tables(1) if turned else 0


class LMInfiniteState(StreamingLLMState):
    """As StreamingLLM's state with recent = local - 1, but for the positions of global tokens."""

    prompt = "windowed"

    def __init__(self, mechanism: LMInfinite) -> None:
        self.sinks, self.recent = mechanism.global_tokens, mechanism.local - 1
        self.backend, self.limit = mechanism.backend, mechanism.distance
        self.kept_positions = kept_positions(mechanism)
        self.forget()

    def _far(self, query: Tensor, row: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Re-rotate queries to position min(i, limit) and the global keys to position 0."""
        known = [position for position in range(self.sinks) if position in self.tables]
        far_key = turn(self.key[:, :, : len(known)], self.table(*known), self.table(0))
        return self._turned(query, row, rotation, self.limit), far_key


class LMInfiniteCache(MechanismCache[LMInfinite]):
    """The cache for LM-Infinite: `model.generate(ids, past_key_values=LMInfiniteCache(model))`.

    It stores at most global_tokens + local - 1 entries per layer and KV head, however long the
    text. Prefill equals decode: any chunks give what a forward over the whole text gives.
    """

    mechanism = LMInfinite
    state = LMInfiniteState

    @staticmethod
    def extra_bytes(mechanism: LMInfinite, length: int, sizes: CacheSizes) -> int:
        """Return a layer's bytes for the rotary tables of `kept_positions` that have been read."""
        return sizes.tables(sum(position < length for position in kept_positions(mechanism)))


def kept_positions(mechanism: LMInfinite) -> set[int]:
    """Return the positions whose rotary tables a decoder needs; none without global tokens."""
    return {*range(mechanism.global_tokens),
            mechanism.distance} if mechanism.global_tokens else set()
