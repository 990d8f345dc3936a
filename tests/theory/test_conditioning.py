"""DGA Theorem 3: the counterexample in rationals, separation, the simplex, unequal groups, and descent."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.theory import conditioning, descent
from cca_lab.theory.conditioning import simplex as conditioning_simplex

# ---------------------------------------------------------------- the 4 x 2 example

@given(st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(1, 2)))
@settings(max_examples=30, deadline=None)
def test_the_smallest_counterexample_in_rationals(e):
    """kappa(2 V^T V) = 1 + 2 e^2 against 1 / e^2 after grouping, exactly, for any e."""
    values = conditioning.smallest_counterexample(e)
    before = conditioning.hessian_printed(values)
    after = conditioning.hessian_printed(conditioning.grouped(values, 2))
    assert conditioning.condition_number(before) == 1 + 2 * e**2
    assert conditioning.condition_number(after) == 1 / e**2
    assert min(conditioning.eigenvalues(before)) > 0 and min(conditioning.eigenvalues(after)) > 0


def test_both_hessians_share_their_nonzero_eigenvalues():
    values = conditioning.smallest_counterexample()
    small = conditioning.eigenvalues(conditioning.hessian_printed(values)).astype(float)
    large = conditioning.eigenvalues(conditioning.hessian(values))
    np.testing.assert_allclose(large, [0, 0, *small], atol=1e-12)


def test_gaussian_values_refute_the_printed_theorem_every_time():
    """L = 256, d = 16: kappa of 2 V^T V rises under grouping in 60 of 60 draws, for m = 2, 4, 8."""
    generator = np.random.default_rng(0)
    for m in (2, 4, 8):
        for _ in range(20):
            values = generator.normal(size=(256, 16))
            before, after = (conditioning.condition_number(conditioning.hessian_printed(v))
                             for v in (values, conditioning.grouped(values, m)))
            assert after > before


# ---------------------------------------------------------------- separation

def test_grouping_matrix_takes_means():
    values = np.arange(12.0).reshape(6, 2)
    means = conditioning.grouping_matrix([2, 2, 2]).astype(float) @ values
    np.testing.assert_array_equal(means, conditioning.grouped(values, 2))
    matrix = conditioning.grouping_matrix([3, 3])
    assert np.array_equal(matrix @ matrix.T, np.diag([Fraction(1, 3)] * 2))


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 8), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_poincare_separation_of_every_eigenvalue(groups, m, width, seed):
    """Any shape: each eigenvalue of m Hbar lies between its two bounds."""
    values = np.random.default_rng(seed).normal(size=(groups * m, width))
    assert conditioning.separation_margin(values, m) >= -1e-12


def test_separation_notices_sums_in_place_of_means(monkeypatch):
    monkeypatch.setattr(conditioning, "grouped",
                        lambda values, m: values.reshape(-1, m, values.shape[1]).sum(axis=1))
    assert conditioning.separation_margin(np.random.default_rng(0).normal(size=(8, 16)), 2) < -0.1


def test_the_tangent_space_helps_where_the_theorem_is_silent():
    """L = d + 1: H is singular, but not on the simplex, and grouping lowers kappa there."""
    values = np.random.default_rng(0).normal(size=(8, 7))
    assert conditioning.condition_number(conditioning.hessian(values)) == float("inf")
    before = conditioning.condition_number(conditioning_simplex.tangent_hessian(values))
    after = conditioning.condition_number(
        conditioning_simplex.tangent_hessian(conditioning.grouped(values, 2)))
    assert after <= before < float("inf")


def test_tangent_hessian_is_the_hessian_in_the_first_coordinates():
    """e^T H e for errors that sum to 0 does not depend on the basis."""
    values = np.random.default_rng(0).normal(size=(5, 3))
    basis = np.linalg.svd(np.ones((1, 5)))[2][1:]
    error = np.array([1.0, -2.0, 0.5, 0.5, 0.0])
    inside = basis @ error
    assert inside @ conditioning_simplex.tangent_hessian(values) @ inside == pytest.approx(
        error @ conditioning.hessian(values) @ error)


@pytest.mark.parametrize("sizes", conditioning_simplex.SIZES, ids=str)
def test_rescaled_variables_restore_the_theorem_for_unequal_groups(sizes):
    generator = np.random.default_rng(0)
    for _ in range(10):
        values = generator.normal(size=(sum(sizes), sum(sizes) + 3))
        before = conditioning.condition_number(conditioning.hessian(values))
        after = conditioning.condition_number(
            conditioning_simplex.grouped_by_sizes(values, sizes, rescaled=True))
        assert after <= before


# ---------------------------------------------------------------- descent

def test_descent_in_one_variable_arrives_in_one_step():
    path = descent.descend(np.array([[3.0]]), np.array([5.0]))
    assert path.tolist() == [[5.0], [0.0]]


@given(st.floats(1.01, 300))
@settings(max_examples=30, deadline=None)
def test_descent_takes_the_predicted_steps_from_the_worst_start_and_no_more_from_others(kappa):
    matrix = np.diag([1.0, (1 + kappa) / 2, kappa])
    predicted = descent.predicted_steps(kappa)
    assert abs(descent.measured_steps(matrix) - predicted) <= 1
    assert len(descent.descend(matrix, np.ones(3))) - 1 <= predicted + 1


def test_descent_gives_up():
    assert len(descent.descend(np.diag([1.0, 1e6]), np.ones(2), most=10)) == 11
