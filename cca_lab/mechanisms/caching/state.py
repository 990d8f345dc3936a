"""What a layer keeps of the past while it decodes: the protocol, and what states share.

`Copies` says how a state's tensors grow and shrink, and makes new ones for it. `GrowingBuffers`
returns the same values without a copy of the others: a view of a buffer, behind which the next
entries are written. A buffer has room for a sixteenth of what it holds, at least 16 entries; when
that is used up, what is still needed moves to a new one, so that a token costs about 16 copied
entries however many are stored.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from cca_lab.attention import native
from cca_lab.attention.rotary import Rotation

NO_TOKENS = torch.empty(0, 0, 0, 0)  # a state's tensors before its first token

FEW = 2**14  # numbers that are copied in less time than is needed to do without a copy
ONE_CALL = "auto", "native"  # backends with which a token may be read `in_one_call`
LEAST, SHARE = 16, 16  # room for that many entries, or for one in so many of those stored


def room_for(entries: int) -> int:
    """Return the room, in entries, that a new buffer has behind so many."""
    return max(LEAST, entries // SHARE)


class Copies:
    """Stored entries (B, H, n, D), copied at each change: the specification of `GrowingBuffers`."""

    def append(self, name: str, past: Tensor, new: Tensor) -> Tensor:
        """Return the entries of `past`, then `new`; `name` is that of the state's tensor."""
        return torch.cat([past, new], dim=-2)

    def drop(self, name: str, entries: Tensor, begin: int, end: int) -> Tensor:
        """Return the entries without those from `begin` to before `end`."""
        return torch.cat([entries[:, :, :begin], entries[:, :, end:]], dim=-2)

    def forget(self, *names: str) -> None:
        """Free what is kept for the named tensors, which are made anew."""


