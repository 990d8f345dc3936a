"""Closed forms of the costs against counting, row by row."""

from fractions import Fraction
from itertools import combinations, product
from math import isqrt, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms.cca import groups
from cca_lab.theory import ledger
from cca_lab.theory.cost import dga, prefill
from cca_lab.theory.cost import pairs as cost
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape, amdahl, cache_bytes, prefill_speedup
from tests.mutants import theory_cost as wrong

LENGTHS, GROUPS, WINDOWS = st.integers(1, 80), st.integers(1, 12), st.integers(1, 30)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(length=LENGTHS, group=GROUPS, window=WINDOWS)
def test_cca_pairs_are_those_of_the_lists(length, group, window):
    listed, older = cost.cca_pairs_listed(length, group, window), length - window
    assert groups.pairs(length, group, window) == listed
    if older >= 0:
        assert (window * (window + 1) // 2 + older * window
                + cost.older_pairs(older, group)) == listed


@pytest.mark.parametrize("pairs", wrong.PAIRS, ids=lambda pairs: pairs.__name__)
def test_wrong_counts_of_cca_are_noticed(pairs):
    cases = [(length, g, s) for length in range(1, 30) for g in (2, 3) for s in (2, 4)]
    assert any(pairs(*case) != cost.cca_pairs_listed(*case) for case in cases)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(row=LENGTHS, group=GROUPS, window=WINDOWS)
def test_a_row_reads_every_token_once(row, group, window):
    cores, raw = cost.cca_columns(row, group, window)
    covered = [token for core in cores for token in range((core - 1) * group + 1, core * group + 1)]
    assert covered + list(raw) == list(range(1, row + 1))
    if cores:
        assert cost.cca_columns(row, group, window, printed=True)[1][0] == covered[-1]  # read twice


