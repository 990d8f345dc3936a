"""Block sizes of the kernels by head dimension: a table, chosen by registers and shared memory.

The backward's on sm_90 at head dim 128 were chosen on an H100, where they halve its time: it
reaches two fifths of the peak, the forward more than half (`docs/results/gpu.md`).
"""

from typing import NamedTuple

from cca_lab.attention.fused import LARGEST_HEAD_DIM
from cca_lab.attention.kernels.language import triton


class Blocks(NamedTuple):
    """Rows and columns of a tile, warps of a program, and stages of the load pipeline."""

    rows: int
    columns: int
    warps: int
    stages: int


# NVIDIA: 128 rows amortise the loads of K and V; at head dim 128, eight warps halve the accumulator
# of each thread. The backward holds two accumulators and four operands: 64 x 64 tiles (almost) fit
# in registers, and in the 99 KiB of shared memory of many cards. AMD: the 64 KiB of shared memory
# hold one stage; the backward at head dim 128 spills kilobytes from 64 rows on.
TABLES = {
    ("cuda", "forward"): {
        32: Blocks(128, 64, 4, 3), 64: Blocks(128, 64, 4, 3), 128: Blocks(128, 64, 8, 3)
    }, ("cuda", "backward"): {
        32: Blocks(64, 64, 4, 2), 64: Blocks(64, 64, 4, 2), 128: Blocks(64, 64, 8, 2)
    }, ("hip", "forward"): {
        32: Blocks(128, 64, 4, 1), 64: Blocks(128, 64, 4, 1), 128: Blocks(128, 64, 8, 1)
    }, ("hip", "backward"): {
        32: Blocks(64, 64, 4, 1), 64: Blocks(64, 64, 4, 1), 128: Blocks(32, 32, 4, 1)
    },
}
# H100 and H200, head dims over 64: eight warps share a tile that is long on the side that stays in
# the program, rows for dQ and columns for dK and dV, though the column kernel spills more with it.
HOPPER = {"backward rows": Blocks(128, 64, 8, 3), "backward columns": Blocks(64, 128, 8, 2)}
KERNELS = ("forward", "backward rows", "backward columns")
# float32 operands take twice the shared memory and are multiplied without tensor cores: smaller
# tiles, one stage.
SINGLE = Blocks(32, 32, 4, 1)
# One row, or the few query heads of a KV head: `tl.dot` needs at least 16 rows. The loop loads only
# keys and values, so the pipeline is deep; at head dim 128, 64 KiB hold 64 columns in three stages.
DECODE = Blocks(16, 64, 4, 3)
DECODE_SINGLE = Blocks(16, 32, 4, 2)  # float32: twice the bytes of a column


def padded(head_dim: int) -> int:
    """Return the padded head dimension: a power of two, at least 16, as `tl.dot` requires."""
    return max(16, triton.next_power_of_2(head_dim))


def blocks_for(kernel: str, head_dim: int, itemsize: int, backend: str) -> Blocks:
    """Return the block sizes of one of `KERNELS` on "cuda", "hip" or "sm_90"."""
    if head_dim > LARGEST_HEAD_DIM:
        raise ValueError(f"head_dim: got {head_dim}, wanted at most {LARGEST_HEAD_DIM}, the last "
                         "row of the table")
    if itemsize > 2:
        return SINGLE
    if backend == "sm_90":
        if head_dim > 64 and kernel in HOPPER:
            return HOPPER[kernel]
        backend = "cuda"
    table = TABLES[backend, kernel.split(" ")[0]]
    return table[min(size for size in table if size >= head_dim)]


def decode_blocks(queries_per_key: int, itemsize: int) -> Blocks:
    """Return the block sizes for one query: a tile's rows are the query heads of a KV head."""
    blocks = DECODE if itemsize <= 2 else DECODE_SINGLE
    return blocks._replace(rows=max(blocks.rows, triton.next_power_of_2(queries_per_key)))


def vertical_slash_blocks(width: int, head_dim: int, itemsize: int, backend: str) -> Blocks:
    """Return the forward's block sizes with at most 64 rows, within a block of the pattern.

    Fewer than 64 rows are not enough work for eight warps; 64 rows with four warps spill at head
    dim 128 on sm_80. At most two stages, because gathered columns cannot be loaded far ahead.
    """
    blocks = blocks_for("forward", head_dim, itemsize, backend)
    rows = min(64, blocks.rows, max(16, triton.next_power_of_2(width)))
    return blocks._replace(rows=rows, warps=blocks.warps if rows == 64 else 4,
                           stages=min(blocks.stages, 2))
