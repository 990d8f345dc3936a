"""Noise on attention logits: its effect on one softmax weight (DGA Theorem 2, Lemmas 1-2).

alpha = softmax(logits) gets independent noise N(0, sigma^2) on each logit. With
s2 = sum alpha_i^2, s3 = sum alpha_i^3 and U_j = 1 + s2 - 2 alpha_j,

    E (change of alpha_j)   = alpha_j sigma^2 (s2 - alpha_j)                  + O(sigma^4)
    Var (change of alpha_j) = alpha_j^2 (sigma^2 U_j + sigma^4 C_j)           + O(sigma^6)
    C_j = 2 (s2 - 2 alpha_j) U_j + 4 (alpha_j (alpha_j - s2) - s3 + s2^2)
          + (U_j^2 - 2 (alpha_j - 2 alpha_j^2 + s3 - (alpha_j - s2)^2) + s2 - 2 s3 + s2^2) / 2

Proof: the coefficient of sigma^4 in Var f(x + sigma z) is grad f . grad(Laplacian f) + |grad^2 f|^2
/ 2 (Hermite). Insert d alpha_j / d xi_i = alpha_j (delta_ij - alpha_i) and Laplacian alpha_j = 2
alpha_j (s2 - alpha_j). Numbers may be floats, Fractions or symbols of sympy.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Weights = Sequence[Any]  # of L numbers, positive, summing to 1


def gradient(weights: Weights, j: int) -> npt.NDArray[Any]:
    """Return the derivatives of alpha_j by each logit, alpha_j (delta_ij - alpha_i), (L,)."""
    own = np.arange(len(weights)) == j
    return weights[j] * (own.astype(int) - np.array(weights, dtype=object))


def lemma2(weights: Weights, j: int) -> Any:
    """Return U_j = 1 + s2 - 2 alpha_j, the variance of Lemma 2 in units of sigma^2 (Eq. 29)."""
    return 1 + sum(a * a for a in weights) - 2 * weights[j]


def second_order(weights: Weights, j: int) -> Any:
    """Return C_j, the coefficient of alpha_j^2 sigma^4 in the variance of alpha_j."""
    a, s2, s3 = weights[j], sum(w**2 for w in weights), sum(w**3 for w in weights)
    u = lemma2(weights, j)
    hessian = u**2 - 2 * (a - 2 * a**2 + s3 - (a - s2) ** 2) + s2 - 2 * s3 + s2**2
    return 2 * (s2 - 2 * a) * u + 4 * (a * (a - s2) - s3 + s2**2) + hessian / 2


def variance_coefficients(weights: Weights, j: int) -> tuple[Any, Any]:
    """Return the coefficients of sigma^2 and sigma^4 in the variance of alpha_j."""
    return weights[j] ** 2 * lemma2(weights, j), weights[j] ** 2 * second_order(weights, j)


def first_order_range(weights: Weights, j: int) -> float:
    """Return the sigma at which the sigma^4 term is 5 % of the sigma^2 term."""
    second = abs(second_order(weights, j))
    return math.sqrt(0.05 * lemma2(weights, j) / second) if second else math.inf
