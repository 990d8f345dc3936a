"""The cores and raw tokens that each row of CCA-Attention sees, as tensors; see `indices`.

Rows, tokens and groups count from 0; g is the group size, s the local window. Row i sees the cores
[0, n(i)) and the raw tokens [g n(i), i], with n(i) = max(0, floor((i + 1 - s) / g)) (Eq. 3). With
S sinks a row also sees the tokens [0, min(i + 1, S)), and the above is of the text behind them.
"""

import torch
from torch import Tensor

from cca_lab.attention.intervals import memoised, table_of
from cca_lab.mechanisms.indices import (
    cca_columns,
    cca_entries,
    cca_pairs,
    cca_sink_columns,
    core_count,
    raw_column,
)
from cca_lab.settings import check_integers


def visible_cores(length: int, group: int, window: int,
                  device: torch.device | str = "cpu") -> Tensor:
    """Return how many cores each row sees (Eq. 3): n(i) = max(0, floor((i + 1 - s) / g)), (L,)."""
    check_integers(1, length=length, group=group, window=window)
    return core_count(torch.arange(1, length + 1, device=device), group, window)


@memoised
def intervals(length: int, group: int, window: int, device: torch.device | str = "cpu",
              sinks: int = 0) -> Tensor:
    """Return the columns of [cores ; raw tokens] that each row sees.

    Returns:
        int64 (1, 1, L, 2, 2): row i sees the half-open intervals [0, n(i)) and
        [C + g n(i), C + i + 1), where the first C = n(L-1) columns are cores and column C + t is
        raw token t. With sinks (1, 1, L, 3, 2): the columns are [cores ; sinks ; raw tokens behind
        them], see `indices.cca_sink_columns`. Calls with the same arguments return the same tensor:
        clone it before you write into it.
    """
    check_integers(1, length=length, group=group, window=window)
    check_integers(0, sinks=sinks)
    return _table(0, length, group, window, device, sinks)


@memoised
def chunk_intervals(start: int, stop: int, group: int, window: int, sinks: int = 0) -> Tensor:
    """Return the columns of [cores ; raw tokens] that rows [start, stop) see in a cache.

    Returns:
        int64 (1, 1, stop - start, 2, 2) on the CPU: row i sees [0, n(i)) and
        [C + g (n(i) - n(start)), C + i + 1 - g n(start)), where the first C = n(stop - 1) columns
        are cores and the raw tokens are kept from g n(start) on. With sinks three intervals, of
        [cores ; sinks ; raw tokens behind them]. All layers share one tensor.
    """
    return _table(start, stop, group, window, "cpu", sinks)


def _table(start: int, stop: int, group: int, window: int, device: torch.device | str,
           sinks: int) -> Tensor:
    row = torch.arange(start, stop, device=device)
    if sinks:
        return table_of(row, *cca_sink_columns(row, start, stop, group, window, sinks))[None, None]
    raw = raw_column(start, stop, group, window)
    return table_of(row, *cca_columns(row, raw, group, window))[None, None]


def pairs(length: int, group: int, window: int) -> int:
    """Return how many query-key pairs are scored, see `indices.cca_pairs`; sizes are checked."""
    check_integers(1, length=length, group=group, window=window)
    return cca_pairs(length, group, window)


def cache_tokens(length: int, group: int, window: int) -> int:
    """Return how many entries a decoder keeps, see `indices.cca_entries`; sizes are checked."""
    check_integers(1, group=group, window=window)
    return cca_entries(length, group, window)
