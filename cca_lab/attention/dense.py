"""The dense rung: the whole (L, N) attention matrix, masked and multiplied. Memory grows as L * N."""

import torch
from torch import Tensor

from cca_lab.attention.intervals import visible_mask


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which softmax and log-sum-exp are taken: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def attention_matrix(q: Tensor, k: Tensor, intervals: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Softmax weights A of every row over the columns it sees, and the log of their normaliser.

    A_ij = exp(scale * q_i . k_j - lse_i) for visible j and 0 elsewhere.

    Args:
        q: (B, H, L, D).
        k: (B, Hk, N, D), H a multiple of Hk.
        intervals: int64 (b, h, L, n, 2).
        scale: factor on the dot products.

    Returns:
        A (B, H, L, N) and lse (B, H, L), natural log, both in at least float32.
    """
    dtype = accumulation_dtype(q.dtype)
    queries = q.to(dtype).unflatten(1, (k.shape[1], -1))  # (B, Hk, H/Hk, L, D)
    scores = queries @ k.to(dtype).unsqueeze(2).mT * scale
    visible = visible_mask(intervals.to(q.device), k.shape[2])
    scores = scores.flatten(1, 2).masked_fill(~visible, float("-inf"))  # (B, H, L, N)
    lse = scores.logsumexp(dim=-1)
    return (scores - lse.unsqueeze(-1)).exp(), lse


def dense_attention(q: Tensor, k: Tensor, v: Tensor, intervals: Tensor,
                    scale: float) -> tuple[Tensor, Tensor]:
    """Reference of `interval_attention`: out = A v with the explicit matrix A, differentiable at will.

    Args:
        q: (B, H, L, D).
        k, v: (B, Hk, N, D).
        intervals: int64 (b, h, L, n, 2), checked already.
        scale: factor on the dot products.

    Returns:
        out (B, H, L, D) in q's dtype and lse (B, H, L), natural log, in at least float32.
    """
    weights, lse = attention_matrix(q, k, intervals, scale)
    grouped = weights.unflatten(1, (v.shape[1], -1))  # (B, Hk, H/Hk, L, N)
    out = grouped @ v.to(weights.dtype).unsqueeze(2)
    return out.flatten(1, 2).to(q.dtype), lse
