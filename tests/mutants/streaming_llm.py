"""Wrong StreamingLLMs, one trap each."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cca_lab.attention.dense import expand_heads
from cca_lab.attention.rotary import rotate, unrotate


def rows(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, recent: int, positions: str = "original",
         scale: float | None = None, rotation=None, seen=None, place=None) -> Tensor:
    """StreamingLLM with the tokens of row i from `seen(i)`, keys from `place`; this is right."""
    batch, heads, length, head_dim = q.shape
    k, v = expand_heads(k, heads), expand_heads(v, heads)
    out = torch.zeros_like(q)
    for i in range(length):
        tokens = seen(i) if seen else [t for t in range(i + 1) if t < sinks or i - t <= recent]
        query, keys = q[:, :, i], k[:, :, tokens]
        if rotation is not None and positions == "cache":
            query, keys = (place or in_cache)(query, keys, i, tokens, rotation)
        scores = torch.einsum("bhd,bhtd->bht", query,
                              keys) * (head_dim**-0.5 if scale is None else scale)
        out[:, :, i] = torch.einsum("bht,bhtd->bhd", scores.softmax(-1), v[:, :, tokens])
    return out


def in_cache(query, keys, i, tokens, rotation):
    """Query and keys at their places in the cache."""
    cos, sin = rotation
    n = len(tokens)
    return (rotate(unrotate(query, cos[i], sin[i]), cos[n - 1], sin[n - 1]),
            rotate(unrotate(keys, cos[tokens], sin[tokens]), cos[:n], sin[:n]))


# ---------------------------------------------------------------- which tokens

def own_token_counted_as_recent(q: Tensor, k: Tensor, v: Tensor, *, recent: int,
                                **options) -> Tensor:
    """A window of `recent` tokens with the row's own, as LM-Infinite counts: one too few."""
    return rows(q, k, v, recent=recent - 1, **options)


def one_more_recent(q: Tensor, k: Tensor, v: Tensor, *, recent: int, **options) -> Tensor:
    """The oldest recent token leaves one step late."""
    return rows(q, k, v, recent=recent + 1, **options)


def sinks_counted_twice(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, recent: int,
                        **options) -> Tensor:
    """Sinks put in front of the window, also while they are still in it."""
    def seen(i):
        return [t for t in range(sinks) if t <= i] + list(range(max(0, i - recent), i + 1))
    return rows(q, k, v, sinks=sinks, recent=recent, seen=seen, **options)


def sinks_in_the_future(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, recent: int,
                        **options) -> Tensor:
    """Sinks visible to every row, those before them included."""
    def seen(i):
        return sorted({*range(min(sinks, q.shape[2])), *range(max(0, i - recent), i + 1)})
    return rows(q, k, v, sinks=sinks, recent=recent, seen=seen, **options)


# ---------------------------------------------------------------- at which positions

def rotated_again(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Keys cached after their rotation are rotated again at their places."""
    def place(query, keys, i, tokens, rotation):
        cos, sin = rotation
        query, _ = in_cache(query, keys, i, tokens, rotation)
        return query, rotate(keys, cos[: len(tokens)], sin[: len(tokens)])
    return rows(q, k, v, place=place, **options)


def positions_ignored(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Places in the cache asked for, positions in the text used."""
    return rows(q, k, v, **{**options, "positions": "original"})


def query_left_behind(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Keys at their places in the cache, the query at its position in the text."""
    def place(query, keys, i, tokens, rotation):
        return query, in_cache(query, keys, i, tokens, rotation)[1]
    return rows(q, k, v, place=place, **options)


# ---------------------------------------------------------------- states of the cache

def evict_first(state, query, rotation, scale: float) -> Tensor:
    """StreamingLLMState._attend after tokens were dropped for the next row."""
    key, value, length = state.key, state.value, query.shape[2]
    extra = max(0, key.shape[2] - state.sinks - state.recent)
    kept = [t for t in range(key.shape[2]) if t < state.sinks or t >= state.sinks + extra]
    bias = torch.ones(length, len(kept)).tril(len(kept) - length).log()
    return scaled_dot_product_attention(query, key[:, :, kept], value[:, :, kept], bias.to(query),
                                        scale=scale, enable_gqa=True)


def aligned_at_the_top_left(state, query, rotation, scale: float) -> Tensor:
    """StreamingLLMState._attend by is_causal, which takes row 0 of a chunk for the first token."""
    return scaled_dot_product_attention(query, state.key, state.value, is_causal=True, scale=scale,
                                        enable_gqa=True)


def keep_a_view(state) -> None:
    """StreamingLLMState._evict for sinks=0 that keeps a view, and with it the memory."""
    extra = max(0, state.key.shape[2] - state.sinks - state.recent)
    state.key, state.value = state.key[:, :, extra:], state.value[:, :, extra:]


def all_queries_by_one_angle(state, query, row, rotation, limit: int) -> Tensor:
    """StreamingLLMState._turned with the last row's angle for the whole chunk."""
    if int(row[-1]) <= limit:
        return query
    cos, sin = (table[:, -1:] for table in rotation)
    return rotate(unrotate(query, cos, sin), *state.table(limit))