def test_older_pairs_are_the_sum():
    for older, group in product(range(60), range(1, 65)):
        counted = sum(n // group + n % group for n in range(1, older + 1))
        assert cost.older_pairs(older, group) == counted


def test_full_and_window_are_sums():
    for length, window in product(range(12), range(1, 15)):
        rows = range(1, length + 1)
        assert cost.full_pairs(length) == sum(rows)
        assert cost.window_pairs(length, window) == sum(min(row, window) for row in rows)


def test_a_constant_group_is_within_its_bound_from_its_square_on_and_not_before():
    """The row P1c.quadratic says both, with these numbers."""
    assert groups.pairs(128, 64, 1) == 4224 and 128**2 // 64 + 128 == 384
    assert all(groups.pairs(length, 64, 1) <= length**2 // 64 + length
               for length in range(64**2, 64**2 + 200))
    stated = next(claim for claim in ledger.collect() if claim.id == "P1c.quadratic")
    assert "4224 pairs against 384" in stated.proof


def test_the_cache_keeps_up_to_a_group_more_than_the_window():
    for group, window in ((1, 5), (4, 3), (16, 8)):
        raw = [groups.cache_tokens(length, group, window) - length // group
               for length in range(400)]
        assert max(raw) == window + group - 2 and raw[-1] >= window - 1


def test_dga_rows_hold_every_past_token_once():
    """Pairs, and m - 1 for a closed group in each later row, make L(L+1)/2."""
    for focal in combinations(range(7), 2):
        pairs, r = cost.dga_pairs_listed(7, focal, 2)
        others = [token for token in range(7) if token not in focal]
        later = sum(6 - last for last in others[1::2])  # rows after the group's last token
        assert r == 3 and pairs + later == cost.full_pairs(7)


@pytest.mark.parametrize(("focal", "group", "rows"), [
    ((), 7, range(1, 8)),  # one group, complete after the last row
    (range(7), 3, range(1, 8)),  # all tokens focal
    ((), 1, range(1, 8)),  # groups of one
    ((), 3, (1, 2, 3, 2, 3, 4, 3)),  # groups {0, 1, 2} and {3, 4, 5}; token 6 is focal
])
def test_dga_by_hand(focal, group, rows):
    assert cost.dga_pairs_listed(7, focal, group)[0] == sum(rows)


def test_dga_keys_of_the_paper():
    reductions = [length / cost.dga_keys(length, 16)[0] for length in (2**12, 2**13, 2**14)]
    assert [round(value, 1) for value in reductions] == [3.3, 5.5, 6.3]


def test_a_generated_token_reads_fewer_keys_up_to_one_group_of_all():
    for case in dga.decodings():
        others = case.length - case.focal
        assert dga.fewer_keys(case) == (others > 4 and case.group <= others - 2)
    assert dga.Decoding(100, 20, 80).keys == 101


def test_the_best_group_is_the_square_root():
    for older in range(1, 300):
        best = cost.best_group(older)
        assert abs(best - sqrt(older)) < 1
        low, high = cost.least_bracket(older)
        assert low <= cost.older_pairs(older, best) <= high


def test_larger_groups_cost_less_up_to_the_square_root_only():
    assert [cost.older_pairs(4, group) for group in (1, 2, 3, 4)] == [10, 6, 6, 7]
    for older in range(4, 300):
        counts = [cost.older_pairs(older, group) for group in range(1, older + 2)]
        falling = counts[:isqrt(older)]
        assert falling == sorted(falling, reverse=True) and counts[-1] > min(counts)


def test_the_lower_bound_holds_and_a_larger_one_would_not():
    assert all(cost.below_every_group(older) for older in range(1, 200))
    assert cost.older_pairs(10**4, 100) < 1.02 * 10**6  # no constant above 1 before x^(3/2)


def test_bytes_of_the_cache():
    full, cca = cache_bytes()
    assert LLAMA2_7B.kv_bytes(1) == 512 * 1024
    assert (Fraction(full, 2**30), Fraction(cca, 2**30)) == (64, Fraction(9, 2))


def test_weights_and_operations_of_a_layer_counted_by_hand():
    shape = Shape(layers=1, width=2, inner=3)
    assert shape.weights() == 4 * 4 + 3 * 6
    operations = shape.prefill_operations(length=1, pairs=1)
    assert operations == 2 * 34 + 2 * 2 * 2  # scores and values: 2 each of width 2
    assert round(LLAMA2_7B.weights() / 1e9, 3) == 6.476


def test_amdahl():
    assert amdahl(Fraction(1, 2), 2) == Fraction(4, 3)
    expected, cap = prefill_speedup()
    assert round(float(expected), 2) == 3.03 and round(float(cap), 2) == 3.65
    assert prefill_speedup(1024)[0] == 1  # no core is visible yet
    assert isqrt(2**17 - 1024) == 360


def test_an_efficient_baseline_is_explained_by_amdahl_and_a_slow_one_by_its_slowness():
    assert prefill.explained(prefill.Baseline()) == prefill_speedup()[0]
    assert prefill.explained(prefill.Baseline(), free=True) == prefill_speedup()[1]
    # Mutant: one limit for all baselines, below what fewer pairs explain.
    assert all(prefill.explained(each, free=True) > prefill.explained(each)
               for each in (prefill.Baseline(square=True), prefill.SLOW))
    linear, full, cca = (LLAMA2_7B.prefill_operations(2**17, pairs) for pairs in (
        0, cost.full_pairs(2**17), groups.pairs(2**17, 16, 1024)))
    twice = prefill.explained(prefill.Baseline(slower=Fraction(2)))
    assert twice - prefill_speedup()[0] == Fraction(full - linear, cca)


def test_numbers_of_the_examples_and_proofs():
    by_id = {claim.id: claim for claim in ledger.collect()}
    proof = by_id["P1c.amdahl"].proof
    assert str(groups.pairs(131072, 16, 1024)) in by_id["P1c.amdahl"].example
    operations = [LLAMA2_7B.prefill_operations(2**17, pairs)
                  for pairs in (cost.full_pairs(2**17), groups.pairs(2**17, 16, 1024))]
    rates = [round(work / float(seconds) / 1e12)
             for work, seconds in zip(operations, prefill.SECONDS, strict=True)]
    assert rates == [50, 129] and "50e12" in proof and "129e12" in proof
    slow = [round(float(prefill.explained(prefill.SLOW, length)), 1) for length in (2**15, 2**16)]
    assert slow == [2.9, 4.7] and "2.9x and 4.7x" in proof
