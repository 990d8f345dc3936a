"""Block sizes of the kernels by head dimension: a table instead of a search, which would need a driver."""

from typing import NamedTuple

import triton

from cca_lab.attention.fused import LARGEST_HEAD_DIM


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
# One row, or the few query heads of a KV head: 16 rows are the least that `tl.dot` takes. Nothing but keys and
# values is loaded, so the pipeline is deep; 64 columns in three stages are what 64 KiB hold at head dim 128.
DECODE = Blocks(16, 64, 4, 3)
DECODE_SINGLE = Blocks(16, 32, 4, 2)  # float32: twice the bytes of a column


def padded(head_dim: int) -> int:
    """The head dimension a tile holds: a power of two, at least 16, which `tl.dot` requires."""
    return max(16, triton.next_power_of_2(head_dim))


def blocks_for(direction: str, head_dim: int, itemsize: int, backend: str) -> Blocks:
    """The row of the tables for a direction ("forward", "backward") on "cuda" or "hip".

    Raises:
        ValueError: for a head dimension beyond the tables.
    """
    if head_dim > LARGEST_HEAD_DIM:
        raise ValueError(f"head_dim: got {head_dim}, wanted at most {LARGEST_HEAD_DIM}, the last row of the table")
    if itemsize > 2:
        return SINGLE
    table = TABLES[backend, direction]
    return table[min(size for size in table if size >= head_dim)]


def decode_blocks(share: int, itemsize: int) -> Blocks:
    """Blocks for one query row; the rows are those of the `share` query heads that read one KV head."""
    blocks = DECODE if itemsize <= 2 else DECODE_SINGLE
    return blocks._replace(rows=max(blocks.rows, triton.next_power_of_2(share)))


def vertical_slash_blocks(width: int, head_dim: int, itemsize: int, backend: str) -> Blocks:
    """Those of the forward, with no more rows than a block of the pattern has, and 64, the public code's, at most.

    A tile of fewer than 64 rows has not enough work for eight warps; one of 64 rows spills with four at head dim
    128 on sm_80. Two stages: gathered columns are not known ahead, and ranges are short.
    """
    blocks = blocks_for("forward", head_dim, itemsize, backend)
    rows = min(64, blocks.rows, max(16, triton.next_power_of_2(width)))
    return blocks._replace(rows=rows, warps=blocks.warps if rows == 64 else 4, stages=min(blocks.stages, 2))
