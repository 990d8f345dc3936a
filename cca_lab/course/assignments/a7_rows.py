"""a7.3 and a7.4: what a softmax over strided memory and a pooling kernel should do, and what they get wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cca_lab.course.assignments.a7_oracles import SINGLE, need_untouched, pooled, power_of_two
from cca_lab.course.compare import describe, need_close
from cca_lab.course.tasks import Answer, Draw, Mistake, case

# a7.3: softmax of rows


@dataclass(frozen=True)
class Rows:
    """One example: how many rows and columns, and where they stand in memory."""

    rows: int
    columns: int
    offset: int
    strides: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.columns} columns, offset {self.offset}, strides {self.strides}"


def run_softmax(answer: Answer, draw: Draw, size: Rows, lengths: Sequence[int], scores: Tensor) -> Tensor:
    """Put scores into memory among NaN, run the answer, and compare; return what was wanted."""
    seen = torch.arange(size.columns) < torch.tensor(lengths)[:, None]
    far = size.offset + (size.rows - 1) * size.strides[0] + (size.columns - 1) * size.strides[1]
    place = torch.tensor(size.strides) @ torch.stack(torch.meshgrid(
        torch.arange(size.rows), torch.arange(size.columns), indexing="ij")).flatten(1) + size.offset
    memory = torch.full((far + 40,), float("nan"))
    memory[place[seen.flatten()]] = scores[seen].to(SINGLE)
    scores = memory[place].view(size.rows, size.columns).double()  # rows of stride 0 share their scores
    out = draw.normal(size.rows, 2 * power_of_two(size.columns) + 1, dtype=SINGLE)
    wanted = softmax(scores, seen)
    tail = power_of_two(size.columns) - size.columns
    zeros = torch.nn.functional.pad(scores.masked_fill(~seen, 0.0), (0, tail))  # as wide as a tile
    counted = torch.nn.functional.pad(seen, (0, tail))
    got = answer(memory, size.offset, size.strides, torch.tensor(lengths), size.columns, out)
    if not isinstance(got, Tensor) or got.shape != out.shape:
        raise Mistake(f"the result is {describe(got)}, wanted out, a tensor of shape {tuple(out.shape)}")
    why = ("memory holds NaN wherever no visible score stands. Is the load masked, are offset and strides used, is a "
           "row of length 0 divided by 0, or its maximum not subtracted?")
    plain = memory[(torch.arange(size.rows * size.columns) + size.offset).clamp(max=len(memory) - 1)]
    need_close(got[:, : size.columns], wanted, "out", why=why, causes={
        "columns that the row does not see count as scores of 0": zeros.softmax(-1)[:, : size.columns],
        "columns that the row does not see count as scores of 0 in the denominator":
            (zeros.softmax(-1) * counted)[:, : size.columns],
        "the strides are not used": softmax(plain.view(size.rows, size.columns).double(), seen)})
    need_untouched(got[:, size.columns:], out[:, size.columns:], "out[:, columns:]", "behind the last column")
    return wanted


def softmax(scores: Tensor, seen: Tensor) -> Tensor:
    """Return the softmax of each row over the columns that it sees; zeros where it sees none."""
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return weights.masked_fill(~seen.any(-1, keepdim=True), 0.0)


def softmax_lengths(draw: Draw, size: Rows, least: int = 1) -> list[int]:
    """Return a number of visible columns for each row, the first with all of them and the last with the least."""
    lengths = [draw.randint(least, size.columns) for _ in range(size.rows)]
    return [size.columns, *lengths[1:-1], least] if size.rows > 1 else lengths


def softmax_right(answer: Answer, draw: Draw) -> None:
    """Rows one behind the other, of sizes that are no power of two."""
    for rows, columns in [(1, 4), (2, 3), (3, 5), (4, draw.randint(6, 40) if draw.secret else 17)]:
        size = Rows(rows, columns, 0, (columns, 1))
        lengths = softmax_lengths(draw, size)
        with case(f"{size}, lengths {lengths}"):
            run_softmax(answer, draw, size, lengths, draw.normal(rows, columns))


def softmax_strides(answer: Answer, draw: Draw) -> None:
    """Transposed scores, gaps between columns, one row for all."""
    more = draw.randint(3, 9) if draw.secret else 5
    for size in [Rows(2, 3, 1, (1, 2)), Rows(3, more, 2, (1, 3)), Rows(3, 4, 0, (2 * 4 + 1, 2)),
                 Rows(2, more, 7, (0, 1)), Rows(more, 3, more, (3 + more, 1))]:
        full = [size.columns] * size.rows
        lengths = full if size.strides[0] == 0 else softmax_lengths(draw, size)
        with case(f"{size}, lengths {lengths}"):
            run_softmax(answer, draw, size, lengths, draw.normal(size.rows, size.columns))


def softmax_hard(answer: Answer, draw: Draw) -> None:
    """Scores of 10000, and rows that see nothing."""
    for rows, columns, shift in [(2, 3, 0), (3, 6, 10000), (3, 7, -10000), (4, draw.randint(5, 30), 9000)]:
        size = Rows(rows, columns, 0, (columns, 1))
        lengths = softmax_lengths(draw, size, 0)
        with case(f"{size}, lengths {lengths}, scores near {shift}"):
            run_softmax(answer, draw, size, lengths, shift + draw.integers(-3, 4, rows, columns).double())


# a7.4: pooling


def pool_sizes(draw: Draw) -> list[list[int]]:
    """Return tokens of each group, simple ones first; the whole numbers need not be powers of two."""
    fixed = [[1], [2], [3], [2, 3], [5, 5, 5], [16, 3, 1]]
    return [*fixed, [draw.randint(1, 17) for _ in range(3)]] if draw.secret else fixed


def run_pool(answer: Answer, draw: Draw, sizes: list[int], heads: tuple[int, int, int, int], lost: int | None = None
             ) -> None:
    """Compare cores of drawn tokens.

    Args:
        answer: of the student.
        draw: of the inputs.
        sizes: tokens of each group.
        heads: batch, heads, key heads, head dim.
        lost: a group that holds NaN, and in the second batch element all do.
    """
    batch, many, key_heads, dim = heads
    starts = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    length = starts[-1] + 32  # so that a tile of the last group may reach beyond it
    q, k, v = (draw.normal(batch, length, count, dim, dtype=SINGLE) for count in (many, key_heads, key_heads))
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
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Mistake(f"the result is {describe(got)}, wanted the tuple (core_k, core_v)")
        shape = (batch, key_heads, len(sizes), dim)
        ways = {"the scale is lost": {"scale": 1.0}, "the group's first query judges": {"judge": 0},
                "padding of the tile takes part in the softmax with scores of 0": {"zeros": True},
                "the next group's tokens take part, up to the end of the tile": {"tile": True},
                "query heads are added, not averaged": {"summed": True},
                "query head h shares key head h % Hk, not h // (H // Hk)": {"mapping": "cyclic"}}
        wanted = pooled(q, k, v, starts, scale)
        others = {cause: pooled(q, k, v, starts, **({"scale": scale} | how)) for cause, how in ways.items()}
        keep = 1 if lost is not None else batch
        for side, what in enumerate(("core_k", "core_v")):
            if not isinstance(got[side], Tensor) or tuple(got[side].shape) != shape:
                raise Mistake(f"{what} is {describe(got[side])}, wanted a tensor of shape {shape}")
            need_close(got[side][:keep, :, fine], wanted[side][:keep, :, fine],
                       what if lost is None else f"{what} of the groups without NaN",
                       why="was a token loaded that is not of the group?",
                       causes={cause: other[side][:keep, :, fine] for cause, other in others.items()})


def pool_right(answer: Answer, draw: Draw) -> None:
    """One batch element and one head."""
    for sizes in pool_sizes(draw):
        run_pool(answer, draw, sizes, (1, 1, 1, draw.choice([2, 3, 4, 8])))


def pool_heads(answer: Answer, draw: Draw) -> None:
    """Several batch elements, and query heads that share key heads."""
    for sizes, heads in [([2], (1, 2, 1, 2)), ([2, 2], (2, 2, 2, 2)), ([3, 5], (2, 4, 2, 4)), ([3, 1], (1, 6, 2, 5))]:
        run_pool(answer, draw, [*sizes, draw.randint(1, 6)] if draw.secret else sizes, heads)


def pool_nan(answer: Answer, draw: Draw) -> None:
    """NaN in one group, in the second batch element and behind the last group stays there."""
    for sizes, lost in [([3, 3], 1), ([5, 3, 5], 1), ([3, draw.randint(1, 9) if draw.secret else 6, 2], 0)]:
        run_pool(answer, draw, sizes, (2, 2, 1, 3), lost)
