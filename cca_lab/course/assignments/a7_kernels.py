"""a7: kernels in Triton, interpreted. A ragged sum, a softmax, pooling, a repair, and attention over intervals.

Nothing here imports triton: the answers do, in their own process. That an answer is a kernel is not checked; what is
checked is what kernels get wrong: edges, strides, padding, and memory that belongs to somebody else.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments import a7_attention as attention
from cca_lab.course.assignments import a7_rows as rows
from cca_lab.course.assignments.a7_oracles import SINGLE, cca_intervals, need_untouched, power_of_two, tiles
from cca_lab.course.assignments.a7_oracles import tiles_by_counting as counted
from cca_lab.course.compare import describe, need_close, need_equal, need_number, need_same
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Share, Task, case

# a7.1: by hand


def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check the numbers that were worked out for one launch."""
    got = answer()
    wanted: dict[str, Any] = {"programs": 6, "rows": [8, 9], "columns": [4, 5], "offset": 28, "program": [1, 1],
                              "masked": 36}
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(wanted)}")
    wrong = [key for key in wanted if (list(got[key]) if isinstance(got[key], tuple) else got[key]) != wanted[key]]
    return Share(1 - len(wrong) / len(wanted), f"not right yet: {', '.join(wrong)}") if wrong else None


# a7.2: a ragged sum


def sum_sizes(draw: Draw) -> list[tuple[int, int, int]]:
    """Return (n, block, programs), small ones first."""
    if not draw.secret:
        return [(3, 4, 1), (4, 4, 1), (10, 4, 2), (37, 8, 3), (5, 8, 4)]
    return sorted((draw.randint(1, 60), draw.choice([4, 8, 16]), draw.randint(1, 6)) for _ in range(5))


def sum_of(answer: Answer, draw: Draw, size: tuple[int, int, int]) -> tuple[Tensor, Any, Tensor, Tensor, Tensor]:
    """Return out and owner of the answer, and x + factor y, x + y, and out as it was."""
    n, block, programs = size
    x, y, out = (draw.normal(n + 2 * block, dtype=SINGLE) for _ in range(3))
    x[n:], y[n:] = float("nan"), float("nan")
    factor = 0.5 + draw.random()
    got = answer(x, y, out, n, factor, block, programs)
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Mistake(f"the result is {describe(got)}, wanted the tuple (out, owner)")
    if not isinstance(got[0], Tensor) or got[0].shape != out.shape:
        raise Mistake(f"out is {describe(got[0])}, wanted the tensor out of shape {tuple(out.shape)}")
    return got[0], got[1], x + factor * y, x + y, out


def sum_right(answer: Answer, draw: Draw) -> None:
    """The sum stands in the first n entries, the others are as they were."""
    for size in sum_sizes(draw):
        n, block, programs = size
        with case(f"n = {n}, block {block}, {programs} programs"):
            got, _, wanted, unscaled, before = sum_of(answer, draw, size)
            part = wanted[:n].clone()
            part[block * programs:] = before[block * programs : n]
            need_close(got[:n], wanted[:n], "out", causes={
                "y is not multiplied by the factor": unscaled[:n],
                "every program does only one block: the blocks after the first `programs` stay undone": part})
            need_untouched(got[n:], before[n:], "out[n:]", "where x and y end")


