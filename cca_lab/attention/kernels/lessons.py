"""Two small kernels, for one head, that notebooks 01 and 04 explain.

The first shows a masked load: what a tile contains where it reaches beyond the readable elements.
The second adds the loop over column tiles with a running maximum and sum; `interval_forward` is the
same loop with intervals.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from cca_lab.attention.kernels import launch
from cca_lab.attention.kernels.configs import padded
from cca_lab.attention.kernels.interval_forward import fold, matmul


@triton.jit
def causal_softmax(
    SCORES, WEIGHTS, stride_sm, stride_sn, stride_wm, stride_wn, L, hidden,  # (L, L) both
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """Softmax of each row up to its own column; a tile of BLOCK_M rows is as wide as the matrix."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    row_read = tl.minimum(rows, L - 1)  # rows past the end repeat the last one and are not stored
    visible = columns[None, :] <= row_read[:, None]
    scores = tl.load(SCORES + row_read[:, None] * stride_sm + columns[None, :] * stride_sn,
                     mask=visible,
                     other=hidden)  # (M, N): memory is read only where the mask is true
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = weights / tl.sum(weights, 1)[:, None]
    inside = (rows < L)[:, None] & (columns < L)[None, :]
    tl.store(WEIGHTS + rows[:, None] * stride_wm + columns[None, :] * stride_wn, weights,
             mask=inside)


@triton.jit
def online_softmax(
    Q, K, V, OUT,
    LSE,  # (M, D), (N, D) x 2, (M, D), (M,)
    stride_qm, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd, M, N, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """out = softmax(scale q K^T) V over all N columns, for one block of rows, tile after tile."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offset_d = tl.arange(0, BLOCK_D)
    inside = offset_d < D
    stored = (rows < M)[:, None] & inside[None, :]
    q = tl.load(Q + rows[:, None] * stride_qm + offset_d[None, :] * stride_qd, mask=stored,
                other=0.0)
    accumulator = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    for column in tl.range(0, N, BLOCK_N):
        columns = column + tl.arange(0, BLOCK_N)
        present = columns < N
        k = tl.load(K + columns[None, :] * stride_kn + offset_d[:, None] * stride_kd,
                    mask=inside[:, None] & present[None, :], other=0.0)  # (D, N)
        v = tl.load(V + columns[:, None] * stride_vn + offset_d[None, :] * stride_vd,
                    mask=present[:, None] & inside[None, :], other=0.0)  # (N, D)
        scores = matmul(q, k, UPCAST) * scale_log2  # (M, N), base-2 exponents
        scores = tl.where(present[None, :], scores, float("-inf"))
        accumulator, row_sum, row_max = fold(accumulator, row_sum, row_max, scores, v, False,
                                             UPCAST)
    tl.store(OUT + rows[:, None] * D + offset_d[None, :],
             (accumulator / row_sum[:, None]).to(OUT.dtype.element_ty), mask=stored)
    tl.store(LSE + rows, (row_max + tl.log2(row_sum)) * 0.6931471805599453, mask=rows < M)  # ln 2


def causal_weights(scores: Tensor, block_rows: int = 4, hidden: float = float("-inf")) -> Tensor:
    """Compute the softmax weights of full causal attention from its scores.

    Args:
        scores: (L, L), float32, any strides; elements above the diagonal are not read.
        block_rows: rows of each program, a power of two.
        hidden: value of the scores that are not read; only -inf gives the correct weights.

    Returns:
        (L, L), float32, contiguous.
    """
    launch.check_device(scores)
    weights = launch.new_output(scores.shape, scores)
    causal_softmax[(triton.cdiv(len(scores), block_rows),)](
        scores, weights, *scores.stride(), *weights.stride(), len(scores), hidden,
        BLOCK_M=block_rows, BLOCK_N=triton.next_power_of_2(len(scores)))
    return weights


def online_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, block_rows: int = 16,
                     block_columns: int = 16) -> tuple[Tensor, Tensor]:
    """Compute attention of every row over all columns, without a mask.

    Args:
        q: (M, D), fp16, bf16 or fp32, any strides.
        k, v: (N, D), any strides.
        scale: factor on the dot products.
        block_rows, block_columns: of a tile, powers of two; at least 16 on a GPU.

    Returns:
        out (M, D) in q's dtype and lse (M,), natural log, float32.
    """
    launch.check_tensor("q", q)
    out, lse = launch.new_output(q.shape, q), launch.new_output(q.shape[:1], q, torch.float32)
    online_softmax[(triton.cdiv(
        len(q), block_rows), )](q, k, v, out, lse, *q.stride(), *k.stride(), *v.stride(), len(q),
                                len(k), scale * launch.LOG2_E, D=q.shape[1],
                                BLOCK_D=padded(q.shape[1]), BLOCK_M=block_rows,
                                BLOCK_N=block_columns, UPCAST=launch.upcast(q.dtype))
    return out, lse
