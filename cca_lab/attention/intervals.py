"""Column intervals: which keys each query row may see.

For almost every mechanism of the lab, row i sees a handful of half-open column intervals [start, end)
whose ends never move back as i grows. They are written down as one int64 tensor (b, h, L, n, 2): batch
(or 1), head (or 1), query row, up to four intervals, and the pair (start, end).
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from cca_lab.attention.arguments import check_tensors
from cca_lab.ranges import check_integers

MAX_INTERVALS = 4


class TableNotes:
    """What was found out about tables of intervals, for as long as they live and nobody writes into them.

    Every layer of a model attends with the same table: checking it and preparing it once is enough. Writes
    through NumPy or `.data`, which torch does not count, are not seen.
    """

    def __init__(self) -> None:
        self._notes = WeakIdKeyDictionary()

    def get(self, table: Tensor, question: Hashable, answer: Callable[[], Any]) -> Any:
        """Return `answer()`, or what it was when the same question was asked about the same table."""
        if table.is_inference():  # it has no count of the writes into it
            return answer()
        version, notes = self._notes.get(table, (None, {}))
        if version != table._version:
            notes = {}
            self._notes[table] = table._version, notes
        if question not in notes:
            notes[question] = answer()
        return notes[question]


def remembered(build: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorate a function of numbers that builds a table: the latest tables are kept, and not to be written into."""
    @lru_cache(maxsize=8)
    def kept(*args: Any, **kwargs: Any) -> Tensor:
        with torch.inference_mode(False):  # a table made for inference must serve training too
            return build(*args, **kwargs)

    return wraps(build)(torch.compiler.disable(kept))


_CHECKED = TableNotes()


def causal_intervals(length: int, columns: int | None = None, *,
                     device: torch.device | str = "cpu") -> Tensor:
    """Intervals of full causal attention: row i sees every column up to its own.

    With more columns than rows the rows are the last ones (a chunk after a cache), so row i sees
    [0, columns - length + i + 1).

    Args:
        length: number of query rows L.
        columns: number of columns N, at least L; defaults to L.
        device: where the tensor is made.

    Returns:
        int64 tensor (1, 1, L, 1, 2).

    Raises:
        ValueError: if there are fewer columns than rows, or a number is no integer.
    """
    columns = length if columns is None else columns
    check_integers(0, length=length, columns=columns)
    if columns < length:
        raise ValueError(f"columns is {columns}, fewer than the {length} rows: the first rows would see "
                         "nothing; pass columns >= length")
    ends = torch.arange(columns - length + 1, columns + 1, device=device)
    return torch.stack([torch.zeros_like(ends), ends], dim=-1)[None, None, :, None]  # (1, 1, L, 1, 2)


def visible_mask(intervals: Tensor, columns: int) -> Tensor:
    """The boolean mask that intervals stand for.

    Args:
        intervals: int64 (b, h, L, n, 2).
        columns: number of columns N.

    Returns:
        bool tensor (b, h, L, N), True where the row may see the column.
    """
    check_tensors(intervals=intervals)
    column = torch.arange(columns, device=intervals.device)
    starts, ends = intervals.unsqueeze(-1).unbind(dim=-2)  # each (b, h, L, n, 1)
    return ((column >= starts) & (column < ends)).any(dim=-2)


def count_pairs(intervals: Tensor) -> int:
    """Number of (query, key) pairs that one batch and head of `intervals` computes, summed over b and h."""
    check_tensors(intervals=intervals)
    return int((intervals[..., 1] - intervals[..., 0]).sum())


@torch.compiler.disable
def check_intervals(intervals: Tensor, batch: int, heads: int, rows: int, columns: int) -> None:
    """Raise a ValueError that names the first fault of `intervals`, or return None.

    The cost is O(L): a few passes over the table and one copy to the CPU if it lives elsewhere. A table that was
    found right is not looked at again until it is written into (through torch: see `TableNotes`).

    Args:
        intervals: what the caller passed.
        batch, heads, rows, columns: B, H, L and N of the attention it is meant for.

    Raises:
        ValueError: wrong dtype or shape, an end outside [0, N], a start after its end, overlapping intervals
            of one row, an end that moves back, a row that sees nothing.
    """
    _check_table_shape(intervals, batch, heads, rows)
    _CHECKED.get(intervals, columns, lambda: _check_rows(intervals.detach().cpu(), columns))


def _check_rows(table: Tensor, columns: int) -> None:
    """Raise a ValueError for the first row of a table, (b, h, L, n, 2), that `check_intervals` refuses."""
    starts, ends = table.unbind(dim=-1)  # each (b, h, L, n)
    _refuse(starts > ends, table, "starts after it ends", "write an empty interval as start == end")
    _refuse((starts < 0) | (ends > columns), table, f"is out of range for {columns} columns",
            f"keep 0 <= start <= end <= {columns}")
    _refuse((ends <= starts).all(dim=-1), table, "sees no column (every interval is empty)",
            "give each row at least one column: a softmax over nothing is NaN")
    for one, other in combinations(range(table.shape[3]), 2):
        shared_start = torch.maximum(starts[..., one], starts[..., other])
        shared_end = torch.minimum(ends[..., one], ends[..., other])
        _refuse(shared_start < shared_end, table, f"has overlapping intervals {one} and {other}",
                "a column may be counted once only; make the intervals of a row disjoint")
    back = (starts[:, :, 1:] < starts[:, :, :-1]) | (ends[:, :, 1:] < ends[:, :, :-1])
    _refuse(torch.nn.functional.pad(back, (0, 0, 1, 0)), table, "moves back from the row before",
            "starts and ends may only grow (or stay) from row to row, those of empty intervals too")


def _check_table_shape(intervals: Tensor, batch: int, heads: int, rows: int) -> None:
    if not isinstance(intervals, Tensor) or intervals.dtype != torch.int64:
        got = intervals.dtype if isinstance(intervals, Tensor) else type(intervals).__name__
        raise ValueError(f"intervals has dtype {got}; wanted a torch.int64 tensor (use .long())")
    shape = tuple(intervals.shape)
    fits = (len(shape) == 5 and shape[0] in (1, batch) and shape[1] in (1, heads) and shape[2] == rows
            and 1 <= shape[3] <= MAX_INTERVALS and shape[4] == 2)
    if not fits:
        raise ValueError(f"intervals has shape {shape}; wanted (1 or {batch}, 1 or {heads}, {rows}, "
                         f"1..{MAX_INTERVALS}, 2): batch, head, query row, interval, (start, end)")


def _refuse(bad: Tensor, table: Tensor, what: str, advice: str) -> None:
    """Raise for the first True of `bad`, (b, h, L) for a fault of a row or (b, h, L, n) for one interval."""
    if not bad.any():
        return
    batch, head, row, *slot = bad.nonzero()[0].tolist()
    name = f"intervals[{batch}, {head}, {row}" + (f", {slot[0]}]" if slot else "]")
    raise ValueError(f"{name} = {table[(batch, head, row, *slot)].tolist()} {what}; {advice}")
