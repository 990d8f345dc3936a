"""The decode-time cache of CCA-Attention: all core tokens, and the raw tokens still to be read.

n(i) = max(0, floor((i + 1 - s) / g)) cores are visible to row i, so after t tokens the next row
needs raw tokens from g n(t) on, at most s + g - 2 of them. A group is pooled when its last token
arrives: that token's query, which pools it (Eq. 2), need not be stored. Sinks are stored raw, and
all of the above is of the tokens behind them.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import interval_attention
from cca_lab.attention.dense import accumulation_dtype, expand_heads
from cca_lab.attention.pooling import pool_checked, pooling_backend
from cca_lab.attention.rotary import Rotation, at, copied
from cca_lab.attention.row import attend_row
from cca_lab.mechanisms import CCA, indices
from cca_lab.mechanisms.caching.base import CacheSizes, MechanismCache
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
from cca_lab.mechanisms.cca.baselines import MeanPooling, RandomTokens, kept_tokens
from cca_lab.mechanisms.cca.groups import chunk_intervals
from cca_lab.mechanisms.cca.mechanism import Grouped, with_bias
from cca_lab.mechanisms.columns import Columns, attend, behind
from cca_lab.mechanisms.indices import CCAStep, behind_sinks, first_raw

cca_step = lru_cache(maxsize=8)(indices.cca_step)  # the same in all layers of a model


class CCAState(Stored):
    """Cores and raw tokens of one layer, for rows with the same group borders.

    Attributes:
        seen: tokens read so far; t of them, max(0, seen - S), are behind the sinks.
        core_key, core_value: (B, Hc, floor(t / g), D); Hc is Hk, or H with `per_query_head`.
        raw_key, raw_value: (B, Hk, R, D), the min(S, seen) sinks, and the raw tokens behind them
            from g n(t) on.
        rotation: cos and sin of the open group's tokens, (1, t mod g, D) each, or None.
    """

    core_key = core_value = raw_key = raw_value = NO_TOKENS
    change: CCAStep  # of the token that `row` is asked about
    stored: tuple[str, ...] = ("core_key", "core_value", "raw_key", "raw_value")
    bias = 0.0

    def __init__(self, mechanism: CCA) -> None:
        self.weights, self.per_query_head = mechanism.pooling, mechanism.per_query_head
        self.bias = mechanism.bias
        self.take(mechanism)

    def take(self, mechanism: Grouped) -> None:
        """Take the options of groups, and begin with the empty state."""
        self.group, self.window, self.backend = mechanism.group, mechanism.window, mechanism.backend
        self.sinks = mechanism.sinks
        self.forget()

    def forget(self) -> None:
        """Reset to the empty state."""
        self.seen = 0
        self.chunk_tables = ()
        self.buffers: Copies = GrowingBuffers()
        # all core keys, and the keys and values of the visible ones: views for g rows
        self.visible = (NO_TOKENS,) * 3

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T new tokens, see `State.step`."""
        if (output := in_one_call([self], query, key, value, scale, rotation)) is not None:
            return output
        start, stop = self.seen, self.seen + key.shape[-2]
        if start == 0:
            self.core_key = self.core_value = none_of(query if self.per_query_head else key)
            self.raw_key, self.raw_value = none_of(key), none_of(value)
        self.raw_key = self.buffers.append("raw_key", self.raw_key, key)
        self.raw_value = self.buffers.append("raw_value", self.raw_value, value)
        first, last = start, stop
        if self.sinks:
            first, last = behind_sinks(start, self.sinks), behind_sinks(stop, self.sinks)
        change = cca_step(first, last, self.group, self.window)
        behind_query = query
        if key.shape[2] > last - first:  # the chunk has sinks
            grouped = slice(key.shape[2] - (last - first), None)
            behind_query, rotation = query[:, :, grouped], rotation and copied(rotation, grouped)
        self._close_groups(behind_query, rotation, change, scale)
        output = self._attend(query, start, stop, change.cores, scale)
        self._evict(change.dropped)
        self.seen = stop
        return output

    def row(self, rotation: Rotation | None) -> Row | None:
        """Return what a token behind the sinks reads, if no member of a group it fills leaves."""
        behind = self.seen - self.sinks
        if behind < 1 or self.bias or self.backend not in ONE_CALL:
            return None
        self.change = change = cca_step(behind, behind + 1, self.group, self.window)
        closes = change.members[0] < change.members[1]
        if closes and change.dropped:
            return None
        self._see(change.cores)
        return Row([self.visible[1], self.raw_key], [self.visible[2], self.raw_value], self._grow,
                   self.sinks, self.sinks + change.dropped, closes)

    def _grow(self, key: Tensor, value: Tensor, query: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Take the raw tokens with a new one, and pool the group that it fills."""
        self.raw_key, self.raw_value = key, value
        self._close_groups(query, rotation, self.change, scale)
        self.seen += 1

    def _close_groups(self, query: Tensor, rotation: Rotation | None, change: CCAStep,
                      scale: float) -> None:
        """Pool the groups whose last token is in the chunk; query and tables of those behind sinks.

        All batch rows re-rotate by the same angle, so the tables are those of one.
        """
        if rotation is not None:
            self.remember(rotation)
        begin, end = change.members
        if begin == end:
            return
        members, count = slice(self.sinks + begin, self.sinks + end), end - begin
        if (rotation := self.rotation) is not None:
            self.chunk_tables = (copied(rotation, slice(count, None)),)
        # only the last query of a group is read, and it is in the chunk: earlier ones may be any
        pooling_query = query.expand(-1, -1, count, -1) if query.shape[2] == 1 else F.pad(
            query, (0, 0, change.earlier, 0))[:, :, :count]
        rotation = rotation and at(rotation, slice(0, count))
        backend = pooling_backend(self.backend, weights=self.weights,
                                  per_query_head=self.per_query_head)
        core_key, core_value, _ = pool_checked(
            pooling_query, self.raw_key[:, :, members], self.raw_value[:, :, members], self.group,
            scale=scale, rotation=rotation, weights=self.weights,
            per_query_head=self.per_query_head, backend=backend)
        self.core_key = self.buffers.append("core_key", self.core_key, core_key)
        self.core_value = self.buffers.append("core_value", self.core_value, core_value)

    def _attend(self, query: Tensor, start: int, stop: int, cores: int, scale: float) -> Tensor:
        """Attend to sinks, visible cores and the raw tokens after them, in one softmax."""
        self._see(cores)
        _, core_key, core_value = self.visible
        if stop == start + 1:  # the row sees all raw tokens that are stored, sinks too
            bias = () if not self.bias else [
                query.new_full((1, 1), x, dtype=accumulation_dtype(query.dtype)).expand(1, n)
                for x, n in ((self.bias, cores), (0.0, self.raw_key.shape[2]))]
            return attend_row(query, [core_key, self.raw_key], [core_value, self.raw_value],
                              scale=scale, bias=bias, backend=self.backend)
        heads = core_key.shape[1]  # H with one core per query head, else Hk
        intervals = chunk_intervals(start, stop, self.group, self.window, self.sinks)
        keys, values = (behind(core, expand_heads(raw, heads)) for core, raw in (
            (core_key, self.raw_key), (core_value, self.raw_value)))
        if cores and self.bias:
            columns = Columns(query, keys, values, intervals)
            return attend(with_bias(columns, self.bias), scale, self.backend)
        return interval_attention(query, keys, values, intervals, scale=scale,
                                  backend=self.backend)

    def _see(self, cores: int) -> None:
        """Keep views of the visible cores, which are the same for g rows."""
        if self.visible[0] is not self.core_key or self.visible[1].shape[2] != cores:
            self.visible = (self.core_key, self.core_key[:, :, :cores],
                            self.core_value[:, :, :cores])

    def join(self, states: Sequence[Any]) -> list[State]:
        """Return one state for rows of different length, see `ragged`; or the states."""
        from cca_lab.mechanisms.cca.ragged import joined  # which is made of this state

        return joined(states)

    def _evict(self, count: int) -> None:
        """Drop the raw tokens that no later row reads, those right behind the sinks."""
        if count:
            end = self.sinks + count
            self.raw_key = self.buffers.drop("raw_key", self.raw_key, self.sinks, end)
            self.raw_value = self.buffers.drop("raw_value", self.raw_value, self.sinks, end)

    def fill(self, length: int, heads: int, draw: Draw) -> None:
        """Fill the state as after `length` tokens."""
        self.seen, behind = length, behind_sinks(length, self.sinks)
        cores = draw.of(heads) if self.per_query_head else draw
        self.core_key, self.core_value = (cores(behind // self.group) for _ in range(2))
        self.raw_key, self.raw_value = (draw(length - first_raw(behind, self.group, self.window))
                                        for _ in range(2))


class CCACache(MechanismCache[CCA]):
    """The cache for CCA-Attention: `model.generate(ids, past_key_values=CCACache(model))`.

    It stores floor(t / g) core tokens and at most s + g - 2 raw tokens per layer after t
    tokens, O(L / g + s), where a full cache stores t; with sinks S more, t being the tokens behind
    them. Decoding with it gives what a forward over the whole text gives. Beam search and prefill
    in chunks of any size work. Rows of different length must be padded on the left.
    """

    mechanism: type[CCA] = CCA
    state = CCAState

    @staticmethod
    def extra_bytes(mechanism: CCA, length: int, sizes: CacheSizes) -> int:
        """Return a layer's bytes for cores beyond one per KV head and the open group's tables.

            2 B D (Hc floor(t/g) + Hk (t - g n(t))) + 2 D (t mod g) [rotary]

        numbers in all, n(t) = max(0, floor((t + 1 - s) / g)), Hc being Hk, or H with one core per
        query head, and 2 B D Hk more for each sink that was read, t being the tokens behind them.
        Differs from the paper, which counts O(L/g + s) (Section 3.6): cores that are not visible
        yet, and these tables, are counted too.
        """
        behind = behind_sinks(length, mechanism.sinks)
        further = sizes.heads / sizes.kv_heads - 1 if mechanism.per_query_head else 0
        return int(further * sizes.entries(behind // mechanism.group)) + sizes.tables(
            behind % mechanism.group)


class MeanPoolingCache(CCACache):
    """The cache for generating with mean pooling; sizes and use are those of `CCACache`."""

    mechanism = MeanPooling


class RandomTokensState(CCAState):
    """As `CCAState`, with the token drawn from each group in place of its core."""

    per_query_head = False
    join = Stored.join

    def __init__(self, mechanism: RandomTokens) -> None:
        self.seed = mechanism.seed
        self.take(mechanism)

    def _close_groups(self, query: Tensor, rotation: Rotation | None, change: CCAStep,
                      scale: float) -> None:
        """Keep the drawn token of each group whose last token is in the chunk."""
        closed = slice(*change.groups)
        kept = kept_tokens(closed.stop, self.group, self.seed)[closed]
        if kept:
            # of the stored raw tokens behind the sinks
            first = closed.start * self.group - change.members[0]
            entries = [self.sinks + token - first for token in kept]
            self.core_key = self.buffers.append("core_key", self.core_key, self.raw_key[:, :,
                                                                                        entries])
            self.core_value = self.buffers.append("core_value", self.core_value,
                                                  self.raw_value[:, :, entries])


class RandomTokensCache(MechanismCache[RandomTokens]):
    """The cache for generating with random tokens: as `CCACache`, without rotary tables."""

    mechanism = RandomTokens
    state = RandomTokensState
