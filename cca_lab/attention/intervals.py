"""Column intervals: which keys each query row may see.

Row i sees up to four half-open column intervals [start, end) whose starts and ends never decrease
as i grows, in one int64 tensor (b, h, L, n, 2): batch (or 1), head (or 1), row, interval, pair.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from cca_lab.attention.arguments import check_tensors
from cca_lab.attention.eager import eager
from cca_lab.settings import check_integers

MAX_INTERVALS = 4


def maximum(value: Any, least: int) -> Any:
    """Return the larger of a number, or of each entry of a tensor, and `least`."""
    return value.clamp(min=least) if isinstance(value, Tensor) else max(value, least)


def minimum(value: Any, most: int) -> Any:
    """Return the smaller of a number, or of each entry of a tensor, and `most`."""
    return value.clamp(max=most) if isinstance(value, Tensor) else min(value, most)


def table_of(row: Tensor, *intervals: tuple[Any, Any]) -> Tensor:
    """Return n intervals (start, end), numbers or int64 (..., L), as (..., L, n, 2)."""
    bounds = [bound if isinstance(bound, Tensor) else torch.full_like(row, bound)
              for interval in intervals for bound in interval]
    return torch.stack(torch.broadcast_tensors(*bounds), dim=-1).unflatten(-1, (-1, 2))


class TensorCache:
    """Results computed from a tensor, kept until the tensor is freed or written into.

    Every layer of a model attends with the same intervals, which are checked and prepared once. On
    a CPU the content is summed and hashed at each use, for writes through NumPy or `.data` leave
    the version as it is; a write that only exchanges entries is not noticed.
    """

    def __init__(self) -> None:
        self._entries = WeakIdKeyDictionary()

    def get(self, tensor: Tensor, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return `compute()`, or its result for this key if the tensor has not changed since."""
        if tensor.is_inference():  # inference tensors have no version counter
            return compute()
        content = (tensor.sum().item(), torch.hash_tensor(tensor).item()) if tensor.is_cpu else None
        mark = tensor._version, content
        seen, results = self._entries.get(tensor, (None, {}))
        if seen != mark:
            results = {}
            self._entries[tensor] = mark, results
        if key not in results:
            results[key] = compute()
        return results[key]


