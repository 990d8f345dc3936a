"""The limit of P_sparse as the text grows, the rate, and the length at which P_sparse reaches 95 %.

For independent logits xi, with X = e^xi, the limit is 1 if xi has no upper bound, for any moments,
and depends on rho if it has one. And -(1/L) ln(1 - P_sparse) -> J(rho), which is

    inf over y of sup over u >= 0 of { rho u - ln E[e^{uX/y}; X <= y] }
"""

from collections.abc import Callable
from functools import partial
from math import ceil, exp, floor, inf, log

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from cca_lab.theory.claim import Outcome, Subjects, chosen
from cca_lab.theory.sparsity import logits
from cca_lab.theory.sparsity.logits import Conditional, LogitLaw, gaussian, laplace, uniform

LIMIT_CASES = ((uniform(1.0), 0.5), (uniform(1.0), 0.75), (uniform(3.0), 0.2), (uniform(3.0), 0.5),
               (gaussian(0.3), 0.05), (gaussian(1.0), 0.05), (gaussian(2.0), 0.05),
               (laplace(1.5), 0.05))
LEVELS = (0.001, 0.01, 0.1)  # P(max X <= y) at the y for which the bounds are tried
NARROW = 0.01


def ends_at(law: LogitLaw, length: float, rho: float) -> tuple[float, float]:
    """Return a lower and an upper bound on P_sparse at this length and at every larger one.

    For a fixed y the first bound is P(max X > y) times Markov's bound on the h(y) of `bounds`, for
    log-concave densities, or P(max X > y) - P(S >= L rho y), the latter by Cantelli: both rise with
    L. The other is P(S < L rho sup X) for bounded logits with rho sup X < E X, again by Cantelli.
    """
    low, high = 0.0, 1.0
    mean, second = law.moments
    spread = (second - mean**2) / length if second < inf else inf  # the variance of S / L
    for level in LEVELS:
        t = law.quantile_of_max(level, length)
        # e^700 still fits a float; a smaller y is passed more often
        slack = rho * exp(min(t, 700.0)) - mean
        if spread < inf and slack > 0:
            low = max(low, 1 - level - spread / (spread + slack**2))
        if law.log_concave and length * rho > 1:
            share = (length - 1) / (length * rho - 1) * Conditional(law, t).mean
            low = max(low, (1 - level) * (1 - share))
    if law.bound < inf and (slack := mean - rho * exp(law.bound)) > 0:
        high = spread / (spread + slack**2)
    return low, high


def enclosed(law: LogitLaw, rho: float) -> tuple[float, float, float]:
    """Return `NARROW` bounds on P_sparse and a length from which they hold: for the limit too."""
    for power in range(2, 251):
        low, high = ends_at(law, 10.0**power, rho)
        if high - low <= NARROW:
            return low, high, 10.0**power
    raise ValueError(f"law, rho: the bounds for {law.name} and {rho} do not meet; change the rate")


def check_limit(predicted: Callable[[LogitLaw, float], float | None],
                within: Callable[..., bool] | None = None) -> Outcome:
    """Judge a predicted limit of P_sparse by bounds that hold from some length on."""
    cases = chosen(LIMIT_CASES, within and (lambda case: within(*case)))
    longest = 0.0
    for law, rho in cases:
        (low, high, length), wanted = enclosed(law, rho), predicted(law, rho)
        longest = max(longest, length)
        if wanted is None or not low <= wanted <= high:
            return Outcome(False, f"{law.name}, rho={rho}: predicted limit {wanted}, P_sparse lies "
                           f"between {low:.3f} and {high:.3f} from L={length:g} on",
                           {"predicted": str(wanted), "low": low, "high": high})
    return Outcome(True, f"{len(cases)} laws: bounds at most {NARROW} apart, which hold from some "
                   f"L on, at the latest from {longest:g}, contain it",
                   {"laws": len(cases), "from": longest})


SMALLEST_RATE = 1e-8  # with a smaller rate, 95 % would take more than 300 million tokens


def limit(law: LogitLaw, rho: float) -> float | None:
    """Return the limit of P_sparse as L grows, (d): 1 for unbounded logits.

    For bounded ones, with M = ess sup X, it is 1 if rho > E X / M, 0 if rho < E X / M, and None if
    they are equal, where the hypotheses leave it open.
    """
    if law.bound == inf:
        return 1.0
    boundary = law.moments[0] / exp(law.bound)
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
    """Return J(rho), the exponential rate at which 1 - P_sparse falls: (e).

    For unbounded logits with a log-concave density and finite E X^a for some a > 0, and rho at most
    0.9: closer to 1 the quadrature is too coarse. 0 below `SMALLEST_RATE`; ValueError otherwise.
    """
    if not law.log_concave or law.bound < inf or not 0 < rho <= 0.9:
        raise ValueError(f"law, rho: got {law.name} and {rho}, wanted unbounded logits with a "
                         "log-concave density and a rate over 0 and at most 0.9")
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
