"""The geometry of the kernels' programs, and its picture."""

import pytest
import torch

from cca_lab.attention import causal_intervals, count_pairs, visible_mask
from cca_lab.attention.kernels.programs import (
    Read,
    interval_reads,
    pooling_reads,
    softmax_reads,
)
from cca_lab.mechanisms import lococo
from cca_lab.mechanisms.cca import groups
from cca_lab.views.figures.tiling import programs
from tests.mutants import programs as mutants

TABLES = {
    "causal": causal_intervals(45),
    "CCA": groups.intervals(50, 4, 11),
    "LoCoCo": lococo.intervals(61, lococo.Settings(slots=5, segment=13)),
}


def covers_each_visible_pair_once(reads: list[Read], intervals: torch.Tensor) -> bool:
    """Whether each visible pair lies in one tile, and tiles without a mask show only such pairs."""
    visible = visible_mask(intervals, int(intervals.max()))[0, 0]
    times = torch.zeros(visible.shape, dtype=torch.long)
    for read in reads:
        tile = slice(*read.rows), slice(*read.columns)
        times[tile] += 1
        if not read.masked and not visible[tile].all():
            return False
    return bool((times[visible] == 1).all())


@pytest.mark.parametrize("blocks", [(16, 16), (8, 16), (16, 4), (64, 64)])
@pytest.mark.parametrize("name", TABLES)
def test_interval_tiles_cover_each_visible_pair_once(name, blocks):
    assert covers_each_visible_pair_once(interval_reads(TABLES[name][0, 0], *blocks), TABLES[name])


def test_tiles_in_a_fixed_grid_would_count_twice():
    assert not covers_each_visible_pair_once(mutants.aligned_reads(TABLES["CCA"][0, 0], 16, 16),
                                             TABLES["CCA"])


def test_the_last_rows_are_program_0_and_full_tiles_need_no_mask():
    reads = interval_reads(causal_intervals(64)[0, 0], 16, 16)
    assert {read.rows for read in reads if read.program == 0} == {(48, 64)}
    assert sum(not read.masked for read in reads) == 1 + 2 + 3
    # computed in vain: half of each diagonal tile
    assert sum((read.rows[1] - read.rows[0]) * (read.columns[1] - read.columns[0])
               for read in reads) - count_pairs(causal_intervals(64)) == 4 * 15 * 16 // 2


def test_the_smaller_launches():
    assert softmax_reads(12, 8) == [Read(0, (0, 8), (0, 16), True), Read(1, (8, 16), (0, 16), True)]
    assert pooling_reads(2, 3) == [Read(0, (0, 1), (0, 4), True), Read(1, (1, 2), (3, 7), True)]
    assert not any(read.masked for read in pooling_reads(3, 4))


def test_every_tile_is_drawn_in_its_program_s_colour():
    reads = [Read(0, (0, 2), (0, 4), False), Read(1, (2, 4), (0, 4), True),
             Read(1, (2, 4), (4, 8), False)]
    figure = programs(reads, 3, 6, loaded=torch.eye(3, 6).bool(), row_labels="abc", cores=2,
                      title="three")
    axes = figure.axes[0]
    tiles, outline = axes.patches[:-1], axes.patches[-1]
    assert [(tile.get_xy(), tile.get_width(), tile.get_height()) for tile in tiles] == \
        [((0, 0), 4, 2), ((0, 2), 4, 2), ((4, 2), 4, 2)]
    assert tiles[1].get_facecolor()[:3] == tiles[2].get_facecolor()[:3] != tiles[0].get_facecolor()[
        :3]
    assert [bool(tile.get_hatch()) for tile in tiles] == [False, True, False]
    assert (outline.get_width(), outline.get_height()) == (6, 3) and axes.get_xlim() == (0, 8)
    assert axes.collections[0].get_offsets().tolist() == [[0.5, 0.5], [1.5, 1.5], [2.5, 2.5]]
    assert [text.get_text() for text in axes.texts] == ["0", "1"]
    assert axes.lines[0].get_xdata()[0] == 2
    assert not programs(reads, 3, 6, numbered=False).axes[0].texts