def sum_owner(answer: Answer, draw: Draw) -> None:
    """Program p does the blocks p, p + programs, and so on."""
    for size in sum_sizes(draw):
        n, block, programs = size
        with case(f"n = {n}, block {block}, {programs} programs"):
            owner = sum_of(answer, draw, size)[1]
            number = torch.arange(n + 2 * block) // block
            ended = torch.arange(n + 2 * block) >= n
            each = -(-((n + block - 1) // block) // programs)
            need_same(owner, (number % programs).masked_fill(ended, -1), "owner", causes={
                "every program does only one block": number.masked_fill(ended | (number >= programs), -1),
                "a program does neighbouring blocks": (number // each).masked_fill(ended, -1),
                "the number of the block is stored": number.masked_fill(ended, -1)})


# a7.5: the repair


def run_lse(answer: Answer, what: str, x: Tensor, block: int) -> None:
    """Compare the logarithm of the sum of exponentials of each row."""
    with case(f"{what}: x of shape {tuple(x.shape)}, block {block}"):
        padding = x.new_zeros(len(x), -x.shape[1] % block)
        need_close(answer(x.to(SINGLE), block), x.logsumexp(-1), "the result", tolerance=1e-5, causes={
            "columns behind the last one count as scores of 0": torch.cat([x, padding], 1).logsumexp(-1)})


def lse_tail(answer: Answer, draw: Draw) -> None:
    """One tile that reaches beyond the row."""
    for columns in (3, 5, draw.randint(9, 15) if draw.secret else 11):
        run_lse(answer, "one tile, not full", draw.normal(3, columns), power_of_two(columns))


def lse_tiles(answer: Answer, draw: Draw) -> None:
    """Several full tiles, with rising and falling maxima."""
    for count in (2, 3, draw.randint(4, 6) if draw.secret else 4):
        x = draw.normal(3, 4 * count).abs()
        rising = torch.arange(4 * count) // 4
        for what, trend in (("falling tiles", -rising), ("rising tiles", rising)):
            run_lse(answer, what, x + trend, 4)


def lse_all(answer: Answer, draw: Draw) -> None:
    """Far from 0 on both sides, ragged, several tiles."""
    for far in (0.0, 200.0, -200.0):
        run_lse(answer, f"scores near {far:g}", far + draw.normal(2, draw.randint(5, 23), scale=2.0), 4)


# a7.7: tiles


def tile_name(size: tuple[int, ...]) -> str:
    """Return the sizes for a message."""
    length, group, window, block, columns = size
    return f"length {length}, group {group}, window {window}, blocks of {block} rows, tiles of {columns} columns"


def last_rows(length: int, group: int, window: int, block: int, columns: int) -> int:
    """Count tiles as if a block read what its last row reads."""
    return sum(-((start - stop) // columns) for begin in range(0, length, block)
               for start, stop in cca_intervals(min(begin + block, length) - 1, group, window))


MISCOUNTS: dict[str, Callable[..., int]] = {
    "only the last row of a block counts": last_rows,
    "every row is a block of its own": lambda length, group, window, block, columns:
        counted(length, group, window, 1, columns),
    "all columns up to the block's last row are read": lambda length, group, window, block, columns:
        sum(-(-min(begin + block, length) // columns) for begin in range(0, length, block))}


def tiles_small(answer: Answer, draw: Draw) -> None:
    """Against the intervals of every row."""
    sizes = [(1, 1, 1, 4, 4), (4, 2, 2, 4, 4), (10, 3, 2, 4, 4), (40, 4, 6, 8, 4), (64, 3, 5, 16, 8), (61, 16, 7, 1, 2)]
    drawn = sorted((draw.randint(1, 90), draw.randint(1, 9), draw.randint(1, 12), 2 ** draw.randint(0, 4),
                    2 ** draw.randint(0, 4)) for _ in range(10))
    got = {}
    for size in drawn if draw.secret else sizes:
        with case(tile_name(size)):
            got[size] = need_number(answer(*size), "tiles")
    known = [(why, rule) for why, rule in MISCOUNTS.items() if all(rule(*size) == came for size, came in got.items())]
    for size, came in got.items():
        with case(tile_name(size)):
            need_equal(came, counted(*size), "tiles", causes={why: rule(*size) for why, rule in known})


def tiles_large(answer: Answer, draw: Draw) -> None:
    """Two billion tokens: blocks can be counted, rows cannot."""
    for size in [(2 * 10**9, 16, 1024, 2**18, 64), (10**9 + 7, 17, 4093, 2**16, 128)]:
        size = (draw.randint(10**9, 2 * 10**9), *size[1:]) if draw.secret else size
        with case(tile_name(size)):
            need_equal(answer(*size), tiles(*size), "tiles")


ASSIGNMENT = Assignment("a7", "kernels", "Kernels: pooling and interval attention in Triton",
                        ("01", "05", "06", "07"), (
    Task("a7.1", "by_hand", "Which program touches what", 10, 1, 3, (
        Property("the numbers of the launch", 2, by_hand),)),
    Task("a7.2", "scaled_sum", "A ragged sum", 20, 2, 4, (
        Property("the sum, and nothing behind it", 1, sum_right),
        Property("each program does the blocks that are its own", 1, sum_owner))),
    Task("a7.3", "softmax_rows", "Softmax of rows, wherever they stand", 20, 3, 4, (
        Property("the softmax of the visible columns, and nothing behind it", 1, rows.softmax_right),
        Property("any offset and strides", 1, rows.softmax_strides),
        Property("scores of 10000, and rows that see nothing", 1, rows.softmax_hard))),
    Task("a7.4", "pool", "Pooling of ragged groups", 30, 3, 5, (
        Property("cores of one head", 1, rows.pool_right),
        Property("batches, and query heads that share a key head", 1, rows.pool_heads),
        Property("NaN of other groups stays there", 1, rows.pool_nan))),
    Task("a7.5", "lse_rows", "A kernel with three mistakes", 10, 2, 4, (
        Property("a tile that is not full", 1, lse_tail),
        Property("several tiles", 1, lse_tiles),
        Property("all of it, far from 0", 1, lse_all, hidden=True))),
    Task("a7.6", "attention", "Attention over intervals", 60, 5, 5, (
        Property("one head and one interval equal one matrix", 2, attention.right),
        Property("several intervals, some empty", 1, attention.intervals),
        Property("shared key heads and a soft cap", 1, attention.heads),
        Property("scores near 10000 do no harm", 1, attention.large),
        Property("what no row reads or is stays untouched", 1, attention.trap, hidden=True))),
    Task("a7.7", "tiles_read", "How many tiles", 15, 3, 3, (
        Property("equal to counting", 1, tiles_small),
        Property("right for two billion tokens", 1, tiles_large, hidden=True))),
    Task("a7.8", "not_told", "What the interpreter does not tell", 15, 2, 4, (), read=2),
), seconds=60.0)
