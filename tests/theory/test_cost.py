"""Closed forms of the costs against counting, row by row."""

from itertools import product
from math import isqrt, sqrt

from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms.cca import groups
from cca_lab.theory.cost import pairs as cost
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape, prefill_speedup


@settings(deadline=None, max_examples=200, derandomize=True)
@given(length=st.integers(1, 80), group=st.integers(1, 12), window=st.integers(1, 30))
def test_cca_pairs_are_those_of_the_lists(length, group, window):
    listed, older = cost.cca_pairs_listed(length, group, window), length - window
    assert groups.pairs(length, group, window) == listed
    if older >= 0:
        assert (window * (window + 1) // 2 + older * window
                + cost.older_pairs(older, group)) == listed


def test_full_and_window_are_sums():
    for length, window in product(range(12), range(1, 15)):
        rows = range(1, length + 1)
        assert cost.full_pairs(length) == sum(rows)
        assert cost.window_pairs(length, window) == sum(min(row, window) for row in rows)


def test_dga_keys_of_the_paper():
    reductions = [length / cost.dga_keys(length, 16)[0] for length in (2**12, 2**13, 2**14)]
    assert [round(value, 1) for value in reductions] == [3.3, 5.5, 6.3]


def test_larger_groups_cost_less_up_to_the_square_root_only():
    for older in range(4, 300):
        counts = [cost.older_pairs(older, group) for group in range(1, older + 2)]
        falling = counts[:isqrt(older)]
        assert falling == sorted(falling, reverse=True) and counts[-1] > min(counts)
        assert abs(cost.best_group(older) - sqrt(older)) < 1


def test_weights_and_operations_of_a_layer_counted_by_hand():
    shape = Shape(layers=1, width=2, inner=3)
    assert shape.weights() == 4 * 4 + 3 * 6
    operations = shape.prefill_operations(length=1, pairs=1)
    assert operations == 2 * 34 + 2 * 2 * 2  # scores and values: 2 each of width 2
    assert round(LLAMA2_7B.weights() / 1e9, 3) == 6.476
    assert prefill_speedup(1024)[0] == 1  # no core is visible yet
