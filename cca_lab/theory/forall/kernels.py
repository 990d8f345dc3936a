"""What the kernels rely on: rows that see a column form an interval, and the phases of a block of rows."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from cca_lab.attention import plan
from cca_lab.theory.forall.core import Obligation, Symbol, Truth, demand, every, integers, most, sizes, where
from cca_lab.theory.forall.grid import Grid
from cca_lab.theory.forall.paths import unknown
from cca_lab.theory.forall.theorem import Theorem, shadowed


def start(row: Any) -> Symbol:
    """Return the start of a row's interval: any that never moves back."""
    return unknown("start", row)


def end(row: Any) -> Symbol:
    """Return the end of a row's interval: any that never moves back."""
    return unknown("end", row)


def rows_of_a_column() -> Iterable[Obligation]:
    """The rows that the column kernel reads are those that see the column."""
    from cca_lab.attention.kernels import interval

    rows, columns, block, j, c, i = integers("rows columns block j c i")
    known = [*sizes(rows=rows, columns=columns, block=block), 0 <= j, j * block < columns, j * block <= c,
             c < j * block + block, c < columns, 0 <= i, i < rows]

    def statement() -> dict[str, Truth]:
        bounds: Any = Grid((1, 1, 1, 2, rows), lambda b, h, n, which, row: end(row) if which else start(row))
        found: Any = interval.rows_of_columns(bounds, columns, block)
        first, all_from, all_to, last = (found.at(0, 0, 0, k, j) for k in range(4))
        seen = (start(i) <= c) & (c < end(i))
        return {"no row is missed": seen.implies((first <= i) & (i < last)),
                "inner rows see all": ((all_from <= i) & (i < all_to)).implies(seen),
                "one column": (block == 1).implies(seen.iff((first <= i) & (i < last))),
                "rows exist": (0 <= first) & (last <= rows)}

    return demand("rows of a column", known, statement)


def phases() -> Iterable[Obligation]:
    """The three phases of the kernels hold each column that some row of the block sees, the interior whole blocks."""
    from cca_lab.attention.kernels import interval_forward as kernel

    length, first, last, i, c, block = integers("L first last i c block")
    known = [*sizes(L=length, block=block), 0 <= first, first <= i, i <= last, last < length]
    language = SimpleNamespace(maximum=most, where=where,
                               load=lambda address: where(address < length, start(address), end(address - length)))

    def statement() -> dict[str, Truth]:
        with shadowed(kernel, tl=language):
            low, inner_low, inner_high, high = kernel.span_of_rows.fn(0, first, last, length)
            left_end, inner_end = kernel.split_phases.fn(low, inner_low, inner_high, high, block)
        seen = (start(i) <= c) & (c < end(i))
        parts = [(low <= c) & (c < left_end), (left_end <= c) & (c < inner_end), (inner_end <= c) & (c < high)]
        return {"every column is in a phase": seen.implies(parts[0] | parts[1] | parts[2]),
                "phases follow each other": (low <= left_end) & (left_end <= inner_end)
                & ((inner_end <= high) | (inner_end == low)),
                "the interior needs no mask": parts[1].implies(seen),
                "the interior is whole blocks": (inner_end - left_end) % block == 0}

    return demand("phases of the kernels", known, statement)


def widened() -> Iterable[Obligation]:
    """A masked tile of the blocked backend, widened to full vectors, holds its columns and stays inside."""
    left, right, limit = integers("left right limit")

    def statement() -> Truth:
        column, columns = plan._widen(left, right, limit)
        return every(0 <= _symbol(column), column <= left, right <= column + columns, column + columns <= limit)

    return demand("widened tiles", [0 <= left, left < right, right <= limit], statement)


def _symbol(value: Any) -> Symbol:
    return value + where(True, 0, 0)


_BOUNDS = "the intervals are any that never move back, as `check_intervals` enforces; memory is a function of addresses"
THEOREMS = (
    Theorem("rows of a column", "the rows that see a column form an interval, which the column kernel reads: no row is "
            "missed, inner rows see every column of the block",
            ("cca_lab.attention.kernels.interval.rows_of_columns",), rows_of_a_column, _BOUNDS),
    Theorem("phases of the kernels", "left boundary, interior and right boundary hold every column that some row of "
            "the block sees; every row sees the interior, which is whole blocks",
            ("cca_lab.attention.kernels.interval_forward.span_of_rows",
             "cca_lab.attention.kernels.interval_forward.split_phases"), phases, _BOUNDS),
    Theorem("widened tiles", "a masked tile of the blocked backend, widened to full vectors, holds its columns and "
            "stays inside", ("cca_lab.attention.plan._widen",), widened),
)
