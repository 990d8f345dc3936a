"""Theorem 1 in rationals, P_sparse of drawn rows, its rate, and its enclosure by balls."""

from fractions import Fraction
from itertools import permutations
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import norm

from cca_lab.theory.sparsity import bounds, enclosure, laws, limit, meaning
from cca_lab.theory.sparsity import theorem1 as sparsity
from cca_lab.theory.sparsity.laws import FiniteLaw, p_sparse, points
from cca_lab.theory.sparsity.logits import Conditional, gaussian, sample
from tests.mutants import theory_dga as mutants

# ---------------------------------------------------------------- laws in rationals


@st.composite
def joint_laws(draw) -> tuple[FiniteLaw, Fraction]:
    length = draw(st.integers(2, 4))
    rows = draw(st.lists(st.tuples(*[st.integers(1, 30)] * length), min_size=1, max_size=4))
    chances = draw(st.lists(st.integers(1, 9), min_size=len(rows), max_size=len(rows)))
    outcomes = tuple((Fraction(chance, sum(chances)), tuple(map(Fraction, row)))
                     for chance, row in zip(chances, rows, strict=True))
    rho = Fraction(1, length) + Fraction(draw(st.integers(1, 8)), 8) * (1 - Fraction(1, length))
    return FiniteLaw("drawn", outcomes), rho


@given(joint_laws(), st.integers(1, 2000))
def test_no_x_is_missed_between_the_points(case, thousandths):
    law, rho = case
    x = Fraction(thousandths, 1000) * max(points(law, rho))
    assert sparsity.two_term_at(law, rho, x) <= sparsity.two_term_bound(law, rho)
    assert sparsity.printed_at(law, rho, x) <= sparsity.printed_bound(law, rho)


@given(joint_laws())
def test_equation_19_holds_for_weights_of_one_law_if_at_most_one_can_pass(case):
    """Every order of each row, equally likely: then each weight has the same law."""
    law, _ = case
    orders = list(permutations(range(law.length)))
    shuffled = FiniteLaw("shuffled", tuple((chance / len(orders), tuple(row[j] for j in order))
                                           for chance, row in law.outcomes for order in orders))
    rho = Fraction(2, law.length)
    assert sparsity.eq19(shuffled, rho) <= p_sparse(shuffled, rho)
    assert p_sparse(shuffled, rho) == sparsity.counting_bound(shuffled, rho)


def test_equation_20_breaks_at_its_last_line_for_dependent_logits():
    dependent = sparsity.eq20_lines(laws.OPPOSED, Fraction(1), Fraction(2))
    assert any(step.startswith("6 -> 7") for step in sparsity.wrong_steps(dependent))


def test_what_is_no_law_is_refused():
    for outcomes in (((Fraction(1, 2), (1,)),), ((Fraction(1), (0, 1)),)):
        with pytest.raises(ValueError, match="wanted sum 1"):
            FiniteLaw("bad", outcomes)


@pytest.mark.parametrize("weight, length", [("13/100", 385), ("1/8", 401)])
def test_a_constant_sink_jumps_at_one_length(weight, length):
    weight, rho = Fraction(weight), Fraction(1, 50)
    assert meaning.jump(weight, rho) == length
    sparse = [laws.rho_sparse(meaning.sink(n, weight), rho) for n in (length - 1, length)]
    assert sparse == [False, True]


# ---------------------------------------------------------------- independent logits


@pytest.mark.parametrize("tau, t", [(0.5, 1.0), (3.0, 9.0), (3.0, -2.0)])
def test_moments_of_the_gaussian_agree_with_their_closed_form(tau, t):
    conditional = Conditional(gaussian(tau), t)
    mean = exp(tau**2 / 2 - t) * ndtr(t / tau - tau) / ndtr(t / tau)
    second = exp(2 * tau**2 - 2 * t) * ndtr(t / tau - 2 * tau) / ndtr(t / tau)
    assert conditional.mean == pytest.approx(mean, rel=1e-10)
    assert conditional.variance == pytest.approx(second - mean**2, rel=1e-8)


