"""The effective attention matrix: how much each raw token counts in each row, whatever was pooled between."""

from torch import Tensor

from cca_lab.attention.arguments import check_columns, check_tensors, scale_of
from cca_lab.attention.dense import attention_matrix
from cca_lab.attention.intervals import check_intervals


def effective_attention(q: Tensor, k: Tensor, intervals: Tensor, pooling: Tensor, *,
                        scale: float | None = None) -> Tensor:
    """E = A P, the L x L matrix by which an attention with pooled columns weighs the raw tokens.

    A (L x N) is the attention of the rows over the columns, P (N x L) says which mean of raw tokens each
    column is. The output of the mechanism is then E v, v the raw values. Dense: for pictures and proofs.

    Args:
        q: queries (B, H, L, D).
        k: keys of the columns (B, Hk, N, D), pooled ones included.
        intervals: int64 (b, h, L, n, 2), as in `interval_attention`.
        pooling: P (b, h, N, L), b in {1, B}, h in {1, Hk, H}: identity rows for raw tokens, weights for
            pooled ones (`pooling_matrix` makes those).
        scale: factor on the dot products; D ** -0.5 by default.

    Returns:
        E (B, H, L, L), in at least float32.

    Raises:
        ValueError: naming what is no tensor, `intervals` or `pooling` if it does not fit, or a scale that is not
            finite.
    """
    check_columns(q, k, k)
    check_tensors(pooling=pooling)
    batch, heads, rows, head_dim = q.shape
    key_heads, columns = k.shape[1:3]
    check_intervals(intervals, batch, heads, rows, columns)
    shape = tuple(pooling.shape)
    fits = (len(shape) == 4 and shape[0] in (1, batch) and shape[1] in (1, key_heads, heads)
            and shape[2:] == (columns, rows))
    if not fits:
        raise ValueError(f"pooling has shape {shape}; wanted (1 or {batch}, 1, {key_heads} or {heads}, {columns}, "
                         f"{rows}): one row for each column, one entry for each raw token")
    weights, _ = attention_matrix(q, k, intervals, scale_of(scale, head_dim))
    if pooling.shape[1] == key_heads:
        pooling = pooling.repeat_interleave(heads // key_heads, dim=1)
    return weights @ pooling.to(weights.dtype)
