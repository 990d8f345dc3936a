"""Rows that see the first tokens of the text and their own nearest ones: shared by the streaming mechanisms.

Row i sees the tokens t with i - t < near, its own included, and those of the first `sinks` tokens that are
not among them, so that none is counted twice. Where the two parts of a row need queries or keys at different
positions, attention is computed separately for each part and merged by the log-sum-exp.
"""

from torch import Tensor

from cca_lab.attention.intervals import table_of
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.indices import sink_columns


def intervals(rows: Tensor, sinks: int, near: int, dropped: int = 0) -> Tensor:
    """Return the columns that each row sees, the far part first.

    Args:
        rows: int64 (T,), consecutive rows.
        sinks: first tokens that stay visible.
        near: nearest tokens, the row's own included.
        dropped: tokens after the sinks that are no longer stored; later tokens have moved up by as many columns.

    Returns:
        int64 (1, 1, T, 2, 2): [0, min(sinks, a)) and [a, i + 1) with a = max(0, i + 1 - near), both ends of
        the second less `dropped`.
    """
    return table_of(rows, *sink_columns(rows, sinks, near, dropped))[None, None]


def far_and_near(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, far_q: Tensor, far_k: Tensor) -> list[Columns]:
    """Return the near part, with `q` and `k`, and the far part, with `far_q` and `far_k`, of each row.

    Args:
        q, far_q: (B, H, T, D).
        k, v: (B, Hk, N, D).
        visible: int64 (1, 1, T, 2, 2), from `intervals`.
        far_k: (B, Hk, F, D), the keys of the first F columns for the far part.

    Returns:
        The near part and, if some row has one, the far part.
    """
    far, near = visible[..., :1, :], visible[..., 1:, :]
    parts = [Columns(q, k, v, near)]
    near_only = int((far[0, 0, :, 0, 1] == 0).sum())  # the rows without a far part come first
    if near_only < q.shape[2]:
        count = int(far.max())
        parts.append(Columns(far_q[:, :, near_only:], far_k[:, :, :count], v[:, :, :count], far[:, :, near_only:],
                             first_row=near_only))
    return parts
