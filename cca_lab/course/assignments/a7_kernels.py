"""a7: kernels in Triton, interpreted: a sum, a softmax, pooling, a repair, attention.

Nothing here imports triton: the answers do, in their own process. Checked is what kernels get
wrong: edges, strides, padding, and memory that belongs to somebody else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import (
    NOT_FINITE,
    by_hand,
    describe,
    many,
    need_close,
    need_equal,
    need_items,
    need_number,
    need_same,
)
from cca_lab.course.compare import first as first_of
from cca_lab.course.exercise import in_bounds
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case

# What the kernels of a7 should compute, in plain torch and float64, and the usual ways to get it
# wrong.

SINGLE = torch.float32
NOTHING = float("-inf")


def need_untouched(got: Tensor, before: Tensor, what: str, where: str) -> None:
    """Check that memory which belongs to nobody's result still holds what it held."""
    changed = got != before.to(got.dtype)
    if changed.any():
        raise Mistake(f"{what} was written to, {where}: entry {list(first_of(changed))} of it is "
                      f"{describe(got[first_of(changed)].item())}. Is the store masked?")


def power_of_two(size: int) -> int:
    """Return the least power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


def pooled(q: Tensor, k: Tensor, v: Tensor, starts: list[int], scale: float, *, judge: int = -1,
           tile: bool = False, zeros: bool = False, summed: bool = False,
           mapping: str = "block") -> tuple[Tensor, Tensor]:
    """Return core keys and core values (B, Hk, M, D), float64, of groups that begin at `starts`.

    The keywords are mistakes: the token that judges; all tokens of the `tile` count, or its padding
    as scores of 0; queries of heads are `summed`; key heads are shared in another `mapping`.
    """
    q, k, v = q.double(), k.double(), v.double()
    shared = q.shape[2] // k.shape[2]
    width = power_of_two(max(b - a for a, b in zip(starts, starts[1:], strict=False)))
    cores = []
    for first, end in zip(starts, starts[1:], strict=False):
        query = q[:, first if judge == 0 else end - 1]  # (B, H, D)
        split = (k.shape[2], shared) if mapping == "block" else (shared, k.shape[2])
        query = query.unflatten(1, split).mean(2 if mapping == "block"
                                               else 1) * (shared if summed else 1)
        stop = min(first + width, k.shape[1]) if tile else end
        scores = scale * torch.einsum("bhd,bthd->bht", query, k[:, first:stop])
        if zeros:
            scores = torch.cat([scores, scores.new_zeros(*scores.shape[:2], width - (end - first))],
                               dim=-1)
        weights = scores.softmax(-1)[..., : stop - first]
        cores.append([torch.einsum("bht,bthd->bhd", weights, x[:, first:stop]) for x in (k, v)])
    keys, values = (torch.stack(side, dim=2) for side in zip(*cores, strict=True))
    return keys, values


def attended(q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float, cap: float | None = None,
             mapping: str = "block") -> Tensor:
    """Return attention over intervals (L, n, 2) by one matrix, (H, L, D), float64.

    Empty rows give zeros, and columns that no row reads may hold anything. Scores become
    cap * tanh(score / cap). The mapping "cyclic" of key heads is a mistake.
    """
    seen = seen_columns(table, k.shape[1])
    shared = len(q) // len(k)
    index = torch.arange(len(q)) // shared if mapping == "block" else torch.arange(len(q)) % len(k)
    k, v = (x.double().masked_fill(~seen.any(0)[:, None], 0.0)[index] for x in (k, v))
    scores = scale * q.double() @ k.mT
    scores = scores if cap is None else cap * (scores / cap).tanh()
    weights = scores.masked_fill(~seen, NOTHING).softmax(-1)
    return weights.masked_fill(~seen.any(1)[:, None], 0.0) @ v


def seen_columns(table: Tensor, columns: int) -> Tensor:
    """Return which columns each row reads, bool (L, columns)."""
    column = torch.arange(columns)
    return ((column >= table[..., :1]) & (column < table[..., 1:])).any(dim=1)


def cca_intervals(row: int, group: int, window: int) -> list[tuple[int, int]]:
    """Return the intervals of one row of CCA-Attention: cores, and raw tokens."""
    cores = max(0, (row + 1 - window) // group)
    return [(0, cores), (group * cores, row + 1)]


def tiles(length: int, group: int, window: int, block_rows: int, block_columns: int) -> int:
    """Count the tiles of CCA-Attention in all blocks of rows, from their first and last rows."""
    count = 0
    for first in range(0, length, block_rows):
        above = cca_intervals(first, group, window)
        below = cca_intervals(min(first + block_rows, length) - 1, group, window)
        count += sum(-(-(stop - start) // block_columns)
                     for (start, _), (_, stop) in zip(above, below, strict=True))
    return count


def tiles_by_counting(length: int, group: int, window: int, block_rows: int,
                      block_columns: int) -> int:
    """Count the same from every row's intervals."""
    count = 0
    for first in range(0, length, block_rows):
        rows = [cca_intervals(row, group, window)
                for row in range(first, min(first + block_rows, length))]
        for kind in range(2):
            spans = [row[kind] for row in rows if row[kind][0] < row[kind][1]]
            if spans:
                low, high = min(start for start, _ in spans), max(stop for _, stop in spans)
                count += len(range(low, high, block_columns))
    return count


