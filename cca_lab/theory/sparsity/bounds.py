"""P_sparse of independent logits: Theorem 1 corrected, from a bound to a bracket.

With n = L - 1, T = L rho - 1 and z_k = X_k / y given X_k <= y, conditioning on the maximum y gives

    P_sparse = integral of h(y) dF(y)^L,    h(y) = P(z_1 + .. + z_n < T)

The first functions bound or estimate h, and `held` brackets it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from cca_lab.theory.sparsity.logits import Conditional, LogitLaw

DAMPING = 1e-8  # factor by which `held` damps the sums that wrap around in its Fourier transform
Form = Callable[[Conditional, int, float], float]


def markov(given: Conditional, others: int, most: float) -> float:
    """Bound h from below by Markov: 1 - n m / T."""
    return max(0.0, 1 - others * given.mean / most)


def cantelli(given: Conditional, others: int, most: float) -> float:
    """Bound h from below by Cantelli: a^2 / (n v + a^2) with a = T - n m, and 0 unless a > 0."""
    slack = most - others * given.mean
    return slack**2 / (others * given.variance + slack**2) if slack > 0 else 0.0


def chernoff(given: Conditional, others: int, most: float) -> float:
    """Bound h from below by Chernoff: 1 - inf over u >= 0 of exp(n ln E e^{uz} - u T)."""
    if most >= others:
        return 1.0  # each z is at most 1, and the one at y has probability 0
    if others * given.mean >= most:
        return 0.0
    top = 1.0
    while others * given.log_mgf(top)[1] < most:
        top *= 2
    u = brentq(lambda u: others * given.log_mgf(u)[1] - most, 0.0, top, xtol=1e-10)
    return float(-np.expm1(others * given.log_mgf(u)[0] - u * most))


def central_limit(given: Conditional, others: int, most: float) -> float:
    """Predict h by the central limit theorem, Phi((T - n m) / sqrt(n v)); no bound."""
    return float(ndtr((most - others * given.mean) / np.sqrt(others * given.variance)))


def best(given: Conditional, others: int, most: float) -> float:
    """Bound h from below by the largest of Markov's, Cantelli's and Chernoff's bound."""
    return max(form(given, others, most) for form in (markov, cantelli, chernoff))


def held(given: Conditional, others: int, most: float, cells: int = 4096) -> tuple[float, float]:
    """Bracket h: round each z up, then down, to a grid, and convolve by Fourier transform.

    Rounding up makes the sum larger and h smaller. Sums that wrap around the transform are damped
    to at most `DAMPING`, and the bracket is widened for them. Rigorous up to round-off.
    """
    chances = given.grid(cells)
    reach = int(np.ceil(most * cells))  # sums 0 .. reach - 1 are below T
    size = 1 << int(np.ceil(np.log2(2 * reach + cells)))
    powers = DAMPING ** (np.arange(size) / size)
    ends = []
    for shift in (1, 0):
        steps = np.zeros(size)
        steps[shift:cells + shift] = chances
        sums = np.fft.irfft(_power(np.fft.rfft(steps * powers), others), size)
        ends.append(float(np.clip((sums[:reach] / powers[:reach]).sum(), 0, 1)))
    return max(0.0, ends[0] - 2 * DAMPING), min(1.0, ends[1] + 2 * DAMPING)


def _power(values: np.ndarray, exponent: int) -> np.ndarray:
    """Return values ** exponent by squaring, faster than NumPy for complex numbers."""
    raised = np.ones_like(values)
    while exponent:
        if exponent & 1:
            raised = raised * values
        values, exponent = values * values, exponent >> 1
    return raised


def _along(law: LogitLaw, length: int, rho: float, levels: Iterable[float],
           form: Callable[[Conditional, int, float], Any]) -> list[Any]:
    """Return a form of h at each level of the largest logit; an empty list where L rho <= 1."""
    if length < 2 or not 0 < rho <= 1:
        raise ValueError(f"length, rho: got {length} and {rho}, wanted at least 2 and a rate over "
                         f"0 and at most 1")
    if not law.log_concave:
        raise ValueError(
            f"law: {law.name} has no log-concave density, so h may fall; draw samples instead")
    most = length * rho - 1
    return [form(Conditional(law, law.quantile_of_max(level, length)), length - 1, most)
            for level in levels] if most > 0 else []


def _levels(points: int) -> list[float]:
    return [k / points for k in range(1, points)]


def maxima(law: LogitLaw, length: int, points: int) -> list[float]:
    """Return the t that divide the law of the largest logit into `points` equally likely parts."""
    return [law.quantile_of_max(level, length) for level in _levels(points)]


def integral(law: LogitLaw, length: int, rho: float, form: Form,
             points: int = 200) -> tuple[float, float]:
    """Return the lower and the upper sum of (b), the integral of h dF^L, for one form of h.

    h is nondecreasing (log-concave density), so the integral lies between the sums, which differ by
    1 / points. The lower sum of a lower bound on h is a lower bound on P_sparse.
    """
    values = _along(law, length, rho, _levels(points), form)
    inner = sum(values) / points
    return inner, inner + 1 / points if values else 0.0


def bracket(law: LogitLaw, length: int, rho: float, points: int = 64,
            cells: int = 4096) -> tuple[float, float]:
    """Return a lower and an upper bound on P_sparse: (b) with h from `held`."""
    ends = _along(law, length, rho, _levels(points), partial(held, cells=cells))
    low, high = (sum(values) / points for values in zip(*ends, strict=True)) if ends else (0.0, 0.0)
    return low, high + 1 / points if ends else 0.0


def predict(law: LogitLaw, length: int, rho: float, points: int = 100) -> float:
    """Estimate P_sparse: (b) with the central limit theorem for h, by the midpoint rule."""
    middles = [(k + 0.5) / points for k in range(points)]
    return sum(_along(law, length, rho, middles, central_limit)) / points


def product(law: LogitLaw, length: int, rho: float, form: Form = best, points: int = 200) -> float:
    """Return (c), the largest [1 - F(y)^L] h(y), head times tail, for log-concave densities."""
    values = _along(law, length, rho, _levels(points), form)
    return max(((1 - k / points) * h for k, h in enumerate(values, start=1)), default=0.0)


def two_term(law: LogitLaw, length: int, rho: float, points: int = 200) -> float:
    """Return (a), the largest P(max X > x) - P(S > L rho x), with Cantelli for the sum, or 0."""
    _along(law, length, rho, (), best)
    mean, second = law.moments
    if not np.isfinite(second):
        raise ValueError(f"law: E X^2 is infinite for {law.name}, and Cantelli needs it; use "
                         f"product or integral")
    x = np.exp(maxima(law, length, points))
    slack = np.maximum(length * (rho * x - mean), 0)
    spread = length * (second - mean**2)
    return max(0.0, float(np.max(1 - np.arange(1, points) / points - spread / (spread + slack**2))))


def printed_at_median(law: LogitLaw, length: int, rho: float) -> float:
    """Return 1 - 2^-L, which Equation 8 reaches with x at the median of X, where P_head = 1/2."""
    return 1 - 2.0**-length
