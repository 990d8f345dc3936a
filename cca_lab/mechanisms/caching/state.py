"""The state that one layer keeps of the past: its protocol, and functions that all states share."""

from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms.caching.buffers import Copies

NO_TOKENS = torch.empty(0, 0, 0, 0)  # a state's tensors before its first token

S = TypeVar("S", bound="State")


@dataclass(frozen=True)
class Draw:
    """A source of random keys, values or queries, (1, heads, entries, D) of `dtype`.

    Attributes:
        heads: Hk, or H.
        head_dim: D.
        generator: of the random numbers.
        dtype: of the entries.
    """

    heads: int
    head_dim: int
    generator: torch.Generator
    dtype: torch.dtype = torch.float32

    def __call__(self, entries: int) -> Tensor:
        """Return `entries` random entries."""
        return torch.randn(1, self.heads, entries, self.head_dim, generator=self.generator).to(self.dtype)

    def of(self, heads: int) -> "Draw":
        """Return a source with another number of heads."""
        return replace(self, heads=heads)


class State(Protocol):
    """What one layer keeps of the past of rows with the same group borders; made from a mechanism."""

    seen: int  # real tokens read so far
    rooms: Copies  # where its tensors lie

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T new tokens: query (B, H, T, D), key and value (B, Hk, T, D) -> output (B, H, T, D)."""
        ...

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the state stores."""
        ...

    def select(self, rows: Tensor) -> Self:
        """Return a new state with the given batch rows, int64; rows may be repeated."""
        ...

    def fill(self, length: int, heads: int, draw: "Draw") -> None:
        """Fill the state with random tensors of the sizes after `length` tokens, without reading any.

        Args:
            length: tokens that count as read, as one prompt.
            heads: H, query heads.
            draw: source of the content, with Hk heads.
        """
        ...


def with_rows(state: S, rows: Tensor, *names: str) -> S:
    """Return a copy of a state in which the named tensors, unless None, have only the given batch rows."""
    new = copy(state)
    new.rooms = type(state.rooms)()
    for name in names if state.seen else ():
        tensor = getattr(state, name)
        setattr(new, name, None if tensor is None else tensor.index_select(0, rows.to(tensor.device)))
    return new


def append(past: Tensor | None, new: Tensor) -> Tensor:
    """Concatenate along the tokens into new memory, which no other tensor uses."""
    return torch.cat([new] if past is None else [past, new], dim=-2)


def append_tables(past: Rotation | None, new: Rotation) -> Rotation:
    """Concatenate rotary tables as `append` does."""
    cos, sin = past or (None, None)
    return append(cos, new[0]), append(sin, new[1])


def none_of(x: Tensor) -> Tensor:
    """Return an empty tensor, (B, H, 0, D), for x (B, H, T, D); it does not keep the memory of x."""
    return x[:, :, :0].clone()
