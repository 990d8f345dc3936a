"""A wrong geometry of the interval kernel's programs."""

from torch import Tensor

from cca_lab.attention.kernels.programs import Read, interval_reads


def aligned_reads(table: Tensor, block_rows: int, block_columns: int) -> list[Read]:
    """Tiles that start at multiples of their width, as a kernel without edges would read them."""
    def down(column: int) -> int:
        return column // block_columns * block_columns

    return [Read(read.program, read.rows,
                 (down(read.columns[0]), down(read.columns[1] - 1) + block_columns), True)
            for read in interval_reads(table, block_rows, block_columns)]
