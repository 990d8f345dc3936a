"""P_sparse of independent logits: moments, prediction, limit and rate."""

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
    if law.mean < np.inf:
        assert weights @ z * exp(everything) == pytest.approx(law.mean, rel=1e-5)


def test_the_prediction_is_near_the_drawn_share_and_0_at_the_bar():
    for law, length, rho in ((gaussian(2.0), 200, 0.05), (laplace(0.8), 200, 0.05),
                             (uniform(4.0), 50, 0.2)):
        seen = sample(law, length, rho, 10_000)
        assert bounds.predict(law, length, rho) == pytest.approx(seen.value, abs=seen.error + 0.01)
    assert bounds.predict(gaussian(2.0), 100, 0.01) == sample(gaussian(2.0), 100, 0.01, 99).value


def test_a_sample_is_the_same_again_and_counts_by_the_definition():
    law = gaussian(1.5)
    powers = np.exp(law.rows(500, 60, np.random.default_rng(3)))
    weights = powers / powers.sum(axis=1, keepdims=True)
    by_hand = (weights.max(axis=1) > 1 / (60 * 0.1)).mean()
    assert sample(law, 60, 0.1, 500, seed=3).value == by_hand


def test_the_limit_of_bounded_logits_depends_on_the_rate():
    law = uniform(1.0)
    boundary = law.mean / exp(1.0)
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
    (lambda: bounds.predict(gaussian(1.0), 1, 0.05), "length, rho: got 1 and 0.05"),
    (lambda: sparsity_limit.rate(logits.cauchy(1.0), 0.05), "log-concave density"),
    (lambda: sparsity_limit.rate(uniform(1.0), 0.05), "wanted unbounded logits"),
])
def test_what_is_refused(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
