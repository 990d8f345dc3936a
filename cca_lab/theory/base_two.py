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


def causal_attention(scores: Sequence[Sequence[int]]) -> list[list[Fraction]]:
    """Return the causal attention matrix (L, L) of integer scores; row i weighs tokens 0 .. i."""
    length = len(scores)
    return [softmax(scores[i][: i + 1]) + [Fraction(0)] * (length - i - 1) for i in range(length)]
