"""Which program of a launch reads which tile: the geometry of the kernels, without triton.

A launch starts many *programs*; each computes from its number which tiles it reads. These functions
list the tiles for one head, to be drawn (`cca_lab.views.figures.tiling`) and counted.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Read:
    """One tile that a program reads.

    Attributes:
        program: number of the program along the first axis of the grid.
        rows, columns: [first, end) of the tile; it may reach beyond the tensor.
        masked: whether part of the tile is masked.
    """

    program: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    masked: bool


def pooling_reads(groups: int, group: int) -> list[Read]:
    """Return the tiles of `pooling_forward`: a group's tokens each, padded to a power of two."""
    tile = 1 << (group - 1).bit_length()
    return [Read(program, (program, program + 1), (program * group, program * group + tile),
                 tile > group) for program in range(groups)]
