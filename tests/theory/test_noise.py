"""DGA Theorem 2: closed forms against power series, and against chance."""

import math

import numpy as np
import pytest
import sympy

from cca_lab.theory.noise import models as noise_models
from cca_lab.theory.noise import output as noise_output
from cca_lab.theory.noise import weight as noise
from tests.mutants import theory_dga as wrong


@pytest.mark.parametrize("shares", [(1,) * 16, (8, 4, 2, 1, 1)], ids=["even", "peaked"])
def test_where_first_order_is_five_per_cent_off(shares):
    """At sigma_5 chance and the two-term formula agree; first order alone is off by 5 %."""
    weights = [share / sum(shares) for share in shares]
    sigma = noise.first_order_range(weights, 0)
    samples = noise_models.simulate("full", np.log(weights), 1, sigma, 400_000)[:, 0]
    measured = noise_models.measured_variance(samples)
    first, second = noise.variance_coefficients(weights, 0)
    # rel: chance, and sigma^6
    assert measured.value == pytest.approx(first * sigma**2 + second * sigma**4, rel=0.015)
    assert not measured.agrees(first * sigma**2)
    assert abs(measured.value / (first * sigma**2) - 1) == pytest.approx(0.05, abs=0.02)


# ---------------------------------------------------------------- for all weights: symbols of sympy

def symbols(count: int, total=1) -> list:
    """Return `count` symbols whose sum is `total`."""
    free = list(sympy.symbols(f"a1:{count}", positive=True))
    return [*free, total - sum(free)]


def zero(expression) -> bool:
    return sympy.simplify(expression) == 0


def moment(polynomial: sympy.Poly):
    """Return the mean over independent Gaussians: E eta^(2n) = (2n - 1)!!, odd moments vanish."""
    return sum(coefficient * math.prod(0 if n % 2 else math.prod(range(1, n, 2)) for n in powers)
               for powers, coefficient in polynomial.terms())


@pytest.mark.parametrize("length", [2, 3])
def test_both_orders_of_the_variance_for_all_weights(length):
    """By the power series of the softmax in sigma, without a formula for its derivatives."""
    weights, s = symbols(length), sympy.Symbol("s")
    noises = sympy.symbols(f"e1:{length + 1}")
    powers = [w * sympy.exp(s * e) for w, e in zip(weights, noises, strict=True)]
    series = [(powers[0] / sum(powers)).diff(s, n).subs(s, 0) / math.factorial(n) for n in range(4)]
    _, first, second, third = (sympy.Poly(sympy.simplify(term), *noises) for term in series)
    exact = moment(first**2), moment(second**2) - moment(second)**2 + 2 * moment(first * third)
    closed = noise.variance_coefficients(weights, 0)
    assert all(zero(x - y) for x, y in zip(exact, closed, strict=True))
    assert zero(first.as_expr() - noise.gradient(weights, 0) @ noises)
    assert not zero(exact[0] - wrong.no_cross_term(weights, 0))


@pytest.mark.parametrize("model", noise_models.POWERS)
@pytest.mark.parametrize(("k", "m"), [(2, 2), (3, 2), (2, 3)])
def test_each_factor_for_all_masses(model, k, m):
    masses = symbols(k)
    weights = [mass / m for mass in masses for _ in range(m)]
    full = noise_models.full_variance(weights, 0)
    exact = noise_models.exact_variance(model, weights, m, 0) / full
    assert zero(exact - noise_models.factor(model, weights, m, 0))


@pytest.mark.parametrize("m", [2, 3, 4])
def test_the_pooled_logit_for_all_logits(m):
    logits = sympy.symbols(f"a1:{m + 1}", real=True)
    powers = [sympy.exp(a) for a in logits]
    pool = [power / sum(powers) for power in powers]
    pooled = sum(p * a for p, a in zip(pool, logits, strict=True))
    assert zero(sympy.diff(pooled, logits[0]) - pool[0] * (1 + logits[0] - pooled))
    assert not zero(sympy.diff(pooled, logits[0]) - pool[0])


@pytest.mark.parametrize("k", [2, 3])
def test_the_output_identity_for_all_masses_and_values(k):
    m, masses = 2, symbols(k)
    weights = [mass / m for mass in masses for _ in range(m)]
    values = [[v] for v in sympy.symbols(f"v1:{k * m + 1}")]
    (full,), = noise_output.full_covariance(values, weights)
    (left,), = noise_output.grouped_covariance(values, weights, m)
    (pooled,), = noise_output.grouped_covariance(values, weights, m, "pooled")
    (scatter,), = noise_output.within_group_scatter(values, weights, m)
    assert sympy.expand(full - left - scatter) == 0 and sympy.expand(pooled - m * left) == 0


@pytest.mark.parametrize("model", noise_models.MODELS)
@pytest.mark.parametrize("m", [2, 8])
def test_each_factor_by_chance(model, m):
    """L = 32, groups with logits of their own: the closed form lies in the 99.9 % interval."""
    logits = np.repeat(np.random.default_rng(3).normal(size=32 // m), m)
    weights = list(noise_models.softmax(logits))
    measured = noise_models.measured_factor(model, logits, m, sigma=0.05, draws=20_000, j=m)
    assert measured.agrees(noise_models.factor(model, weights, m, m)), measured
    assert not measured.agrees(1 / m**2) or model == "shared"


def test_pooled_logit_flat_peaked_and_without_bound():
    assert noise_models.pooled_logit_factor([1.0] * 8) == pytest.approx(1 / 8)
    gaps = np.linspace(0, 6, 601)
    factors = [noise_models.pooled_logit_factor([gap, 0.0]) for gap in gaps]
    assert max(factors) == pytest.approx(1.2196, abs=1e-4)
    assert noise_models.pooled_logit_factor([np.log(11), 0.0]) > (77 / 72)**2 > 1  # as e^2 < 9 < 11
    assert gaps[int(np.argmax(factors))] == pytest.approx(noise_models.STANDS_OUT, abs=0.02)
    for m in (16, 256, 4096):
        factor = noise_models.pooled_logit_factor([np.log(m - 1), *[0.0] * (m - 1)])
        assert factor >= (2 + np.log(m - 1)) ** 2 / 16
