"""a7: kernels in Triton, interpreted: a softmax and attention.

Nothing here imports triton: the answers do, in their own process. Checked is what kernels get
wrong: edges, strides, padding, and memory that belongs to somebody else.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import by_hand
from cca_lab.course.exercise import equals, examples, in_bounds, slips
from cca_lab.course.tasks import Assignment, CourseTask, Draw

INF = math.inf


def single(draw: Draw, *shape: int) -> Tensor:
    """Return independent normal numbers in single precision."""
    return draw.normal(*shape, dtype=torch.float32)


def power_of_two(size: int) -> int:
    """Return the least power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


# a7.2: softmax of rows
def softmax_rows(memory: Tensor, offset: int, strides: tuple[int, int], lengths: Tensor,
                 columns: int, out: Tensor) -> Tensor:
    """Return out with the softmax of each row's visible scores in its first columns."""
    row, column = torch.arange(len(lengths))[:, None], torch.arange(power_of_two(columns))
    place = offset + row * strides[0] + column * strides[1]
    seen = column < lengths[:, None]
    scores = memory[place.clamp(max=len(memory) - 1)].double().masked_fill(~seen, -INF)
    powers = (scores - scores.amax(-1, keepdim=True).clamp(min=-1e9)).exp()
    weights = powers / powers.sum(-1, keepdim=True).where(seen.any(-1, keepdim=True), 1.0)
    got = out.double()
    got[:, :columns] = weights[:, :columns]
    return got


def rows_of(draw: Draw, rows: int, columns: int, scores_near: int = 0, offset: int = 0,
            row_stride: int | None = None, column_stride: int = 1) -> tuple[Any, ...]:
    """Return scores in memory, between NaN; the first row sees all of them, the last the least."""
    by_row, least = columns if row_stride is None else row_stride, 0 if scores_near else 1
    lengths = [columns, *(draw.randint(least, columns) for _ in range(rows - 2)), least][:rows]
    place = (offset + by_row * torch.arange(rows)[:, None] + column_stride * torch.arange(columns))
    memory = torch.full((int(place.max()) + 40,), math.nan)
    seen = torch.arange(columns) < torch.tensor(lengths if by_row else [columns] * rows)[:, None]
    # 10000 and a small integer are exact in single precision
    memory[place[seen]] = (scores_near + draw.integers(-3, 4, rows, columns).float()
                           if scores_near else single(draw, rows, columns))[seen]
    return (memory, offset, (by_row, column_stride), seen.sum(1), columns,
            single(draw, rows, 2 * power_of_two(columns) + 1))


# a7.3: attention over several intervals
def attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor, out: Tensor, scale: float,
              cap: float | None, rows: int, columns: int) -> Tensor:
    """Return out with attention over intervals in its first L rows, as a right kernel does."""
    got, length = out.clone(), q.shape[1]
    head = torch.arange(len(q)) // (len(q) // len(k))
    keys, values = k[head], v[head]
    for first in range(0, length, rows):
        mine, bounds = q[:, first : first + rows], table[first : first + rows]
        top = torch.full((*mine.shape[:2], 1), -INF)
        total, sums = torch.zeros_like(top), torch.zeros_like(mine)
        for starts, ends in bounds.permute(1, 2, 0)[..., None]:
            for left in range(int(starts.min()), int(ends.max()), columns):
                tile = torch.arange(left, min(left + columns, k.shape[1]))
                seen = (tile >= starts) & (tile < ends)
                load = seen.any(0)[:, None]
                scores = scale * mine @ keys[:, tile].where(load, 0.0).mT
                if cap is not None:
                    scores = cap * (scores / cap).tanh()
                scores = scores.masked_fill(~seen, -INF)
                new = torch.maximum(top, scores.amax(-1, keepdim=True))
                still = new.masked_fill(new == -INF, 0.0)
                factor, powers = (top - still).exp(), (scores - still).exp()
                total = factor * total + powers.sum(-1, keepdim=True)
                sums = factor * sums + powers @ values[:, tile].where(load, 0.0)
                top = new
        got[:, first : first + mine.shape[1]] = sums / total.where(total > 0, 1.0)
    return got


