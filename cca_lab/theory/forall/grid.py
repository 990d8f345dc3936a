"""Symbolic tensors: a shape of ints and symbols, and a function from indices to entries."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cca_lab.theory.forall.terms import Truth, every, least, most, number, some, truth

Entry = Callable[..., Any]


class Grid:
    """A tensor of symbolic entries.

    Attributes:
        shape: ints and symbols.
        entry: maps one index for each axis to a `Symbol`, a `Truth` or an int.
    """

    dtype, device = torch.int64, torch.device("cpu")
    found: list[Any]  # the index of an entry that holds, after `any()`

    def __init__(self, shape: Sequence[Any], entry: Entry) -> None:
        self.shape, self.entry = tuple(shape), entry

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError("a symbolic tensor: torch's functions take it inside of `demand` only")

    def __len__(self) -> int:
        return int(number(self.shape[0]))

    def tolist(self) -> Any:
        """Return the entries of a grid of known shape as nested lists."""
        return [part.tolist() for part in self.unbind()] if self.shape else self.at()

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def at(self, *index: Any) -> Any:
        """Return an entry as a `Symbol` or a `Truth`."""
        value = self.entry(*index)
        return truth(value) if isinstance(value, bool | Truth) else number(value)

    def item(self) -> Any:
        """Return the only entry of a grid without axes."""
        return self.at()

    def map(self, function: Callable[[Any], Any]) -> "Grid":
        """Return the grid of a function of each entry."""
        return Grid(self.shape, lambda *index: function(self.at(*index)))

    def __getitem__(self, key: Any) -> "Grid":
        from cca_lab.theory.forall.indexing import indexed
        return indexed(self, key)

    def size(self, axis: int) -> Any:
        """Return the length of an axis."""
        return self.shape[axis]

    def unsqueeze(self, dim: int) -> "Grid":
        """Insert an axis of length 1."""
        dim %= self.dim() + 1
        return Grid((*self.shape[:dim], 1, *self.shape[dim:]), lambda *i: self.entry(*i[:dim], *i[dim + 1 :]))

    def unbind(self, dim: int = 0) -> tuple["Grid", ...]:
        """Split along an axis of known length."""
        dim %= self.dim()
        shape = (*self.shape[:dim], *self.shape[dim + 1 :])
        return tuple(Grid(shape, lambda *i, k=k: self.entry(*i[:dim], k, *i[dim:])) for k in range(self.shape[dim]))

    def expand(self, *shape: Any) -> "Grid":
        """Repeat axes of length 1; -1 leaves an axis as it is."""
        added = len(shape) - self.dim()
        wanted = [own if isinstance(new, int) and new == -1 else new
                  for own, new in zip((None,) * added + self.shape, shape, strict=True)]
        return Grid(wanted, lambda *i: self.entry(*_fitted(i, self.shape)))

    def expand_as(self, other: "Grid") -> "Grid":
        """Repeat axes of length 1 as in another grid."""
        return self.expand(*other.shape)

    def clamp(self, min: Any = None, max: Any = None) -> "Grid":
        """Limit the entries from below, then from above, as torch does."""
        low = self if min is None else self.map(lambda x: most(x, min))
        return low if max is None else low.map(lambda x: least(x, max))

    def clamp_min(self, min: Any) -> "Grid":
        """Limit the entries from below."""
        return self.clamp(min=min)

    def clamp_max(self, max: Any) -> "Grid":
        """Limit the entries from above."""
        return self.clamp(max=max)

    def div(self, other: Any, *, rounding_mode: str) -> "Grid":
        """Divide, rounding down."""
        if rounding_mode != "floor":
            raise NotImplementedError(f"div: got rounding_mode {rounding_mode!r}; only 'floor' is symbolic")
        return self // other

    def long(self) -> "Grid":
        """Return truths as 0 and 1."""
        return self.map(number)

    def new_zeros(self, *shape: Any) -> "Grid":
        """Return a grid of zeros."""
        return Grid(shape, lambda *_: 0)

    def same(self, *_: Any, **__: Any) -> "Grid":
        """Return the grid: copies, casts and moves do not change entries."""
        return self

    clone = to = cpu = detach = contiguous = same

    def any(self, dim: int | None = None) -> Any:
        """Return whether some entry holds, along an axis of known length or at all; for the latter see `quantify`."""
        if dim is not None:
            return elementwise(some, *self.unbind(dim))
        from cca_lab.theory.forall.quantify import some_entry
        return some_entry(self)

    def all(self, dim: int) -> "Grid":
        """Return whether all entries along an axis of known length hold."""
        return elementwise(every, *self.unbind(dim))

    def nonzero(self) -> "Grid":
        """Return the index of an entry that holds, after `any` was true."""
        from cca_lab.theory.forall.quantify import witness
        return witness(self)

    def sum(self, dim: int = -1) -> "Grid":
        """Count along an axis; see `quantify`."""
        from cca_lab.theory.forall.quantify import count
        return count(self, dim)

    def __neg__(self) -> "Grid":
        return self.map(lambda entry: -entry)

    def __invert__(self) -> "Grid":
        return self.map(lambda entry: ~entry)

    def __add__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x + y, self, other)

    def __sub__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x - y, self, other)

    def __mul__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x * y, self, other)

    def __floordiv__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x // y, self, other)

    def __mod__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x % y, self, other)

    def __and__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x & y, self, other)

    def __or__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x | y, self, other)

    def __radd__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: y + x, self, other)

    def __rsub__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: y - x, self, other)

    def __rmul__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: y * x, self, other)

    def __lt__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x < y, self, other)

    def __le__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x <= y, self, other)

    def __gt__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x > y, self, other)

    def __ge__(self, other: Any) -> "Grid":
        return elementwise(lambda x, y: x >= y, self, other)

    def __eq__(self, other: object) -> "Grid":  # type: ignore[override]
        return elementwise(lambda x, y: x == y, self, other)

    __hash__ = None  # type: ignore[assignment]


def elementwise(function: Callable[..., Any], *operands: Any) -> Grid:
    """Return the grid of a function of broadcast grids, tensors and numbers."""
    grids = [lifted(x) for x in operands]
    shape: list[Any] = [1] * max(grid.dim() for grid in grids)
    for grid in grids:
        for axis, length in enumerate(grid.shape, start=len(shape) - grid.dim()):
            if not (isinstance(length, int) and length == 1):
                if not (isinstance(shape[axis], int) and shape[axis] == 1) and not bool(shape[axis] == length):
                    raise ValueError(f"axis {axis}: {shape[axis]} and {length} do not broadcast")
                shape[axis] = length
    return Grid(shape, lambda *i: function(*(grid.at(*_fitted(i, grid.shape)) for grid in grids)))


def _fitted(index: tuple[Any, ...], shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return the index into a broadcast grid of the given shape."""
    own = index[len(index) - len(shape) :]
    return tuple(0 if isinstance(length, int) and length == 1 else at for at, length in zip(own, shape, strict=True))


def lifted(x: Any) -> Grid:
    """Return a number as a grid without axes, a tensor as a grid of its entries."""
    if isinstance(x, Grid):
        return x
    if isinstance(x, torch.Tensor):
        return Grid(x.shape, lambda *i: x[tuple(map(int, i))].item())
    return Grid((), lambda: x)
