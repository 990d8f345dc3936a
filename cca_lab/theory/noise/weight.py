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

The exact reference uses no derivative formula: a power series in the noises eta, with weights that
are Fractions, or symbols of sympy that sum to 1.
"""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from math import factorial, prod
from typing import Any

Weights = Sequence[Any]  # of L numbers, positive, summing to 1


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


def lemma1_remainder(weights: Sequence[Fraction], noise: Sequence[Fraction], j: int) -> Decimal:
    """Return (alpha_j' - alpha_j) / alpha_j - (eta_j - sum alpha_i eta_i) to 60 digits (Eq. 25)."""
    with localcontext(prec=60):
        a, eta = ([Decimal(x.numerator) / x.denominator for x in numbers]
                  for numbers in (weights, noise))
        moved = [x * e.exp() for x, e in zip(a, eta, strict=True)]
        linear = eta[j] - sum(x * e for x, e in zip(a, eta, strict=True))
        return moved[j] / sum(moved) / a[j] - 1 - linear


ORDER = 3
Polynomial = dict[tuple[int, ...], Any]  # exponents of eta_1 .. eta_L -> coefficient


def softmax_series(weights: Sequence[Any], j: int, order: int = ORDER) -> list[Polynomial]:
    """Return f_0 .. f_order of the j-th weight, a_j = f_0 + sigma f_1 + sigma^2 f_2 + ...

    f_n has the terms of degree n in the noises, which are independent N(0, 1).
    """
    if sum(weights) != 1:
        raise ValueError(f"weights: they sum to {sum(weights)}, wanted 1 exactly; pass Fractions")
    length = len(weights)
    exponentials: list[Polynomial] = [
        {tuple(n if i == at else 0 for i in range(length)): Fraction(1, factorial(n))
         for n in range(order + 1)} for at in range(length)]
    total: Polynomial = {}
    for weight, series in zip(weights, exponentials, strict=True):
        total = _add(total, series, weight)
    excess = _add(total, {(0,) * length: Fraction(1)}, Fraction(-1))  # the sum is 1 + excess
    reciprocal, power = {(0,) * length: Fraction(1)}, {(0,) * length: Fraction(1)}
    for n in range(1, order + 1):  # 1 - u + u^2 - u^3
        power = _multiply(power, excess, order)
        reciprocal = _add(reciprocal, power, Fraction((-1) ** n))
    quotient = _multiply(exponentials[j], reciprocal, order)
    return [{exponents: weights[j] * value for exponents, value in quotient.items() if value
             and sum(exponents) == degree} for degree in range(order + 1)]


def variance_terms(weights: Sequence[Any], j: int) -> tuple[Any, Any]:
    """Return the terms of Var a_j: E f_1^2 (by sigma^2) and Var f_2 + 2 E f_1 f_3 (by sigma^4)."""
    _, first, second, third = softmax_series(weights, j)
    fourth_order = expectation(_multiply(second, second, 4)) - expectation(second) ** 2
    fourth_order += 2 * expectation(_multiply(first, third, 4))
    return expectation(_multiply(first, first)), fourth_order


def expectation(polynomial: Polynomial) -> Any:
    """Return the mean over independent Gaussians: E eta^(2n) = (2n - 1)!!, odd moments vanish."""
    return sum((value * prod(0 if n % 2 else prod(range(1, n, 2)) for n in exponents)
                for exponents, value in polynomial.items()), start=Fraction(0))


def _add(first: Polynomial, second: Polynomial, factor: Any) -> Polynomial:
    total = dict(first)
    for exponents, value in second.items():
        total[exponents] = total.get(exponents, Fraction(0)) + factor * value
    return {exponents: value for exponents, value in total.items() if value}


def _multiply(first: Polynomial, second: Polynomial, order: int = ORDER) -> Polynomial:
    """Multiply two polynomials without the terms of a degree above `order`."""
    product: Polynomial = {}
    for a, x in first.items():
        for b, y in second.items():
            if sum(a) + sum(b) <= order:
                exponents = tuple(m + n for m, n in zip(a, b, strict=True))
                product[exponents] = product.get(exponents, Fraction(0)) + x * y
    return product


CASES = tuple(tuple(Fraction(share, sum(shares)) for share in shares)
              for shares in ((1, 1), (1, 3), (1, 1, 1), (1, 2, 5), (1, 1, 1, 1), (1, 2, 3, 10)))
