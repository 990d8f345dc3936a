"""What the reader writes in notebook 00_start_here: the weighted mean, and the pooling matrix."""

import math
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import CourseTask, Draw


# 00.1: the act of attention
def weighted_mean(scores: Tensor, values: Tensor) -> Tensor:
    """Return the mean of the values with the weights e^score, token by token."""
    powers = [math.exp(score) for score in scores.tolist()]
    return torch.stack([power / sum(powers) * value
                        for power, value in zip(powers, values, strict=True)]).sum(0)


def tokens(draw: Draw, tokens: int, features: int) -> tuple[Any, ...]:
    """Return scores and values."""
    return draw.normal(tokens), draw.normal(tokens, features)


# 00.2: the columns, as a matrix
def pooling_matrix(length: int, group: int, *, raw_first: bool = False, weight: float | None = None,
                   strided: bool = False, incomplete: bool = False, raw: bool = True,
                   late: int = 0) -> Tensor:
    """Return the matrix, entry by entry; the keywords are mistakes."""
    count = -(-length // group) if incomplete else length // group
    pooled = torch.zeros(count, length, dtype=torch.float64)
    for p in range(count):
        for t in range(length):
            member = t % count == p and t < count * group if strided else (t - late) // group == p
            pooled[p, t] = (weight or 1 / group) * member
    rows = [pooled, torch.eye(length, dtype=torch.float64)]
    return torch.cat(rows[::-1] if raw_first else rows if raw else rows[:1])


TURNS: tuple[CourseTask, ...] = (
    CourseTask("00.1", "weighted_mean", "One row of attention", 5, 1, (
        equals("equal to a sum over the tokens", weighted_mean,
               examples(tokens, (3, 2), (5, 3), (1, 2), (7, 1)), wrong={
            "the weights do not sum to 1: divide each power by the sum of all":
                lambda scores, values: scores.exp() @ values,
            "the scores are the weights; the weights are e to the power of them":
                lambda scores, values: scores / scores.sum() @ values,
            "the scores are the weights, and not even divided by their sum":
                lambda scores, values: scores @ values,
            "the powers are those of 2; take e to the power of the score":
                lambda scores, values: (scores * math.log(2)).softmax(0) @ values,
            "all weights are equal, which gives the plain mean":
                lambda scores, values: values.mean(0),
            "only the best score counts": lambda scores, values: values[scores.argmax()],
            "the values are added up without weights": lambda scores, values: values.sum(0),
            "the features are added up too": lambda scores, values: (
                scores.softmax(0) @ values).sum()}),)),
    CourseTask("00.2", "pooling_matrix", "The columns as a matrix", 8, 2, (
        equals("groups first, then raw tokens", pooling_matrix,
               examples("length group",
                        (5, 2), (6, 3), (11, 4), (3, 5), (4, 1)), "P",
               wrong=mistakes(pooling_matrix, {
            "the raw tokens stand first; the groups do": {"raw_first": True},
            "a group's weights are 1 each; they sum to 1, so each is 1 / group": {"weight": 1.0},
            "every n-th token is a group; neighbours are": {"strided": True},
            "each group starts one token late": {"late": 1},
            "the last group is pooled although it is not complete": {"incomplete": True},
            "the raw tokens are missing": {"raw": False}}) | {
            "rows and columns are exchanged":
                lambda length, group: pooling_matrix(length, group).T}),)),
)
