"""Attention of one row to a past stored in parts: attend to each part and merge, instead of copying them together."""

from collections.abc import Sequence

from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.attention.merge import merge


def attend_row(query: Tensor, parts: Sequence[tuple[Tensor, Tensor]], *, scale: float, backend: str = "auto") -> Tensor:
    """Attend with one row to all columns of all parts, in one softmax.

    Args:
        query: (B, H, 1, D).
        parts: pairs of keys and values, (B, Hp, n, D) each; n >= 1 and Hp, a divisor of H, may differ by part.
        scale: factor on the dot products.
        backend: of `interval_attention`.

    Returns:
        (B, H, 1, D) in the query's dtype.
    """
    outs, sums = zip(*(interval_attention(query, key, value, causal_intervals(1, key.shape[2]), scale=scale,
                                          backend=backend, return_lse=True) for key, value in parts), strict=True)
    return merge(outs, sums)[0]
