"""The limit of P_sparse as the text grows, the rate, and the length at which P_sparse reaches 95 %.

For independent logits xi, with X = e^xi:

* the limit is 1 if xi has no upper bound, for any moments, and depends on rho if it has one;
* -(1/L) ln(1 - P_sparse) -> J(rho) = inf over y of sup over u >= 0 of { rho u - ln E[e^{uX/y}; X <= y] }.
"""

from collections.abc import Callable
from functools import partial
from math import ceil, exp, floor, inf, log

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom, norm

from cca_lab.theory.claim import Claim, Finding, Hypothesis, Strength, Verdict, Weight
from cca_lab.theory.sparsity import enclosure
from cca_lab.theory.sparsity.closing import check_limit
from cca_lab.theory.sparsity.logits import LogitLaw, gaussian, nodes, sample

SMALLEST_RATE = 1e-8  # with a smaller rate, 95 % would take more than 300 million tokens


def limit(law: LogitLaw, rho: float) -> float | None:
    """Return the limit of P_sparse as L grows: (d).

    Args:
        law: of one logit.
        rho: the sparse rate.

    Returns:
        1 for unbounded logits. For bounded ones, with M = ess sup X: 1 if rho > E X / M, 0 if rho < E X / M,
        and None if they are equal, where the hypotheses leave it open.
    """
    if law.bound == inf:
        return 1.0
    boundary = law.moments[0] / exp(law.bound)
    return None if rho == boundary else float(rho > boundary)


def two_valued(length: int, rho: float, large: float, share: float) -> float:
    """Return P_sparse exactly (a binomial sum) for iid X that are `large` > 1 with probability `share`, else 1."""
    count = np.arange(1, length + 1)  # number of large X; if there is none, all weights are equal
    sparse = large * length * rho > count * large + (length - count)
    return float(binom.pmf(count, length, share)[sparse].sum())


def two_valued_limit(rho: float, large: float, share: float) -> float:
    """Return the limit of `two_valued`: whether rho > E X / max X."""
    return float(rho > (1 - share + share * large) / large)


def exponent(law: LogitLaw, rho: float, t: float) -> float:
    """Return sup over u >= 0 of rho u - ln E[e^{uz}; xi <= t], z = e^{xi - t}: the cost of a maximum near t."""
    z, weights = nodes(law, t)
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

    Args:
        law: unbounded logits with a log-concave density and finite E X^a for some a > 0.
        rho: above 0 and at most 0.9; closer to 1 the quadrature is too coarse.

    Returns:
        J; 0 where it is below `SMALLEST_RATE`.

    Raises:
        ValueError: for other laws or rates.
    """
    if not law.log_concave or law.bound < inf or not 0 < rho <= 0.9:
        raise ValueError(f"law, rho: got {law.name} and {rho}, wanted unbounded logits with a log-concave density "
                         "and a rate over 0 and at most 0.9")
    start = mean_reaches(law, rho)
    if -law.distribution.logcdf(start) < SMALLEST_RATE:  # an upper bound on J: u = 0
        return 0.0
    scale = float(law.distribution.std())
    found = minimize_scalar(partial(exponent, law, rho), bounds=(start, start + 3 * scale + 3), method="bounded",
                            options={"xatol": 1e-6})
    return float(min(found.fun, exponent(law, rho, start)))


def mean_reaches(law: LogitLaw, rho: float) -> float:
    """Return the t with E[e^{xi - t} | xi <= t] = rho; the mean falls as t grows (log-concave density)."""
    def excess(t: float) -> float:
        z, weights = nodes(law, t)
        return float(weights @ z / weights.sum()) - rho

    low, high = float(law.distribution.ppf(1e-3)), float(law.distribution.isf(1e-3))
    while excess(high) > 0:
        high += law.distribution.std()
    while excess(low) < 0:
        low -= law.distribution.std()
    return float(brentq(excess, low, high, xtol=1e-10))


def length_for(law: LogitLaw, rho: float, target: float = 0.95) -> float:
    """Predict the least L with P_sparse(L, rho) >= target: ln(1 / (1 - target)) / J, and more than 1 / rho.

    J does not determine the factor before the exponential; for Gaussian logits with tau = 2 it is 1.2 to 1.3, which
    adds at most about a tenth to the length.

    Returns:
        A whole number of tokens; infinity if it is above 300 million.
    """
    least, fastest = floor(1 / rho) + 1, rate(law, rho)
    return float(max(least, ceil(log(1 / (1 - target)) / fastest))) if fastest else inf


def rate_at_median(law: LogitLaw, rho: float) -> float:
    """Return the rate of Equation 8 with x at the median of X: P_head P_tail <= 1/2, so at least ln 2."""
    return log(2)


def gaussian_estimate(tau: float, rho: float) -> float:
    """Return Q(z) with z = tau / 2 + ln(1/rho) / tau: J for Gaussian logits, within 3 % for tau <= 1."""
    return float(norm.sf(tau / 2 + log(1 / rho) / tau))


def unbounded(law: LogitLaw, rho: float) -> bool:
    """Whether a logit has no upper bound."""
    return law.bound == inf


RATE_CASES = ((gaussian(2.0), 0.05, 150, 350), (gaussian(1.5), 0.05, 200, 400), (gaussian(2.5), 0.02, 200, 500))
RATE_DRAWS = 12_000


def check_rate(predicted: Callable[[LogitLaw, float], float]) -> Finding:
    """Judge a rate by the slope of ln(1 - P_sparse) between two lengths, estimated from random rows."""
    worst, evidence = -1.0, ""
    for law, rho, short, long in RATE_CASES:
        low, high = (1 - sample(law, length, rho, RATE_DRAWS, seed).value for length, seed in ((short, 1), (long, 2)))
        slope = log(low / high) / (long - short)
        error = 3 * (((1 - low) / low + (1 - high) / high) / RATE_DRAWS) ** 0.5 / (long - short)
        numbers = {"rate": predicted(law, rho), "slope": slope}
        found = f"{law.name}, rho={rho}: rate {numbers['rate']:.5f}, measured {slope:.5f} +- {error:.5f}"
        off = abs(slope - numbers["rate"])
        if off > error + 0.03 * slope:
            return Finding(False, found, numbers, error)
        if off / slope > worst:
            worst, evidence, kept = off / slope, found, (numbers, error)
    return Finding(True, f"{len(RATE_CASES)} cases, the furthest off: {evidence}", *kept)


CLAIMS = (
    Claim(
        id="T1.limit", paper="DGA", place="Remark 2", formula=True,
        quote=("For sufficiently large L", r"ensuring a large $P_{sparse}(L, \rho)$"),
        reading="P_sparse(L, rho) tends to 1 as L grows [for independent logits of one law], whatever the law.",
        printed=lambda law, rho: 1.0, check=check_limit, verdict=Verdict.HOLDS_IF, corrected=limit,
        hypothesis=Hypothesis("the logits have no upper bound", unbounded), strength=Strength.PROOF,
        repaired=Strength.PROOF, weight=Weight.SUBSTANCE,
        repair="iid logits: the limit is 1 if they are unbounded (no moment needed); if bounded, it is 1 for "
               "rho > E X / sup X and 0 for rho < E X / sup X",
        proof="Unbounded: with Markov in the integral over the maximum Y, P_sparse >= E[1 - (L-1) E(X/Y | X <= Y) / "
              "(L rho - 1)]_+. Y -> infinity, and E(X/y | X <= y) <= E min(X/y, 1) / F(y) -> 0 by dominated "
              "convergence. Bounded: max X -> sup X and S/L -> E X almost surely, so L max X / S -> sup X / E X.",
        example="""
