"""Which columns a row of DeepSeek-V4's attention sees, and how often that reads each token.

Row i sees the raw tokens (i - w, i] and the entries [0, floor((i + 1) / m)) of all closed groups, its own included; in
"compressed sparse" layers only those k of them with the highest index scores. Window and groups are not cut to each
other, unlike CCA's: with r = (i + 1) mod m and i >= w, without a choice of entries

    max(0, w - r)   tokens of the window are read a second time, inside an entry
    max(0, r - w)   tokens are not read at all: older than the window, their group still open

and with overlap every token of a group but the last closed one is in one entry more.
"""

import torch
from torch import Tensor

from cca_lab.attention.intervals import memoised
from cca_lab.settings import check_integers


def closed_groups(row: Tensor, group: int) -> Tensor:
    """Return how many entries exist for each of the given rows, int64, same shape."""
    return torch.div(row + 1, group, rounding_mode="floor")


@memoised
def intervals(length: int, window: int, group: int | None, first: int = 0, kept: int = 0) -> Tensor:
    """Return the columns of [raw tokens ; entries] that each row sees.

    Args:
        length: rows.
        window: w.
        group: m; None for layers without entries.
        first: the position of the first row.
        kept: raw tokens before it that stand in front, first <= w - 1 of them or w - 1.

    Returns:
        int64 (1, 1, rows, n, 2): n = 2 intervals, or 1 without entries, which follow the kept + length raw tokens.
    """
    check_integers(1, length=length, window=window)
    row = torch.arange(first, first + length)
    raw = torch.stack([(row + 1 - window).clamp(min=0), row + 1], dim=-1) - (first - kept)
    if group is None:
        return raw[None, None, :, None]
    start = torch.full_like(row, kept + length)
    return torch.stack([raw, torch.stack([start, start + closed_groups(row, group)], dim=-1)], dim=1)[None, None]


def chosen_entries(scores: Tensor, group: int, count: int, first: int = 0) -> Tensor:
    """Return which entries each row sees in a "compressed sparse" layer: the `count` with the highest scores.

    Args:
        scores: (B, rows, n), of n entries; those of open groups are not read.
        group: m.
        count: k.
        first: the position of the first row.

    Returns:
        bool (B, rows, n).
    """
    entry = torch.arange(scores.shape[2], device=scores.device)
    row = torch.arange(first, first + scores.shape[1], device=scores.device)
    closed = entry < closed_groups(row, group)[:, None]                       # (rows, n)
    best = scores.masked_fill(~closed, float("-inf")).topk(min(count, scores.shape[2]), dim=-1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & closed


def index_scores(queries: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """Return the score of each entry for each row: sum_h w_h relu(q_h . k), all sums in float32.

    Args:
        queries: (B, rows, Hi, Di).
        keys: (B, n, Di).
        weights: (B, rows, Hi), scaled.

    Returns:
        (B, rows, n), times Di ** -0.5.
    """
    scores = (queries.float() @ keys.float().mT.unsqueeze(1)).relu() * queries.shape[-1] ** -0.5  # (B, rows, Hi, n)
    return (scores * weights.float().unsqueeze(-1)).sum(dim=2)


def times_read(length: int, window: int, group: int | None, *, overlap: bool = False) -> Tensor:
    """Count how many columns of each row contain each token, raw or pooled: int64 (L, L), zero for later tokens.

    Counted column by column, with every closed entry visible: a choice of entries reads fewer.
    """
    found = torch.zeros(length, length, dtype=torch.int64)
    for i in range(length):
        found[i, max(0, i + 1 - window) : i + 1] += 1
        if group is not None:
            for p in range((i + 1) // group):
                found[i, max(0, p - overlap) * group : (p + 1) * group] += 1
    return found


def read_twice(row: int, window: int, group: int) -> int:
    """Return how many tokens row i reads raw and inside an entry, without overlap: max(0, w - r), or fewer at first."""
    return max(0, (row + 1) // group * group - max(0, row + 1 - window))


def unread(row: int, window: int, group: int) -> int:
    """Return how many tokens of its past row i does not read at all: max(0, r - w), 0 before the window is full."""
    return max(0, max(0, row + 1 - window) - (row + 1) // group * group)