def test_a_sample_counts_by_the_definition_and_the_prediction_is_near():
    powers = np.exp(gaussian(1.5).rows(500, 60, np.random.default_rng(3)))
    weights = powers / powers.sum(axis=1, keepdims=True)
    by_hand = (weights.max(axis=1) > 1 / (60 * 0.1)).mean()
    assert sample(gaussian(1.5), 60, 0.1, 500, seed=3).value == by_hand
    for tau, length, rho in ((2.0, 200, 0.05), (0.8, 200, 0.05), (1.0, 50, 0.2)):
        seen, predicted = sample(gaussian(tau), length, rho, 10_000), bounds.predict(
            gaussian(tau), length, rho)
        assert predicted == pytest.approx(seen.value, abs=seen.error + 0.01)
    assert bounds.predict(gaussian(2.0), 100, 0.01) == sample(gaussian(2.0), 100, 0.01, 99).value


@pytest.mark.parametrize("tau, rho, length", [(1.0, 0.05, 12_400), (2.0, 0.01, 5_213),
                                              (3.0, 0.05, 101), (30.0, 0.05, 21),
                                              (0.3, 0.01, float("inf"))])
def test_the_rate_is_near_a_simple_estimate_and_gives_the_length_for_95_percent(tau, rho, length):
    assert limit.length_for(gaussian(tau), rho) == pytest.approx(length, rel=0.01)
    for spread in (0.8, 1.0):
        estimate = norm.sf(spread / 2 + log(20) / spread)
        assert limit.rate(gaussian(spread), 0.05) == pytest.approx(estimate, rel=0.03)


# ---------------------------------------------------------------- balls

PAIRS = [(0.5, Fraction(9, 10)), (1.0, Fraction(3, 5)), (3.0, Fraction(7, 10))]
ROWS = [(2.0, 40, Fraction(1, 10)), (1.0, 12, Fraction(1, 4)), (3.0, 30, Fraction(1, 20))]


@pytest.fixture
def flint():
    """Skip where the extra is not installed."""
    return pytest.importorskip("flint", reason="needs the extra proofs")


def pair(tau: float, rho: Fraction) -> float:
    """Return P_sparse of two logits: |xi_1 - xi_2| > -ln(2 rho - 1), a difference N(0, 2 tau^2)."""
    return 2 * ndtr(log(2 * rho - 1) / (tau * 2**0.5))


def contradicted(cells: int = 8) -> bool:
    """Whether an enclosure misses a closed form or drawn rows."""
    for tau, rho in PAIRS:
        low, high = enclosure.between(tau, 2, rho, points=200, cells=cells)
        if not low <= pair(tau, rho) <= high:
            return True
    for tau, length, rho in ROWS:
        low, high = enclosure.between(tau, length, rho, points=24, cells=64)
        seen = sample(gaussian(tau), length, float(rho), 4000)
        if not low - seen.error <= seen.value <= high + seen.error:
            return True
    return False


def test_the_enclosure_holds_closed_forms_and_drawn_rows(flint):
    assert not contradicted()


@pytest.mark.parametrize(("name", "wrong"), mutants.ENCLOSURES,
                         ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_rounding_is_caught(flint, monkeypatch, name, wrong):
    monkeypatch.setattr(enclosure, name, wrong)
    assert contradicted()


def test_the_upper_bound_holds_wherever_it_is_tried_and_gives_the_article_s_number(flint):
    for tau, rho in PAIRS:
        for x in (0.3, 1.0, 4.0):
            for u in (0.1, 1.0, 5.0):
                assert enclosure.at_most(tau, 2, rho, x, u) > pair(tau, rho)
    assert enclosure.at_most(0.5, 100, Fraction(1, 20), 13.1, 2.0) < 1.5e-5


def test_a_ball_and_its_ends_enclose_a_fraction(flint):
    for exact in (Fraction(1, 3), Fraction(2, 3), Fraction(1, 10)):
        low, high = enclosure._below(enclosure.ball(exact)), enclosure._above(enclosure.ball(exact))
        assert Fraction(low) < exact < Fraction(high)


@pytest.mark.parametrize("call, words", [
    (lambda: gaussian(0), "tau: got 0"),
    (lambda: bounds.predict(gaussian(1.0), 1, 0.05), "length, rho: got 1 and 0.05"),
    (lambda: limit.rate(gaussian(1.0), 0.95), "rho: got 0.95"),
    (lambda: enclosure.between(2.0, 40, Fraction(1, 40)), "rho over 1/L"),
    (lambda: enclosure.at_most(1.0, 40, Fraction(1, 10), 1.0, -2.0), "x, u: got 1.0 and -2.0"),
])
def test_what_the_statements_do_not_cover_is_refused(flint, call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
