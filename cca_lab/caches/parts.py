"""One row against a past that is kept in parts: attend to each and merge, where copying them together costs more."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention


def attend_row(query: Tensor, parts: Sequence[tuple[Tensor, Tensor]], *, scale: float, backend: str = "auto") -> Tensor:
    """Attend with one row to all columns of all parts, in one softmax.

    out = sum_p w_p out_p,  w = softmax over the parts of lse_p, the log-sum-exp of the row over part p.

    Args:
        query: (B, H, 1, D).
        parts: pairs of keys and values, (B, Hp, n, D) each, n >= 1 and Hp a divisor of H, its own for each part.
        scale: factor on the dot products.
        backend: of `interval_attention`.

    Returns:
        (B, H, 1, D) in the query's dtype.
    """
    outs, sums = zip(*(interval_attention(query, key, value, causal_intervals(1, key.shape[2]), scale=scale,
                                          backend=backend, return_lse=True) for key, value in parts), strict=True)
    weights = torch.stack(sums).softmax(dim=0).unsqueeze(-1)  # (parts, B, H, 1, 1)
    return (torch.stack(outs) * weights).sum(dim=0).to(query.dtype)
