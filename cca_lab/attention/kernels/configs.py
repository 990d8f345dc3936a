"""Block sizes of the kernels by head dimension: a table instead of a search, which would need a driver."""

from typing import NamedTuple

import triton


class Blocks(NamedTuple):
    """Rows and columns of a tile, warps of a program, and stages of the load pipeline."""

    rows: int
    columns: int
    warps: int
    stages: int


# 128 rows amortise the loads of K and V; at head dim 128 eight warps halve the accumulator's registers.
FORWARD = {32: Blocks(128, 64, 4, 3), 64: Blocks(128, 64, 4, 3), 128: Blocks(128, 64, 8, 3)}
# The backward holds two accumulators and four operands: 64 x 64 tiles stay in registers.
BACKWARD = {32: Blocks(64, 64, 4, 2), 64: Blocks(64, 64, 4, 2), 128: Blocks(64, 64, 8, 2)}
# float32 operands take twice the shared memory, and multiply without tensor cores: smaller tiles, no pipeline.
SINGLE = Blocks(32, 32, 4, 1)


def padded(head_dim: int) -> int:
    """The head dimension a tile holds: a power of two, at least 16, which `tl.dot` requires."""
    return max(16, triton.next_power_of_2(head_dim))


def blocks_for(table: dict[int, Blocks], head_dim: int, itemsize: int) -> Blocks:
    """The row of a table that fits a head dimension and an element size."""
    if itemsize > 2:
        return SINGLE
    return table[min(size for size in table if size >= min(padded(head_dim), 128))]
