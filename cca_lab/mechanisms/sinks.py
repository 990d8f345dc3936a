"""Rows that see the first tokens of the text and their own nearest ones: what streaming mechanisms share.

Row i sees the `near` tokens t with i - t < near, its own included, and of the first `sinks` tokens those
that are not among them, so that none is counted twice. Where the two parts of a row need queries or keys at
different positions, they are attended to apart and merged by their log-sum-exp,

    out = out_near + (out_far - out_near) sigmoid(lse_far - lse_near).
"""

import torch
from torch import Tensor

from cca_lab.attention import effective_attention, interval_attention


def intervals(rows: Tensor, sinks: int, near: int, dropped: int = 0) -> Tensor:
    """The columns that each row sees, far part first.

    Args:
        rows: int64 (T,), consecutive rows.
        sinks: first tokens that stay visible.
        near: nearest tokens, the row's own included.
        dropped: tokens behind the sinks that are no longer there; the columns of later ones move up.

    Returns:
        int64 (1, 1, T, 2, 2): [0, min(sinks, a)) and [a, i + 1) with a = max(0, i + 1 - near), the second
        moved by `dropped`.
    """
    start = (rows + 1 - near).clamp_min(0)
    far = torch.stack([torch.zeros_like(start), start.clamp_max(sinks)], dim=-1)
    return torch.stack([far, torch.stack([start, rows + 1], dim=-1) - dropped], dim=-2)[None, None]


def merged_attention(q: Tensor, k: Tensor, v: Tensor, far_q: Tensor, far_k: Tensor, visible: Tensor, *,
                     scale: float | None = None, backend: str = "auto") -> Tensor:
    """Attend with `q` and `k` to the near part of each row and with `far_q` and `far_k` to the far part.

    Args:
        q, far_q: (B, H, T, D).
        k, v: (B, Hk, N, D).
        far_k: (B, Hk, F, D), the first F columns as the far part sees them.
        visible: int64 (1, 1, T, 2, 2), from `intervals`.
        scale: factor on the dot products; None means D**-0.5.
        backend: of `interval_attention`.

    Returns:
        (B, H, T, D) in q's dtype: one softmax over both parts.
    """
    far, near = visible[..., :1, :], visible[..., 1:, :]
    out, lse = interval_attention(q, k, v, near, scale=scale, backend=backend, return_lse=True)
    alone = int((far[0, 0, :, 0, 1] == 0).sum())  # the rows without a far part come first
    if alone == q.shape[2]:
        return out
    columns = int(far.max())
    far_out, far_lse = interval_attention(far_q[:, :, alone:], far_k[:, :, :columns], v[:, :, :columns],
                                          far[:, :, alone:], scale=scale, backend=backend, return_lse=True)
    share = torch.sigmoid(far_lse - lse[:, :, alone:]).unsqueeze(-1)         # (B, H, T, 1), of the far part
    near_out = out[:, :, alone:].to(share.dtype)
    merged = (near_out + (far_out - near_out) * share).to(out.dtype)
    return torch.cat([out[:, :, :alone], merged], dim=2)


def merged_matrix(q: Tensor, k: Tensor, far_q: Tensor, far_k: Tensor, visible: Tensor, *,
                  scale: float | None = None) -> Tensor:
    """Return E, (B, H, L, L), of `merged_attention` over a whole sequence.

    The query [far_q ; q] against the columns [far_k ; 0] and [0 ; k] gives the logits of both parts at once.
    """
    length, head_dim = q.shape[2:]
    far_k = far_k[:, :, : int(visible[..., 0, :].max())]
    columns = far_k.shape[2]
    keys = torch.cat([torch.nn.functional.pad(far_k, (0, head_dim)), torch.nn.functional.pad(k, (head_dim, 0))],
                     dim=2)                                                  # (B, Hk, F + L, 2 D)
    visible = visible + visible.new_tensor([[0], [columns]])                 # raw token t is column F + t
    tokens = torch.eye(length, dtype=q.dtype, device=q.device)
    pools = torch.cat([tokens[:columns], tokens])[None, None]                # (1, 1, F + L, L)
    return effective_attention(torch.cat([far_q, q], dim=-1), keys, visible, pools,
                               scale=head_dim**-0.5 if scale is None else scale)