class GrowingBuffers(Copies):
    """Stored entries in buffers with room, one for each tensor of a state.

    What a call returns is valid until the next `drop` of the same name, which may write over it: a
    `GrowingBuffers` belongs to one state. Entries are copied where gradients are recorded, because
    autograd keeps what attention has read, and for a tensor that is not the one returned last.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, _Buffer] = {}

    def append(self, name: str, past: Tensor, new: Tensor) -> Tensor:
        """Return the entries of `past`, then those of `new`, as a view of a buffer."""
        if past.numel() < FEW or torch.is_grad_enabled():
            return super().append(name, past, new)
        buffer, count = self._buffers.get(name), new.shape[2]
        if buffer is None or not buffer.holds(past) or buffer.free() < count:
            buffer = self._buffers[name] = _Buffer(past, count + room_for(past.shape[2] + count))
        return buffer.append(new)

    def drop(self, name: str, entries: Tensor, begin: int, end: int) -> Tensor:
        """Return the entries without those from `begin` to before `end`, as a view of a buffer."""
        if entries.numel() < FEW or torch.is_grad_enabled():
            return super().drop(name, entries, begin, end)
        buffer, left = self._buffers.get(name), entries.shape[2] - (end - begin)
        if buffer is None or not buffer.holds(
                entries) or buffer.capacity - left > 2 * room_for(left):
            buffer = self._buffers[name] = _Buffer(entries[:, :, :begin],
                                                   left - begin + room_for(left))
            return buffer.append(entries[:, :, end:])
        return buffer.drop(begin, end)

    def forget(self, *names: str) -> None:
        """Free the buffers of the named tensors."""
        for name in names:
            self._buffers.pop(name, None)


class _Buffer:
    """Entries in the columns `first` .. `last` - 1 of a tensor (B, H, capacity, D)."""

    def __init__(self, past: Tensor, more: int) -> None:
        batch, heads, self.last, head_dim = past.shape
        self.first, self.capacity = 0, self.last + more
        self.tensor = past.new_empty((batch, heads, self.capacity, head_dim))
        self.tensor[:, :, : self.last] = past
        self.stored = past

    def entries(self) -> Tensor:
        self.stored = self.tensor[:, :, self.first : self.last]
        return self.stored

    def free(self) -> int:
        return self.capacity - self.last

    def holds(self, x: Tensor) -> bool:
        """Return whether x is what was returned last, and may be written to here."""
        return (x is self.stored
                and self.tensor.is_inference() == torch.is_inference_mode_enabled())

    def append(self, new: Tensor) -> Tensor:
        first, self.last = self.last, self.last + new.shape[2]
        self.tensor[:, :, first : self.last] = new
        return self.entries()

    def drop(self, begin: int, end: int) -> Tensor:
        # moves up to the entries after `end`
        kept = self.tensor[:, :, self.first:self.first + begin].clone()
        self.first += end - begin
        self.tensor[:, :, self.first : self.first + begin] = kept
        return self.entries()


@dataclass(frozen=True)
class Draw:
    """A source of random keys, values or queries, (1, heads, entries, D) of `dtype`."""

    heads: int
    head_dim: int
    generator: torch.Generator
    dtype: torch.dtype = torch.float32

    def __call__(self, entries: int) -> Tensor:
        """Return `entries` random entries."""
        return torch.randn(1, self.heads, entries, self.head_dim,
                           generator=self.generator).to(self.dtype)

    def of(self, heads: int) -> "Draw":
        """Return a source with another number of heads."""
        return replace(self, heads=heads)


class Row(NamedTuple):
    """What a new token reads before itself, and what a state then drops of it.

    Attributes:
        keys, values: pieces, as in `attend_row`; the token becomes the last entry of the last one.
        grow: takes the last keys and values with the token, its query, scale and rotary tables.
        begin, end: the entries of the last piece that are dropped afterwards.
        reads_query: whether `grow` reads the query, as it closes a group or segment.
    """

    keys: list[Tensor]
    values: list[Tensor]
    grow: Callable[[Tensor, Tensor, Tensor, float, Rotation | None], None]
    begin: int = 0
    end: int = 0
    reads_query: bool = False


class State(Protocol):
    """What one layer keeps of the past of rows with the same borders; made from a mechanism."""

    seen: int  # real tokens read so far
    buffers: Copies  # where its tensors lie

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T tokens: query (B, H, T, D), key and value (B, Hk, T, D) -> (B, H, T, D)."""
        ...

    def row(self, rotation: Rotation | None) -> Row | None:
        """Return what a new token reads if it only adds an entry, else None: `step` does more."""
        ...

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the state stores."""
        ...

    def select(self, rows: Tensor) -> Self:
        """Return a new state with the given batch rows, int64; rows may be repeated."""
        ...

    def join(self, states: "Sequence[Any]") -> "list[State]":
        """Return one state for rows, each with a state, that go on alike; else the states."""
        ...

    def split(self) -> "list[State]":
        """Return states that read chunks of any size: the state, or one for each row."""
        ...

    def fill(self, length: int, heads: int, draw: "Draw") -> None:
        """Fill the state as after a prompt of `length` tokens, at random, for H query heads."""
        ...


class Stored:
    """What states share: the tensors named in `stored`, and cos and sin in `rotation` if any."""

    stored: tuple[str, ...] = ("key", "value")
    chunk_tables: tuple[Rotation, ...] = ()  # of successive chunks, for all batch rows
    seen: int
    buffers: Copies

    def row(self, rotation: Rotation | None) -> Row | None:
        """Return None: each token has to go through `step`."""
        return None

    @property
    def rotation(self) -> Rotation | None:
        """Cos and sin of the tokens of which they are kept, (1, n, D) each."""
        if not self.chunk_tables:
            return None
        cos, sin = (torch.cat(chunks, dim=-2) for chunks in zip(*self.chunk_tables, strict=True))
        return cos, sin

    def remember(self, rotation: Rotation) -> None:
        """Keep a chunk's tables, which all layers share: no view, as that would keep all.

        A copy is kept of those of more rows than one, and on a GPU, where a compiled model writes
        over its own.
        """
        cos, sin = rotation
        one = len(cos) == 1 and cos.is_cpu
        self.chunk_tables += (rotation if one else (cos[:1].clone(), sin[:1].clone()),)

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the state stores."""
        named = [getattr(self, name) for name in self.stored] if self.seen else []
        return [x for x in (*named, *chain(*self.chunk_tables)) if x is not None]

    def join(self, states: Sequence[Any]) -> list[State]:
        """Return one state for rows, each with a state, that go on alike; else the states."""
        return list(states)

    def split(self) -> list[State]:
        """Return states that read chunks of any size: the state, or one for each row."""
        return [self]  # type: ignore[list-item]  # what has a step is a state

    def joined(self, states: Sequence[Any]) -> Self:
        """Return the state of all rows, which have equally many entries."""
        new = copy(self)
        new.buffers, new.seen = type(self.buffers)(), max(state.seen for state in states)
        for name in self.stored:
            if getattr(self, name) is not None:
                setattr(new, name, torch.cat([getattr(state, name) for state in states]))
        if self.chunk_tables:
            cos, sin = zip(*(state.rotation for state in states), strict=True)
            new.chunk_tables = ((torch.cat(cos), torch.cat(sin)),)
        return new

    def select(self, rows: Tensor) -> Self:
        """Return a new state with the given batch rows, int64; rows may be repeated."""
        new = copy(self)
        new.buffers = type(self.buffers)()
        for name in self.stored if self.seen else ():
            if (tensor := getattr(self, name)) is not None:
                setattr(new, name, tensor.index_select(0, rows.to(tensor.device)))
        return new


def in_one_call(states: Sequence[Any], query: Tensor, key: Tensor, value: Tensor, scale: float,
                rotation: Rotation | None, owner: Sequence[int] = (),
                heads: Sequence[Any] = ()) -> Tensor | None:
    """Let states, each with its part of the KV heads, read one token in one call of the C++ op.

    Args:
        states: of each part.
        query, key, value, scale, rotation: as in `State.step`.
        owner: of each KV head the number of its part; one part without it.
        heads: an index of each part's query heads.

    Returns:
        (B, H, 1, D), or None if a state has to read the token with `step`.
    """
    if key.shape[2] != 1 or torch.is_grad_enabled() or not native.reads_rows(query):
        return None
    rows, keys, values, drop, part = [], list[Tensor](), list[Tensor](), list[int](), list[int]()
    for number, state in enumerate(states):
        if (row := state.row(rotation)) is None or row.keys[-1].numel() >= FEW:
            return None
        rows.append(row)
        keys += row.keys
        values += row.values
        drop += row.begin, row.end
        part += [number] * len(row.keys)
    output, grown = native.step(query, key, value, keys, values, scale, drop, part=part,
                                owner=owner)
    for number, row in enumerate(rows):
        own = query[:, heads[number]] if row.reads_query and len(rows) > 1 else query
        row.grow(grown[2 * number], grown[2 * number + 1], own, scale, rotation)
    return output


def none_of(x: Tensor) -> Tensor:
    """Return an empty tensor, (B, H, 0, D), that does not keep the memory of x (B, H, T, D)."""
    return x[:, :, :0].clone()
