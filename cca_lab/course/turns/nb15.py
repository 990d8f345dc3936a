"""What the reader writes in notebook 15: an interval from seeds, and the verdict on an order."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import stats

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import CourseTask, Draw


# 15.1: the interval of a paired difference
def half_width(a: Sequence[float], b: Sequence[float], *, below: int = 1, at: float = 0.975,
               of_mean: bool = True, paired: bool = True, normal: bool = False) -> float:
    """Return the 95 % half-width of the mean of a - b; the keywords are mistakes."""
    gaps, seeds = np.subtract(a, b), len(a)
    spread = (gaps.std(ddof=below) if paired
              else math.sqrt(np.var(a, ddof=1) + np.var(b, ddof=1)))
    t = stats.norm.ppf(at) if normal else stats.t.ppf(at, seeds - 1)
    return float(t * spread / (math.sqrt(seeds) if of_mean else 1.0))


def seeds(draw: Draw, seeds: int) -> tuple[Any, ...]:
    """Return two settings, seed by seed."""
    a = [round(draw.gauss(1.2, 0.1), 3) for _ in range(seeds)]
    return a, [round(x - 0.02 + draw.gauss(0, 0.01), 3) for x in a]


# 15.2: the verdict on an order
def verdict(settings: list[list[float]], *, neighbours: bool = True, by_means: bool = False,
            steps: Callable[..., bool] | None = None, unseen: str = "not seen here") -> str:
    """Return the verdict on an order; the keywords are mistakes."""
    gaps = [(np.mean(np.subtract(a, b)), half_width(a, b))
            for a, b in [*pairwise(settings), (settings[0], settings[-1])]]
    looked_at = gaps if neighbours else gaps[-1:]
    if by_means:
        return "disagrees" if any(gap > 0 for gap, _ in gaps) else "agrees"
    if any(gap > width for gap, width in looked_at):
        return "disagrees"
    seen = [gap < -width for gap, width in (gaps if steps else gaps[-1:])]
    return "agrees" if (steps or all)(seen) else unseen


RISING = [[1.0, 1.1, 1.2], [1.2, 1.31, 1.4], [1.5, 1.61, 1.7]]
ORDERS: dict[str, list[list[float]]] = {
    "every seed rises": RISING, "every seed falls": RISING[::-1],
    "the ends rise, but the last two settings fall": [RISING[0], RISING[2], RISING[1]],
    "the seeds do not agree": [[1.0, 1.3, 1.1], [1.2, 1.0, 1.3], [1.1, 1.2, 1.0]],
    "the means rise, but the seeds do not agree":
        [[1.0, 1.3, 1.1], [1.1, 1.2, 1.2], [1.2, 1.1, 1.3]],
    "the ends rise; two neighbours are alike": [RISING[0], [1.2, 1.31, 1.4], [1.21, 1.3, 1.4]],
    "one step rises; the ends are not seen": [*RISING[:2], [1.0, 1.6, 1.3]]}


def order(draw: Draw, order: str) -> tuple[Any, ...]:
    """Return three settings, moved by some number."""
    shift = draw.random()
    return ([[x + shift for x in setting] for setting in ORDERS[order]],)


TURNS = (
    CourseTask("15.1", "half_width", "How sure is a difference", 8, 2, (
        equals("the interval of a paired difference", half_width, examples(seeds, 2, 3, 5),
               "the half-width", tolerance=1e-6, wrong=mistakes(half_width, {
            "a and b have a spread each; subtract seed by seed first: theirs is not that of the "
            "difference": {"paired": False},
            "the squares are divided by the number of seeds, not by one less (ddof=1)":
                {"below": 0},
            "the spread of one seed is taken; that of the mean is smaller by the square root of "
            "their number": {"of_mean": False},
            "1.96 is taken, which is for many seeds; take Student's t with one degree of freedom "
            "less than seeds": {"normal": True},
            "t is taken at 0.95; 95 % in the middle leaves 2.5 % on each side: take it at 0.975":
                {"at": 0.95}})),)),
    CourseTask("15.2", "verdict", "The verdict on an order", 10, 3, (
        equals("agrees, disagrees, or not seen here", verdict, examples(order, *ORDERS),
               "the verdict", wrong=mistakes(verdict, {
            "the means decide: they are in some order by chance; look at the intervals":
                {"by_means": True},
            "only the ends are compared: two neighbours may differ the other way round, with an "
            "interval that leaves out 0": {"neighbours": False},
            "every step must be seen; it is enough that the ends rise and no step falls":
                {"steps": all},
            "one step that is seen decides; the first and the last have to differ":
                {"steps": any},
            "an order that is not seen counts as one that is not so": {"unseen": "disagrees"}})),)),
)
