"""Vertical-slash attention, forward: ranges along the chosen diagonals, and gathered columns.

Row i of block m = floor(i / B) reads token t <= i if t is a chosen column, or if mB - o <= t < mB +
B - o for a chosen diagonal o (Jiang et al., "MInference 1.0", NeurIPS 2024, Section 3). Seen from
mB, the ranges of all diagonals are the same for every block, so they are merged once for each head:

    ranges    [lo, hi) + mB, disjoint; read as the interval kernel reads its columns
    columns   gathered, without those in a range of the block, so that no pair counts twice:
              `covered` marks the distances mB - t that lie in a range
"""

import torch
from torch import Tensor

from cca_lab.attention.kernels import launch
from cca_lab.attention.kernels.configs import padded, vertical_slash_blocks
from cca_lab.attention.kernels.interval_forward import attend_columns, fold, matmul, split_phases
from cca_lab.attention.kernels.language import tl, triton


@triton.jit
def attend_gathered(accumulator, row_sum, row_max, q, K, V, COLUMNS, COVERED, stride_kn, stride_kd,
                    stride_vn, stride_vd, rows, block_first, count, WIDTH, scale_log2,
                    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
                    UPCAST: tl.constexpr):
    """Update the online softmax with the first `count` chosen columns that are in no range."""
    offset_n = tl.arange(0, BLOCK_N)
    offset_d = tl.arange(0, BLOCK_D)
    inside = offset_d < D
    for first in tl.range(0, count, BLOCK_N):
        listed = first + offset_n < count
        columns = tl.load(COLUMNS + first + offset_n, mask=listed, other=0)
        covered = tl.load(COVERED + (block_first - columns + WIDTH - 1), mask=listed, other=1)
        present = covered == 0
        k = tl.load(K + columns[None, :].to(tl.int64) * stride_kn + offset_d[:, None] * stride_kd,
                    mask=inside[:, None] & present[None, :], other=0.0)  # (D, N)
        v = tl.load(V + columns[:, None].to(tl.int64) * stride_vn + offset_d[None, :] * stride_vd,
                    mask=inside[None, :] & present[:, None], other=0.0)  # (N, D)
        seen = present[None, :] & (columns[None, :] <= rows[:, None])
        scores = tl.where(seen, matmul(q, k, UPCAST) * scale_log2, float("-inf"))  # (M, N)
        accumulator, row_sum, row_max = fold(accumulator, row_sum, row_max, scores, v, True, UPCAST)
    return accumulator, row_sum, row_max


