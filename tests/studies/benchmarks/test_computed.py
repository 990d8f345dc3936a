"""Pairs that implementations compute.

By counting, never fewer than are seen, and none where all is seen.
"""

import pytest
import torch

from cca_lab.mechanisms.cca.groups import intervals, pairs
from cca_lab.studies.benchmarks import attention
from cca_lab.studies.benchmarks.attention import computed_pairs, tile_ratio

SIZES = [(1, 4, 3), (15, 4, 7), (16, 16, 16), (40, 16, 16), (100, 8, 20), (257, 16, 64),
         (300, 7, 30)]


def counted(length, group, window, rows, columns):
    """Blocks of rows against whole units of columns, one by one."""
    table, found = intervals(length, group, window)[0, 0].tolist(), 0
    for first in range(0, length, rows):
        block = table[first : first + rows]
        for part in range(2):
            seen = [column for row in block for column in range(*row[part])]
            if seen:
                found += rows * columns * (max(seen) // columns - min(seen) // columns + 1)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_the_native_op_s_tiles_are_counted(size):
    assert computed_pairs(*size, "native") == counted(*size, 16, 1)
    assert computed_pairs(*size, "native", "bfloat16") == counted(*size, 32, 32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("implementation", ["blocked", "native"])
def test_no_pair_that_is_seen_is_left_out(size, implementation):
    assert computed_pairs(*size, implementation) >= pairs(*size)


def test_a_plan_s_tiles_cover_each_visible_pair():
    """Beside the areas: the pairs that the masks of the plan leave are those that are seen."""
    for size in SIZES:
        left = 0
        for tiles in attention.plan_of(intervals(*size)[0, 0]):
            mask = tiles.mask(torch.float32, torch.device("cpu"))
            seen = tiles.rows * (tiles.rows + 1) // 2 if tiles.causal else (
                tiles.rows * tiles.columns if mask is None else int((mask == 0).sum()))
            left += tiles.count * seen
            assert tiles.count * seen <= attention._area(tiles)
        assert left == pairs(*size)


def test_larger_tiles_save_less():
    fine, coarse, blocked = (tile_ratio(4096, 16, 256, *kind)
                             for kind in (("native", ), ("native", "bfloat16"), ("blocked", )))
    assert 4096 * 4097 / 2 / pairs(4096, 16, 256) > fine > coarse > blocked > 1
