"""Ball arithmetic on P_sparse against a closed form, drawn rows and the bracket in floats."""

import subprocess
import sys
from fractions import Fraction
from math import log

import pytest
from scipy.special import ndtr

from cca_lab import extras
from cca_lab.theory.sparsity import bounds, enclosure
from cca_lab.theory.sparsity import limit as sparsity_limit
from cca_lab.theory.sparsity.logits import gaussian, sample
from tests.mutants import theory_sparsity as mutants

PAIRS = [(0.5, Fraction(9, 10)), (1.0, Fraction(9, 10)), (1.0, Fraction(3, 5)),
         (3.0, Fraction(7, 10))]
ROWS = [(2.0, 40, Fraction(1, 10)), (1.0, 12, Fraction(1, 4)), (3.0, 30, Fraction(1, 20))]


@pytest.fixture
def flint():
    """Skip where the extra is not installed."""
    return pytest.importorskip("flint", reason="needs the extra proofs")


def contradicted(cells: int = 8) -> bool:
    """Whether an enclosure misses a closed form, drawn rows, or the float bracket."""
    for tau, rho in PAIRS:
        low, high = enclosure.between(tau, 2, rho, points=200, cells=cells)
        true, _ = enclosure.pair(tau, rho)
        if not (low <= true.upper() and true.lower() <= high):
            return True
    for tau, length, rho in ROWS:
        low, high = enclosure.between(tau, length, rho, points=24, cells=64)
        within = bounds.bracket(gaussian(tau), length, float(rho), points=24, cells=1024)
        seen = sample(gaussian(tau), length, float(rho), 4000)
        if not (low - 1e-9 <= within[0] <= within[1] <= high + 1e-9
                and low - seen.error <= seen.value <= high + seen.error):
            return True
    return False


def test_the_enclosure_holds_closed_forms_drawn_rows_and_the_float_bracket(flint):
    assert not contradicted()


@pytest.mark.parametrize("name, wrong", [
    *(("_held", wrong) for wrong in mutants.HELD),
    ("cell_chances", mutants.chances_not_given_the_maximum)],
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


def test_the_numbers_of_the_ledger(flint):
    assert enclosure.at_most(*enclosure.SMALL) < 1.41e-5
    true, printed = enclosure.pair(1.0, Fraction(9, 10))
    assert (float(true), float(printed)) == pytest.approx((0.874625, 0.913479), abs=1e-6)
    low, high = enclosure.between(2.0, 100, Fraction(1, 20), points=48, cells=128)
    assert 0.45 < low < 0.5252 and 0.6170 < high < 0.65


@pytest.mark.parametrize("tau, rho", PAIRS)
def test_the_upper_bound_holds_wherever_it_is_tried(flint, tau, rho):
    true, _ = enclosure.pair(tau, rho)
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


def test_chernoff_is_above_the_share_of_drawn_rows(flint):
    seen = sample(gaussian(0.8), 60, 0.1, 20_000)
    upper = float(enclosure.at_most(0.8, 60, Fraction(1, 10), 7.0, 1.0).upper())
    assert 0 < seen.value - seen.error < seen.value < upper < 1


def test_balls_are_what_they_stand_for(flint):
    assert all(abs(float(enclosure.normal_below(enclosure.ball(x))) - ndtr(x)) <= 1e-15
               for x in (-8.0, -1.5, 0.0, 2.0))
    for exact in (Fraction(1, 3), Fraction(2, 3), Fraction(1, 10)):
        low, high = enclosure._below(enclosure.ball(exact)), enclosure._above(enclosure.ball(exact))
        assert Fraction(low) < exact < Fraction(high)
    chances = enclosure.cell_chances(1.0, 0.5, 16)
    assert sum(chances, enclosure.ball(0)).overlaps(enclosure.ball(1))
    assert all(chance > 0 for chance in chances)


def test_bounds_that_hold_are_not_refuted_and_a_wrong_repair_is_no_proof(flint):
    assert enclosure.refutes_product(bounds.printed_at_median).holds
    assert not enclosure.refutes_product(bounds.product).holds
    printed, repaired = bounds.printed_bracket, bounds.bracket
    assert enclosure.refutes_bracket(printed, repaired).holds
    assert not enclosure.refutes_bracket(repaired, repaired).holds
    assert not enclosure.refutes_bracket(printed, printed).holds


def test_a_rate_that_holds_is_not_refuted(flint):
    refuted = enclosure.refutes_rate(sparsity_limit.rate_at_median)
    assert refuted.holds and not enclosure.refutes_rate(sparsity_limit.rate).holds
    rate = sparsity_limit.rate(gaussian(2.0), 0.05)
    assert rate < refuted.numbers["fastest"] < log(2) / 20


def test_a_mean_below_the_rate_proves_nothing(flint, monkeypatch):
    monkeypatch.setattr(enclosure, "SLOW", (2.0, Fraction(1, 20), 5.0))
    assert not enclosure.refutes_rate(sparsity_limit.rate_at_median).holds


@pytest.mark.parametrize("call, words", [
    (lambda: enclosure.between(0.0, 40, Fraction(1, 10)), "tau, length, rho: got 0.0"),
    (lambda: enclosure.between(2.0, 40, Fraction(1, 40)), "rho over 1/L"),
    (lambda: enclosure.at_most(-1.0, 40, Fraction(1, 10), 1.0, 1.0), "got -1.0, 40 and 1/10"),
    (lambda: enclosure.at_most(1.0, 1, Fraction(1), 1.0, 1.0), "two logits or more"),
    (lambda: enclosure.at_most(1.0, 40, Fraction(1, 10), 1.0, -2.0), "x, u: got 1.0 and -2.0"),
    (lambda: enclosure.pair(1.0, Fraction(1, 2)), "rho over 1/L"),
])
def test_what_the_inequalities_do_not_cover_is_refused(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    with pytest.raises(ModuleNotFoundError,
                       match=r"flint: is not installed.*pip install \"cca-lab\[proofs\]\""):
        enclosure.refutes_product(bounds.printed_at_median)


def test_the_package_is_imported_only_when_a_proof_runs():
    source = "import sys; import cca_lab.theory.sparsity.bounds; print('flint' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True,
                          timeout=60)
    assert done.stdout.strip() == "False", done.stderr
