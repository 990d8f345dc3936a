"""Questions about all entries of a symbolic tensor: whether one holds, how many do, where a value would be sorted in.

The answers are new variables with the facts that define them, which the current path assumes.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from cca_lab.theory.forall.grid import Grid, elementwise
from cca_lab.theory.forall.paths import assume, fresh, known, unknown
from cca_lab.theory.forall.terms import Symbol, Truth, every, number, some, truth


def inside(grid: Grid, index: Sequence[Any]) -> Truth:
    """Return whether an index is one of the grid's."""
    bounds = [(0 <= i) & (i < n) for i, n in zip(map(number, index), grid.shape, strict=True)]
    return every(*bounds)


def some_entry(grid: Grid) -> Truth:
    """Return whether some entry holds: False if it is known that none does; else a path on which one holds.

    On the other path, where the entry of `witness` does not hold, nothing is assumed of the remaining entries. That
    is less than what is true there, so what is proved on it holds.
    """
    at = {axis: fresh("at") for axis, length in enumerate(grid.shape) if not isinstance(length, int)}
    places = [range(length) if isinstance(length, int) else (at[axis],) for axis, length in enumerate(grid.shape)]
    grid.found = list(product(*places))
    return some(*(inside(grid, index) & truth(grid.at(*index)) for index in grid.found))


def witness(grid: Grid) -> Grid:
    """Return an index of those that `some_entry` chose, as the first row of `nonzero()`: enough for a message."""
    return Grid((1, grid.dim()), lambda _, axis: grid.found[0][axis])


def count(grid: Grid, dim: int) -> Grid:
    """Return how many entries hold along an axis, where entries that hold come before those that do not.

    Raises:
        NotImplementedError: if the order is not known.
    """
    dim %= grid.dim()
    length = grid.shape[dim]
    if isinstance(length, int):
        parts = [part.long() for part in grid.unbind(dim)]
        return elementwise(lambda *x: sum(x[1:], x[0]), *parts)
    shape = (*grid.shape[:dim], *grid.shape[dim + 1 :])
    counted: dict[tuple[str, ...], Symbol] = {}

    def entry(*index: Any) -> Symbol:
        name = tuple(str(number(i).term) for i in index)
        if name not in counted:
            counted[name] = counted_at(*index)
        return counted[name]

    def counted_at(*index: Any) -> Symbol:
        def at(k: Any) -> Truth:
            return truth(grid.at(*index[:dim], k, *index[dim:]))

        k, n = fresh("entry"), fresh("count")
        if not known(((0 <= k) & (k + 1 < length) & at(k + 1)).implies(at(k))):
            raise NotImplementedError("sum: the entries that hold are not known to come first")
        assume((0 <= n) & (n <= length), (n > 0).implies(at(n - 1)), (n < length).implies(~at(n)))
        return n

    return Grid(shape, entry)


def marks(name: str, length: Any) -> "Marks":
    """Return unknown truths (1, 1, L), of which only counts are asked."""
    assume(unknown(name, 0, 1) == 0)
    return Marks(length, name)


class Marks(Grid):
    """Unknown truths (1, 1, L): token t is marked if one mark more is before token t + 1 than before t."""

    def __init__(self, length: Any, name: str) -> None:
        super().__init__((1, 1, length), lambda b, h, t: self.before(t + 1) == self.before(t) + 1)
        self.name = name

    def before(self, token: Any) -> Symbol:
        """Return the number of marks before a token."""
        return unknown(self.name, token, 1)

    def expand(self, *shape: Any) -> Grid:
        """Return the marks, which are the same for all heads."""
        return self

    def cumsum(self, dim: int) -> Grid:
        """Return how many tokens are marked up to each."""
        return Grid(self.shape, lambda b, h, t: self.before(t + 1))

    def __getitem__(self, key: Any) -> Grid:
        return Total(self) if key == (0, 0) else super().__getitem__(key)


class Total(Grid):
    """The marks of one head, of which the number is asked."""

    def __init__(self, of: Marks) -> None:
        super().__init__(of.shape[2:], lambda t: of.entry(0, 0, t))
        self.of = of

    def sum(self, dim: int = -1) -> Grid:
        """Return the number of marks."""
        return Grid((), lambda: self.of.before(self.shape[0]))
