"""Merging partial attention outputs, each over some of the columns, by their log-sum-exp."""

from collections.abc import Sequence

import torch
from torch import Tensor


def merge(outs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Merge the outputs of rows over disjoint parts of their columns into the outputs over all of them.

        out = sum_p w_p out_p,   w = softmax over the parts of lse_p,   lse = log sum_p exp(lse_p)

    Args:
        outs: (B, H, L, D) of each part.
        lses: (B, H, L) of each part, natural log; -inf where a row sees no column of a part.

    Returns:
        out (B, H, L, D) in the dtype of the first part's output, and lse (B, H, L).
    """
    logs = torch.stack(list(lses))                          # (parts, B, H, L)
    weights = logs.softmax(dim=0).unsqueeze(-1)             # (parts, B, H, L, 1)
    out = (torch.stack(list(outs)).to(weights.dtype) * weights).sum(dim=0)
    return out.to(outs[0].dtype), logs.logsumexp(dim=0)
