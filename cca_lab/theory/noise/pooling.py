"""Noise on keys that are pooled by softmax (DGA Eq. 14): the variance of a group's logit.

The logit of the pooled key is l(a) = sum_j P_j a_j with P = softmax(a), where a_j are the logits of the group's tokens
and the query that pools is the one that attends. With independent noise N(0, sigma^2) on each a_j,

    noise on the group's logit = sigma^2 F,   F = sum_j P_j^2 (1 + a_j - l)^2     (first order in sigma)

since d l / d a_j = P_j (1 + a_j - l). Equal logits give F = 1/m; one logit that stands out can give F > 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight
from cca_lab.theory.noise.sampling import Array, softmax

STANDS_OUT = 2.4  # by how much the logit of one token exceeds the others of its group
ROUNDING = 1e-6   # of the numerical derivative, relative to 1 + F


def pooled_logit_factor(logits: Sequence[float]) -> float:
    """Return F: the variance of a group's logit over that of a token's logit, keys pooled by softmax (Eq. 14)."""
    top = max(logits)
    powers = [math.exp(a - top) for a in logits]
    pool = [power / sum(powers) for power in powers]
    pooled = sum(p * a for p, a in zip(pool, logits, strict=True))
    return sum((p * (1 + a - pooled)) ** 2 for p, a in zip(pool, logits, strict=True))


def numerical_factor(logits: Sequence[float], step: float = 1e-5) -> float:
    """Return sum_j (d l / d a_j)^2 of the pooled logit l by central differences."""
    def pooled(a: Array) -> float:
        return float(softmax(a) @ a)

    centre, units = np.array(logits, dtype=float), step * np.eye(len(logits))
    return sum(((pooled(centre + unit) - pooled(centre - unit)) / (2 * step)) ** 2 for unit in units)


# ---------------------------------------------------------------- checks

FLAT = tuple((0.0,) * m for m in (2, 4, 16, 64))
PEAKED = ((STANDS_OUT, 0.0), (math.log(11), 0.0), *((math.log(m - 1), *(0.0,) * (m - 1)) for m in (64, 1024)))
RANDOM = tuple(tuple(float(a) for a in np.random.default_rng(m).normal(size=m) * tau)
               for m in (2, 8, 16) for tau in (1.0, 4.0))


@dataclass(frozen=True)
class Pooled:
    """The claim that in these groups F is at most a bound.

    Attributes:
        bound: logits of a group -> the largest F that is claimed.
        groups: the logits of the tokens of each group.
    """

    bound: Callable[[Sequence[float]], float]
    groups: tuple[tuple[float, ...], ...] = PEAKED + FLAT + RANDOM


def no_more(logits: Sequence[float]) -> float:
    """The least that "smooths out" can mean: no more noise on the group's logit than on a token's."""
    return 1.0


def check_pooled(subject: Pooled) -> Finding:
    """Judge a bound on F against numerical derivatives of the pooled logit."""
    largest = 0.0
    for logits in subject.groups:
        found, allowed = numerical_factor(logits), subject.bound(logits)
        if found > allowed + ROUNDING * (1 + found):
            shown = ", ".join(f"{a:.2g}" for a in logits[:4])
            return Finding(False, f"m = {len(logits)}, logits {shown}: the group's logit has {found:.3f} of the "
                                  f"variance "
                                  f"of a token's, over {allowed:.3g}", {"factor": found})
        largest = max(largest, found)
    return Finding(True, f"in {len(subject.groups)} groups; the largest F is {largest:.3f}", {"factor": largest})


CLAIMS = (
    Claim(id="T2.eq14", paper="DGA", place="Section 4.2; Section 5.1, Eq. 14",
          quote=("The grouping mechanism smooths out the impact of random noise by averaging over multiple tokens in "
                 "the same group", r"Here, we compute the weights $\mathbf{P}$ using only the query of the last token "
                 "in each group"),
          reading="with the pooling of Eq. 14, noise on the keys leaves a group's logit no noisier than a token's "
                  "[where the query that pools also attends]",
          printed=Pooled(no_more), check=check_pooled, verdict=Verdict.DEPENDS,
          models={"equal logits in each group": (Pooled(no_more, FLAT), True),
                  "one token of a group well above the others": (Pooled(no_more, PEAKED), False)},
          strength=Strength.PROOF, corrected=Pooled(pooled_logit_factor),
          repair="F = sum P_j^2 (1 + a_j - sum P_i a_i)^2 of the variance is left: 1/m for equal logits, over 1 for "
                 "peaked ones, without an upper bound as m grows",
          repaired=Strength.PROOF, weight=Weight.SUBSTANCE, root="T2",
          proof="d l / d a_j = P_j (1 + a_j - l), by sympy also for symbols a_j, m = 2, 3, 4. Equal logits give m / "
                "m^2. For m = 2 and a = (ln 11, 0): P = (11/12, 1/12), F >= (11/12)^2 (1 + ln(11) / 12)^2 > (77/72)^2 "
                "> 1, as ln 11 > 2. No bound holds for all m: one token ln(m - 1) above the others has P = 1/2, so F "
                ">= (2 + ln(m - 1))^2 / 16.",
          example="""from math import exp

def pooled(a, b):                                       # the logit of the pooled key, Eq. 14
    p, q = exp(a), exp(b)
    return (p * a + q * b) / (p + q)

a, b, step = 2.4, 0.0, 1e-6
slopes = [(pooled(a + step, b) - pooled(a - step, b)) / (2 * step),
          (pooled(a, b + step) - pooled(a, b - step)) / (2 * step)]
factor = sum(s * s for s in slopes)
print("variance of the group's logit over that of a token's:", factor)
assert factor > 1.2"""),
)
