"""Wrong LM-Infinites, one trap each; the kills stand in test_lm_infinite.py."""

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from tests.mechanisms.bench import rope_tables, rotate


def rows(q: Tensor, k: Tensor, v: Tensor, *, local: int, global_tokens: int,
         limit: int | None = None, scale: float | None = None, rotation=None, near=None, far=None,
         distance=None) -> Tensor:
    """LM-Infinite from distances: near(i), far(i) are tokens, distance(i, t) of the far ones.

    `rotation` must be `rope_tables` from position 0. Right as it stands.
    """
    batch, heads, length, head_dim = q.shape
    k, v = expand_heads(k, heads), expand_heads(v, heads)
    scale = head_dim**-0.5 if scale is None else scale
    limit = local if limit is None else limit
    out = torch.zeros_like(q)
    for i in range(length):
        close = near(i) if near else list(range(max(0, i + 1 - local), i + 1))
        away = far(i) if far else [t for t in range(global_tokens) if i - t >= local]
        keys = k.clone()
        for t in away if rotation is not None else ():
            d = distance(i, t) if distance else min(limit, i)
            extra = (i - t) - d  # by which the key moves closer: from position t to i - d
            keys[:, :, t] = rotate(k[:, :, t],
                                   *(table[0] for table in rope_tables(1, head_dim, extra)))
        logits = torch.cat([torch.einsum("bhd,bhtd->bht", q[:, :, i], x)
                            for x in (keys[:, :, away], k[:, :, close])], dim=-1)
        out[:, :, i] = torch.einsum("bht,bhtd->bhd", (scale * logits).softmax(-1),
                                    v[:, :, away + close])
    return out


def clamped_for_each_key(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """min(limit, i - t) for each global token: differs where limit > local."""
    limit = options.get("limit") or options["local"]
    return rows(q, k, v, distance=lambda i, t: min(limit, i - t), **options)


def limit_of_the_whole_text(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """min(limit, L - 1) for all rows: the distance depends on how long the text becomes."""
    limit = options.get("limit") or options["local"]
    return rows(q, k, v, distance=lambda i, t: min(limit, q.shape[2] - 1), **options)


def true_distances(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The mask alone: global tokens at their true distances."""
    return rows(q, k, v, distance=lambda i, t: i - t, **options)


def global_keys_stay_rotated(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The query at the limit, the keys at their own positions: distances limit - t."""
    limit = options.get("limit") or options["local"]
    return rows(q, k, v, distance=lambda i, t: min(limit, i) - t, **options)


def globals_counted_twice(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Global tokens are put in front of the window while they are still in it."""
    return rows(q, k, v, far=lambda i: [t for t in range(options["global_tokens"]) if t <= i],
                **options)


def own_token_on_top(q: Tensor, k: Tensor, v: Tensor, *, local: int, **options) -> Tensor:
    """`local` previous tokens and the own one, as StreamingLLM counts: one too many."""
    return rows(q, k, v, local=local + 1, **options)


def gap_before_the_window(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Global tokens appear at i - t > local: one is missing for a row."""
    def far(i):
        return [t for t in range(options["global_tokens"]) if i - t > options["local"]]
    return rows(q, k, v, far=far, **options)


# ---------------------------------------------------------------- states of the cache

def far_at_true_distances(state, query, row, rotation) -> tuple[Tensor, Tensor]:
    """LMInfiniteState._far without a limit."""
    return query, state.key


def far_with_rotated_keys(state, query, row, rotation) -> tuple[Tensor, Tensor]:
    """LMInfiniteState._far that turns the query only."""
    return state._turned(query, row, rotation, state.limit), state.key


def evict_a_global(state) -> None:
    """LMInfiniteState._evict that keeps the last tokens and forgets the first."""
    state.key, state.value = (x[:, :, -(state.sinks + state.recent):].clone()
                              for x in (state.key, state.value))