def memoised(build: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Reuse the last eight results of a function that builds intervals: do not modify them."""
    @lru_cache(maxsize=8)
    def cached(*args: Any, **kwargs: Any) -> Tensor:
        # intervals built during inference must serve training too
        with torch.inference_mode(False):
            return build(*args, **kwargs)

    return wraps(build)(eager(cached))


_CHECKED = TensorCache()


def causal_intervals(length: int, columns: int | None = None, *,
                     device: torch.device | str = "cpu") -> Tensor:
    """Return the intervals of full causal attention: row i sees every column up to its own.

    If there are more columns than rows, the rows are the last ones (a chunk after a cache), so row
    i sees [0, columns - length + i + 1).

    Args:
        length: number of query rows L.
        columns: number of columns N, at least L; None means L.
        device: device of the result.

    Returns:
        int64 tensor (1, 1, L, 1, 2).

    Raises:
        ValueError: if there are fewer columns than rows, or a number is not a non-negative integer.
    """
    columns = length if columns is None else columns
    check_integers(0, length=length, columns=columns)
    if columns < length:
        raise ValueError(f"columns: got {columns} for {length} rows, wanted at least as many, or "
                         "the first rows would see nothing")
    row = torch.arange(length, device=device)
    return table_of(row, (0, causal_end(row, length, columns)))[None, None]  # (1, 1, L, 1, 2)


def causal_end(row: Any, rows: int, columns: int) -> Any:
    """Return before which column a row (or tensor) ends if the rows are the last of the columns."""
    return columns - rows + row + 1


def visible_mask(intervals: Tensor, columns: int) -> Tensor:
    """Return the mask that intervals (b, h, L, n, 2) of N columns describe, bool (b, h, L, N)."""
    check_tensors(intervals=intervals)
    column = torch.arange(columns, device=intervals.device)
    starts, ends = intervals.unsqueeze(-1).unbind(dim=-2)  # each (b, h, L, n, 1)
    return ((column >= starts) & (column < ends)).any(dim=-2)


def count_pairs(intervals: Tensor) -> int:
    """Count the visible (query, key) pairs, summed over the b and h entries of `intervals`."""
    check_tensors(intervals=intervals)
    return int((intervals[..., 1] - intervals[..., 0]).sum())


@eager
def check_intervals(intervals: Tensor, batch: int, heads: int, rows: int, columns: int) -> None:
    """Raise a ValueError that names the first invalid entry of `intervals`, in O(L).

    Valid intervals are not checked again until they are written into (see `TensorCache`).

    Args:
        intervals: the tensor to check.
        batch, heads, rows, columns: B, H, L and N of the attention that uses it.

    Raises:
        ValueError: for a wrong dtype or shape, a start or end outside [0, N], a start after its
            end, overlapping intervals in one row, a start or end that moves back from row to row,
            or a row that sees nothing.
    """
    _check_shape(intervals, batch, heads, rows)
    _CHECKED.get(intervals, columns, lambda: _check_rows(intervals.detach().cpu(), columns))


def _check_rows(intervals: Tensor, columns: int) -> None:
    """Raise a ValueError for the first row of `intervals` (b, h, L, n, 2) that is not valid."""
    starts, ends = intervals.unbind(dim=-1)  # each (b, h, L, n)
    _refuse(is_reversed(starts, ends), intervals, "starts after it ends",
            "write an empty interval as start == end")
    _refuse(is_outside(starts, ends, columns), intervals, f"is out of range for {columns} columns",
            f"keep 0 <= start <= end <= {columns}")
    _refuse(is_empty(starts, ends).all(dim=-1), intervals,
            "sees no column (every interval is empty)",
            "give each row at least one column: a softmax over nothing is NaN")
    bounds = list(zip(starts.unbind(-1), ends.unbind(-1), strict=True))
    for first, second in combinations(range(len(bounds)), 2):
        _refuse(overlap(bounds[first], bounds[second]), intervals,
                f"has overlapping intervals {first} and {second}",
                "a column may be counted once only; make the intervals of a row disjoint")
    back = moves_back((starts[:, :, :-1], ends[:, :, :-1]), (starts[:, :, 1:], ends[:, :, 1:]))
    _refuse(
        torch.nn.functional.pad(back, (0, 0, 1, 0)), intervals, "moves back from the row before",
        "starts and ends may only grow (or stay) from row to row, those of empty intervals too")


# What `check_intervals` refuses, of one interval or elementwise of tensors of them.


def is_reversed(start: Any, end: Any) -> Any:
    """Return whether an interval starts after it ends."""
    return start > end


def is_outside(start: Any, end: Any, columns: int) -> Any:
    """Return whether an interval leaves the columns [0, N)."""
    return (start < 0) | (end > columns)


def is_empty(start: Any, end: Any) -> Any:
    """Return whether an interval has no column."""
    return end <= start


def overlap(interval: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """Return whether two intervals share a column."""
    return ((interval[0] < other[1]) & (other[0] < interval[1]) & ~is_empty(*interval)
            & ~is_empty(*other))


def moves_back(before: tuple[Any, Any], after: tuple[Any, Any]) -> Any:
    """Return whether the start or the end of an interval is smaller in the next row."""
    return (after[0] < before[0]) | (after[1] < before[1])


def _check_shape(intervals: Tensor, batch: int, heads: int, rows: int) -> None:
    if not isinstance(intervals, Tensor) or intervals.dtype != torch.int64:
        got = intervals.dtype if isinstance(intervals, Tensor) else type(intervals).__name__
        raise ValueError(f"intervals: got {got}, wanted a torch.int64 tensor; use .long()")
    shape = tuple(intervals.shape)
    fits = (len(shape) == 5 and shape[0] in (1, batch) and shape[1] in (1, heads)
            and shape[2] == rows and 1 <= shape[3] <= MAX_INTERVALS and shape[4] == 2)
    if not fits:
        raise ValueError(
            f"intervals: got shape {shape}, wanted (1 or {batch}, 1 or {heads}, {rows}, "
            f"1..{MAX_INTERVALS}, 2): batch, head, query row, interval, (start, end)")


def _refuse(bad: Tensor, intervals: Tensor, what: str, advice: str) -> None:
    """Raise for the first True of `bad`: (b, h, L) marks invalid rows, (b, h, L, n) intervals."""
    if not bad.any():
        return
    batch, head, row, *index = bad.nonzero()[0].tolist()
    name = f"intervals[{batch}, {head}, {row}" + (f", {index[0]}]" if index else "]")
    raise ValueError(f"{name} = {intervals[(batch, head, row, *index)].tolist()} {what}; {advice}")
