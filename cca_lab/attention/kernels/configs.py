"""Block sizes of the kernels by head dimension: a table instead of a search, which would need a driver."""

from typing import NamedTuple

import triton


class Blocks(NamedTuple):
    """Rows and columns of a tile, warps of a program, and stages of the load pipeline."""

    rows: int
    columns: int
    warps: int
    stages: int


# NVIDIA. 128 rows amortise the loads of K and V; at head dim 128 eight warps halve a thread's share of the
# accumulator. The backward holds two accumulators and four operands: 64 x 64 tiles stay (almost) in registers.
# AMD. Its 64 KiB of shared memory hold one stage; the backward at head dim 128 spills kilobytes from 64 rows on.
TABLES = {
    ("cuda", "forward"): {32: Blocks(128, 64, 4, 3), 64: Blocks(128, 64, 4, 3), 128: Blocks(128, 64, 8, 3)},
    ("cuda", "backward"): {32: Blocks(64, 64, 4, 2), 64: Blocks(64, 64, 4, 2), 128: Blocks(64, 64, 8, 2)},
    ("hip", "forward"): {32: Blocks(128, 64, 4, 1), 64: Blocks(128, 64, 4, 1), 128: Blocks(128, 64, 8, 1)},
    ("hip", "backward"): {32: Blocks(64, 64, 4, 1), 64: Blocks(64, 64, 4, 1), 128: Blocks(32, 32, 4, 1)},
}
# float32 operands take twice the shared memory, and multiply without tensor cores: smaller tiles, no pipeline.
SINGLE = Blocks(32, 32, 4, 1)


def padded(head_dim: int) -> int:
    """The head dimension a tile holds: a power of two, at least 16, which `tl.dot` requires."""
    return max(16, triton.next_power_of_2(head_dim))


def blocks_for(direction: str, head_dim: int, itemsize: int, backend: str) -> Blocks:
    """The row of the tables for a direction ("forward", "backward") on "cuda" or "hip"."""
    if itemsize > 2:
        return SINGLE
    table = TABLES[backend, direction]
    return table[min(size for size in table if size >= min(padded(head_dim), 128))]
