"""P_sparse of Gaussian logits between two bounds that are proved, by ball arithmetic.

Every number is an Arb ball, an interval that contains the true value; python-flint carries the
radius through each operation. Where a ball becomes a float, the float is moved outward. The
functions raise ModuleNotFoundError where python-flint is missing.
"""

from fractions import Fraction
from math import ceil, inf, nextafter
from typing import Any

from cca_lab.extras import need
from cca_lab.theory.sparsity.logits import gaussian

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

    h never falls in y, as the normal density is log-concave, so values at the ends
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