# a7.2: a ragged sum

def sum_sizes(draw: Draw) -> list[tuple[int, int, int]]:
    """Return (n, block, programs), small ones first."""
    if not draw.secret:
        return [(3, 4, 1), (4, 4, 1), (10, 4, 2), (37, 8, 3), (5, 8, 4)]
    return sorted((draw.randint(1, 60), draw.choice([4, 8, 16]), draw.randint(1, 6))
                  for _ in range(5))


def sum_of(answer: Answer, draw: Draw,
           size: tuple[int, int, int]) -> tuple[Tensor, Any, Tensor, Tensor, Tensor]:
    """Return out and owner of the answer, and x + factor y, x + y, and out as it was."""
    n, block, programs = size
    x, y, out = (draw.normal(n + 2 * block, dtype=SINGLE) for _ in range(3))
    x[n:], y[n:] = float("nan"), float("nan")
    factor = 0.5 + draw.random()
    got = answer(x, y, out, n, factor, block, programs)
    need_items(got, 2, "the tuple (out, owner)")
    if not isinstance(got[0], Tensor) or got[0].shape != out.shape:
        raise Mistake(f"out is {describe(got[0])}, wanted the tensor out of shape "
                      f"{tuple(out.shape)}")
    return got[0], got[1], x + factor * y, x + y, out


def sum_right(answer: Answer, draw: Draw) -> None:
    """The sum stands in the first n entries, the others are as they were."""
    for size in sum_sizes(draw):
        n, block, programs = size
        with case(f"n = {n}, block {block}, {many(programs, 'program')}"):
            got, _, wanted, unscaled, before = sum_of(answer, draw, size)
            undone = wanted[:n].clone()
            undone[block * programs:] = before[block * programs : n]
            need_close(got[:n], wanted[:n], "out",
                       causes={"y is not multiplied by the factor": unscaled[:n],
                               "every program does only one block: the blocks after the first "
                               "`programs` stay undone": undone})
            need_untouched(got[n:], before[n:], "out[n:]", "where x and y end")


