"""a7.6: what a kernel for attention over intervals should do, and what it gets wrong."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cca_lab.course.assignments.a7_oracles import SINGLE, attended, need_untouched, seen_columns
from cca_lab.course.compare import NOT_FINITE, describe, need_close
from cca_lab.course.tasks import Answer, Draw, Mistake, case

LARGE_TOLERANCE = 1e-2  # a score of 10000 in float32 is only known to 0.001

# a7.6: attention over intervals


@dataclass(frozen=True)
class Sizes:
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
        return (f"L = {self.length}, {heads}, {self.intervals} intervals, blocks of {self.blocks[0]} rows and "
                f"{self.blocks[1]} columns, cap {self.cap}")


def table_of(draw: Draw, size: Sizes, empty: bool) -> tuple[Tensor, int]:
    """Return a table (L, n, 2) and the number of columns; each interval has columns of its own, with gaps between."""
    spans, begin = [], 0
    for part in range(size.intervals):
        begin += draw.randint(0, 3)
        wide = size.length if part == size.intervals - 1 else draw.randint(1, max(1, size.length // 2))
        rows = []
        for row in range(size.length):
            last = row + 1 if part == size.intervals - 1 else draw.randint(0, wide)
            nothing = empty and row == size.length // 2
            start = last if nothing else draw.randint(0, last if empty else max(0, last - 1))
            rows.append([begin + start, begin + last])
        spans.append(rows)
        begin += wide
    return torch.tensor(spans).transpose(0, 1).contiguous(), begin + draw.randint(1, 20)


def run_attention(answer: Answer, draw: Draw, size: Sizes, *, empty: bool = False, shift: float = 0.0,
                  trap: bool = False) -> None:
    """Compare with one matrix.

    Args:
        answer: of the student.
        draw: of the inputs.
        size: of the example.
        empty: some intervals are empty, and so may rows be.
        shift: added to the scores, nearly.
        trap: columns that no row reads hold NaN, and the rows of `out` behind the last are looked at.
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
        "query head h reads key head h % Hk, not h // (H // Hk)": attended(q, k, v, table, scale, size.cap, "cyclic")}
    if size.intervals > 1:
        ways["the last interval is forgotten"] = attended(q, k, v, table[:, :-1], scale, size.cap)
    if size.cap is not None:
        ways["the soft cap is lost"] = attended(q, k, v, table, scale)
    if trap:
        unread = ~seen_columns(table, columns).any(0)
        k[:, unread], v[:, unread] = float("nan"), float("nan")
    more = (", some rows read nothing" if empty else "") + (f", scores near {shift:g}" if shift else "")
    with case(f"{size}{more}" + (", NaN in columns that no row reads" if trap else "")):
        got = answer(q, k, v, table, out, scale, size.cap, *size.blocks)
        if not isinstance(got, Tensor) or got.shape != out.shape:
            raise Mistake(f"the result is {describe(got)}, wanted out, a tensor of shape {tuple(out.shape)}")
        need_close(got[:, : size.length], wanted, "out", causes=ways, tolerance=LARGE_TOLERANCE if shift else None,
                   why="was a column of a tile loaded that no row reads, or is a row empty? 0 times NaN is NaN" if trap
                   else NOT_FINITE)
        if trap:
            need_untouched(got[:, size.length:], out[:, size.length:], "out[:, L:]", "behind the last row")


def right(answer: Answer, draw: Draw) -> None:
    """One head, one interval, blocks that do and do not fit."""
    for length, blocks in [(1, (2, 2)), (4, (4, 4)), (5, (4, 2)), (8, (4, 8)), (11, (16, 4))]:
        run_attention(answer, draw, Sizes(length, 1, 1, 2, 1, blocks))
    run_attention(answer, draw, Sizes(draw.randint(17, 31) if draw.secret else 21, 1, 1, 5, 1, (8, 8)))


def intervals(answer: Answer, draw: Draw) -> None:
    """Two and three intervals, some of them empty."""
    for length, parts, blocks in [(2, 2, (2, 2)), (5, 2, (4, 4)), (6, 3, (4, 2)), (13, 4, (8, 4))]:
        run_attention(answer, draw, Sizes(length, 1, 1, 4, parts, blocks), empty=True)


def heads(answer: Answer, draw: Draw) -> None:
    """Shared key heads, with and without a soft cap."""
    for heads, key_heads, cap in [(2, 2, None), (4, 2, None), (1, 1, 1.5), (4, 2, 0.7), (3, 1, 20.0)]:
        length = draw.randint(3, 8) if draw.secret else 5
        run_attention(answer, draw, Sizes(length, heads, key_heads, 3, 2, (4, 8), cap))


def large(answer: Answer, draw: Draw) -> None:
    """Scores near 10000 and -10000."""
    for shift in (200.0, 10000.0, -10000.0):
        run_attention(answer, draw, Sizes(9, 1, 1, 4, 2, (4, 4)), shift=shift)


def trap(answer: Answer, draw: Draw) -> None:
    """What no row reads holds NaN; what is no row is not written."""
    for length, blocks in [(3, (4, 4)), (draw.randint(5, 12), (4, 8)), (draw.randint(17, 23), (8, 8))]:
        run_attention(answer, draw, Sizes(length, 2, 1, 3, 3, blocks, draw.choice([None, 2.0])), empty=True, trap=True)
