"""Closed forms of the costs against counting, row by row."""

from fractions import Fraction
from itertools import product
from math import isqrt, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms.cca import groups
from cca_lab.theory.cost import pairs as cost
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape, amdahl, cache_bytes, prefill_speedup
from tests.mutants import theory_cca as wrong


@settings(deadline=None, max_examples=200, derandomize=True)
@given(length=st.integers(1, 80), group=st.integers(1, 12), window=st.integers(1, 30))
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


def test_older_pairs_are_the_sum():
    for older, group in product(range(60), range(1, 65)):
        counted = sum(n // group + n % group for n in range(1, older + 1))
        assert cost.older_pairs(older, group) == counted


def test_full_and_window_are_sums():
    for length, window in product(range(12), range(1, 15)):
        rows = range(1, length + 1)
        assert cost.full_pairs(length) == sum(rows)
        assert cost.window_pairs(length, window) == sum(min(row, window) for row in rows)


def test_dga_keys_of_the_paper():
    reductions = [length / cost.dga_keys(length, 16)[0] for length in (2**12, 2**13, 2**14)]
    assert [round(value, 1) for value in reductions] == [3.3, 5.5, 6.3]


def test_the_best_group_is_the_square_root():
    for older in range(1, 300):
        best = cost.best_group(older)
        assert abs(best - sqrt(older)) < 1
        assert cost.older_pairs(older, best) <= cost.older_pairs(older, isqrt(older))


def test_larger_groups_cost_less_up_to_the_square_root_only():
    assert [cost.older_pairs(4, group) for group in (1, 2, 3, 4)] == [10, 6, 6, 7]
    for older in range(4, 300):
        counts = [cost.older_pairs(older, group) for group in range(1, older + 2)]
        falling = counts[:isqrt(older)]
        assert falling == sorted(falling, reverse=True) and counts[-1] > min(counts)


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
