"""The limit of P_sparse as the text grows, its rate, and the length where it is 95 %.

For independent logits xi of unbounded X = e^xi, -(1/L) ln(1 - P_sparse) tends to J(rho), which is

    inf over y of sup over u >= 0 of { rho u - ln E[e^{uX/y}; X <= y] }
"""

from collections.abc import Callable
from functools import partial
from math import ceil, exp, floor, inf, log

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from cca_lab.theory.claim import Outcome, Subjects, chosen
from cca_lab.theory.sparsity import logits
from cca_lab.theory.sparsity.logits import LogitLaw, gaussian, laplace, uniform

# Laws, rates, and lengths at which rows are sparse with a probability within 0.01 of its limit.
LIMIT_CASES = ((uniform(1.0), 0.5, 3000), (uniform(1.0), 0.75, 3000), (uniform(3.0), 0.2, 3000),
               (uniform(3.0), 0.5, 3000), (gaussian(2.0), 0.05, 1000), (laplace(1.5), 0.05, 1000))
DRAWS, NEAR = 1000, 0.01


def check_limit(predicted: Callable[[LogitLaw, float], float | None],
                within: Callable[..., bool] | None = None) -> Outcome:
    """Judge a predicted limit of P_sparse by rows of `DRAWS` drawn long texts."""
    cases = chosen(LIMIT_CASES, within and (lambda case: within(*case[:2])))
    for law, rho, length in cases:
        seen, wanted = logits.sample(law, length, rho, DRAWS), predicted(law, rho)
        if wanted is None or abs(wanted - seen.value) > NEAR + seen.error:
            return Outcome(False, f"{law.name}, rho={rho}: predicted limit {wanted}, of {DRAWS} "
                           f"rows of {length} tokens {seen.value:.3f} are sparse")
    return Outcome(True, f"{len(cases)} laws, near the share of {DRAWS} drawn rows")


SMALLEST_RATE = 1e-8  # with a smaller rate, 95 % would take more than 300 million tokens


def limit(law: LogitLaw, rho: float) -> float | None:
    """Return the limit of P_sparse as L grows: 1 for unbounded logits.

    For bounded ones, with M = ess sup X, it is 1 if rho > E X / M, 0 if rho < E X / M, and None if
    they are equal, where the hypotheses leave it open.
    """
    if law.bound == inf:
        return 1.0
    boundary = law.mean / exp(law.bound)
    return None if rho == boundary else float(rho > boundary)


def exponent(law: LogitLaw, rho: float, t: float) -> float:
    """Return sup over u >= 0 of rho u - ln E[e^{uz}; xi <= t], the cost of a maximum near t."""
    z, weights = logits.nodes(law, t)
    reached = -float(law.distribution.logcdf(t))
    chances = weights / weights.sum()

    def slope(u: float) -> float:
        tilted = chances * np.exp(u * (z - 1))
        return float(tilted @ z / tilted.sum()) - rho

    if slope(0.0) >= 0:
        return reached
    top = 1.0
    while slope(top) < 0:
        top *= 2
    u = brentq(slope, 0.0, top, xtol=1e-12)
    return reached + rho * u - float(np.log1p(chances @ np.expm1(u * z)))


def rate(law: LogitLaw, rho: float) -> float:
    """Return J(rho), the exponential rate at which 1 - P_sparse falls.

    For unbounded logits with a log-concave density and finite E X^a for some a > 0, and rho at most
    0.9: closer to 1 the quadrature is too coarse. 0 below `SMALLEST_RATE`; ValueError otherwise.
    """
    if law.bound < inf or not 0 < rho <= 0.9:
        raise ValueError(f"law, rho: got {law.name} and {rho}, wanted unbounded logits and a rate "
                         "over 0 and at most 0.9")
    start = mean_reaches(law, rho)
    if -law.distribution.logcdf(start) < SMALLEST_RATE:  # an upper bound on J: u = 0
        return 0.0
    scale = float(law.distribution.std())
    least = minimize_scalar(partial(exponent, law, rho), bounds=(start, start + 3 * scale + 3),
                            method="bounded", options={"xatol": 1e-6})
    return float(min(least.fun, exponent(law, rho, start)))


def mean_reaches(law: LogitLaw, rho: float) -> float:
    """Return the t with E[e^{xi - t} | xi <= t] = rho; the mean falls as t grows."""
    def excess(t: float) -> float:
        z, weights = logits.nodes(law, t)
        return float(weights @ z / weights.sum()) - rho

    low, high = float(law.distribution.ppf(1e-3)), float(law.distribution.isf(1e-3))
    while excess(high) > 0:
        high += law.distribution.std()
    while excess(low) < 0:
        low -= law.distribution.std()
    return float(brentq(excess, low, high, xtol=1e-10))


def length_for(law: LogitLaw, rho: float, target: float = 0.95) -> float:
    """Predict the least L with P_sparse(L, rho) >= target: ln(1 / (1 - target)) / J, over 1 / rho.

    J leaves the factor before the exponential open; for Gaussian logits with tau = 2 it is 1.2 to
    1.3, which adds at most about a tenth. Infinity above 300 million tokens.
    """
    least, fastest = floor(1 / rho) + 1, rate(law, rho)
    return float(max(least, ceil(log(1 / (1 - target)) / fastest))) if fastest else inf


def rate_at_median(law: LogitLaw, rho: float) -> float:
    """Return Equation 8's rate with x at the median: P_head P_tail <= 1/2, so at least ln 2."""
    return log(2)


SUBJECTS = {
    "T1.limit": Subjects(check_limit, lambda law, rho: 1.0, corrected=limit,
                         within=lambda law, rho: law.bound == inf),
}
