"""What the reader writes in notebook 15: an interval from seeds, and the verdict on an order."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from scipy import stats

from cca_lab.course.compare import need_equal, need_number
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


def half_width(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the 95 % half-width of the mean of a - b, paired, with Student's t."""
    gaps = np.subtract(a, b)
    return float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / math.sqrt(len(gaps)))


def check_half_width(answer: Answer, draw: Draw) -> None:
    """Against scipy's t, with the usual slips as causes."""
    for seeds in (2, 3, 5):
        a = [round(draw.gauss(1.2, 0.1), 3) for _ in range(seeds)]
        b = [round(x - 0.02 + draw.gauss(0, 0.01), 3) for x in a]
        gaps = np.subtract(a, b)
        spread, t = gaps.std(ddof=1) / math.sqrt(seeds), stats.t.ppf(0.975, seeds - 1)
        apart = math.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / seeds)
        normal = NormalDist().inv_cdf(0.975)
        with case(f"{seeds} seeds"):
            got = need_number(answer(a, b), "the half-width")
            for cause, wrong in {
                "subtract seed by seed first: the spread of a and b alone is not that of the "
                "difference": t * apart,
                "divide the squares by the number of seeds minus one (ddof=1)":
                    t * gaps.std() / math.sqrt(seeds),
                "the spread of the mean is that of one seed over the square root of their number":
                    t * gaps.std(ddof=1),
                f"1.96 is for many seeds; with {seeds} take Student's t with {seeds - 1} degree(s) "
                "of freedom": normal * spread,
                "95 % in the middle leaves 2.5 % on each side: take t at 0.975":
                    stats.t.ppf(0.95, seeds - 1) * spread,
            }.items():
                if (not math.isclose(wrong, t * spread, rel_tol=1e-6)
                        and math.isclose(got, wrong, rel_tol=1e-6)):
                    raise Mistake(f"the half-width is {got:.4g}, wanted {t * spread:.4g}: {cause}")
            need_equal(got, t * spread, "the half-width", tolerance=1e-6 * t * spread)


def check_verdict(answer: Answer, draw: Draw) -> None:
    """Orders of three settings: clear, reversed at the ends or between neighbours, and unclear."""
    rising = [[1.0, 1.1, 1.2], [1.2, 1.31, 1.4], [1.5, 1.61, 1.7]]
    cases = {
        "every seed rises": (rising, "agrees"),
        "every seed falls": (rising[::-1], "disagrees"),
        "the ends rise, but the last two settings fall":
            ([rising[0], rising[2], rising[1]], "disagrees"),
        "the seeds do not agree":
            ([[1.0, 1.3, 1.1], [1.2, 1.0, 1.3], [1.1, 1.2, 1.0]], "not seen here"),
        "the ends rise; two neighbours are alike":
            ([rising[0], [1.2, 1.31, 1.4], [1.21, 1.3, 1.4]], "agrees"),
    }
    for what, (settings, wanted) in cases.items():
        shift = draw.random()
        moved = [[x + shift for x in setting] for setting in settings]
        with case(what):
            got = answer(moved)
            if wanted == "disagrees" and got == "agrees":
                raise Mistake("the verdict is 'agrees', wanted 'disagrees': two neighbours differ "
                              "the other way round, with an interval that leaves out 0")
            if wanted == "not seen here" and got != wanted:
                raise Mistake(f"the verdict is {got!r}, wanted 'not seen here': the means are in "
                              "some order by chance; look at the intervals")
            need_equal(got, wanted, "the verdict")


TURNS = (
    CourseTask("15.2", "half_width", "How sure is a difference", 8, 2, 5, (
        Property("the interval of a paired difference", 1, check_half_width),)),
    CourseTask("15.5", "verdict", "The verdict on an order", 10, 3, 4, (
        Property("agrees, disagrees, or not seen here", 1, check_verdict),)),
)
