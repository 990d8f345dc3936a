"""The attention that each token receives from all rows: what H2O and DGA choose tokens by.

Its sums go down the columns of the attention matrix A, whose rows are normalised, so that all pairs
are computed a second time. The native op does no more than that. Elsewhere the second time is an
attention itself, of keys to queries, from the last token to the first:

    sum_j A_jt = sum_j exp(scale * q_j . k_t - lse_j)
               = exp(logsumexp_j [k_t ; 1] . [scale * q_j ; -lse_j])

where j are the rows from t on. Both take memory that is linear in the length.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import native
from cca_lab.attention.dense import accumulation_dtype, expand_heads
from cca_lab.attention.interval_attention import attend_checked
from cca_lab.attention.intervals import causal_intervals, memoised, table_of


@torch.no_grad()
def attention_received(q: Tensor, k: Tensor, *, scale: float, lse: Tensor | None = None) -> Tensor:
    """Return the attention that each token receives from T rows, the last of causal attention.

    Args:
        q: queries (B, H, T, D) of the rows at the last T tokens.
        k: keys (B, Hk, N, D), H a multiple of Hk.
        scale: factor on the dot products.
        lse: log-sum-exp of the rows (B, H, T) where it is known already.

    Returns:
        (B, H, N), in at least float32, without gradient.
    """
    dtype, seen = accumulation_dtype(q.dtype), causal(q.shape[2], k.shape[2])
    q, k = q.to(dtype), k.to(dtype)
    if native.ready(q):
        bounds = seen.permute(4, 0, 1, 3, 2).contiguous()  # (2, 1, 1, 1, T)
        received: Tensor = torch.ops.cca_lab.received(q, k, lse, [bounds], scale)
        return received
    if lse is None:
        _, lse = attend_checked(q, k, k, seen, scale, "auto")
    tokens = F.pad(expand_heads(k, q.shape[1]).flip(2), (0, 1), value=1.0)
    rows = torch.cat([q * scale, -lse[..., None]], dim=-1).flip(2)
    _, sums = attend_checked(tokens, rows, rows, from_the_last(k.shape[2], q.shape[2]), 1.0, "auto")
    return sums.exp().flip(2)


causal = memoised(causal_intervals)


@memoised
def from_the_last(tokens: int, rows: int) -> Tensor:
    """Return by which of T rows, the last one first, each of N tokens is read: (1, 1, N, 1, 2)."""
    token = torch.arange(tokens, device="cpu")
    return table_of(token, (0, (token + 1).clamp(max=rows)))[None, None]
