"""The cores and raw tokens that each row of CCA-Attention sees, and how many pairs and entries that takes.

Rows, tokens and groups count from 0; g is the group size, s the local window. Row i sees the
cores [0, n(i)) and the raw tokens [g n(i), i], with n(i) = max(0, floor((i + 1 - s) / g)) (Eq. 3).
"""

import torch
from torch import Tensor

from cca_lab.attention.intervals import memoised
from cca_lab.settings import check_integers


def core_count(length: int, group: int, window: int) -> int:
    """Return n(L-1), the number of cores that the last row sees; no other row sees more."""
    return max(0, (length - window) // group)


def visible_cores(length: int, group: int, window: int, device: torch.device | str = "cpu") -> Tensor:
    """Return how many cores each row sees (Eq. 3): n(i) = max(0, floor((i + 1 - s) / g)), int64 (L,)."""
    check_integers(1, length=length, group=group, window=window)
    return cores_of_rows(torch.arange(length, device=device), group, window)


def cores_of_rows(row: Tensor, group: int, window: int) -> Tensor:
    """Return how many cores each of the given rows sees (Eq. 3): n(i) for the i in `row`, int64, same shape."""
    older = row + 1 - window  # tokens older than the s nearest
    return torch.div(older.clamp(min=0), group, rounding_mode="floor")


@memoised
def intervals(length: int, group: int, window: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the columns of [cores ; raw tokens] that each row sees.

    Args:
        length: L, tokens.
        group: g.
        window: s.
        device: where to build the result.

    Returns:
        int64 (1, 1, L, 2, 2): row i sees the half-open intervals [0, n(i)) and [C + g n(i), C + i + 1),
        where the first C = n(L-1) columns are cores and column C + t is raw token t. Calls with the same
        arguments return the same tensor: clone it before you write into it.
    """
    n = visible_cores(length, group, window, device)                      # (L,)
    raw = core_count(length, group, window)                               # the column of raw token 0
    starts = torch.stack([torch.zeros_like(n), raw + group * n], dim=-1)  # (L, 2)
    ends = torch.stack([n, raw + torch.arange(1, length + 1, device=device)], dim=-1)
    return torch.stack([starts, ends], dim=-1)[None, None]


@memoised
def chunk_intervals(start: int, stop: int, group: int, window: int) -> Tensor:
    """Return the columns of [cores ; raw tokens] that rows [start, stop) see in a cache that evicts unneeded tokens.

    Args:
        start, stop: rows of the chunk.
        group, window: g and s.

    Returns:
        int64 (1, 1, stop - start, 2, 2) on the CPU: row i sees [0, n(i)) and [C + g (n(i) - n(start)),
        C + i + 1 - g n(start)), where the first C = n(stop - 1) columns are cores and the raw tokens are
        kept from g n(start) on. Calls with the same arguments, as in all layers of a model, share one tensor.
    """
    row = torch.arange(start, stop, device="cpu")
    n = cores_of_rows(row, group, window)
    raw = int(n[-1]) - group * int(n[0])  # the column of raw token 0
    starts, ends = torch.stack([torch.zeros_like(n), raw + group * n], dim=-1), torch.stack([n, raw + row + 1], dim=-1)
    return torch.stack([starts, ends], dim=-1)[None, None]


def pairs(length: int, group: int, window: int) -> int:
    """Return how many query-key pairs are scored: the visible columns of all rows, in closed form.

    Row i reads n(i) cores and i + 1 - g n(i) raw tokens, so the sum is L(L+1)/2 - (g-1) sum_i n(i). The
    logits of the pooling, at most one for each token, are not counted.
    """
    check_integers(1, length=length, group=group, window=window)
    a, b = divmod(max(0, length - window), group)          # sum of floor(t / g) over t = 1 .. ag + b
    cores_read = group * a * (a - 1) // 2 + a * (b + 1)
    return length * (length + 1) // 2 - (group - 1) * cores_read


def cache_tokens(length: int, group: int, window: int) -> int:
    """Return how many entries (a key and a value each) a decoder keeps for one KV head after L tokens.

    These are floor(L/g) cores, made when their group closes, so that no query has to be stored, and the raw
    tokens [g n(L), L) that row L, the next one, still reads. The paper counts only the cores that are already
    visible; the other floor(L/g) - n(L), whose tokens are still raw, are at most ceil((s-1)/g).
    With `per_query_head` there is a core for every query head.
    """
    check_integers(1, group=group, window=window)
    return length // group + length - group * core_count(length + 1, group, window)
