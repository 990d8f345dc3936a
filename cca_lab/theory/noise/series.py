"""A softmax weight under Gaussian noise as a power series: the exact reference.

    a_j(z) = w_j e^{z_j} / sum_i w_i e^{z_i},   z_i = sigma eta_i,   eta_i independent N(0, 1)

Collecting the terms of equal degree, a_j = f_0 + sigma f_1 + sigma^2 f_2 + sigma^3 f_3 + ..., so

    E a_j - w_j = sigma^2 E f_2 + O(sigma^4)
    Var a_j     = sigma^2 E f_1^2 + sigma^4 (Var f_2 + 2 E f_1 f_3) + O(sigma^6)

No derivative formula is used. The weights are Fractions, or symbols of sympy that sum to 1: what
then agrees with a closed form, agrees for all weights of that length.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import factorial, prod
from typing import Any

ORDER = 3
Polynomial = dict[tuple[int, ...], Any]  # exponents of eta_1 .. eta_L -> coefficient


def softmax_series(weights: Sequence[Any], j: int, order: int = ORDER) -> list[Polynomial]:
    """Return f_0 .. f_order of the j-th weight, one homogeneous polynomial for each degree."""
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


def bias_term(weights: Sequence[Any], j: int) -> Any:
    """Return the coefficient of sigma^2 in E a_j - w_j."""
    return expectation(softmax_series(weights, j)[2])


def variance_terms(weights: Sequence[Any], j: int) -> tuple[Any, Any]:
    """Return the coefficients of sigma^2 and sigma^4 in Var a_j."""
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
