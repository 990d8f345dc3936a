"""What the reader writes in notebook 16: tokens read twice or not at all, pooling by feature."""

from typing import Any

from torch import Tensor

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import CourseTask, Draw


# 16.2: what a row reads twice, and what it misses
def read_counts(row: int, window: int, group: int, *, own: int = 1, cut: bool = True,
                full: bool = False, rounded_up: bool = False) -> tuple[int, int]:
    """Return the tokens read twice and those not read; the keywords are mistakes."""
    tokens = row + own
    covered = (-(-tokens // group) if rounded_up else tokens // group) * group
    begins = row + 1 - window if full else max(0, row + 1 - window)
    twice, missing = covered - begins, begins - covered
    return (max(0, twice), max(0, missing)) if cut else (twice, missing)


# 16.4: a weight for each feature
def pool_group(values: Tensor, gates: Tensor, bias: Tensor, *, dim: int = 0, biased: bool = True,
               mean: bool = False, of_gates: bool = False) -> Tensor:
    """Return the entry of one group, (features,); the keywords are mistakes."""
    logits = gates + bias * biased
    logits = logits.mean(dim=1, keepdim=True) if mean else logits
    return (logits.softmax(dim=dim) * (gates if of_gates else values)).sum(dim=0)


def group(draw: Draw, tokens: int, features: int) -> tuple[Any, ...]:
    """Return values, gates and position biases."""
    return tuple(draw.normal(tokens, features) for _ in range(3))


TURNS = (
    CourseTask("16.2", "read_counts", "Twice, or not at all", 8, 2, (
        equals("counts what a row reads twice and what it misses", read_counts,
               examples(lambda draw, row, window, group: (row, window, group), (11, 5, 4),
                        (12, 5, 4), (3, 5, 4), (6, 8, 3), (38, 3, 8), (39, 3, 8), (77, 6, 13)),
               "the tokens read twice", "the tokens not read", wrong=mistakes(read_counts, {
            "row i has i + 1 tokens behind it, its own included; close groups of those": {"own": 0},
            "a count is negative; take 0 instead": {"cut": False},
            "the window is taken as full; a row near the beginning has fewer tokens":
                {"full": True},
            "a group that is not complete has an entry": {"rounded_up": True}}) | {
            "the two numbers are in the other order":
                lambda row, window, group: read_counts(row, window, group)[::-1]}),)),
    CourseTask("16.4", "pool_group", "A weight for each feature", 8, 2, (
        equals("a softmax over tokens for each feature", pool_group,
               examples(group, (4, 3), (1, 2), (5, 6)), "the entry", wrong=mistakes(pool_group, {
            "the softmax goes over the features; it goes over the tokens (dim=0): each feature has "
            "weights of its own": {"dim": 1},
            "the position bias is left out: add it to the gates before the softmax":
                {"biased": False},
            "all features of a token share one weight, as in CCA": {"mean": True},
            "the gates are averaged; multiply by the values": {"of_gates": True}})),)),
)
