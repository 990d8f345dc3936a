"""What rho-sparse misses: it compares the largest weight with a bar that falls like 1/L.

Other measures are k90, the keys that carry 90 % of a row, and effective numbers of tokens
(`cca_lab.attention.statistics`).
"""

from collections.abc import Sequence
from fractions import Fraction
from math import comb

from cca_lab.attention.statistics import keys_for_mass_loops

NINE_TENTHS = Fraction(9, 10)


def sink(length: int, weight: Fraction) -> list[Fraction]:
    """Return a row with the given weight on the first token, and equal weights on all others."""
    return [weight, *[(1 - weight) / (length - 1)] * (length - 1)]


def block(length: int, tokens: int) -> list[Fraction]:
    """Return a row in which the first `tokens` tokens have equal weights, the others 0."""
    return [Fraction(1, tokens)] * tokens + [Fraction(0)] * (length - tokens)


def k90(row: Sequence[Fraction]) -> int:
    """Count the keys, largest first, that carry 90 % of a row in rationals."""
    return keys_for_mass_loops(row, NINE_TENTHS)  # type: ignore[arg-type]  # rationals


def jump(weight: Fraction, rho: Fraction) -> int:
    """Return the least L > 1/(weight rho): there a row of this largest weight is rho-sparse."""
    return int(1 / (weight * rho)) + 1


def two_valued(length: int, rho: Fraction, large: int) -> Fraction:
    """Return P_sparse of independent X that are 1 or `large`, by fair coins, exactly."""
    return Fraction(sum(comb(length, n) for n in range(1, length + 1)
                        if large * length * rho > n * large + length - n), 2**length)
