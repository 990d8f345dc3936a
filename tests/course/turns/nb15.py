"""Wrong answers to the tasks of notebook 15."""

import math
from itertools import pairwise

import numpy as np
from scipy import stats

from cca_lab.course.turns.nb15 import half_width


def unpaired(a, b):
    spread = math.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / len(a))
    return stats.t.ppf(0.975, len(a) - 1) * spread


def normal(a, b):
    return stats.norm.ppf(0.975) * np.std(np.subtract(a, b), ddof=1) / math.sqrt(len(a))


def of_one_seed(a, b):
    return stats.t.ppf(0.975, len(a) - 1) * np.std(np.subtract(a, b), ddof=1)


def by_count(a, b):
    return stats.t.ppf(0.975, len(a) - 1) * np.std(np.subtract(a, b)) / math.sqrt(len(a))


def by_means(settings):
    means = [np.mean(setting) for setting in settings]
    return "agrees" if means == sorted(means) else "disagrees"


def ends_only(settings):
    gap = np.mean(np.subtract(settings[0], settings[-1]))
    width = half_width(settings[0], settings[-1])
    return "agrees" if gap < -width else "disagrees" if gap > width else "not seen here"


def every_step(settings):
    gaps = [(np.mean(np.subtract(a, b)), half_width(a, b)) for a, b in pairwise(settings)]
    if any(gap > width for gap, width in gaps):
        return "disagrees"
    return "agrees" if all(gap < -width for gap, width in gaps) else "not seen here"


WRONG = {
    "15.2": {
        "unpaired": (unpaired, "subtract seed by seed first"),
        "normal": (normal, "1.96 is for many seeds"),
        "the spread of one seed": (of_one_seed, "square root of their number"),
        "divided by n": (by_count, "ddof=1"),
    },
    "15.5": {
        "by means": (by_means, "by chance"),
        "only the ends": (ends_only, "two neighbours differ the other way round"),
        "every step must be seen": (every_step, "two neighbours are alike"),
    },
}
