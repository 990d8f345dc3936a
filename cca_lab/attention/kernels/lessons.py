"""The first kernel of notebook 01, for one head: a masked load.

It shows what a tile contains where it reaches beyond the elements that may be read.
"""

from torch import Tensor

from cca_lab.attention.kernels import launch
from cca_lab.attention.kernels.language import tl, triton


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
