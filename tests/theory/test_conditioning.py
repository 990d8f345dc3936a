"""DGA Theorem 3: the counterexample for every e, the simplex, and descent."""

import numpy as np
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.theory.conditioning import descent
from cca_lab.theory.conditioning import spectrum as conditioning


def test_the_smallest_counterexample_for_every_e():
    """In symbols: 1 + 2 e^2 becomes 1 / e^2, which is more just where e^2 < 1/2."""
    e = sympy.Symbol("e", positive=True)
    values = conditioning.smallest_counterexample(e)
    before, after = (sympy.Matrix(conditioning.hessian_printed(v)).applyfunc(sympy.expand)
                     for v in (values, conditioning.grouped(values, 2)))
    assert before == sympy.diag(8, 8 + 16 * e**2) and after == sympy.diag(4, 4 * e**2)
    rises = sympy.solve_univariate_inequality(1 / e**2 > 1 + 2 * e**2, e, relational=False)
    assert rises & sympy.Interval.open(0, sympy.oo) == sympy.Interval.open(0, sympy.sqrt(2) / 2)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 8), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_poincare_separation_of_every_eigenvalue(groups, m, width, seed):
    """Any shape: each eigenvalue of m Hbar lies between its two bounds."""
    values = np.random.default_rng(seed).normal(size=(groups * m, width))
    assert conditioning.separation_margin(values, m) >= -1e-12


def tangent_hessian(values: np.ndarray) -> np.ndarray:
    """Return H on the steps that sum to 0, in an orthonormal basis: (L, d) -> (L - 1, L - 1)."""
    basis = np.linalg.svd(np.ones((1, len(values))))[2][1:]
    return basis @ conditioning.hessian(values.astype(float)) @ basis.T


def test_theorem_3_on_the_simplex():
    """Where the values are affinely independent, L = d + 1 included, kappa does not rise."""
    generator, covered = np.random.default_rng(1), 0
    edge = [("edge", generator.normal(size=(n, n - 1)), 2) for n in (4, 8, 16)]
    for _, values, m in (*edge, *((n, v, m) for n, v, m in conditioning.cases() if len(v) > m)):
        before, after = (conditioning.condition_number(tangent_hessian(matrix))
                         for matrix in (values, conditioning.grouped(values, m)))
        if before < float("inf"):
            covered += 1
            assert after <= before * (1 + conditioning.SLACK)
    assert covered == 3 + 1 + 16  # V = diag(1, 1, 2, 2) too


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
