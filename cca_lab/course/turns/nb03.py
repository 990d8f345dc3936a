"""What the reader writes in notebook 03, core tokens; rows and tokens count from 0."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cca_lab.course.compare import need_close, need_equal, need_items, need_number
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

Pair = tuple[Tensor, Tensor]


def _two(got: Any, what: str) -> tuple[Any, Any]:
    """Return both parts of an answer, or say that two were wanted."""
    if isinstance(got, Tensor) and got.dim() > 1 and len(got) == 2:  # stacked
        got = tuple(got)
    need_items(got, 2, f"two: {what}")
    return got[0], got[1]


# 03.2: the core of one group
def pooled(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Pair:
    """Return the core key and the core value of one group, member by member."""
    powers = [math.exp(scale * float((q[-1] * key).sum())) for key in k]
    weights = [power / sum(powers) for power in powers]
    return (torch.stack([w * key for w, key in zip(weights, k, strict=True)]).sum(0),
            torch.stack([w * value for w, value in zip(weights, v, strict=True)]).sum(0))


def _other_cores(q: Tensor, k: Tensor, v: Tensor, scale: float) -> dict[str, Pair]:
    """Return what usual mistakes make of a group."""
    scores = scale * q @ k.T  # (judges, members)
    every = {
        "the first query judges; it is the last one, which has seen the whole group":
            scores[0].softmax(0),
        "all members judge, each with its own query; only the last one does":
            scores.softmax(1).mean(0),
        "the mean query judges; only the last one does": scores.mean(0).softmax(0),
        "nobody judges: this is the plain mean": torch.full((len(k),), 1 / len(k), dtype=k.dtype),
        "the scale is forgotten": (scores[-1] / scale).softmax(0),
        "the weights do not sum to 1: divide the powers by their sum": scores[-1].exp(),
        "the judge is left out; it is a member of its group":
            torch.cat([scores[-1, :-1].softmax(0), scores.new_zeros(1)]),
        "the keys are scored with themselves; it is the judge's query that asks":
            (scale * k @ k[-1]).softmax(0),
    }
    return {cause: (weights @ k, weights @ v) for cause, weights in every.items()}


def check_core(answer: Answer, draw: Draw) -> None:
    """One group of several sizes, against a loop over its members."""
    for size, width in [(3, 2), (2, 4), (5, 3), (1, 2)]:
        q, k, v = (draw.normal(size, width) for _ in "qkv")
        scale = draw.choice([0.5, 1.5])
        wanted, others = pooled(q, k, v, scale), _other_cores(q, k, v, scale)
        with case(f"a group of {size}, D = {width}"):
            key, value = _two(answer(q, k, v, scale), "the core key and the core value")
            need_close(key, wanted[0], "the core key",
                       causes={cause: other[0] for cause, other in others.items()})
            causes = {cause: other[1] for cause, other in others.items()}
            need_close(value, wanted[1], "the core value", causes=causes | {
                "it is pooled from the keys": wanted[0],
                "values are scored anew; they get the weights of their keys":
                    (scale * v @ q[-1]).softmax(0) @ v})


# 03.3: what a row reads
def check_reads(answer: Answer, draw: Draw) -> None:
    """Every row of a few settings, against counting groups that lie behind the window."""
    settings = [(3, 4), (4, 2), (5, 12), (1, 1), (draw.randint(2, 9), draw.randint(2, 20))]
    rows = [(25, 5, 12)]  # where most mistakes differ from each other
    for row, group, window in rows + [(row, *setting) for setting in settings for row in range(40)]:
        nearest = row + 1 - window  # the first of the nearest tokens
        cores = sum(1 for p in range(row + 1) if p * group + group - 1 < nearest)
        with case(f"row {row}, group {group}, window {window}"):
            got = _two(answer(row, group, window), "how many cores, and the first raw token")
            _need_cores(need_number(got[0], "the number of cores"), cores, row, group, window)
            _need_first(need_number(got[1], "the first raw token"), cores, row, group, window)


def _need_cores(got: float, wanted: int, row: int, group: int, window: int) -> None:
    if got < 0:
        raise Mistake(f"the number of cores is {got:g}: a row that is shorter than the window "
                      "reads no core, so take max(0, ...)")
    older = row + 1 - window
    causes = {
        "this is what comes out of row - window; rows count from 0, so row i has i + 1 tokens up "
        "to its own: take row + 1 - window":
            max(0, (row - window) // group),
        "a negative number is rounded towards zero; // rounds down":
            max(0, int((older - group) / group) + 1),
        "a group counts as soon as one of its tokens is behind the window; all must be":
            max(0, -(-older // group)),
        "the window is forgotten: these are all groups that are complete": (row + 1) // group,
        "tokens are counted, not groups": max(0, older),
    }
    need_equal(got, wanted, "the number of cores", causes=causes)


def _need_first(got: float, cores: int, row: int, group: int, window: int) -> None:
    wanted = cores * group
    causes = {
        "only the nearest tokens are raw; those between the last whole group and the window are "
        "then read by nobody":
            max(0, row + 1 - window),
        "the last token of the last core is read raw too, so it is read twice (this is the k of "
        "Eq. 4 as printed)":
            max(0, wanted - 1),
        "the window takes its extra tokens from (row + 1) mod g; they come from (row + 1 - s) mod "
        "g":
            max(0, row + 1 - window - (row + 1) % group),
        "it is counted from 1": wanted + 1,
        "it is the number of cores; each core stands for g tokens": cores,
        "nothing is left to the cores: they would be read twice": 0,
    }
    need_equal(got, wanted, "the first raw token", causes=causes)


# 03.8: the cores of all groups, by a kernel
def _by_programs(q: Tensor, k: Tensor, v: Tensor, group: int, scale: float, *,
                 score: float | None = -math.inf, masked: bool = True,
                 judge: int | None = None) -> Pair:
    """Return the cores, (groups, D) each, as a right kernel makes them, or with a mistake.

    The padding's scores are replaced by `score` unless it is None, its keys and values by 0 if
    `masked`; query `judge` of a group judges, or the last.
    """
    size, cores_of = 1 << (group - 1).bit_length(), []
    inside = torch.arange(size) < group
    queries, keys, values = (torch.cat([x, torch.zeros(size, x.shape[1])]) for x in (q, k, v))
    for first in range(0, len(k) // group * group, group):
        members, others = (x[first : first + size] for x in (keys, values))
        if masked:
            members, others = (torch.where(inside[:, None], x, 0.0) for x in (members, others))
        scores = scale * members @ queries[first + (group - 1 if judge is None else judge)]
        if score is not None:
            scores = torch.where(inside, scores, torch.tensor(score))
        cores_of.append(torch.stack([scores.softmax(0) @ members, scores.softmax(0) @ others]))
    cores = torch.stack(cores_of, dim=1)
    return cores[0], cores[1]


def check_kernel(answer: Answer, draw: Draw) -> None:
    """All groups of a text whose length no group size divides."""
    for group, length in [(3, 23), (5, 39), (4, 21)]:
        q, k, v = (draw.normal(length, 16, dtype=torch.float32) for _ in "qkv")  # wider than high
        made = partial(_by_programs, q, k, v, group)
        size = 1 << (group - 1).bit_length()
        wanted = made(1.5)
        others = {
            "the padding of the tile has the score 0, and exp(0) is 1: its score must be -inf":
                made(1.5, score=None),
            "the tile is not masked: the first tokens of the next group are pooled too":
                made(1.5, score=None, masked=False),
            "the scale is forgotten": made(1.0),
            "the first query of a group judges; it is the last one": made(1.5, judge=0),
            "the last query of the tile judges, which is not the group's":
                made(1.5, judge=size - 1),
        }
        with case(f"{length} tokens, groups of {group}, tiles of {size}"):
            got = _two(answer(q, k, v, group, 1.5), "core keys and core values")
            for side, what in enumerate(("core keys", "core values")):
                causes = {cause: other[side] for cause, other in others.items()}
                need_close(got[side], wanted[side], what, causes=causes)


def check_padding(answer: Answer, draw: Draw) -> None:
    """What stands behind a group must not be read: NaN there changes nothing in its core."""
    for group in (3, 5):
        q, k, v = (draw.normal(3 * group + 8, 16, dtype=torch.float32) for _ in "qkv")
        wanted = _by_programs(q, k, v, group, 1.0)
        for x in (q, k, v):
            x[group:] = math.nan
        with case(f"groups of {group}, and NaN behind group 0"):
            with np.errstate(invalid="ignore"):  # of the other groups, in Triton's interpreter
                got = _two(answer(q, k, v, group, 1.0), "core keys and core values")
            for side, what in enumerate(("core key", "core value")):
                need_close(got[side][0], wanted[side][0], f"{what} 0",
                           why="a weight of 0 times NaN is NaN, so the padding may not be read at "
                           "all: give the tl.load of keys and values a mask, and other=0.0")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("03.2", "core_token", "The core of one group", 8, 2, 5, (
        Property("equal to a sum over the members", 1, check_core),)),
    CourseTask("03.3", "row_reads", "Which tokens a row reads", 6, 2, 5, (
        Property("equal to counting, row by row", 1, check_reads),)),
    CourseTask("03.8", "pool_by_kernel", "A kernel that pools groups", 15, 4, 4, (
        Property("the cores of all groups", 1, check_kernel),
        Property("reads nothing behind its group", 1, check_padding))),
)
