"""Attention of one row to a past stored in parts: attend to each part and merge, instead of copying them together."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.attention.fused import fused
from cca_lab.attention.merge import merge
from cca_lab.attention.tiles import tile_for


def attend_row(query: Tensor, parts: Sequence[tuple[Tensor, Tensor]], *, scale: float, backend: str = "auto") -> Tensor:
    """Attend with one row to all columns of all parts, in one softmax.

    Args:
        query: (B, H, 1, D).
        parts: pairs of keys and values, (B, Hp, n, D) each; n >= 1 and Hp, a divisor of H, may differ by part.
        scale: factor on the dot products.
        backend: of `interval_attention`; "auto" takes a single tile of the blocked backend where no kernel is used
            and no gradient is recorded. A row that sees everything needs no table of intervals.

    Returns:
        (B, H, 1, D) in the query's dtype.
    """
    if backend == "auto" and not fused(query) and not torch.is_grad_enabled():
        found = [_tile(query, *part, scale) for part in parts]
    else:
        found = [interval_attention(query, key, value, causal_intervals(1, key.shape[2]), scale=scale, backend=backend,
                                    return_lse=True) for key, value in parts]
    return found[0][0] if len(found) == 1 else merge(*zip(*found, strict=True))[0]


def _tile(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return out (B, H, 1, D) and lse (B, H, 1): the query heads of a KV head are the rows of one tile."""
    rows = query.reshape(len(query), key.shape[1], -1, query.shape[3])  # (B, Hp, H / Hp, D)
    out, lse = tile_for(query.device, query.dtype, scale).forward(rows, key, value, None, False, scale)
    return out.reshape(query.shape), lse.reshape(query.shape[:3])