def over(draw: Draw, length: int, intervals: int, block_rows: int, block_columns: int,
         heads: int = 1, key_heads: int = 1, cap: float | None = None, scores_near: int = 0, *,
         empty: bool = False, nan: bool = False) -> tuple[Any, ...]:
    """Return the arguments of attention, over intervals with gaps that share no columns.

    Intervals, and a row in the middle, may be `empty`; columns that no row reads may hold `nan`.
    """
    spans, begin = [], 0
    for number in range(intervals):
        last = number == intervals - 1
        begin, wide = begin + draw.randint(0, 3), length if last else draw.randint(1, length)
        rows = []
        for row in range(length):
            end = row + 1 if last else draw.randint(0, wide)
            start = draw.randint(0, end if empty else max(0, end - 1))
            rows.append([begin + (end if empty and row == length // 2 else start), begin + end])
        spans.append(torch.tensor(rows))
        begin += wide
    table, columns = torch.stack(spans, 1), begin + draw.randint(1, 20)
    q, out = single(draw, heads, length, 3), single(draw, heads, length + block_rows, 3)
    k, v = single(draw, key_heads, columns, 3), single(draw, key_heads, columns, 3)
    if scores_near:
        q[..., 0], k[..., 0] = 100.0, scores_near / 50.0
    if nan:
        column = torch.arange(columns)
        unread = ~((column >= table[..., :1]) & (column < table[..., 1:])).flatten(0, 1).any(0)
        k[:, unread] = v[:, unread] = math.nan
    return q, k, v, table, out, 0.5, cap, block_rows, block_columns


# a7.4: tiles
def tiles(length: int, group: int, window: int, block_rows: int, block_columns: int) -> int:
    """Return how many tiles all blocks of rows of CCA-Attention read."""
    count = 0
    for first in range(0, length, block_rows):
        last = min(first + block_rows, length) - 1
        start = group * max(0, (first + 1 - window) // group)
        for span in (max(0, (last + 1 - window) // group), last + 1 - start):
            count += -(-span // block_columns)
    return count


def by_counting(length: int, group: int, window: int, block_rows: int, block_columns: int) -> int:
    """Return the same from what every row of a block reads."""
    count = 0
    for first in range(0, length, block_rows):
        rows = range(first, min(first + block_rows, length))
        cores = [max(0, (row + 1 - window) // group) for row in rows]
        raw = min(group * n for n in cores)
        count += len(range(0, max(cores), block_columns))
        count += len(range(raw, rows[-1] + 1, block_columns))
    return count


SIZES = "length group window block_rows block_columns"
ASSIGNMENT = Assignment("a7", "kernels", "Kernels: a softmax and interval attention in Triton",
                        ("01", "03"), (
    CourseTask("a7.1", "by_hand", "Which program touches what", 10, 1, (
        by_hand("the numbers of the launch",
                {"programs": 6, "rows": [8, 9], "columns": [4, 5], "offset": 28, "program": [1, 1],
                 "masked": 36},
                {"offset": 24}, {"masked": 96}, {"columns": [4, 5, 6, 7]}),)),
    CourseTask("a7.2", "softmax_rows", "Softmax of rows, wherever they stand", 35, 3, (
        equals("the softmax of the visible columns, and nothing behind it", softmax_rows, examples(
            rows_of, (1, 4), (2, 3), (3, 5), (4, 17), larger=((2, 5), (3, 40))), "out", points=3,
            why="memory holds NaN wherever no visible score stands: is the load masked?",
            wrong=slips(softmax_rows, {
            "columns that the row does not see count as scores of 0": ("-INF", "0.0"),
            "columns that the row does not see count as scores of 0 in the denominator":
                ("-INF", "0.0", "= weights[", "= weights.where(seen, 0.0)["),
            "the whole tile is stored, also behind the last column":
                ("got[:, :columns] = weights[:, :columns]", "got[:, : len(column)] = weights"),
            "all columns are loaded, those too that the row does not see":
                ("lengths[:, None]", "torch.full_like(lengths, columns)[:, None]")})),
        equals("any offset and strides", softmax_rows, examples(
            rows_of, (2, 3, 0, 1, 1, 2), (3, 5, 0, 2, 1, 3), (3, 4, 0, 0, 9, 2), (2, 5, 0, 7, 0, 1),
            (5, 3, 0, 5, 8, 1), larger=((2, 5), (3, 9), [0], (1, 9), (0, 30), (2, 4))), "out",
            why="memory holds NaN wherever no visible score stands: are offset and both strides "
                "used?", wrong=slips(softmax_rows, {
            "the offset is forgotten": ("= offset + row", "= row"),
            "both strides are exchanged; the first is that of the rows":
                ("place = offset", "strides = strides[::-1]; place = offset"),
            "the strides are not used: the rows stand one behind the other":
                ("strides[0]", "columns", "* strides[1]", "")})),
        equals("scores of 10000, and rows that see nothing", softmax_rows, examples(
            rows_of, (2, 3, 1), (3, 6, 10000), (3, 7, -10000), (4, 12, 9000),
            larger=((2, 5), (3, 30), [-10000, 9000, 10000])), "out", wrong=slips(softmax_rows, {
            "no maximum is subtracted before exp":
                ("- scores.amax(-1, keepdim=True).clamp(min=-1e9)", ""),
            "a row of length 0 has the maximum -inf, and -inf - (-inf) is NaN":
                (".clamp(min=-1e9)", "", ".where(seen.any(-1, keepdim=True), 1.0)", "")}))),
               drive=in_bounds),
    CourseTask("a7.3", "attention", "Attention over several intervals", 75, 5, (
        equals("several intervals, some empty", attention, examples(
            partial(over, empty=True), (2, 2, 2, 2), (5, 2, 4, 4), (6, 3, 4, 2), (13, 4, 8, 4),
            larger=((4, 14), (3, 4), [2, 4, 8], [2, 4])), "out", points=4, wrong=slips(
            attention, {
            "the scale is lost": ("scale * mine", "mine"),
            "only the first interval is read": ("+ rows]\n", "+ rows, :1]\n"),
            "the last interval is forgotten": ("+ rows]\n", "+ rows, :-1]\n"),
            "the old terms are not corrected when the maximum grows":
                ("factor * total", "total", "factor * sums", "sums"),
            "the old sum is not corrected when the maximum grows": ("factor * total", "total"),
            "the old weighted sum is not corrected when the maximum grows":
                ("factor * sums", "sums"),
            "a row that has seen nothing yet has the maximum -inf, and -inf - (-inf) is NaN":
                (".masked_fill(new == -INF, 0.0)", ""),
            "a row that reads nothing at all is 0/0; it gets zeros":
                (".where(total > 0, 1.0)", ""),
            "rows behind the last one are stored: mask=rows < L":
                ("return got", "got[:, length : -(-length // rows) * rows] = 0.0; return got")})),
        equals("shared key heads and a soft cap", attention, examples(
            over, (5, 2, 4, 8, 2, 2, 5.0), (5, 2, 4, 8, 4, 2, 1.5), (7, 2, 8, 4, 4, 2, 0.7),
            (6, 2, 4, 8, 3, 1, 20.0)), "out", points=3, wrong=slips(attention, {
            "query head h reads key head h % Hk, not h // (H // Hk)":
                ("// (len(q) // len(k))", "% len(k)"),
            "the soft cap is lost": ("if cap is not None", "if False"),
            "the soft cap comes before the scale; it comes after it":
                ("cap * (scores / cap)", "scale * cap * (scores / scale / cap)")})),
        equals("scores near 10000 do no harm", attention, examples(
            over, *((length, 2, 4, 4, 1, 1, None, near)
                    for length, near in ((3, 200), (9, 10000), (9, -10000)))), "out",
            tolerance=1e-2, wrong=slips(attention, {  # 10000 in single precision is +- 0.001
            "no running maximum is subtracted": (
                "[:2], 1), -INF)", "[:2], 1), 0.0)",
                "torch.maximum(top, scores.amax(-1, keepdim=True))", "top")})),
        equals("what no row reads is not loaded", attention, examples(
            partial(over, empty=True, nan=True), (3, 3, 4, 4), (9, 3, 4, 8), (20, 3, 8, 8),
            larger=((6, 23), (2, 3), [4, 8], [4, 8])), "out", points=2, hidden=True,
            why="was a column of a tile loaded that no row reads? 0 times NaN is NaN",
            wrong=slips(attention, {
            "all columns of a tile are loaded, and 0 times NaN is NaN":
                ("seen.any(0)", "(tile >= 0)")}))),
               drive=in_bounds),
    CourseTask("a7.4", "tiles_read", "How many tiles", 25, 3, (
        replace(equals("equal to counting", by_counting, examples(
            SIZES, (1, 1, 1, 4, 4), (4, 2, 2, 4, 4), (10, 3, 2, 4, 4), (40, 4, 6, 8, 4),
            (64, 3, 5, 16, 8), (61, 16, 7, 1, 2), larger=(
                (20, 90), (2, 9), (1, 12), [2, 4, 8, 16], [1, 2, 4, 8])), "tiles",
            points=2, wrong=slips(tiles, {
            "only the last row of a block counts": ("(first + 1", "(last + 1"),
            "the cores are forgotten": ("in (max(0, (last + 1 - window) // group),", "in (0,"),
            "the last tile is not counted where it is partly used":
                ("-(-span // block_columns)", "span // block_columns")}) | {
            "every row is a block of its own": lambda length, group, window, rows, columns:
                tiles(length, group, window, 1 if length < 10**6 else rows, columns),
            "all columns up to the block's last row are read":
                lambda length, group, window, rows, columns:
                tiles(length, group, length, rows, columns)}), right=tiles),
        equals("right for two billion tokens", tiles, examples(
            SIZES, (2 * 10**9, 16, 1024, 2**18, 64), larger=(
                (10**9, 2 * 10**9), (16, 20), (1000, 5000), [2**16, 2**18], [64, 128]), count=3),
            "tiles", points=2, hidden=True, wrong={
            "single precision is too coarse: count with integers": lambda *size:
                int(torch.tensor(float(tiles(*size))).item())}))),
    CourseTask("a7.5", "not_told", "What the interpreter does not tell", 15, 2, (), read=2),
), seconds=60.0)
