"""DeepSeek-V4's core attention on the lab's primitive: raw tokens, entries and a sink in one softmax.

    out_i = sum_j a_ij k_j,   a_i = softmax over [visible columns ; sink_h] of scale * q_i . k_j

Keys are values (one head for all query heads), and the sink is a learnt logit of each head with the value 0. It is one
more part of the softmax whose output is 0, so that it only scales: out = sigmoid(lse - sink) * (attention without it).
"""

import torch
from torch import Tensor

from cca_lab.attention import interval_attention
from cca_lab.attention.arguments import scale_of
from cca_lab.attention.dense import masked_matrix, weigh


def attend_by_loops(q: Tensor, columns: Tensor, visible: Tensor, sinks: Tensor, *,
                    scale: float | None = None) -> Tensor:
    """Attend row by row: the specification of `attend`, with its arguments; `visible` as a mask (b, h, L, N)."""
    scale, out = scale_of(scale, q.shape[-1]), torch.zeros_like(q)
    batch, heads, rows, _ = q.shape
    visible = visible.expand(batch, heads, rows, -1)
    for b in range(batch):
        for h in range(heads):
            for i in range(rows):
                own = columns[b, 0][visible[b, h, i]]                     # (seen, D)
                logits = torch.cat([scale * (own @ q[b, h, i]), sinks[h : h + 1]])
                out[b, h, i] = logits.softmax(dim=0)[:-1] @ own
    return out


def attend(q: Tensor, columns: Tensor, visible: Tensor, sinks: Tensor, *, scale: float | None = None,
           backend: str = "auto") -> Tensor:
    """Attend with all rows at once.

    Args:
        q: queries, (B, H, L, D).
        columns: keys that are also the values, (B, 1, N, D).
        visible: intervals, int64 (b, h, L, n, 2), or a mask, bool (b, h, L, N); every row sees a column.
        sinks: a logit for each head, (H,).
        scale: factor on the dot products; D ** -0.5 by default.
        backend: of `interval_attention`; masks are dense.

    Returns:
        (B, H, L, D) in q's dtype.

    Raises:
        ValueError: naming an argument that does not fit.
    """
    if tuple(sinks.shape) != (q.shape[1],):
        raise ValueError(f"sinks: got shape {tuple(sinks.shape)}, wanted ({q.shape[1]},), one for each head")
    if visible.dtype == torch.bool:
        weights, lse = masked_matrix(q, columns, visible, scale_of(scale, q.shape[-1]))
        out = weigh(weights, columns)
    else:
        out, lse = interval_attention(q, columns, columns, visible, scale=scale, backend=backend, return_lse=True)
    share = torch.sigmoid(lse - sinks[:, None])                           # of the columns, beside the sink
    return (out * share.unsqueeze(-1)).to(q.dtype)

