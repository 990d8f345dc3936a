"""P_sparse of Gaussian logits between two bounds that are proved, by ball arithmetic.

Every number is an Arb ball, an interval that contains the true value; python-flint carries the
radius through each operation. Where a ball becomes a float, the float is moved outward. The
functions raise ModuleNotFoundError where python-flint is missing.
"""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, inf, nextafter
from typing import Any

from cca_lab.extras import need
from cca_lab.theory.claim import Outcome
from cca_lab.theory.sparsity.logits import LogitLaw, gaussian

BITS = 128
CELLS_OF_SUM = 4000  # cells of a logit in the transform of Chernoff's bound


def _flint() -> Any:
    """Return python-flint with its precision set."""
    need("flint")
    import flint

    flint.ctx.prec = BITS
    return flint


def _need(tau: float, length: int, rho: Fraction) -> None:
    """Raise ValueError for numbers that the inequalities do not cover."""
    if not tau > 0 or length < 2 or not 1 < length * Fraction(rho) <= length:
        raise ValueError(f"tau, length, rho: got {tau}, {length} and {rho}, wanted tau over 0, two "
                         "logits or more, and rho over 1/L and at most 1")


def _below(number: Any) -> float:
    """Return a float less than every number of a ball; float() alone rounds to the nearest."""
    return nextafter(float(number.lower()), -inf)


def _above(number: Any) -> float:
    """Return a float that is more than every number of a ball."""
    return nextafter(float(number.upper()), inf)


def ball(number: float | Fraction) -> Any:
    """Return a rational or a float, which is one, as a ball."""
    exact = Fraction(number)
    return _flint().arb(exact.numerator) / exact.denominator


def normal_below(x: Any) -> Any:
    """Return the ball of P(N(0, 1) <= x), by erfc, so that small tails keep their digits."""
    return (-x / _flint().arb(2).sqrt()).erfc() / 2


def at_most(tau: float, length: int, rho: Fraction, x: float, u: float) -> Any:
    """Return a ball above P_sparse: P(max X > x) + P(S < L rho x), the latter by Chernoff at u.

    If no X_j is over x and S >= L rho x, then no weight X_j / S is over 1/(L rho). And

        P(S < L rho x) <= e^{u L rho x} (E e^{-uX})^L,
        E e^{-uX} <= sum over cells P(xi in cell) e^{-u e^left}.

    Any positive x and u will do; they decide how good the bound is. ValueError for numbers out of
    range.
    """
    _need(tau, length, rho)
    if not (x > 0 and u > 0):
        raise ValueError(f"x, u: got {x} and {u}, wanted positive numbers")
    sigma, log_x, point = ball(tau), ball(x).log(), ball(u)
    # cells from -8 tau to 8 tau; what lies below counts as e^0 = 1
    width = ball(Fraction(16, CELLS_OF_SUM))
    edges = [(k * width - 8) for k in range(CELLS_OF_SUM + 1)]
    chances = [normal_below(edge) for edge in edges]
    mean = chances[0] + (1 - chances[-1]) * (-point * (sigma * edges[-1]).exp()).exp()
    for left, low, high in zip(edges, chances, chances[1:], strict=False):
        mean += (high - low) * (-point * (sigma * left).exp()).exp()
    small_sum = (point * length * ball(rho) * ball(x)).exp() * mean**length
    large_maximum = 1 - normal_below(log_x / sigma) ** length
    return large_maximum + small_sum


def between(tau: float, length: int, rho: Fraction, points: int = 32,
            cells: int = 32) -> tuple[float, float]:
    """Enclose P_sparse, the integral of h dF(y)^L with h(y) as in `bounds`, between two floats.

    h never falls in y, as the normal density is log-concave (see T1.product), so values at the ends
    of each of the `points` cells of the maximum bound it inside. Rounding each z = X/y up, then
    down, to a grid of 1/cells bounds h at a point. ValueError unless L rho > 1.
    """
    _need(tau, length, rho)
    law = gaussian(tau)
    # Any rising numbers would do.
    ends = sorted({law.quantile_of_max(k / points, length) for k in range(1, points)})
    below = [normal_below(ball(t) / ball(tau)) for t in ends]
    chances = [chance**length for chance in below]
    held = [_held(tau, length, rho, t, cells) for t in ends]
    # P(max in cell k) times h at its left or right end; over the last end h is at most 1.
    masses = [chances[0], *(high - low for low, high in zip(chances, chances[1:], strict=False)),
              1 - chances[-1]]
    low = sum((mass * h[0] for mass, h in zip(masses[1:], held, strict=True)), ball(0))
    high = sum((mass * h[1] for mass, h in zip(masses, held, strict=False)), ball(0)) + masses[-1]
    return max(0.0, _below(low)), min(1.0, _above(high))


def _held(tau: float, length: int, rho: Fraction, t: float, cells: int) -> tuple[Any, Any]:
    """Return a ball below h(e^t) and one above it."""
    chances = cell_chances(tau, t, cells)
    # Sums 0 .. reach - 1 are below T = L rho - 1, in units of 1/cells.
    reach = ceil((length * Fraction(rho) - 1) * cells)
    low, high = (sum(_power(steps, length - 1, reach), ball(0))
                 for steps in ([ball(0), *chances], chances))
    return low, high


