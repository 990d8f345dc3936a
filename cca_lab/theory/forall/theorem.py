"""What the obligations' modules share: a theorem with its sources, and how the lab's functions are called."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from types import ModuleType
from typing import Any
from unittest.mock import patch

from cca_lab.theory.forall.core import Obligation, Symbol, Truth, every, number, some
from cca_lab.theory.forall.grid import Grid

Interval = tuple[Symbol, Symbol]


@dataclass(frozen=True)
class Theorem:
    """A statement about the lab's index arithmetic, for all integers.

    Attributes:
        name: short and unique.
        says: what is proved, in one line.
        runs: the lab's functions that are run on symbolic integers to state it, by their dotted names.
        obligations: computes what the solver has to prove.
        restated: what stands in the theorem by hand instead of coming from the code, and why; "" for nothing.
    """

    name: str
    says: str
    runs: tuple[str, ...]
    obligations: Callable[[], Iterable[Obligation]]
    restated: str = ""


@contextmanager
def shadowed(module: ModuleType, **names: Any) -> Iterator[None]:
    """Let a module use other objects under some names, of its own or builtin ones, such as `int`."""
    with patch.dict(vars(module), names):
        yield


def unmemoised(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function under its decorators: symbols cannot be keys of a cache."""
    return unwrap(function)


def as_number(value: Any) -> Symbol:
    """Stand in for `int(...)`, which cannot return a symbol."""
    return number(value.item() if isinstance(value, Grid) else value)


def row_of(table: Grid, row: Any, *, head: Any = 0) -> list[Interval]:
    """Return the intervals (start, end) of one row of a table (b, h, L, n, 2)."""
    return [(table.at(0, head, row, n, 0), table.at(0, head, row, n, 1)) for n in range(table.shape[3])]


def within(column: Any, interval: Interval) -> Truth:
    """Return whether a column is in a half-open interval."""
    return (interval[0] <= column) & (column < interval[1])


def exactly_one(truths: Sequence[Truth]) -> Truth:
    """Return whether one of the truths holds and no other does."""
    return some(*(every(one, *(~other for other in truths if other is not one)) for one in truths))


def none_of(truths: Sequence[Truth]) -> Truth:
    """Return whether none of the truths holds."""
    return every(*(~one for one in truths))


def symbolic_len(sequence: Any) -> Any:
    """Stand in for `len(...)`, which cannot return a symbol."""
    shape = getattr(sequence, "shape", None)
    return len(sequence) if shape is None else shape[0]
