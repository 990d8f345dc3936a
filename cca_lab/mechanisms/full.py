"""Full causal attention in four forms, from a loop over rows to FlashAttention's tiles.

    out_i = softmax(scale * q_i K_{0..i}^T) V_{0..i}    (Vaswani et al. 2017, Eq. 1, with a mask)

All forms compute this equation, and the tests check each against the one before it:
`loops` -> `dense` -> `tiled` -> `Full().attention`. Rows count from 0.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cca_lab.attention import causal_intervals
from cca_lab.attention.arguments import check_qkv
from cca_lab.attention.dense import expand_heads
from cca_lab.mechanisms.base import Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.settings import check_integers


def loops(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Compute full causal attention row by row (Vaswani et al. 2017, Eq. 1): the specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        scale: factor on the dot products; None means D**-0.5.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if the shapes do not fit together.
    """
    check_qkv(q, k, v)
    batch, heads, length, head_dim = q.shape
    queries_per_key = heads // k.shape[1]
    scale = head_dim**-0.5 if scale is None else scale
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for h in range(heads):
            keys, values = k[b, h // queries_per_key], v[b, h // queries_per_key]  # (L, D)
            for i in range(length):
                scores = scale * (keys[: i + 1] @ q[b, h, i])  # (i+1,)  the row itself and its past
                weights = torch.softmax(scores, dim=0)         # (i+1,)
                out[b, h, i] = weights @ values[: i + 1]       # (D,)
    return out


def dense(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Compute full causal attention for all rows at once, with an L x L mask; see `loops`."""
    check_qkv(q, k, v)
    return effective(q, k, scale=scale) @ expand_heads(v, q.shape[1])


def effective(q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
    """Return E (B, H, L, L), with E[i, t] the weight of token t in row i; q and k as in `loops`."""
    check_qkv(q, k, k)
    length, head_dim = q.shape[-2:]
    scale = head_dim**-0.5 if scale is None else scale
    scores = scale * (q @ expand_heads(k, q.shape[1]).mT)                             # (B, H, L, L)
    past = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()       # t <= i
    return torch.softmax(scores.masked_fill(~past, float("-inf")), dim=-1)


def online_softmax_row(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attend with one query (D,) in a single pass (Milakov & Gimelshein 2018, Algorithm 3) -> (D,).

    After n of N keys (N, D), with m the largest score so far,

        running_sum = sum_t exp(score_t - m),   accumulator = sum_t exp(score_t - m) v_t.

    When a new score exceeds m, both are multiplied by exp(old m - new m).
    """
    running_max = query.new_tensor(float("-inf"))
    running_sum = query.new_tensor(0.0)
    accumulator = query.new_zeros(values.shape[-1])
    for key, value in zip(keys, values, strict=True):
        score = scale * (query @ key)
        new_max = torch.maximum(running_max, score)
        correction = torch.exp(running_max - new_max)  # 0 at the first key: exp(-inf)
        weight = torch.exp(score - new_max)            # at most 1, so nothing overflows
        running_sum = correction * running_sum + weight
        accumulator = correction * accumulator + weight * value
        running_max = new_max
    return accumulator / running_sum


def tiled(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None,
          query_tile: int = 64, key_tile: int = 64) -> Tensor:
    """Compute full causal attention over tiles (FlashAttention-2, Dao 2024, Algorithm 1).

    This is the online softmax, with a tile of keys in place of a key and a tile of rows in
    place of a row. Tiles of keys that are later than all rows of a tile are never read.

    Args:
        q, k, v, scale: as in `loops`.
        query_tile, key_tile: rows and keys of a tile, positive integers. They change the memory
            needed (batch x heads x query_tile x key_tile scores), but not the result.
    """
    check_qkv(q, k, v)
    check_integers(1, query_tile=query_tile, key_tile=key_tile)
    heads, length, head_dim = q.shape[1:]
    k, v = expand_heads(k, heads), expand_heads(v, heads)
    scale = head_dim**-0.5 if scale is None else scale
    position = torch.arange(length, device=q.device)
    finished = []
    for first_row in range(0, length, query_tile):
        rows = position[first_row : first_row + query_tile]                   # (T,)
        queries = scale * q[:, :, rows]                                       # (B, H, T, D)
        running_max = queries.new_full((*queries.shape[:-1], 1), float("-inf"))  # (B, H, T, 1)
        running_sum = torch.zeros_like(running_max)
        accumulator = torch.zeros_like(queries)
        for first_key in range(0, first_row + len(rows), key_tile):
            columns = position[first_key : first_key + key_tile]              # (C,)
            scores = queries @ k[:, :, columns].mT                            # (B, H, T, C)
            scores = scores.masked_fill(columns > rows[:, None], float("-inf"))
            # Every row sees key 0, so the maximum is finite from the first tile on: no inf - inf
            # below.
            new_max = torch.maximum(running_max, scores.amax(-1, keepdim=True))
            correction = torch.exp(running_max - new_max)
            weights = torch.exp(scores - new_max)                             # (B, H, T, C)
            running_sum = correction * running_sum + weights.sum(-1, keepdim=True)
            accumulator = correction * accumulator + weights @ v[:, :, columns]
            running_max = new_max
        finished.append(accumulator / running_sum)
    return torch.cat(finished, dim=2)


def pairs(length: int) -> int:
    """Return how many query-key pairs full causal attention scores: 1 + 2 + ... + L."""
    return length * (length + 1) // 2


@dataclass(frozen=True, kw_only=True)
class Full(Mechanism):
    """Full attention: each row reads its whole past.

    Attributes:
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    name: ClassVar[str] = "full"
    title: ClassVar[str] = "Full causal attention"
    paper: ClassVar[str] = "Vaswani et al., Attention Is All You Need, NeurIPS 2017, Section 3.2.1"

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute full attention row by row with `loops`: the specification."""
        return loops(q, k, v, scale=call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the tokens, of which row i sees [0, i + 1)."""
        return [Columns(q, k, v, causal_intervals(q.shape[2], device=q.device))]

    def exact_when(self, length: int) -> bool:
        """Return True: this is full attention."""
        return True
