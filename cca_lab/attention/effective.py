"""The effective attention matrix: the weight of each raw token in each row, pooled or not."""

from torch import Tensor

from cca_lab.attention.arguments import check_columns, check_tensors, scale_of
from cca_lab.attention.dense import attention_matrix
from cca_lab.attention.intervals import check_intervals


def effective_attention(q: Tensor, k: Tensor, intervals: Tensor, pooling: Tensor, *,
                        scale: float | None = None) -> Tensor:
    """Return E = A P, the L x L matrix with which attention over pooled columns weighs the raw tokens.

    A (L x N) is the attention of the rows over the columns. Row p of P (N x L) holds the weights of the raw tokens
    in column p. The output of the mechanism is then E v with the raw values v. Dense, so for analysis only.

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
        ValueError: naming the argument, if it is not a tensor, its shape does not fit, the intervals are invalid,
            or the scale is not finite.
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
        raise ValueError(f"pooling: got shape {shape}, wanted (1 or {batch}, 1, {key_heads} or {heads}, {columns}, "
                         f"{rows}): one row for each column, one entry for each raw token")
    weights, _ = attention_matrix(q, k, intervals, scale_of(scale, head_dim))
    if pooling.shape[1] == key_heads:
        pooling = pooling.repeat_interleave(heads // key_heads, dim=1)
    return weights @ pooling.to(weights.dtype)
