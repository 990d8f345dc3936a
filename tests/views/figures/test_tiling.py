"""The geometry of the kernels' programs, and its picture."""

import torch

from cca_lab.attention.kernels.programs import Read, pooling_reads, softmax_reads
from cca_lab.views.figures.tiling import programs


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