from math import comb

def p_sparse(L):                  # iid X in {1, 3}, each with chance 1/2; rho = 1/2 is below E X / sup X = 2/3
    return sum(comb(L, n) for n in range(1, L + 1) if 3 * L > 2 * (2 * n + L)) / 2**L

print([round(p_sparse(L), 4) for L in (10, 100, 1000)])
assert p_sparse(1000) < 1e-10
"""),
    Claim(
        id="T1.rate", paper="DGA", place="Remark 2",
        quote="the exponential amplification of L suppresses",
        reading="1 - P_sparse falls like [P_head P_tail]^L at any interior x [for independent logits; at the median of "
                "X, by ln 2 a token or more].",
        printed=rate_at_median, check=check_rate, verdict=Verdict.FALSE, corrected=rate, weight=Weight.SUBSTANCE,
        root="T1", strength=Strength.ENCLOSURE, repaired=Strength.MONTE_CARLO,
        machine=partial(enclosure.refutes_rate, rate_at_median),
        repair="-(1/L) ln(1 - P_sparse) -> J(rho) = inf_y sup_{u>=0} { rho u - ln E[e^{uX/y}; X <= y] }, iid unbounded "
               "logits with some moment; 95 % needs about ln(20) / J tokens",
        proof="1 - P_sparse = P(max <= T) with T = S/(L rho). Below: >= F(y)^L P(S >= L rho y | all <= y), and "
              "Cramer's theorem; take the best y. Above: cut T at y_0 < y_1 < ..; a cell costs at most "
              "P(S >= L rho y_k, max <= y_{k+1}), which Chernoff bounds by e^{-LJ} up to the cell's width; O(L) cells "
              "suffice, and the moment bounds the rest.",
        example="""
from math import erfc, exp, log, sqrt

def below(z):                                     # P(N(0, 1) <= z)
    return erfc(-z / sqrt(2)) / 2

tau, rho, t = 2, 0.05, 4                          # N(0, 4) logits, y = e^4
F = below(t / tau)
mean = exp(tau**2 / 2 - t) * below(t / tau - tau) / F           # E[X | X <= y] / y
# Rows with all X <= y, of chance F^L, have S > L rho y for large L, and then no weight is over 1 / (L rho).
print(f"{mean:.4f} > rho, so 1 - P_sparse falls by at most {-log(F):.4f} a token; claimed {log(2):.4f}")
assert mean > rho and -log(F) < log(2) / 10
"""),
)
