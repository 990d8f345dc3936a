"""Bounds on P_sparse that hold at a length and at every larger one, and so enclose its limit, if it has one.

A share at one length says nothing of the limit: at tau = 1 and rho = 0.05 it is 0.31 at L = 1500, and the limit is 1.
"""

from collections.abc import Callable
from math import exp, inf

from cca_lab.theory.claim import Finding, chosen
from cca_lab.theory.sparsity.logits import Conditional, LogitLaw, gaussian, laplace, uniform

LIMIT_CASES = ((uniform(1.0), 0.5), (uniform(1.0), 0.75), (uniform(3.0), 0.2), (uniform(3.0), 0.5),
               (gaussian(0.3), 0.05), (gaussian(1.0), 0.05), (gaussian(2.0), 0.05), (laplace(1.5), 0.05))
LEVELS = (0.001, 0.01, 0.1)  # P(max X <= y) at the y for which the bounds are tried
NARROW = 0.01


def ends_at(law: LogitLaw, length: float, rho: float) -> tuple[float, float]:
    """Return a lower and an upper bound on P_sparse at this length and at every larger one.

    For a fixed y the first bound is P(max X > y) times Markov's bound on the h(y) of `bounds`, for log-concave
    densities, or P(max X > y) - P(S >= L rho y), the latter by Cantelli: both rise with L. The other is
    P(S < L rho sup X) for bounded logits with rho sup X < E X, again by Cantelli: it falls with L.
    """
    low, high = 0.0, 1.0
    mean, second = law.moments
    spread = (second - mean**2) / length if second < inf else inf  # the variance of S / L
    for level in LEVELS:
        t = law.quantile_of_max(level, length)
        slack = rho * exp(min(t, 700.0)) - mean  # e^700 still fits a float; a smaller y is passed more often
        if spread < inf and slack > 0:
            low = max(low, 1 - level - spread / (spread + slack**2))
        if law.log_concave and length * rho > 1:
            share = (length - 1) / (length * rho - 1) * Conditional.below(law, t).mean
            low = max(low, (1 - level) * (1 - share))
    if law.bound < inf and (slack := mean - rho * exp(law.bound)) > 0:
        high = spread / (spread + slack**2)
    return low, high


def enclosed(law: LogitLaw, rho: float) -> tuple[float, float, float]:
    """Return bounds on P_sparse that are `NARROW`, and a length from which on they hold, so for the limit as well.

    Raises:
        ValueError: if no length does, as at rho = E X / sup X.
    """
    for power in range(2, 251):
        low, high = ends_at(law, 10.0**power, rho)
        if high - low <= NARROW:
            return low, high, 10.0**power
    raise ValueError(f"law, rho: the bounds for {law.name} and {rho} do not meet; change the rate")


def check_limit(predicted: Callable[[LogitLaw, float], float | None],
                within: Callable[..., bool] | None = None) -> Finding:
    """Judge a predicted limit of P_sparse by bounds that hold from some length on, of bounded and unbounded laws."""
    cases = chosen(LIMIT_CASES, within and (lambda case: within(*case)))
    longest = 0.0
    for law, rho in cases:
        (low, high, length), wanted = enclosed(law, rho), predicted(law, rho)
        longest = max(longest, length)
        if wanted is None or not low <= wanted <= high:
            return Finding(False, f"{law.name}, rho={rho}: predicted limit {wanted}, P_sparse lies between {low:.3f} "
                           f"and {high:.3f} from L={length:g} on", {"predicted": str(wanted), "low": low, "high": high})
    return Finding(True, f"{len(cases)} laws: bounds at most {NARROW} apart, which hold from some L on, at the latest "
                   f"from {longest:g}, contain it", {"laws": len(cases), "from": longest})
