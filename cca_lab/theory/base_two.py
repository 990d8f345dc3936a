"""Softmax with base 2: for integer scores every attention weight is an exact fraction.

A softmax with base 2 is the usual softmax with scale ln 2, so what is proved here about weights
holds for attention itself, without rounding.
"""

from collections.abc import Sequence
from fractions import Fraction


def softmax(scores: Sequence[int]) -> list[Fraction]:
    """Return 2^s / sum of 2^s for integer scores: softmax with scale ln 2, exactly."""
    powers = [Fraction(2) ** score for score in scores]
    return [power / sum(powers) for power in powers]