def cell_chances(tau: float, t: float, cells: int) -> list[Any]:
    """Return balls of P((k - 1)/cells < z <= k/cells | z <= 1), z = e^{xi - t}, k from 1 on."""
    edges = [ball(0)] + [normal_below((ball(t) + ball(Fraction(k, cells)).log()) / ball(tau))
                         for k in range(1, cells + 1)]
    return [(high - low) / edges[-1] for low, high in zip(edges, edges[1:], strict=False)]


def _power(chances: list[Any], exponent: int, reach: int) -> list[Any]:
    """Return the first `reach` coefficients of a polynomial's power, by squaring."""
    arb_poly = _flint().arb_poly
    raised, factor = arb_poly([ball(1)]), arb_poly(chances[:reach])
    while exponent:
        if exponent & 1:
            raised = arb_poly((raised * factor).coeffs()[:reach])
        factor, exponent = arb_poly((factor * factor).coeffs()[:reach]), exponent >> 1
    return list(raised.coeffs())


def pair(tau: float, rho: Fraction) -> tuple[Any, Any]:
    """Return the balls of P_sparse for two Gaussian logits, and of Equation 8 at x = 1, the median.

    Of two weights one is over 1/(2 rho) iff |xi_1 - xi_2| > -ln(2 rho - 1), and the difference is
    N(0, 2 tau^2).
    """
    _need(tau, 2, rho)
    gap = ball(2 * Fraction(rho) - 1).log()
    head, tail = normal_below(ball(0)), normal_below(-gap / ball(tau))
    return (-gap / (2 * ball(tau))).erfc(), 1 - (head * tail) ** 2


SMALL = (0.5, 100, Fraction(1, 20), 13.1, 2.0)  # tau, L, rho, and x and u for `at_most`
WIDE = (2.0, 40, Fraction(1, 10), 48, 128)  # tau, L, rho, and points and cells for `between`
SLOW = (2.0, Fraction(1, 20), 4.0)  # tau, rho, t
MARGIN = 1e-9  # more than a claimed float can be away from the number that it stands for


def refutes_product(claimed: Callable[[LogitLaw, int, float], float]) -> Outcome:
    """Prove P_sparse below a lower bound for N(0, 1/4), L = 100, rho = 1/20, and two logits."""
    tau, length, rho, *_ = SMALL
    upper, least = _above(at_most(*SMALL)), claimed(gaussian(tau), length, float(rho))
    true, printed = pair(1.0, Fraction(9, 10))
    return Outcome(bool(upper < least - MARGIN and true < printed), f"Gaussian, tau={tau}, "
                   f"L={length}, rho={rho}: P_sparse <= {upper:.3g} in ball arithmetic, claimed at "
                   f"least {least:.4g}; tau=1, L=2, rho=9/10: P_sparse = {float(true):.6f}, Eq. 8 "
                   f"at the median claims at least {float(printed):.6f}",
                   {"upper": upper, "claimed": least, "pair": _above(true),
                    "pair_claimed": _below(printed)})


def refutes_bracket(claimed: Callable[[LogitLaw, int, float], tuple[float, float]],
                    repaired: Callable[[LogitLaw, int, float], tuple[float, float]]) -> Outcome:
    """Prove that an interval misses P_sparse of N(0, 4), L = 40, rho = 1/10, a repaired one not."""
    tau, length, rho, *_ = WIDE
    (low, high), case = between(*WIDE), (gaussian(tau), length, float(rho))
    (least, most), (down, up) = claimed(*case), repaired(*case)
    misses = least > high + MARGIN or most < low - MARGIN
    meets = down <= high + MARGIN and up >= low - MARGIN
    return Outcome(bool(misses and meets), f"{case[0].name}, L={length}, rho={rho}: P_sparse is in "
                   f"[{low:.4f}, {high:.4f}] in ball arithmetic, claimed in [{least:.4g}, "
                   f"{most:.4g}]; the repair says [{down:.4f}, {up:.4f}]",
                   {"low": low, "high": high, "claimed": least})


def refutes_rate(claimed: Callable[[LogitLaw, float], float]) -> Outcome:
    """Prove that 1 - P_sparse falls more slowly than claimed, for N(0, 4) logits and rho = 1/20.

    With y = e^t: if every X_j <= y and S >= L rho y, no weight is over 1/(L rho). So 1 - P_sparse
    is at least F(y)^L P(S >= L rho y | all <= y). If E[X | X <= y] > rho y, the second factor tends
    to 1 by the law of large numbers, and the rate is at most -ln F(y). For Gaussian logits E[X; X
    <= y] = e^{tau^2/2} Phi(t/tau - tau).
    """
    tau, rho, t = SLOW
    sigma, end = ball(tau), ball(t)
    reached = normal_below(end / sigma)
    mean = (sigma**2 / 2 - end).exp() * normal_below(end / sigma - sigma) / reached
    fastest, least = _above(-reached.log()), claimed(gaussian(tau), float(rho))
    return Outcome(bool(mean > ball(rho) and fastest < least - MARGIN),
                   f"Gaussian, tau={tau:g}, rho={rho}: the rate is at most -ln F(e^{t:g}) <= "
                   f"{fastest:.5f}, as E[X | X <= y] / y >= {_below(mean):.4f} > rho; claimed "
                   f"{least:.5f}", {"fastest": fastest, "claimed": least})
