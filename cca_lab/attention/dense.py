"""The dense backend: the whole (L, N) attention matrix, in memory that grows as L * N."""

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention.arguments import check_qkv, check_tensors, scale_of
from cca_lab.attention.fused import needs_gradient
from cca_lab.attention.intervals import visible_mask
from cca_lab.attention.sources import Source, whole


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which softmax and log-sum-exp are computed: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def attention_matrix(q: Tensor, k: Tensor, intervals: Tensor,
                     scale: float) -> tuple[Tensor, Tensor]:
    """Return the softmax weights A of every row over its columns, and their log-normaliser.

    A_ij = exp(scale * q_i . k_j - lse_i) for visible j and 0 elsewhere.

    Args:
        q: (B, H, L, D).
        k: (B, Hk, N, D), H a multiple of Hk.
        intervals: int64 (b, h, L, n, 2).
        scale: factor on the dot products.

    Returns:
        A (B, H, L, N) and lse (B, H, L), natural log, both in at least float32.
    """
    return masked_matrix(q, k, visible_mask(intervals.to(q.device), k.shape[2]), scale)


def masked_matrix(q: Tensor, k: Tensor, visible: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Do as `attention_matrix`, for a mask (b, h, L, N), True where a row sees a column."""
    dtype = accumulation_dtype(q.dtype)
    queries = _rows_of_key_head(q.to(dtype), k.shape[1])  # (B, Hk, H/Hk * L, D)
    scores = (product(queries, k.to(dtype).mT) * scale).view(*q.shape[:-1], -1)
    scores = scores.masked_fill(~visible, float("-inf"))  # (B, H, L, N)
    lse = scores.logsumexp(dim=-1)
    return (scores - lse.unsqueeze(-1)).exp(), lse


def dense_attention(q: Tensor, k: Source, v: Source, intervals: Tensor,
                    scale: float) -> tuple[Tensor, Tensor]:
    """Compute the reference of `interval_attention`, out = A v; any derivative exists.

    Args:
        q: (B, H, L, D).
        k, v: (B, Hk, N, D), or two such tensors each.
        intervals: int64 (b, h, L, n, 2), already checked.
        scale: factor on the dot products.

    Returns:
        out (B, H, L, D) in q's dtype and lse (B, H, L), natural log, in at least float32.
    """
    weights, lse = attention_matrix(q, whole(k), intervals, scale)
    return weigh(weights, whole(v)).to(q.dtype), lse


def masked_attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, *,
                     scale: float | None = None) -> Tensor:
    """Attend to the columns that a mask shows, where they are not a few intervals.

    Args:
        q: (B, H, L, D).
        k, v: (B, Hk, N, D), H a multiple of Hk.
        visible: bool (b, h, L, N), b in {1, B} and h in {1, H}; every row sees a column.
        scale: factor on the dot products; None means D**-0.5.

    Returns:
        (B, H, L, D) in q's dtype. Memory grows as L * N.

    Raises:
        ValueError: if an argument does not fit, or a row sees nothing.
    """
    check_qkv(q, k, v, same_length=False)
    return masked_checked(q, k, v, visible, scale_of(scale, q.shape[-1]))


def masked_checked(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> Tensor:
    """Do as `masked_attention`, for q, k and v that a caller has checked."""
    check_tensors(visible=visible)
    wanted = (q.shape[2], k.shape[2])
    if visible.dtype != torch.bool or visible.dim() != 4 or tuple(visible.shape[2:]) != wanted:
        raise ValueError(f"visible: got {visible.dtype} {tuple(visible.shape)}, wanted bool (b, h, "
                         f"L, N) with (L, N) = {wanted}; True where a row sees a column")
    if not visible.any(dim=-1).all():
        row = (~visible.any(dim=-1)).nonzero()[0].tolist()
        raise ValueError(f"visible: (batch, head, row) {tuple(row)} sees no column, wanted one or "
                         "more; let every row see itself")
    if not needs_gradient(q, k, v):  # PyTorch's, which has no second derivative
        with torch.autocast(q.device.type, enabled=False):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=scale,
                                                  enable_gqa=True)
    weights, _ = masked_matrix(q, k, visible, scale)
    return weigh(weights, v).to(q.dtype)


def expand_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat each KV head for the query heads that use it: (B, Hk, L, D) -> (B, H, L, D)."""
    return x if heads == x.shape[1] else x.repeat_interleave(heads // x.shape[1], dim=1)


def weigh(weights: Tensor, v: Tensor) -> Tensor:
    """Return the weighted sums of values (B, Hk, N, D) for weights (B, H, L, N): (B, H, L, D)."""
    rows = _rows_of_key_head(weights, v.shape[1])  # (B, Hk, H/Hk * L, N)
    return product(rows, v.to(weights.dtype)).view(*weights.shape[:-1], -1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product in the dtype of its operands, also under autocast."""
    if not torch.is_autocast_enabled(a.device.type):
        return a @ b
    with torch.autocast(a.device.type, enabled=False):
        return a @ b


def _rows_of_key_head(x: Tensor, key_heads: int) -> Tensor:
    """(B, H, L, D) -> (B, Hk, H/Hk * L, D): broadcasting over query heads would copy keys."""
    return x.reshape(x.shape[0], key_heads, -1, x.shape[-1])
