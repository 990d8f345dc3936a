"""Bounds on P_sparse against closed forms, against drawn rows, and against each other."""

from math import exp, log

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from cca_lab.theory.sparsity import bounds, logits
from cca_lab.theory.sparsity import limit as sparsity_limit
from cca_lab.theory.sparsity.logits import Conditional, LogitLaw, gaussian, laplace, sample, uniform

LAWS = [gaussian(2.0), laplace(0.8), uniform(4.0)]


@pytest.mark.parametrize("tau, t", [(0.5, 1.0), (2.0, 3.0), (3.0, 9.0), (3.0, -2.0)])
def test_moments_of_the_gaussian_agree_with_their_closed_form(tau, t):
    given = Conditional(gaussian(tau), t)
    mean = exp(tau**2 / 2 - t) * ndtr(t / tau - tau) / ndtr(t / tau)
    second = exp(2 * tau**2 - 2 * t) * ndtr(t / tau - 2 * tau) / ndtr(t / tau)
    assert given.mean == pytest.approx(mean, rel=1e-10)
    assert given.variance == pytest.approx(second - mean**2, rel=1e-8)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_nodes_hold_the_probability_and_the_moments(law: LogitLaw):
    t = law.quantile_of_max(0.5, 100)
    z, weights = logits.nodes(law, t)
    assert weights.sum() == pytest.approx(law.distribution.cdf(t), rel=1e-12) and z.max() <= 1
    everything = law.bound if law.bound < np.inf else 60.0
    z, weights = logits.nodes(law, everything)
    if law.moments[0] < np.inf:
        assert weights @ z * exp(everything) == pytest.approx(law.moments[0], rel=1e-5)


def test_the_transform_and_the_grid_are_those_of_the_law():
    given = Conditional(laplace(0.8), 1.5)
    step = 1e-5
    slope = (given.log_mgf(3 + step)[0] - given.log_mgf(3 - step)[0]) / (2 * step)
    assert given.log_mgf(3)[1] == pytest.approx(slope, rel=1e-6)
    chances = given.grid(2000)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert chances @ (np.arange(2000) + 0.5) / 2000 == pytest.approx(given.mean, abs=1e-4)


def test_a_bracket_of_two_uniform_weights_holds_the_exact_probability():
    # One other weight (n = 1): h is a distribution function, P(z < T) = P(xi < t + ln T | xi <= t).
    law = uniform(2.0)
    given = Conditional(law, 1.5)
    low, high = bounds.held(given, 1, 0.5)
    exact = (1.5 + log(0.5)) / 1.5
    assert low <= exact <= high and high - low < 1e-3


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_every_form_stays_below_the_bracket_and_h_never_falls(law):
    others, most = 99, 4.0
    held = []
    for t in bounds.maxima(law, 100, 8):
        given = Conditional(law, t)
        low, high = bounds.held(given, others, most, 2048)
        held.append((low, high))
        assert low <= high + 1e-12
        for form in (bounds.markov, bounds.cantelli, bounds.chernoff, bounds.best):
            assert 0 <= form(given, others, most) <= high + 1e-9, form
    assert all(later[1] >= earlier[0] for earlier, later in zip(held, held[1:], strict=False))


def test_bounds_are_ordered_and_hold_the_drawn_share():
    law, length, rho = gaussian(2.0), 200, 0.05
    low, high = bounds.bracket(law, length, rho, points=32, cells=1024)
    seen = sample(law, length, rho, 10_000)
    assert low - seen.error <= seen.value <= high + seen.error
    weak = bounds.two_term(law, length, rho)
    strong = bounds.integral(law, length, rho, bounds.best)[0]
    assert 0 < weak < bounds.product(law, length, rho) < strong < low
    assert bounds.predict(law, length, rho) == pytest.approx(seen.value, abs=seen.error + 0.01)


def test_rates_at_and_below_one_over_l_are_never_passed():
    law = gaussian(2.0)
    assert bounds.bracket(law, 100, 0.01) == bounds.integral(law, 100, 0.01, bounds.best) == (0, 0)
    assert bounds.product(law, 100, 0.005) == sample(law, 100, 0.01, 1000).value == 0


def test_a_sample_is_the_same_again_and_counts_by_the_definition():
    law = gaussian(1.5)
    powers = np.exp(law.rows(500, 60, np.random.default_rng(3)))
    weights = powers / powers.sum(axis=1, keepdims=True)
    by_hand = (weights.max(axis=1) > 1 / (60 * 0.1)).mean()
    assert sample(law, 60, 0.1, 500, seed=3).value == by_hand


def test_the_limit_of_bounded_logits_depends_on_the_rate():
    law = uniform(1.0)
    boundary = law.moments[0] / exp(1.0)
    assert boundary == pytest.approx(1 - exp(-1))
    assert [sparsity_limit.limit(law, rho) for rho in (0.6, boundary, 0.65)] == [0, None, 1]
    assert sparsity_limit.limit(logits.cauchy(1.0), 0.01) == 1


def test_every_other_limit_is_refuted():
    for said in (1.0, 0.0, None, 0.5):
        assert not sparsity_limit.check_limit(lambda law, rho, said=said: said).holds
    for bounded in (False, True):
        assert not sparsity_limit.check_limit(
            lambda law, rho, bounded=bounded: float((law.bound < np.inf) == bounded)).holds


def test_the_rate_lies_below_its_simple_upper_bound_and_near_its_estimate():
    for tau, rho in ((0.8, 0.1), (1.0, 0.05), (1.0, 0.02)):
        rate = sparsity_limit.rate(gaussian(tau), rho)
        start = sparsity_limit.mean_reaches(gaussian(tau), rho)
        assert rate <= -gaussian(tau).distribution.logcdf(start) + 1e-15
        assert rate == pytest.approx(norm.sf(tau / 2 + log(1 / rho) / tau), rel=0.03)


@pytest.mark.parametrize("tau, rho, length", [(1.0, 0.05, 12_400), (1.5, 0.02, 7_090),
                                              (2.0, 0.05, 266), (2.0, 0.01, 5_213),
                                              (3.0, 0.05, 101), (3.0, 0.01, 1_011)])
def test_the_length_for_95_percent(tau, rho, length):
    assert sparsity_limit.length_for(gaussian(tau), rho) == pytest.approx(length, rel=0.01)


def test_the_length_is_never_within_one_over_rho_and_may_be_out_of_reach():
    assert sparsity_limit.length_for(gaussian(30.0), 0.05) >= 21
    assert sparsity_limit.length_for(gaussian(0.3), 0.01) == float("inf")


@pytest.mark.parametrize("call, words", [
    (lambda: gaussian(0), "tau: got 0"),
    (lambda: bounds.product(logits.cauchy(1.0), 100, 0.05), "no log-concave density"),
    (lambda: bounds.bracket(gaussian(1.0), 1, 0.05), "length, rho: got 1 and 0.05"),
    (lambda: bounds.two_term(laplace(1.5), 100, 0.05), "E X^2 is infinite"),
    (lambda: sparsity_limit.rate(uniform(1.0), 0.05), "wanted unbounded logits"),
])
def test_what_is_refused(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