def sum_owner(answer: Answer, draw: Draw) -> None:
    """Program p does the blocks p, p + programs, and so on."""
    for size in sum_sizes(draw):
        n, block, programs = size
        with case(f"n = {n}, block {block}, {many(programs, 'program')}"):
            owner = sum_of(answer, draw, size)[1]
            number = torch.arange(n + 2 * block) // block
            ended = torch.arange(n + 2 * block) >= n
            each = -(-((n + block - 1) // block) // programs)
            need_same(owner, (number % programs).masked_fill(ended, -1), "owner", causes={
                "every program does only one block":
                    number.masked_fill(ended | (number >= programs), -1),
                "a program does neighbouring blocks": (number // each).masked_fill(ended, -1),
                "the number of the block is stored": number.masked_fill(ended, -1)})


# a7.3: softmax of rows

@dataclass(frozen=True)
class RowsInMemory:
    """One example: how many rows and columns, and where they stand in memory."""

    rows: int
    columns: int
    offset: int
    strides: tuple[int, int]

    def __str__(self) -> str:
        return (f"{many(self.rows, 'row')}, {self.columns} columns, offset {self.offset}, "
                f"strides {self.strides}")


def run_softmax(answer: Answer, draw: Draw, size: RowsInMemory, lengths: Sequence[int],
                scores: Tensor) -> Tensor:
    """Put scores into memory among NaN, run the answer, and compare; return what was wanted."""
    seen = torch.arange(size.columns) < torch.tensor(lengths)[:, None]
    far = size.offset + (size.rows - 1) * size.strides[0] + (size.columns - 1) * size.strides[1]
    address = torch.tensor(size.strides) @ torch.stack(torch.meshgrid(
        torch.arange(size.rows), torch.arange(size.columns),
        indexing="ij")).flatten(1) + size.offset
    memory = torch.full((far + 40,), float("nan"))
    memory[address[seen.flatten()]] = scores[seen].to(SINGLE)
    # Rows of stride 0 share their scores.
    scores = memory[address].view(size.rows, size.columns).double()
    out = draw.normal(size.rows, 2 * power_of_two(size.columns) + 1, dtype=SINGLE)
    wanted = softmax(scores, seen)
    tail = power_of_two(size.columns) - size.columns
    zeros = torch.nn.functional.pad(scores.masked_fill(~seen, 0.0), (0, tail))  # as wide as a tile
    counted = torch.nn.functional.pad(seen, (0, tail))
    got = answer(memory, size.offset, size.strides, torch.tensor(lengths), size.columns, out)
    if not isinstance(got, Tensor) or got.shape != out.shape:
        raise Mistake(f"the result is {describe(got)}, wanted out, a tensor of shape "
                      f"{tuple(out.shape)}")
    why = ("memory holds NaN wherever no visible score stands. Is the load masked, are offset and "
           "strides used, is a row of length 0 divided by 0, or its maximum not subtracted?")
    plain = memory[(torch.arange(size.rows
                                 * size.columns) + size.offset).clamp(max=len(memory) - 1)]
    need_close(got[:, : size.columns], wanted, "out", why=why, causes={
        "columns that the row does not see count as scores of 0":
            zeros.softmax(-1)[:, : size.columns],
        "columns that the row does not see count as scores of 0 in the denominator":
            (zeros.softmax(-1) * counted)[:, : size.columns],
        "the strides are not used": softmax(plain.view(size.rows, size.columns).double(), seen)})
    need_untouched(got[:, size.columns:], out[:, size.columns:], "out[:, columns:]",
                   "behind the last column")
    return wanted


def softmax(scores: Tensor, seen: Tensor) -> Tensor:
    """Return the softmax of each row over the columns that it sees; zeros where it sees none."""
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return weights.masked_fill(~seen.any(-1, keepdim=True), 0.0)


def softmax_lengths(draw: Draw, size: RowsInMemory, least: int = 1) -> list[int]:
    """Return each row's number of visible columns: all in the first row, the least in the last."""
    lengths = [draw.randint(least, size.columns) for _ in range(size.rows)]
    return [size.columns, *lengths[1:-1], least] if size.rows > 1 else lengths


def softmax_right(answer: Answer, draw: Draw) -> None:
    """Rows one behind the other, of sizes that are no power of two."""
    for rows, columns in [(1, 4), (2, 3), (3, 5), (4, draw.randint(6, 40) if draw.secret else 17)]:
        size = RowsInMemory(rows, columns, 0, (columns, 1))
        lengths = softmax_lengths(draw, size)
        with case(f"{size}, lengths {lengths}"):
            run_softmax(answer, draw, size, lengths, draw.normal(rows, columns))


def softmax_strides(answer: Answer, draw: Draw) -> None:
    """Transposed scores, gaps between columns, one row for all."""
    more = draw.randint(3, 9) if draw.secret else 5
    for size in [RowsInMemory(2, 3, 1, (1, 2)), RowsInMemory(3, more, 2, (1, 3)),
                 RowsInMemory(3, 4, 0, (2 * 4 + 1, 2)),
                 RowsInMemory(2, more, 7, (0, 1)), RowsInMemory(more, 3, more, (3 + more, 1))]:
        full = [size.columns] * size.rows
        lengths = full if size.strides[0] == 0 else softmax_lengths(draw, size)
        with case(f"{size}, lengths {lengths}"):
            run_softmax(answer, draw, size, lengths, draw.normal(size.rows, size.columns))


def softmax_hard(answer: Answer, draw: Draw) -> None:
    """Scores of 10000, and rows that see nothing."""
    for rows, columns, shift in [(2, 3, 0), (3, 6, 10000), (3, 7, -10000),
                                 (4, draw.randint(5, 30), 9000)]:
        size = RowsInMemory(rows, columns, 0, (columns, 1))
        lengths = softmax_lengths(draw, size, 0)
        with case(f"{size}, lengths {lengths}, scores near {shift}"):
            run_softmax(answer, draw, size, lengths,
                        shift + draw.integers(-3, 4, rows, columns).double())


# a7.4: pooling

def run_pool(answer: Answer, draw: Draw, sizes: list[int], heads: tuple[int, int, int, int],
             lost: int | None = None) -> None:
    """Compare cores; group `lost` holds NaN, and so do all groups of the second batch element."""
    batch, query_heads, key_heads, dim = heads
    starts = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    length = starts[-1] + 32  # so that a tile of the last group may reach beyond it
    q, k, v = (draw.normal(batch, length, count, dim, dtype=SINGLE)
               for count in (query_heads, key_heads, key_heads))
    fine = list(range(len(sizes)))
    for x in (q, k, v):
        if lost is not None:
            x[:, starts[-1]:] = float("nan")
            x[:, starts[lost] : starts[lost + 1]] = float("nan")
            x[1:] = float("nan")
    if lost is not None:
        fine.remove(lost)
    scale = 0.6 + draw.random() if draw.secret else 0.8
    nan = "" if lost is None else f", NaN in group {lost}"
    with case(f"groups of {sizes}, q {tuple(q.shape)}, k {tuple(k.shape)}{nan}"):
        got = answer(q, k, v, torch.tensor(starts), scale)
        need_items(got, 2, "the tuple (core_k, core_v)")
        shape = (batch, key_heads, len(sizes), dim)
        ways: dict[str, dict[str, Any]] = {
            "the scale is lost": {"scale": 1.0}, "the group's first query judges": {"judge": 0},
            "padding of the tile takes part in the softmax with scores of 0": {"zeros": True},
            "the next group's tokens take part, up to the end of the tile": {"tile": True},
            "query heads are added, not averaged": {"summed": True},
            "query head h shares key head h % Hk, not h // (H // Hk)": {"mapping": "cyclic"}}
        wanted = pooled(q, k, v, starts, scale)
        others = {cause: pooled(q, k, v, starts, **({"scale": scale} | how))
                  for cause, how in ways.items()}
        keep = 1 if lost is not None else batch
        for side, what in enumerate(("core_k", "core_v")):
            if not isinstance(got[side], Tensor) or tuple(got[side].shape) != shape:
                raise Mistake(f"{what} is {describe(got[side])}, wanted a tensor of shape {shape}")
            need_close(got[side][:keep, :, fine], wanted[side][:keep, :, fine],
                       what if lost is None else f"{what} of the groups without NaN",
                       why="was a token loaded that is not of the group?", causes={
                           cause: other[side][:keep, :, fine] for cause, other in others.items()})


def pool_right(answer: Answer, draw: Draw) -> None:
    """One batch element and one head; groups need not be powers of two, simple ones first."""
    more = [[draw.randint(1, 17) for _ in range(3)]] if draw.secret else []
    for sizes in [[1], [2], [3], [2, 3], [5, 5, 5], [16, 3, 1], *more]:
        run_pool(answer, draw, sizes, (1, 1, 1, draw.choice([2, 3, 4, 8])))


def pool_heads(answer: Answer, draw: Draw) -> None:
    """Several batch elements, and query heads that share key heads."""
    for sizes, heads in [([2], (1, 2, 1, 2)), ([2, 2], (2, 2, 2, 2)), ([3, 5], (2, 4, 2, 4)),
                         ([3, 1], (1, 6, 2, 5))]:
        run_pool(answer, draw, [*sizes, draw.randint(1, 6)] if draw.secret else sizes, heads)


def pool_nan(answer: Answer, draw: Draw) -> None:
    """NaN in one group, in the second batch element and behind the last group stays there."""
    for sizes, lost in [([3, 3], 1), ([5, 3, 5], 1),
                        ([3, draw.randint(1, 9) if draw.secret else 6, 2], 0)]:
        run_pool(answer, draw, sizes, (2, 2, 1, 3), lost)


# a7.5: the repair

def run_lse(answer: Answer, what: str, x: Tensor, block: int) -> None:
    """Compare the logarithm of the sum of exponentials of each row."""
    with case(f"{what}: x of shape {tuple(x.shape)}, block {block}"):
        padding = x.new_zeros(len(x), -x.shape[1] % block)
        need_close(answer(x.to(SINGLE), block), x.logsumexp(-1), "the result", tolerance=1e-5,
                   causes={"columns behind the last one count as scores of 0":
                               torch.cat([x, padding], 1).logsumexp(-1)})


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
        run_lse(answer, f"scores near {far:g}",
                far + draw.normal(2, draw.randint(5, 23), scale=2.0), 4)


# a7.6 and a7.7: attention over one interval, and over several

LARGE_TOLERANCE = 1e-2  # a score of 10000 in float32 is only known to 0.001


@dataclass(frozen=True)
class AttentionSizes:
    """One example of interval attention."""

    length: int
    heads: int
    key_heads: int
    dim: int
    intervals: int
    blocks: tuple[int, int]
    cap: float | None = None

    def __str__(self) -> str:
        heads = f"H = {self.heads}, Hk = {self.key_heads}, D = {self.dim}"
        return (f"L = {self.length}, {heads}, {many(self.intervals, 'interval')}, blocks of "
                f"{self.blocks[0]} rows and {self.blocks[1]} columns, cap {self.cap}")


def table_of(draw: Draw, size: AttentionSizes, empty: bool) -> tuple[Tensor, int]:
    """Return intervals (L, n, 2) that share no columns, with gaps, and the number of columns."""
    spans, begin = [], 0
    for number in range(size.intervals):
        begin += draw.randint(0, 3)
        wide = size.length if number == size.intervals - 1 else draw.randint(1,
                                                                           max(1, size.length // 2))
        rows = []
        for row in range(size.length):
            last = row + 1 if number == size.intervals - 1 else draw.randint(0, wide)
            nothing = empty and row == size.length // 2
            start = last if nothing else draw.randint(0, last if empty else max(0, last - 1))
            rows.append([begin + start, begin + last])
        spans.append(rows)
        begin += wide
    return torch.tensor(spans).transpose(0, 1).contiguous(), begin + draw.randint(1, 20)


def run_attention(answer: Answer, draw: Draw, size: AttentionSizes, *, empty: bool = False,
                  shift: float = 0.0, trap: bool = False, one: bool = False) -> None:
    """Compare with one matrix; intervals and rows may be `empty`, `shift` is added to the scores.

    As a `trap`, columns that no row reads hold NaN, and rows of `out` behind the last are checked.
    The answer to a7.6 gets `one` head and one interval.
    """
    table, columns = table_of(draw, size, empty)
    q = draw.normal(size.heads, size.length, size.dim, dtype=SINGLE)
    k, v = (draw.normal(size.key_heads, columns, size.dim, dtype=SINGLE) for _ in range(2))
    if shift:
        q[..., 0], k[..., 0] = 100.0, shift / 50.0
    scale = 0.4 + 0.3 * draw.random() if not shift else 0.5
    out = draw.normal(size.heads, size.length + size.blocks[0], size.dim, dtype=SINGLE)
    wanted = attended(q, k, v, table, scale, size.cap)
    ways: dict[str, Tensor] = {
        "the scale is lost": attended(q, k, v, table, 1.0, size.cap),
        "only the first interval is read": attended(q, k, v, table[:, :1], scale, size.cap),
        "query head h reads key head h % Hk, not h // (H // Hk)":
            attended(q, k, v, table, scale, size.cap, "cyclic")}
    if size.intervals > 1:
        ways["the last interval is forgotten"] = attended(q, k, v, table[:, :-1], scale, size.cap)
    if size.cap is not None:
        ways["the soft cap is lost"] = attended(q, k, v, table, scale)
    if trap:
        unread = ~seen_columns(table, columns).any(0)
        k[:, unread], v[:, unread] = float("nan"), float("nan")
    more = (", some rows read nothing" if empty else "") + (f", scores near {shift:g}" if shift
                                                            else "")
    with case(f"{size}{more}" + (", NaN in columns that no row reads" if trap else "")):
        if one:
            got = answer(q[0], k[0], v[0], table[:, 0], out[0], scale, *size.blocks)
            out, wanted, ways = out[0], wanted[0], {cause: x[0] for cause, x in ways.items()}
        else:
            got = answer(q, k, v, table, out, scale, size.cap, *size.blocks)
        if not isinstance(got, Tensor) or got.shape != out.shape:
            raise Mistake(f"the result is {describe(got)}, wanted out, a tensor of shape "
                          f"{tuple(out.shape)}")
        need_close(got[..., : size.length, :], wanted, "out", causes=ways,
                   tolerance=LARGE_TOLERANCE if shift else None,
                   why="was a column of a tile loaded that no row reads, or is a row empty? 0 "
                       "times NaN is NaN" if trap else NOT_FINITE)
        if trap or one:
            need_untouched(got[..., size.length:, :], out[..., size.length:, :],
                           "out[L:]" if one else "out[:, L:]", "behind the last row")


def right(answer: Answer, draw: Draw) -> None:
    """One head, one interval, blocks that do and do not fit."""
    for length, blocks in [(1, (2, 2)), (4, (4, 4)), (5, (4, 2)), (8, (4, 8)), (11, (16, 4))]:
        run_attention(answer, draw, AttentionSizes(length, 1, 1, 2, 1, blocks), one=True)
    length = draw.randint(17, 31) if draw.secret else 21
    run_attention(answer, draw, AttentionSizes(length, 1, 1, 5, 1, (8, 8)), one=True)


def intervals(answer: Answer, draw: Draw) -> None:
    """Two and three intervals, some of them empty; one maximum goes through all of them."""
    for length, parts, blocks in [(2, 2, (2, 2)), (5, 2, (4, 4)), (6, 3, (4, 2)), (13, 4, (8, 4))]:
        run_attention(answer, draw, AttentionSizes(length, 1, 1, 4, parts, blocks), empty=True)
    run_attention(answer, draw, AttentionSizes(9, 1, 1, 4, 2, (4, 4)), shift=10000.0)


def heads(answer: Answer, draw: Draw) -> None:
    """Shared key heads, with and without a soft cap."""
    for heads, key_heads, cap in [(2, 2, None), (4, 2, None), (1, 1, 1.5), (4, 2, 0.7),
                                  (3, 1, 20.0)]:
        length = draw.randint(3, 8) if draw.secret else 5
        run_attention(answer, draw, AttentionSizes(length, heads, key_heads, 3, 2, (4, 8), cap))


def large(answer: Answer, draw: Draw) -> None:
    """Scores near 10000 and -10000."""
    for shift in (200.0, 10000.0, -10000.0):
        run_attention(answer, draw, AttentionSizes(9, 1, 1, 4, 1, (4, 4)), shift=shift, one=True)


def trap(answer: Answer, draw: Draw) -> None:
    """Columns that no row reads hold NaN, and memory behind the last row must stay as it was."""
    for length, blocks in [(3, (4, 4)), (draw.randint(5, 12),
                                         (4, 8)), (draw.randint(17, 23), (8, 8))]:
        run_attention(answer, draw, AttentionSizes(length, 2, 1, 3, 3, blocks,
                                                   draw.choice([None, 2.0])), empty=True, trap=True)


# a7.8: tiles

def tile_name(size: tuple[int, ...]) -> str:
    """Return the sizes for a message."""
    length, group, window, block, columns = size
    return (f"length {length}, group {group}, window {window}, blocks of "
            f"{many(block, 'row')}, tiles of {many(columns, 'column')}")


MISCOUNTS: dict[str, Callable[..., int]] = {
    "only the last row of a block counts": lambda length, group, window, block, columns: sum(
        -((start - stop) // columns) for begin in range(0, length, block)
        for start, stop in cca_intervals(min(begin + block, length) - 1, group, window)),
    "every row is a block of its own": lambda length, group, window, block, columns:
        tiles_by_counting(length, group, window, 1, columns),
    "all columns up to the block's last row are read":
        lambda length, group, window, block, columns: sum(
            -(-min(begin + block, length) // columns) for begin in range(0, length, block))}


def tiles_small(answer: Answer, draw: Draw) -> None:
    """Against the intervals of every row."""
    sizes = [(1, 1, 1, 4, 4), (4, 2, 2, 4, 4), (10, 3, 2, 4, 4), (40, 4, 6, 8, 4),
             (64, 3, 5, 16, 8), (61, 16, 7, 1, 2)]
    drawn = sorted((draw.randint(1, 90), draw.randint(1, 9), draw.randint(1, 12),
                    2 ** draw.randint(0, 4), 2 ** draw.randint(0, 4)) for _ in range(10))
    got = {}
    for size in drawn if draw.secret else sizes:
        with case(tile_name(size)):
            got[size] = need_number(answer(*size), "tiles")
    known = [(why, rule) for why, rule in MISCOUNTS.items()
             if all(rule(*size) == came for size, came in got.items())]
    for size, came in got.items():
        with case(tile_name(size)):
            need_equal(came, tiles_by_counting(*size), "tiles",
                       causes={why: rule(*size) for why, rule in known})


def tiles_large(answer: Answer, draw: Draw) -> None:
    """Two billion tokens: blocks can be tiles_by_counting, rows cannot."""
    for size in [(2 * 10**9, 16, 1024, 2**18, 64), (10**9 + 7, 17, 4093, 2**16, 128)]:
        size = (draw.randint(10**9, 2 * 10**9), *size[1:]) if draw.secret else size
        with case(tile_name(size)):
            need_equal(answer(*size), tiles(*size), "tiles")


ASSIGNMENT = Assignment("a7", "kernels", "Kernels: pooling and interval attention in Triton",
                        ("01", "03"), (
    CourseTask("a7.1", "by_hand", "Which program touches what", 10, 1, 3, (
        Property("the numbers of the launch", 2, by_hand(
            {"programs": 6, "rows": [8, 9], "columns": [4, 5], "offset": 28, "program": [1, 1],
             "masked": 36})),)),
    CourseTask("a7.2", "scaled_sum", "A ragged sum", 25, 2, 4, (
        Property("the sum, and nothing behind it", 1, sum_right),
        Property("each program does the blocks that are its own", 1, sum_owner)), drive=in_bounds),
    CourseTask("a7.3", "softmax_rows", "Softmax of rows, wherever they stand", 35, 3, 4, (
        Property("the softmax of the visible columns, and nothing behind it", 1, softmax_right),
        Property("any offset and strides", 1, softmax_strides),
        Property("scores of 10000, and rows that see nothing", 1, softmax_hard)), drive=in_bounds),
    CourseTask("a7.4", "pool", "Pooling of ragged groups", 50, 3, 5, (
        Property("cores of one head", 1, pool_right),
        Property("batches, and query heads that share a key head", 1, pool_heads),
        Property("NaN of other groups stays there", 1, pool_nan)), drive=in_bounds),
    CourseTask("a7.5", "lse_rows", "A kernel with three mistakes", 20, 2, 4, (
        Property("a tile that is not full", 1, lse_tail),
        Property("several tiles", 1, lse_tiles),
        Property("all of it, far from 0", 1, lse_all, hidden=True)), drive=in_bounds),
    CourseTask("a7.6", "one_interval", "Attention over one interval", 60, 4, 5, (
        Property("one head and one interval equal one matrix", 2, right),
        Property("scores near 10000 do no harm", 1, large)), drive=in_bounds),
    CourseTask("a7.7", "attention", "Attention over several intervals", 60, 5, 4, (
        Property("several intervals, some empty", 1, intervals),
        Property("shared key heads and a soft cap", 1, heads),
        Property("what no row reads or is stays untouched", 1, trap, hidden=True)),
        drive=in_bounds),
    CourseTask("a7.8", "tiles_read", "How many tiles", 25, 3, 3, (
        Property("equal to counting", 1, tiles_small),
        Property("right for two billion tokens", 1, tiles_large, hidden=True))),
    CourseTask("a7.9", "not_told", "What the interpreter does not tell", 15, 2, 4, (), read=2),
), seconds=60.0)
