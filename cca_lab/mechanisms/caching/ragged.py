"""Rows of different length that go on one token at a time: all rows in one call.

A decoded token is one more column for its row, until the row is due to mix, pool or divide what it
holds. The columns of all rows stand in one tensor, the newest at the right; a mask hides the
places at the left that a shorter row does not fill. A row that is due becomes a state by itself,
closes what it has to, and its columns are written back. Rows due at the same token do so together.
"""

import sys
from collections.abc import Iterable, Sequence
from copy import copy
from functools import lru_cache
from itertools import groupby
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention.rotary import Rotation
from cca_lab.attention.row import attend_row
from cca_lab.mechanisms.caching import state as caching
from cca_lab.mechanisms.caching.state import NO_TOKENS, GrowingBuffers, State, none_of

TIMES_FEW = 8  # so many times `FEW` numbers are read in less time than rows take by themselves
NEVER = sys.maxsize
Index = list[int] | slice


class Row(State, Protocol):
    """A state to which a decoded token only adds a column, until it is due.

    Attributes:
        columns: names of the keys that a row sees, in order, and of the values: the last of each
            grows, and what `close` makes of it follows the others.
        remembers: whether `store` reads queries and rotary tables.
        backend: of `interval_attention`.
    """

    columns: tuple[tuple[str, ...], tuple[str, ...]]
    remembers: bool
    backend: str

    def room(self) -> int:
        """Return the number of tokens after which the state closes."""
        ...

    def store(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Store T new tokens, not more than there is room for."""
        ...

    def close(self, last_query: Tensor, scale: float) -> None:
        """Mix, pool or divide what is stored, after the token of this query."""
        ...

    def joined(self, states: Sequence[Any]) -> Any:
        """Return the state of all rows, which have equally many entries."""
        ...


def joined(states: Sequence[Row]) -> list[State]:
    """Return one state for all rows if that is faster and possible, else the states."""
    first, counts = states[0], [sum(_sizes(state)) for state in states]
    key = getattr(first, first.columns[0][-1])
    vain = (len(counts) * max(counts) - sum(counts)) * key.shape[1] * key.shape[3]
    few = vain < TIMES_FEW * caching.FEW and all(state.seen for state in states)
    fits = few and first.backend == "auto" and key.is_cpu
    return [cast(State, Ragged(states))] if fits else list(states)


class Ragged:
    """What the states of rows of different length hold, for tokens that all of them read.

    Attributes:
        seen: tokens that the longest row has read.
        states: of each row, without its columns, as it was after the token number `since`.
        key, value: (B, Hk, N, D), the columns of each row at the right.
        hidden: how many places at the left are no columns of a row.
        growing: how many columns `close` changes, those at the right.
        now, since, due: tokens read here, and their number when a row was written and will close.
        past: queries and rotary tables of the last tokens, where the states remember them.
    """

    def __init__(self, states: Sequence[Row]) -> None:
        self.buffers, self.past = GrowingBuffers(), list[tuple[Tensor, Rotation | None]]()
        sizes = [_sizes(state) for state in states]
        most = max(map(sum, sizes))
        self.key, self.value = (aligned([torch.cat([getattr(state, name) for name in names], dim=2)
                                         for state in states], most) for names in states[0].columns)
        self.hidden, self.growing = [most - sum(size) for size in sizes], [size[-1]
                                                                           for size in sizes]
        self.seen, self.now = max(state.seen for state in states), 0
        self.since, self.due = [0] * len(states), [state.room() for state in states]
        self.states = [_without_columns(state) for state in states]

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process one new token of each row, see `State.step`."""
        self.seen, self.now, self.scale = self.seen + 1, self.now + 1, scale
        self.growing = [count + 1 for count in self.growing]
        self.key = self.buffers.append("key", self.key, key)
        self.value = self.buffers.append("value", self.value, value)
        if self.states[0].remembers:
            self.past.append((query, rotation))
        mask = _mask(tuple(self.hidden), self.key.shape[2])
        output = attend_row(query, [self.key], [self.value], scale=scale, bias=[mask])
        due = [row for row, token in enumerate(self.due) if token == self.now]
        if due:
            self._close(due, query)
        return output

    def _close(self, due: Iterable[int], query: Tensor) -> None:
        """Let the rows that are due close, those with equally many columns together."""
        def count(row: int) -> int:
            return self.growing[row]

        for old, some in groupby(sorted(due, key=count), key=count):
            rows = list(some)
            state = self._state(rows)
            state.close(query[_index(rows)], self.scale)
            *fixed, growing = _sizes(state)
            new, these = sum(fixed) + growing, _index(rows)
            for names, columns in zip(state.columns, (self.key, self.value), strict=True):
                past = columns[these]
                columns[these] = torch.cat([past[:, :, : old - new], past[:, :, : -old],
                                            *(getattr(state, part) for part in names)], dim=2)
            state = _without_columns(state)
            for place, row in enumerate(rows):
                self.states[row] = state if len(rows) == 1 else state.select(
                    torch.tensor([place], device="cpu"))
                self.hidden[row] += old - new
                self.growing[row] = growing
                self.since[row], self.due[row] = self.now, self.now + state.room()
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
        new, growing, hidden = self.now - self.since[first], self.growing[first], self.hidden[first]
        for names, x in zip(state.columns, (self.key, self.value), strict=True):
            begin, end = x.shape[2] - growing, x.shape[2] - new
            setattr(state, names[-1], x[these, :, begin:end].clone())
            if whole and len(names) > 1:
                setattr(state, names[0], x[these, :, hidden:begin].clone())
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
        cos, sin = (torch.cat(tables, dim=1) for tables in zip(*rotations, strict=True))
        return query, (cos[rows], sin[rows]) if len(cos) > 1 else (
            cos.expand(len(rows), -1, -1), sin.expand(len(rows), -1, -1))

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the state stores."""
        queries = [query for query, _ in self.past]
        return [self.key, self.value, *queries, *(x for state in self.states
                                                  for x in state.tensors())]

    def join(self, states: Sequence[Any]) -> list[State]:
        """Return the states: rows are joined but once."""
        return list(states)

    def split(self) -> list[State]:
        """Return a state for each row, for chunks of more than one token."""
        return [self._state([row], whole=True) for row in range(len(self.states))]

    def select(self, rows: Tensor) -> "Ragged":
        """Return a new state with the given batch rows."""
        states: list[Any] = self.split()
        first = torch.zeros(1, dtype=torch.int64, device=rows.device)
        return Ragged([states[row].select(first) for row in rows.tolist()])


def aligned(rows: list[Tensor], places: int, *, left: bool = False) -> Tensor:
    """Return (1, ..., n, D) of each row, n at most `places`, as (B, ..., places, D)."""
    missing = [places - x.shape[-2] for x in rows]
    return torch.cat([F.pad(x, (0, 0, 0, n) if left else (0, 0, n, 0))
                      for x, n in zip(rows, missing, strict=True)])


def _index(rows: list[int]) -> Index:
    return rows if len(rows) > 1 else slice(rows[0], rows[0] + 1)


def _sizes(state: Row) -> list[int]:
    """Return the number of columns in each of a state's tensors of keys."""
    return [getattr(state, name).shape[2] for name in state.columns[0]]


def _without_columns(state: Any) -> Any:
    """Return a copy of a state that holds everything but its columns."""
    new = copy(state)
    for names in state.columns:
        for name in names:
            setattr(new, name, none_of(getattr(state, name)))
    return new


def hiding(hidden: Tensor, dtype: torch.dtype, bias: float = 0.0) -> Tensor:
    """Return a bias with -inf at hidden columns, bool (B, n)."""
    bias_of_all = torch.full(hidden.shape, bias, dtype=dtype, device="cpu")
    return bias_of_all.masked_fill(hidden, float("-inf"))


@lru_cache(maxsize=4)
def _mask(hidden: tuple[int, ...], columns: int) -> Tensor:
    """Return what is added to the logits, (B, N): all layers of a model share it."""
    column = torch.arange(columns, device="cpu")
    return hiding(column < torch.tensor(hidden, device="cpu")[:, None], torch.float32)
