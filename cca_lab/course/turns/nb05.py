"""What the reader writes in notebook 05_convolutional_memory; rows and tokens count from 0."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import cause_of, describe, need_close
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


# 05.2: what a row reads
def _columns(row: int, slots: int, segment: int, *,
             full: Callable[[int, int], bool] = lambda held, slots: held > slots,
             late: int = 0, count_slots: bool = True) -> tuple[int, int]:
    """Return the slots and the first raw token of a row, for given rules; token by token."""
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
        {"late": 1},
}


def reads(answer: Answer, draw: Draw) -> None:
    """All rows of several sizes, at which the usual mistakes differ."""
    sizes = [(2, 3), (4, 3), (6, 3), (5, 1), (10, 4), (draw.randint(3, 9), draw.randint(2, 6))]
    for slots, segment in sizes:
        length = 4 * (slots + segment)
        got = []
        for row in range(length):
            pair = answer(row, slots, segment)
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2
                    and all(type(x) is int for x in pair)):
                raise Mistake(f"the result is {describe(pair)}, wanted two integers: slots and the "
                              "first raw token")
            got.append(tuple(pair))
        wrong = [row for row in range(length) if got[row] != _columns(row, slots, segment)]
        if not wrong:
            continue
        wanted = _columns(wrong[0], slots, segment)
        results = {cause: [_columns(row, slots, segment, **rule) for row in range(length)]
                   for cause, rule in RULES.items()}
        begins = [row // segment * segment for row in range(length)]
        always = cause_of({next(iter(RULES)): [(slots if first else 0, first) for first in begins]},
                          got.__eq__)
        with case(f"{slots} slots, segments of {segment}, row {wrong[0]}"):
            raise Mistake(f"slots and first raw token are {got[wrong[0]]}, wanted {wanted}"
                          + (cause_of(results, got.__eq__) or always))


# 05.5: mixing weights
def _ratio(positive: Tensor, dim: int = 1) -> Tensor:
    total = positive.sum(dim, keepdim=True)
    return torch.where(total == 0, 1 / positive.shape[dim],
                       positive / total.masked_fill(total == 0, 1))


def weights(answer: Answer, draw: Draw) -> None:
    """Rows of both signs."""
    for slots, columns in [(2, 3), (3, 5), (4, 7), (1, 4)]:
        numbers = draw.normal(slots, columns)
        numbers[:, 0] = numbers[:, 0].abs() + 0.1
        with case(f"{slots} slots, {columns} columns, a positive number in each row"):
            need_close(answer(numbers), _ratio(numbers.relu()), "the weights", causes={
                "negative numbers are not made 0 first": numbers / numbers.sum(1, keepdim=True),
                "absolute values are taken: negative numbers count 0": _ratio(numbers.abs()),
                "the sums go over the slots; a slot is a mean of columns, so they go along the row":
                    _ratio(numbers.relu(), 0),
                "a softmax is taken, which gives no column 0": numbers.softmax(1),
                "a softmax of the ReLU is taken, which gives no column 0":
                    numbers.relu().softmax(1),
                "a small number is added to the sum, so that the weights do not sum to 1":
                    numbers.relu() / (numbers.relu().sum(1, keepdim=True) + 1e-6)})


def dead(answer: Answer, draw: Draw) -> None:
    """A row without a positive number, beside others."""
    numbers = draw.normal(4, 6)
    numbers[1], numbers[2, 3] = -numbers[1].abs(), numbers[2, 3].abs() + 0.1
    numbers[3], numbers[0, 0] = 0.0, 1.0
    wanted = _ratio(numbers.relu())
    nothing = wanted.clone()
    nothing[[1, 3]] = 0.0
    first = nothing.clone()
    first[[1, 3], 0] = 1.0
    causes = {"a dead row is left at zeros, so that its slot is empty": nothing,
              "a dead row takes the first column": first,
              "one dead row makes all rows even": torch.full_like(wanted, 1 / 6)}
    with case("row 1 has only negative numbers, row 3 only zeros"):
        need_close(answer(numbers), wanted, "the weights", causes=causes,
                   why="0/0: a row without a positive number gives every column the same weight")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("05.2", "columns_of", "What a row of LoCoCo reads", 6, 3, 4, (
        Property("equal to counting token by token", 1, reads),)),
    CourseTask("05.5", "mixing_weights", "Weights from a convolution's output", 5, 2, 5, (
        Property("a mean of the columns with positive numbers", 1, weights),
        Property("a row without a positive number becomes the plain mean", 1, dead))),
)
