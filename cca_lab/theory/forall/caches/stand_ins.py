"""What takes the place of keys, and of the functions that compute with them, where a cache is run on symbols.

A stored entry is a number: token t is t + 1, core or slot p is -(p + 1), padding is 0.
"""

from collections.abc import Callable, Sequence
from typing import Any

from cca_lab.theory.forall.core import Truth, every, number
from cca_lab.theory.forall.grid import Grid
from cca_lab.theory.forall.paths import fresh
from cca_lab.theory.forall.theorem import row_of, within


def stored(count: Any, entry: Callable[[Any], Any]) -> Any:
    """Return keys (1, 1, count, 1) with the given entries."""
    return Grid((1, 1, count, 1), lambda b, h, k, d: entry(k))


def tokens(first: Any, count: Any) -> Any:
    """Return the entries of consecutive tokens."""
    return stored(count, lambda k: first + k + 1)


def cores(count: Any, first: Any = 0) -> Any:
    """Return the entries of consecutive cores, or of slots."""
    return stored(count, lambda k: -(first + k) - 1)


def is_token(entry: Any, token: Any) -> Truth:
    """Return whether an entry is a token."""
    return number(entry) == token + 1


def is_core(entry: Any, core: Any) -> Truth:
    """Return whether an entry is a core, or a slot."""
    return number(entry) == -core - 1


class Attended:
    """Stands in for `interval_attention` and `attend_row`: remembers the columns and their intervals.

    Args:
        first, count: the tokens of the chunk, whose queries should come in their order.

    Attributes:
        parts: pairs of keys and intervals, one for each softmax that is merged.
        sound: whether the queries are those of the chunk, and values lie where the keys of the same tokens lie.
    """

    def __init__(self, first: Any, count: Any) -> None:
        self.first, self.count, self.sound = first, count, every()
        self.parts: list[tuple[Grid, Grid | None]] = []

    def intervals(self, query: Grid, key: Grid, value: Grid, intervals: Grid, **_: Any) -> Grid:
        """Be `interval_attention`."""
        self._note(query, key, value, intervals)
        return query

    def row(self, query: Grid, parts: Sequence[tuple[Grid, Grid]], **_: Any) -> Grid:
        """Be `attend_row`, in which the row sees all columns of all parts."""
        for key, value in parts:
            self._note(query, key, value, None)
        return query

    def _note(self, query: Grid, key: Grid, value: Grid, intervals: Grid | None) -> None:
        rows = (query, 0, number(query.shape[2]))
        self.sound &= same_entries(key, value) & holds_run(rows, is_token, self.first, self.first + self.count)
        self.parts.append((key, intervals))

    def seen(self, row: Any) -> list[tuple[Grid, Any, Any]]:
        """Return the columns that a row of the chunk sees: keys, first and end, for each interval."""
        return [(key, *interval) for key, table in self.parts
                for interval in (row_of(table, row) if table is not None else [(number(0), key.shape[2])])]


def holds_run(part: tuple[Grid, Any, Any], is_entry: Callable[[Any, Any], Truth], first: Any, end: Any) -> Truth:
    """Return whether columns [start, stop) of some keys are the entries first .. end - 1, in their order."""
    key, start, stop = part
    k = fresh("entry")
    return (stop - start == end - first) & within(k, (number(start), number(stop))).implies(
        is_entry(key.at(0, 0, k, 0), first + k - start))


class Pooled:
    """Stands in for `pool_groups`: groups of consecutive tokens, each pooled by the query of its last one.

    Attributes:
        sound: whether the groups are whole, begin at a multiple of g, and their queries and tables are there.
    """

    def __init__(self) -> None:
        self.sound = every()

    def __call__(self, query: Grid, key: Grid, value: Grid, g: Any, *, rotation: Any, **_: Any) -> tuple[Grid, Grid]:
        """Return the cores of the groups."""
        p, k, n = fresh("group"), fresh("member"), key.shape[2]
        first = key.at(0, 0, 0, 0) - 1
        last = p * g + g - 1
        self.sound &= every(
            n % g == 0, first % g == 0, query.shape[2] == n, n >= g, same_entries(key, value),
            within(k, (number(0), n)).implies(is_token(key.at(0, 0, k, 0), first + k)),
            ((0 <= p) & (last < n)).implies(is_token(query.at(0, 0, last, 0), first + last)))
        for table in rotation:
            self.sound &= (table.shape[1] == n) & within(k, (number(0), n)).implies(
                is_token(table.at(0, k, 0), first + k))
        made = cores(n // g, first // g)
        return made, made


def same_entries(found: Grid, wanted: Grid) -> Truth:
    """Return whether two stores have the same entries in the same order."""
    k, length = fresh("entry"), number(found.shape[2])
    return (length == wanted.shape[2]) & within(k, (number(0), length)).implies(
        number(found.at(0, 0, k, 0)) == wanted.at(0, 0, k, 0))
