"""States that only grow until a segment of the text closes, and rows of different length of them.

A token adds a column to what its row sees, until the segment is full: then the state mixes, pools
or divides what it holds. Rows of different length close at different tokens. While they go on one
token at a time, the columns of all stand in one tensor, the newest at the right, and a bias hides
the places at the left that a shorter row does not fill. Rows that close at the same token become a
state by themselves, close together, and their columns are written back.
"""

import sys
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.attention.rotary import Rotation, copied
from cca_lab.attention.row import attend_row
from cca_lab.mechanisms.caching import state as caching
from cca_lab.mechanisms.caching.state import (
    NO_TOKENS,
    ONE_CALL,
    Copies,
    GrowingBuffers,
    Row,
    State,
    Stored,
    in_one_call,
    none_of,
)
from cca_lab.mechanisms.columns import behind
from cca_lab.mechanisms.indices import fill

TIMES_FEW = 8  # so many times `FEW` numbers are read in less time than rows take by themselves
ROOM = 64  # columns by which a bias that all layers share grows
Index = list[int] | slice


class Segmented(Stored):
    """A state to which a token only adds a column, until its segment is full.

    Attributes:
        columns: names of the keys that a row sees, in order, and of the values: tokens are added to
            the last of each, and `close` may change that one and add to the others.
        remembers: whether `store` reads queries and rotary tables.
        seen: tokens read so far.
        size, open: tokens of a segment, and of the one that is not closed yet.
        backend: of `interval_attention`.
    """

    columns: tuple[tuple[str, ...], tuple[str, ...]] = ("key",), ("value",)
    remembers = False
    size, open, seen = sys.maxsize, 0, 0

    def __init__(self, mechanism: Any) -> None:
        self.mechanism, self.backend = mechanism, mechanism.backend
        self.buffers: Copies = GrowingBuffers()

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T new tokens, see `State.step`."""
        if (output := in_one_call([self], query, key, value, scale, rotation)) is not None:
            return output
        if self.seen == 0:
            self.begin(key, value)
        outputs, start, length = [], 0, key.shape[2]
        while start < length:
            taken, full = fill(self.open, length - start, self.size)
            q, k, v, tables = query, key, value, rotation
            if taken < length:
                now = slice(start, start + taken)
                q, k, v = (x[:, :, now] for x in (query, key, value))
                tables = rotation and copied(rotation, now)
            self.store(q, k, v, scale, tables)
            outputs.append(self._attend(q, scale))
            if full:
                self.close(q[:, :, -1:], scale)
            start += taken
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)

    def row(self, rotation: Rotation | None) -> Row | None:
        """Return what a token reads that is not the first."""
        if self.seen == 0 or self.backend not in ONE_CALL:
            return None
        keys, values = self.columns
        return Row([getattr(self, name) for name in keys], [getattr(self, name) for name in values],
                   self._grow, reads_query=self.open + 1 == self.size)

    def _grow(self, key: Tensor, value: Tensor, query: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Take the last columns with a new token, and close the segment if that is full."""
        setattr(self, self.columns[0][-1], key)
        setattr(self, self.columns[1][-1], value)
        self.seen += 1
        self.open += 1
        if self.open == self.size:
            self.close(query, scale)

    def begin(self, key: Tensor, value: Tensor) -> None:
        """Hold no column of such keys and values."""
        for names, x in zip(self.columns, (key, value), strict=True):
            for name in names:
                setattr(self, name, none_of(x))

    def store(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Store tokens of one segment."""
        for names, x in zip(self.columns, (key, value), strict=True):
            name = names[-1]
            setattr(self, name, self.buffers.append(name, getattr(self, name), x))
        self.seen += key.shape[2]
        self.open += key.shape[2]

    def _attend(self, query: Tensor, scale: float) -> Tensor:
        """Attend to all columns, the last of them the chunk's own."""
        keys, values = ([getattr(self, name) for name in names] for names in self.columns)
        rows, backend = query.shape[2], self.backend
        if rows == 1:
            return attend_row(query, keys, values, scale=scale, backend=backend)
        visible = causal_intervals(rows, sum(x.shape[2] for x in keys))
        key, value = (behind(*x) if len(x) > 1 else x[0] for x in (keys, values))
        return interval_attention(query, key, value, visible, scale=scale, backend=backend)

    def close(self, last_query: Tensor, scale: float) -> None:
        """Close the segment whose last token has this query."""
        self.open = 0

    def join(self, states: Sequence[Any]) -> list[State]:
        """Return one state for all rows if that is faster and possible, else the states."""
        key, counts = getattr(self, self.columns[0][-1]), [sum(_sizes(state)) for state in states]
        vain = (len(counts) * max(counts) - sum(counts)) * key.shape[1] * key.shape[3]
        few = vain < TIMES_FEW * caching.FEW and all(state.seen for state in states)
        fits = few and self.backend == "auto" and key.is_cpu
        return [cast(State, Ragged(states))] if fits else list(states)


class Ragged(Stored):
    """What the states of rows of different length hold, for tokens that all of them read.

    Attributes:
        seen: tokens that the longest row has read.
        states: of each row, without its columns, as it was after the token number `since`.
        key, value: (B, Hk, N, D), the columns of each row at the right.
        hidden: how many places at the left are no columns of a row.
        now, since, due: tokens read here, and their number when a row was written and will close.
        growing: how many columns `close` will change, those at the right, without those read since.
        past: queries and rotary tables of the last tokens, where the states remember them.
    """

    def __init__(self, states: Sequence[Segmented]) -> None:
        self.buffers, self.past = GrowingBuffers(), list[tuple[Tensor, Rotation | None]]()
        sizes = [_sizes(state) for state in states]
        most = max(map(sum, sizes))
        self.key, self.value = (aligned([torch.cat([getattr(state, name) for name in names], dim=2)
                                         for state in states], most) for names in states[0].columns)
        self.hidden, self.growing = [most - sum(size) for size in sizes], [size[-1]
                                                                           for size in sizes]
        self.seen, self.now = max(state.seen for state in states), 0
        self.since, self.due = [0] * len(states), [state.size - state.open for state in states]
        self.states = [_without_columns(state) for state in states]

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process one new token of each row, see `State.step`."""
        self.seen, self.now, self.scale = self.seen + 1, self.now + 1, scale
        self.key = self.buffers.append("key", self.key, key)
        self.value = self.buffers.append("value", self.value, value)
        if self.states[0].remembers:
            self.past.append((query, rotation))
        columns = self.key.shape[2]
        mask = _mask(tuple(self.hidden), -(-columns // ROOM) * ROOM)[:, :columns]
        output = attend_row(query, [self.key], [self.value], scale=scale, bias=[mask])
        if self.now in self.due:
            due = [row for row, token in enumerate(self.due) if token == self.now]
            for count in {self.growing[row] for row in due}:
                self._close([row for row in due if self.growing[row] == count], query)
            self._clear()
        return output

    def _close(self, rows: list[int], query: Tensor) -> None:
        """Let rows close that have equally many columns."""
        state, these, first = self._state(rows), _index(rows), rows[0]
        old = self.growing[first] + self.now - self.since[first]
        state.close(query[these], self.scale)
        *fixed, growing = _sizes(state)
        new, hidden = sum(fixed) + growing, min(self.hidden[row] for row in rows)
        for names, x in zip(state.columns, (self.key, self.value), strict=True):
            columns = [getattr(state, name) for name in names]
            if len(names) > 1:  # what stays moves, too
                columns.insert(0, x[these, :, hidden : x.shape[2] - old])
            made = torch.cat(columns, dim=2)
            x[these, :, x.shape[2] - made.shape[2]:] = made
        for place, row in enumerate(rows):
            self.states[row] = _without_columns(state if len(rows) == 1 else state.select(
                torch.tensor([place], device="cpu")))
            self.hidden[row] += old - new
            self.growing[row] = growing
            self.since[row], self.due[row] = self.now, self.now + state.size

    def _clear(self) -> None:
        """Drop what no row needs."""
        self.past = self.past[len(self.past) - (self.now - min(self.since)):]
        if (unused := min(self.hidden)) > 0:
            self.hidden = [count - unused for count in self.hidden]
            self.key = self.buffers.drop("key", self.key, 0, unused)
            self.value = self.buffers.drop("value", self.value, 0, unused)

    def _state(self, rows: list[int], *, whole: bool = False) -> Any:
        """Return a state of rows that may close together; `whole`: with the columns that stay."""
        first, these = rows[0], _index(rows)
        state = copy(self.states[first]) if len(rows) == 1 else self.states[first].joined(
            [self.states[row] for row in rows])
        state.buffers = GrowingBuffers()
        new, hidden = self.now - self.since[first], self.hidden[first]
        for names, x in zip(state.columns, (self.key, self.value), strict=True):
            end = x.shape[2] - new
            begin = end - self.growing[first]
            past, stays = x[these, :, begin:end], x[these, :, hidden if whole else begin : begin]
            setattr(state, names[0], stays.clone())
            setattr(state, names[-1], past if new else past.clone())  # `store` makes a copy
        if new:
            earlier, (query, rotation) = state.chunk_tables, self._remembered(rows, new)
            key, value = (x[these, :, -new:] for x in (self.key, self.value))
            state.store(query, key, value, self.scale, rotation)
            if rotation is not None and state.chunk_tables:
                state.chunk_tables = *earlier, rotation  # of each row, not of the first one
        return state

    def _remembered(self, rows: list[int], count: int) -> tuple[Tensor, Rotation | None]:
        """Return the last queries of some rows, and their rotary tables."""
        if not self.past:
            return NO_TOKENS, None
        queries, rotations = zip(*self.past[-count:], strict=True)
        query = torch.cat(queries, dim=2)[rows]
        if rotations[0] is None:
            return query, None
        cos, sin = (torch.cat(tables, dim=1).expand(len(self.states), -1, -1)[rows]
                    for tables in zip(*rotations, strict=True))
        return query, (cos, sin)

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the state stores."""
        queries = [query for query, _ in self.past]
        return [self.key, self.value, *queries, *(x for state in self.states
                                                  for x in state.tensors())]

    def split(self) -> list[State]:
        """Return a state for each row, for chunks of more than one token."""
        return [self._state([row], whole=True) for row in range(len(self.states))]

    def select(self, rows: Tensor) -> Self:
        """Return a new state with the given batch rows."""
        states: list[Any] = self.split()
        first = torch.zeros(1, dtype=torch.int64, device=rows.device)
        return type(self)([states[row].select(first) for row in rows.tolist()])


def aligned(rows: list[Tensor], places: int, *, left: bool = False) -> Tensor:
    """Return (1, ..., n, D) of each row, n at most `places`, as (B, ..., places, D)."""
    missing = [places - x.shape[-2] for x in rows]
    return torch.cat([F.pad(x, (0, 0, 0, n) if left else (0, 0, n, 0))
                      for x, n in zip(rows, missing, strict=True)])


def _index(rows: list[int]) -> Index:
    return rows if len(rows) > 1 else slice(rows[0], rows[0] + 1)


def _sizes(state: Segmented) -> list[int]:
    """Return the number of columns in each of a state's tensors of keys."""
    return [getattr(state, name).shape[2] for name in state.columns[0]]


def _without_columns(state: Any) -> Any:
    """Return a copy of a state that holds everything but its columns."""
    new = copy(state)
    for names in state.columns:
        for name in names:
            setattr(new, name, NO_TOKENS)
    return new


def hiding(hidden: Tensor, dtype: torch.dtype, bias: float = 0.0) -> Tensor:
    """Return a bias with -inf at hidden columns, bool (B, n)."""
    bias_of_all = torch.full(hidden.shape, bias, dtype=dtype, device="cpu")
    return bias_of_all.masked_fill(hidden, float("-inf"))


@lru_cache(maxsize=4)
def _mask(hidden: tuple[int, ...], columns: int) -> Tensor:
    """Return what is added to the logits, (B, N): all layers share it for some tokens."""
    column = torch.arange(columns, device="cpu")
    return hiding(column < torch.tensor(hidden, device="cpu")[:, None], torch.float32)
