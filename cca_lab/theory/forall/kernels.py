"""What the kernels rely on: rows that see a column form an interval, and the phases of a block."""

from types import SimpleNamespace
from unittest.mock import patch

from cca_lab.attention import plan
from cca_lab.theory.forall.core import theorem
from cca_lab.theory.forall.rows import positive
from cca_lab.theory.forall.terms import assume, every, function, most, number, rising, some, where

KERNELS = "cca_lab.attention.kernels."
BOUNDS = "the intervals are any that never move back, as `check_intervals` enforces"


@theorem("rows of a column", f"{KERNELS}interval.limits_of_block",
         by_hand=BOUNDS + "; `searchsorted` counts the rows whose start or end is below a limit")
def rows_of_a_column(rows, columns, block, j, c, i, first, all_from, all_to, last):
    """the rows that see a column form an interval, which the column kernel reads: no row is
    missed, inner rows see every column of the block.
    """
    from cca_lab.attention.kernels.interval import limits_of_block

    positive(rows, columns, block)
    assume(0 <= j, j * block < columns, j * block <= c, c < j * block + block, c < columns, 0 <= i,
           i < rows)
    starts, ends = function("start"), function("end")
    counts = [(ends, first), (ends, all_from), (starts, all_to), (starts, last)]
    limits = limits_of_block(j * block, columns, block) * 2
    for (values, count), limit in zip(counts, limits, strict=True):
        assume(0 <= count, count <= rows, some(count == 0, values(count - 1) < limit),
               some(count == rows, values(count) >= limit), rising(values, [i, count - 1, count]))
    seen = every(starts(i) <= c, number(c) < ends(i))
    return {"no row is missed": seen.implies(every(first <= i, i < last)),
            "inner rows see all": every(all_from <= i, i < all_to).implies(seen),
            "one column": (block == 1).implies(seen.iff(every(first <= i, i < last)))}


@theorem("phases of the kernels", f"{KERNELS}interval_forward.span_of_rows",
         f"{KERNELS}interval_forward.split_phases",
         by_hand=BOUNDS + "; memory is a function of addresses")
def phases(L, first, last, i, c, block):
    """left boundary, interior and right boundary hold every column that some row of the block
    sees; every row sees the interior, which is whole blocks.
    """
    from cca_lab.attention.kernels import interval_forward as kernel

    positive(L, block)
    assume(0 <= first, first <= i, i <= last, last < L)
    starts, ends = function("start"), function("end")
    assume(rising(starts, [first, i, last]), rising(ends, [first, i, last]))
    language = SimpleNamespace(maximum=most, where=where,
                               load=lambda at: where(at < L, starts(at), ends(at - L)))
    with patch.object(kernel, "tl", language):
        low, inner_low, inner_high, high = kernel.span_of_rows.fn(0, first, last, L)
        left_end, inner_end = kernel.split_phases.fn(low, inner_low, inner_high, high, block)
    seen = every(starts(i) <= c, number(c) < ends(i))
    phases_of_row = ((low, left_end), (left_end, inner_end), (inner_end, high))
    left, inner, right = (every(start <= c, c < end) for start, end in phases_of_row)
    return {"every column is in a phase": seen.implies(some(left, inner, right)),
            "phases follow each other": every(low <= left_end, left_end <= inner_end,
                                              some(inner_end <= high, inner_end == low)),
            "the interior needs no mask": inner.implies(seen),
            "the interior is whole blocks": (inner_end - left_end) % block == 0}


@theorem("widened tiles", "cca_lab.attention.plan._widen")
def widened(left, right, limit):
    """a masked tile of the blocked backend, widened to full vectors, holds its columns and
    stays inside.
    """
    assume(0 <= left, left < right, right <= limit)
    column, columns = plan._widen(left, right, limit)
    return every(0 <= number(column), column <= left, right <= column + columns,
                 column + columns <= limit)
