"""Closed forms of the costs against counting, row by row."""

from fractions import Fraction
from itertools import combinations
from math import isqrt, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import groups
from cca_lab.theory import cost
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape, amdahl, cache_bytes, prefill_speedup
from tests.mutants import theory_cost as wrong

LENGTHS, GROUPS, WINDOWS = st.integers(1, 80), st.integers(1, 12), st.integers(1, 30)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(length=LENGTHS, group=GROUPS, window=WINDOWS)
def test_cca_pairs_are_those_of_the_lists(length, group, window):
    listed = cost.cca_pairs_listed(length, group, window)
    assert groups.pairs(length, group, window) == listed
    older = length - window
    if older >= 0:
        head = window * (window + 1) // 2 + older * window
        assert head + cost.older_pairs(older, group) == listed


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
    for older in range(60):
        for group in range(1, 65):
            counted = sum(n // group + n % group for n in range(1, older + 1))
            assert cost.older_pairs(older, group) == counted


def test_full_window_and_chunk_are_sums():
    for length in range(12):
        assert cost.full_pairs(length) == sum(range(1, length + 1))
        for window in range(1, 15):
            assert cost.window_pairs(length, window) == sum(min(row, window) for row in range(1, length + 1))
            assert cost.chunk_pairs(length, window) == sum(window + row for row in range(1, length + 1))


def test_dga_rows_hold_every_past_token_once():
    """Pairs and what closed groups stand for beyond one each make L(L+1)/2: m - 1 a group and later row."""
    for focal in combinations(range(7), 2):
        pairs, r = cost.dga_pairs_listed(7, focal, 2)
        others = [token for token in range(7) if token not in focal]
        later = sum(6 - last for last in others[1::2])  # rows after the group's last token
        assert r == 3 and pairs + later == cost.full_pairs(7)


@pytest.mark.parametrize(("focal", "group", "rows"), [
    ((), 7, range(1, 8)),                  # one group, complete after the last row
    (range(7), 3, range(1, 8)),            # all tokens focal
    ((), 1, range(1, 8)),                  # groups of one
    ((), 3, (1, 2, 3, 2, 3, 4, 3)),        # groups {0, 1, 2} and {3, 4, 5}; token 6 joins the focal ones
])
def test_dga_by_hand(focal, group, rows):
    assert cost.dga_pairs_listed(7, focal, group)[0] == sum(rows)


def test_dga_keys_of_the_paper():
    reductions = [length / cost.dga_keys(length, 16)[0] for length in (2**12, 2**13, 2**14)]
    assert [round(value, 1) for value in reductions] == [3.3, 5.5, 6.3]


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
    older = 10**4
    assert cost.older_pairs(older, 100) < 1.02 * older**1.5  # no constant above 1 stands before x^(3/2)


def test_bytes_of_the_cache():
    full, cca = cache_bytes()
    assert LLAMA2_7B.kv_bytes(1) == 512 * 1024
    assert (Fraction(full, 2**30), Fraction(cca, 2**30)) == (64, Fraction(9, 2))


def test_weights_and_operations_of_a_layer_counted_by_hand():
    shape = Shape(layers=1, width=2, inner=3)
    assert shape.weights() == 4 * 4 + 3 * 6
    assert shape.prefill_operations(length=1, pairs=1) == 2 * 34 + 2 * 2 * 2  # scores and values: 2 each of width 2
    assert round(LLAMA2_7B.weights() / 1e9, 3) == 6.476


def test_amdahl():
    assert amdahl(Fraction(1, 2), 2) == Fraction(4, 3)
    expected, cap = prefill_speedup()
    assert round(float(expected), 2) == 3.03 and round(float(cap), 2) == 3.65
    assert prefill_speedup(1024)[0] == 1  # no core is visible yet
    assert isqrt(2**17 - 1024) == 360
