"""Ball arithmetic on P_sparse against a closed form and drawn rows."""

from fractions import Fraction
from math import log

import pytest
from scipy.special import ndtr

from cca_lab.theory.sparsity import enclosure
from cca_lab.theory.sparsity.logits import gaussian, sample
from tests.mutants import theory_dga as mutants

PAIRS = [(0.5, Fraction(9, 10)), (1.0, Fraction(9, 10)), (1.0, Fraction(3, 5)),
         (3.0, Fraction(7, 10))]
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


def test_finer_cells_close_in(flint):
    case = (2.0, 20, Fraction(1, 5))
    enclosed = [enclosure.between(*case, points=points, cells=cells)
             for points, cells in ((8, 8), (16, 32), (64, 128))]
    assert all(before[0] <= after[0] <= after[1] <= before[1]
               for before, after in zip(enclosed, enclosed[1:], strict=False))
    assert enclosed[-1][1] - enclosed[-1][0] < 0.1


def test_the_number_of_the_article(flint):
    assert enclosure.at_most(0.5, 100, Fraction(1, 20), 13.1, 2.0) < 1.5e-5


@pytest.mark.parametrize("tau, rho", PAIRS)
def test_the_upper_bound_holds_wherever_it_is_tried(flint, tau, rho):
    true = pair(tau, rho)
    for x in (0.3, 1.0, 4.0):
        for u in (0.1, 1.0, 5.0):
            assert enclosure.at_most(tau, 2, rho, x, u) > true


def test_a_coarse_transform_only_weakens_the_upper_bound(flint, monkeypatch):
    fine = enclosure.at_most(0.8, 60, Fraction(1, 10), 7.0, 1.0)
    for cells in (500, 100, 20):
        monkeypatch.setattr(enclosure, "CELLS_OF_SUM", cells)
        coarse = enclosure.at_most(0.8, 60, Fraction(1, 10), 7.0, 1.0)
        assert coarse > fine
        fine = coarse


def test_balls_are_what_they_stand_for(flint):
    assert all(abs(float(enclosure.normal_below(enclosure.ball(x))) - ndtr(x)) <= 1e-15
               for x in (-8.0, -1.5, 0.0, 2.0))
    for exact in (Fraction(1, 3), Fraction(2, 3), Fraction(1, 10)):
        low, high = enclosure._below(enclosure.ball(exact)), enclosure._above(enclosure.ball(exact))
        assert Fraction(low) < exact < Fraction(high)
    chances = enclosure.cell_chances(1.0, 0.5, 16)
    assert sum(chances, enclosure.ball(0)).overlaps(enclosure.ball(1))
    assert all(chance > 0 for chance in chances)


@pytest.mark.parametrize("call, words", [
    (lambda: enclosure.between(0.0, 40, Fraction(1, 10)), "tau, length, rho: got 0.0"),
    (lambda: enclosure.between(2.0, 40, Fraction(1, 40)), "rho over 1/L"),
    (lambda: enclosure.at_most(-1.0, 40, Fraction(1, 10), 1.0, 1.0), "got -1.0, 40 and 1/10"),
    (lambda: enclosure.at_most(1.0, 1, Fraction(1), 1.0, 1.0), "two logits or more"),
    (lambda: enclosure.at_most(1.0, 40, Fraction(1, 10), 1.0, -2.0), "x, u: got 1.0 and -2.0"),
])
def test_what_the_inequalities_do_not_cover_is_refused(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


