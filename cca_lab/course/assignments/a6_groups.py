"""The rule of a6, once, in plain loops: focal tokens, groups, and which groups a row reads pooled."""

from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe
from cca_lab.course.tasks import Mistake


def whole(got: Any, what: str) -> list[int]:
    """Return integers as a list, from a list or a tensor.

    Raises:
        Mistake: if they are none.
    """
    values = got.tolist() if isinstance(got, Tensor) and got.dim() == 1 and not got.is_floating_point() else got
    if isinstance(values, (list, tuple)):
        values = [item.item() if isinstance(item, Tensor) and item.numel() == 1 else item for item in values]
    if not isinstance(values, list) or not all(type(item) is int for item in values):
        raise Mistake(f"{what} is {describe(got)}, wanted a list of integers")
    return values


def choose(scores: list[float], every: int, later: bool = True, first: bool = True, up: bool = True,
           counted: bool = True) -> list[int]:
    """Return the focal tokens, ascending; each switch set to False makes a mistake."""
    count = -(-len(scores) // every) if up else max(1, len(scores) // every)
    ranked = sorted(range(len(scores)), key=lambda t: (first and t == 0, scores[t], t if later else -t), reverse=True)
    return sorted(ranked[: count if counted else count + 1])


def cut(focal: list[int], length: int, group: int, span: int, start: int = 0) -> list[list[int]]:
    """Return the groups of the other tokens, in order; the span counts from the member `start`, right is 0."""
    groups: list[list[int]] = []
    for token in range(length):
        if token in focal:
            continue
        if groups and len(groups[-1]) < group and token < groups[-1][start] + span:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


def pooled_from(length: int, groups: list[list[int]], window: int) -> Tensor:
    """Return bool (L, K): the row reads the group pooled."""
    return torch.tensor([[members[-1] <= row - window for members in groups] for row in range(length)],
                        dtype=torch.bool).view(length, len(groups))
