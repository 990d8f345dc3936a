"""Which program of a launch reads which tile: the geometry of the kernels, without triton.

A launch starts many *programs*; each computes from its number which tiles it reads. These functions
list the tiles for one head, to be drawn (`cca_lab.views.figures.tiling`) and counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor


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


def softmax_reads(length: int, block_rows: int) -> list[Read]:
    """Return the tiles of `causal_softmax`: some rows each, as wide as the next power of two."""
    width = 1 << (length - 1).bit_length()
    return [Read(program, (row, row + block_rows), (0, width), True)
            for program, row in enumerate(range(0, length, block_rows))]


def pooling_reads(groups: int, group: int) -> list[Read]:
    """Return the tiles of `pooling_forward`: a group's tokens each, padded to a power of two."""
    tile = 1 << (group - 1).bit_length()
    return [Read(program, (program, program + 1), (program * group, program * group + tile),
                 tile > group) for program in range(groups)]


def interval_reads(table: Tensor, block_rows: int, block_columns: int) -> list[Read]:
    """Return the tiles of `interval_forward`, in the order of the programs.

    For each interval of one head (L, n, 2): left boundary, interior, right boundary. Program 0
    computes the last rows, which see most. A boundary tile is cut at the end of its boundary.
    """
    length, blocks = len(table), -(-len(table) // block_rows)
    reads = []
    for program in range(blocks):
        first = (blocks - 1 - program) * block_rows
        last = min(first + block_rows, length) - 1
        for (low, inner_high), (inner_low, high) in zip(table[first].tolist(), table[last].tolist(),
                                                        strict=True):
            reads += [Read(program, (first, last + 1), columns, masked)
                      for columns, masked in _phases(low, inner_low, inner_high, high,
                                                     block_columns)]
    return reads


def _phases(low: int, inner_low: int, inner_high: int, high: int,
            block: int) -> Iterator[tuple[tuple[int, int], bool]]:
    """Yield the columns of an interval's tiles, and whether they are masked: `split_phases`."""
    whole = max(inner_high - inner_low, 0) // block
    left_end = inner_low if whole else low
    inner_end = left_end + whole * block
    for begin, end, masked in ((low, left_end, True), (left_end, inner_end, False), (inner_end,
                                                                                     high, True)):
        for column in range(begin, end, block):
            yield (column, min(column + block, end)), masked
