"""Full causal attention, climbed from a loop over rows to FlashAttention's tiles.

    out_i = softmax(scale * q_i K_{0..i}^T) V_{0..i}        (Vaswani et al. 2017, Eq. 1, with a causal mask)

Five forms of this one equation, each checked against the one before it:
`loops` -> `dense` -> `online_softmax` -> `tiled` -> `attention`. Rows count from 0.
"""

import torch
from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.mechanisms.inputs import check_positive, check_qkv, expand_heads
from cca_lab.mechanisms.mechanism import Mechanism, every_row


def loops(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Full causal attention, one row after the other (Vaswani et al. 2017, Eq. 1). The specification.

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
    """Full causal attention for all rows at once, with an explicit mask.

    Args, Returns, Raises: those of `loops`. Holds the L x L matrix in memory.
    """
    check_qkv(q, k, v)
    return effective(q, k, scale=scale) @ expand_heads(v, q.shape[1])


def effective(q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
    """Return the attention matrix E, with E[i, t] the weight of token t in row i.

    Args:
        q: queries, (B, H, L, D).
        k: keys, (B, Hk, L, D).
        scale: None means D**-0.5.

    Returns:
        (B, H, L, L): rows sum to 1, the future is exactly 0.
    """
    check_qkv(q, k, k)
    length, head_dim = q.shape[-2:]
    scale = head_dim**-0.5 if scale is None else scale
    scores = scale * (q @ expand_heads(k, q.shape[1]).mT)                             # (B, H, L, L)
    past = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()       # t <= i
    return torch.softmax(scores.masked_fill(~past, float("-inf")), dim=-1)


def online_softmax(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Full causal attention in which each row reads its keys one by one and keeps no row of scores.

    Args, Returns, Raises: those of `loops`. See `online_softmax_row` for the recurrence.
    """
    check_qkv(q, k, v)
    batch, heads, length, head_dim = q.shape
    k, v = expand_heads(k, heads), expand_heads(v, heads)
    scale = head_dim**-0.5 if scale is None else scale
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                past = slice(0, i + 1)
                out[b, h, i] = online_softmax_row(q[b, h, i], k[b, h, past], v[b, h, past], scale)
    return out


def online_softmax_row(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attend with one query in a single pass (Milakov & Gimelshein 2018, Algorithm 3).

    After n keys, with m the largest score so far,
        running_sum = sum_t exp(score_t - m),   accumulator = sum_t exp(score_t - m) v_t.
    A new largest score moves m, so both are multiplied by exp(old m - new m).

    Args:
        query: (D,).
        keys, values: (N, D), N >= 1.
        scale: factor on the dot products.

    Returns:
        (D,).
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
    """Full causal attention over tiles of queries and keys (FlashAttention-2, Dao 2024, Algorithm 1).

    The online softmax, with a tile of keys in place of a key and a tile of rows in
    place of a row. Tiles that lie in the future of all their rows are never read.

    Args:
        q, k, v, scale: as in `loops`.
        query_tile, key_tile: rows and keys of a tile, any positive integer. They change the
            memory needed (batch x heads x query_tile x key_tile scores), never the result.

    Returns, Raises: those of `loops`; ValueError also for a tile that is no positive integer.
    """
    check_qkv(q, k, v)
    check_positive(query_tile=query_tile, key_tile=key_tile)
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
            # Finite from the first tile on, because every row sees key 0: no inf - inf below.
            new_max = torch.maximum(running_max, scores.amax(-1, keepdim=True))
            correction = torch.exp(running_max - new_max)
            weights = torch.exp(scores - new_max)                             # (B, H, T, C)
            running_sum = correction * running_sum + weights.sum(-1, keepdim=True)
            accumulator = correction * accumulator + weights @ v[:, :, columns]
            running_max = new_max
        finished.append(accumulator / running_sum)
    return torch.cat(finished, dim=2)


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None,
              backend: str = "auto") -> Tensor:
    """Full causal attention through the lab's one primitive, `interval_attention`.

    Args:
        q, k, v, scale: as in `loops`.
        backend: of `interval_attention`.

    Returns, Raises: those of `loops`.
    """
    check_qkv(q, k, v)
    columns = causal_intervals(q.shape[2], device=q.device)  # row i sees [0, i + 1)
    return interval_attention(q, k, v, columns, scale=scale, backend=backend)


def pairs(length: int) -> int:
    """Query-key pairs that a causal row-by-row reading scores: 1 + 2 + ... + L."""
    return length * (length + 1) // 2


MECHANISM = Mechanism(
    name="full",
    title="Full causal attention",
    paper="Vaswani et al., Attention Is All You Need, NeurIPS 2017, Section 3.2.1",
    loops=loops,
    attention=attention,
    effective=effective,
    defaults={},
    paper_presets={},
    causal_scope=every_row,
    needs_training=False,
    exact_when=lambda length, **_: True,
)
