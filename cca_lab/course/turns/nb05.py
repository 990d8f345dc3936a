"""What the reader writes in notebook 05_convolutional_memory; rows and tokens count from 0."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, examples, forward, mistakes
from cca_lab.course.tasks import CourseTask, Draw


# what a row reads
def columns_of(row: int, slots: int, segment: int, *,
               full: Callable[[int, int], bool] = lambda held, slots: held > slots,
               late: int = 0, count_slots: bool = True) -> tuple[int, int]:
    """Return the slots and the first raw token of a row, token by token; keywords are mistakes."""
    held, raw, first = 0, 0, 0
    for token in range(row + 1):
        begins = token and token % segment == 0 and token <= row - late
        if begins and full(held * count_slots + raw, slots):
            held, raw, first = slots, 0, token
        raw += 1
    return held, first


RULES: dict[str, dict[str, Any]] = {
    "slots and raw tokens are compressed at every segment, also if they are not more than M":
        {"full": lambda held, slots: True},
    "exactly M columns are compressed too; there is room for M":
        {"full": lambda held, slots: held >= slots},
    "only the raw tokens are counted: the slots need room too": {"count_slots": False},
    "the first row of a segment still reads the old columns; compression comes before it":
        {"late": 1}}


# 05.4: mixing weights
def ratio(numbers: Tensor, *, cut: Callable[[Tensor], Tensor] = torch.relu, dim: int = 1,
          more: float = 0.0, dead: str = "even") -> Tensor:
    """Return the positive part of each row over its sum; the keywords are mistakes."""
    positive = cut(numbers)
    total = positive.sum(dim, keepdim=True)
    if dead == "divided":
        return positive / total
    even = torch.full_like(positive, (dead == "even") / positive.shape[dim])
    return torch.where(total == 0, even, positive / (total.masked_fill(total == 0, 1) + more))


def mixed_signs(draw: Draw, slots: int, columns: int) -> tuple[Any, ...]:
    """Return rows of both signs, a positive number in each."""
    numbers = draw.normal(slots, columns)
    numbers[:, 0] = numbers[:, 0].abs() + 0.1
    return (numbers,)


def dead_rows(draw: Draw, slots: int, columns: int) -> tuple[Any, ...]:
    """Return rows of which row 1 has only negative numbers, and row 3 only zeros."""
    numbers = draw.normal(slots, columns)
    numbers[1], numbers[2, 3] = -numbers[1].abs(), numbers[2, 3].abs() + 0.1
    numbers[3], numbers[0, 0] = 0.0, 1.0
    return (numbers,)


# 05.5: the loops
Mixing = Callable[[Tensor, Tensor], Tensor]  # keys and values (N, D) -> weights (M, N)


def remember(q: Tensor, k: Tensor, v: Tensor, scale: float, slots: int, segment: int,
             mixing: Mixing, *, full: Callable[[int, int], bool] = lambda held, slots: held > slots,
             late: int = 0, count_slots: bool = True, own: bool = True,
             anew: bool = False) -> Tensor:
    """Return LoCoCo of one head, row by row; the keywords are mistakes."""
    held_k, held_v, rows, made = k[:0], v[:0], [], 0
    for i in range(len(q)):
        held = len(held_k) - (0 if count_slots else made)
        if i - late > 0 and (i - late) % segment == 0 and full(held, slots):
            made = slots
            weights = mixing(held_k, held_v)
            held_k = weights @ held_k
            held_v = (mixing(held_v, held_v) if anew else weights) @ held_v
        seen_k, seen_v = held_k, held_v
        held_k, held_v = torch.cat([held_k, k[i : i + 1]]), torch.cat([held_v, v[i : i + 1]])
        if own:
            seen_k, seen_v = held_k, held_v
        rows.append((scale * (seen_k @ q[i])).softmax(0) @ seen_v)
    return torch.stack(rows)


def text(draw: Draw, tokens: int, slots: int, segment: int) -> tuple[Any, ...]:
    """Return a head and a compression that depends on a column's place, key and value."""
    places, turn = draw.normal(slots, 99), draw.normal(slots, 6)

    def mixing(keys: Tensor, values: Tensor) -> Tensor:
        return (places[:, : len(keys)] + turn @ torch.cat([keys, values], dim=1).T).softmax(1)

    return *(draw.normal(tokens, 3) for _ in "qkv"), 0.7, slots, segment, mixing


# 05.6: the table
def memory_table(length: int, slots: int, segment: int, *, offset: bool = True,
                 latest: bool = True, since: bool = True, own: int = 1, **rules: Any) -> Tensor:
    """Return the table, counted row by row; the keywords are mistakes, `rules` those of a row."""
    firsts = [columns_of(row, slots, segment, **rules)[1] for row in range(length)]
    borders = sorted(set(firsts) - {0})
    raw, rows = len(borders) * slots * offset, []
    for row, first in enumerate(firsts):
        n = sum(border <= first for border in borders)
        rows.append([[max(0, n - 1) * slots * latest, n * slots],
                     [raw + first * since, raw + row + own]])
    return torch.tensor(rows)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("05.4", "mixing_weights", "Weights from a convolution's output", 5, 2, (
        equals("a mean of the columns with positive numbers", ratio,
               examples(mixed_signs, (2, 3), (3, 5), (4, 7), (1, 4)), "the weights",
               wrong=mistakes(ratio, {
            "negative numbers are not made 0 first": {"cut": lambda x: x},
            "absolute values are taken: negative numbers count 0": {"cut": torch.abs},
            "the sums go over the slots; a slot is a mean of columns, so they go along the row":
                {"dim": 0},
            "a small number is added to the sum, so that the weights do not sum to 1":
                {"more": 1e-6}}) | {
            "a softmax of the ReLU is taken, which gives no column 0":
                lambda x: x.relu().softmax(1)}),
        equals("a row without a positive number becomes the plain mean", ratio,
               examples(dead_rows, (4, 6)), "the weights", wrong=mistakes(ratio, {
            "a dead row is 0/0: a row without a positive number gives every column the same weight":
                {"dead": "divided"},
            "a dead row is left at zeros, so that its slot is empty": {"dead": "empty"}})))),
    CourseTask("05.5", "attend_memory", "LoCoCo as loops", 12, 4, (
        equals("equal to the definition, row by row", remember,
               examples(text, (8, 2, 3), (14, 6, 3), (9, 5, 1), (5, 3, 8)), "the output",
               wrong=mistakes(remember, RULES | {
            "a row does not read its own token": {"own": False},
            "values are mixed with weights of their own; they get those of their keys":
                {"anew": True},
            "nothing is ever compressed": {"full": lambda held, slots: False}})),)),
    CourseTask("05.6", "memory_table", "LoCoCo as a table of intervals", 10, 4, (
        equals("the columns of the definition", forward(memory_table),
               examples("tokens slots segment",
                        (8, 2, 3), (7, 4, 3), (14, 6, 3), (9, 3, 1), (4, 5, 2), (13, 2, 5)),
               "the table", wrong=mistakes(memory_table, RULES | {
            "the raw tokens begin at column 0; the slots of all compressions come first":
                {"offset": False},
            "a row reads the slots of all compressions so far; it reads those of the latest":
                {"latest": False},
            "the interval of a row ends before its own token: an end is one past the last":
                {"own": 0},
            "the raw tokens that a compression has taken are still read": {"since": False}})),),
               drive=forward),
)