@triton.jit
def vertical_slash_forward(
    Q, K, V, RANGES, RANGE_COUNT, COLUMNS, COLUMN_COUNT, COVERED, OUT,
    # (B, H, L, D), (B, Hk, L, D) x 2, (B, H, S, 2), (B, H), (B, H, V), (B, H, blocks), (B, H, L +
    # W), (B, H, L, D)
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, H, QUERIES_PER_KEY, L, WIDTH, TILES, SLASH,
    VERTICAL, BLOCKS, scale_log2, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, UPCAST: tl.constexpr,
):
    """One tile of rows in one block of the pattern, for one query head."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)  # the last rows see most: they start first
    block = program // TILES
    block_first = block * WIDTH
    row_first = block_first + program % TILES * BLOCK_M
    row_end = tl.minimum(tl.minimum(row_first + BLOCK_M, block_first + WIDTH), L)
    if row_first >= row_end:  # the last tile of a short block
        return
    pair = tl.program_id(1).to(tl.int64)
    batch = pair // H
    head = pair % H
    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + head // QUERIES_PER_KEY * stride_kh
    V += batch * stride_vb + head // QUERIES_PER_KEY * stride_vh
    rows = row_first + tl.arange(0, BLOCK_M)
    # rows past the end repeat the last one and are not stored
    row_read = tl.minimum(rows, row_end - 1)
    offset_d = tl.arange(0, BLOCK_D)
    inside = (offset_d < D)[None, :]
    q = tl.load(Q + row_read[:, None].to(tl.int64) * stride_qm + offset_d[None, :] * stride_qd,
                mask=inside, other=0.0)
    accumulator = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    for index in tl.range(0, tl.load(RANGE_COUNT + pair)):
        span = RANGES + (pair * SLASH + index) * 2
        low = tl.maximum(block_first + tl.load(span), 0)
        high = tl.minimum(block_first + tl.load(span + 1), row_end)
        left_end, inner_end = split_phases(low, low, tl.minimum(high, row_first + 1), high, BLOCK_N)
        accumulator, row_sum, row_max = attend_columns(
            accumulator, row_sum, row_max, q, K, V, stride_kn, stride_kd, stride_vn, stride_vd,
            row_read * 0, row_read + 1, left_end, inner_end, scale_log2, D, BLOCK_D, BLOCK_N, False,
            UPCAST)
        accumulator, row_sum, row_max = attend_columns(
            accumulator, row_sum, row_max, q, K, V, stride_kn, stride_kd, stride_vn, stride_vd,
            row_read * 0, row_read + 1, inner_end, high, scale_log2, D, BLOCK_D, BLOCK_N, True,
            UPCAST)
    accumulator, row_sum, row_max = attend_gathered(
        accumulator, row_sum, row_max, q, K, V, COLUMNS + pair * VERTICAL,
        COVERED + pair * (L + WIDTH), stride_kn, stride_kd, stride_vn, stride_vd, row_read,
        block_first, tl.load(COLUMN_COUNT + pair * BLOCKS + block), WIDTH, scale_log2, D, BLOCK_D,
        BLOCK_N, UPCAST)
    stored_at = (pair * L + rows)[:, None] * D + offset_d[None, :]
    tl.store(OUT + stored_at, (accumulator / row_sum[:, None]).to(OUT.dtype.element_ty),
             mask=(rows < row_end)[:, None] & inside)


def triton_vertical_slash(q: Tensor, k: Tensor, v: Tensor, columns: Tensor, offsets: Tensor,
                          width: int, scale: float) -> Tensor:
    """Attend to chosen columns and diagonals; forward only.

    Args:
        q: (B, H, L, D), fp16, bf16 or fp32, any strides.
        k, v: (B, Hk, L, D), any strides.
        columns, offsets: chosen columns and diagonals, int64 (B, H, V) and (B, H, S), ascending;
            diagonal 0 is chosen, or ValueError.
        width: B, the rows of a block and the width of a diagonal.
        scale: factor on the dot products.

    Returns:
        (B, H, L, D) in q's dtype.
    """
    launch.check_tensor("q", q)
    if bool((offsets[..., 0] != 0).any()):
        raise ValueError(
            f"selection: the nearest diagonal of some head is {int(offsets[..., 0].max())}, wanted "
            "0, so that every row reads itself; take what `select` returns")
    batch, heads, length, head_dim = q.shape
    blocks = vertical_slash_blocks(width, head_dim, q.element_size(), launch.backend_name())
    count, tiles = triton.cdiv(length, width), triton.cdiv(width, blocks.rows)
    ranges, range_count = ranges_of(offsets, width)
    # last row of each block
    last = (torch.arange(1, count + 1, device=q.device) * width).clamp(max=length) - 1
    column_count = torch.searchsorted(columns.contiguous(),
                                      last.expand(batch, heads, -1).contiguous(), right=True)
    index = ranges, range_count, columns, column_count, covered_distances(offsets, width, length)
    out = launch.new_output(q.shape, q)
    vertical_slash_forward[(count * tiles, batch * heads)](
        q, k, v, *(x.int().contiguous() for x in index), out, *q.stride(), *k.stride(), *v.stride(),
        heads, heads // k.shape[1], length, width, tiles, offsets.shape[-1], columns.shape[-1],
        count, scale * launch.LOG2_E, D=head_dim, BLOCK_D=padded(head_dim), BLOCK_M=blocks.rows,
        BLOCK_N=blocks.columns, UPCAST=launch.upcast(
            q.dtype), num_warps=blocks.warps, num_stages=blocks.stages)
    return out


def ranges_of(offsets: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Merge the diagonals of each head into disjoint ranges, from the first row of a block.

    Diagonal o is [-o, width - o). Offsets (B, H, S), ascending, give ranges [lo, hi), ascending,
    (B, H, S, 2), and their number, (B, H).
    """
    starts = -offsets.flip(-1)
    apart = torch.diff(starts, dim=-1) > width                                  # (B, H, S - 1)
    number = torch.nn.functional.pad(apart.cumsum(-1), (1, 0))  # index of a diagonal's range
    low = torch.zeros_like(starts).scatter_reduce(-1, number, starts, "amin", include_self=False)
    high = torch.zeros_like(starts).scatter_reduce(-1, number, starts + width, "amax",
                                                   include_self=False)
    return torch.stack([low, high], dim=-1), number[..., -1] + 1


def covered_distances(offsets: Tensor, width: int, length: int) -> Tensor:
    """Return whether t is in a range of block m, by d = mB - t >= 1 - B: bool (B, H, L + B).

    That is the case if a chosen diagonal o satisfies d <= o < d + B.
    """
    size = length + width
    hits = torch.zeros(*offsets.shape[:2], size + 1, dtype=torch.int64, device=offsets.device)
    hits.scatter_(-1, offsets.clamp(max=size), 1)
    before = torch.nn.functional.pad(hits.cumsum(-1), (1, 0))  # diagonals below 0, 1 ...
    end = torch.arange(1, size + 1, device=offsets.device)                      # d + B
    return before[..., end] > before[..., (end - width).clamp(min=0)]
