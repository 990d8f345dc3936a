"""How fast P_sparse tends to 1 as the text grows, and the length where it is 95 %.

For independent logits xi of unbounded X = e^xi, -(1/L) ln(1 - P_sparse) tends to J(rho), which is

    inf over y of sup over u >= 0 of { rho u - ln E[e^{uX/y}; X <= y] }
"""

from functools import partial
from math import ceil, floor, inf, log

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from cca_lab.theory.sparsity import logits
from cca_lab.theory.sparsity.logits import LogitLaw

SMALLEST_RATE = 1e-8  # with a smaller rate, 95 % would take more than 300 million tokens


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
    if not 0 < rho <= 0.9:
        raise ValueError(f"rho: got {rho}, wanted a rate over 0 and at most 0.9")
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
