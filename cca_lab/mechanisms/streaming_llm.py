"""StreamingLLM: the first tokens of the text, the attention sinks, and the most recent ones.

Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024 (Section 3.2). Rows and
tokens count from 0. The cache holds `sinks` first and `recent` last tokens; a new token is appended, attends,
and then the oldest recent token leaves. So row i sees token t if

    t <= i   and   (t < sinks   or   i - t <= recent)

which is at most sinks + recent + 1 tokens: the row's own token comes on top of the `recent` previous ones.
LM-Infinite and A-shape count the own token in: their window of n tokens is recent = n - 1.

Positions: "cache", the paper's, numbers the tokens by their place in the cache, so that no distance exceeds
sinks + recent. "original" leaves each token where it stands in the text. With RoPE the distances among recent
tokens are the same either way; a sink t is at distance min(i, sinks + recent) - t instead of i - t, which one
turn of the query gives: there is no need to store keys without their rotation. Models whose positions are
added to the embeddings (GPT-2, OPT) carry them in q and k for good: without `rotation` both settings are the
same, and only "original" describes what happens.

Differs from the paper:
  * The public code reads a prompt with full attention and drops tokens afterwards. Here every row attends as
    in the steady state, as if the text had been fed one token at a time (which is how the authors measure
    perplexity), so a prompt read at once and one read token by token agree. The cache offers both.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import effective_attention, interval_attention, visible_mask
from cca_lab.attention.arguments import check_rotation
from cca_lab.mechanisms.inputs import check_counts, check_qkv, expand_heads
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation, at, rotate, turn, unrotate
from cca_lab.mechanisms.sinks import intervals, merged_attention, merged_matrix

POSITIONS = ("original", "cache")


def loops(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, recent: int, positions: str = "original",
          scale: float | None = None, rotation: Rotation | None = None) -> Tensor:
    """StreamingLLM, one token after the other through a cache. The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        sinks: tokens at the start of the text that are never dropped, 0 or more.
        recent: previous tokens that a row sees besides its own, 0 or more.
        positions: "original", or "cache" for the place in the cache; matters with `rotation` only.
        scale: factor on the dot products; None means D**-0.5.
        rotation: the RoPE tables (cos, sin), (L, D) or (B, L, D), that q and k have already been
            rotated with (half-rotated layout); None if positions are not in q and k.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_inputs(q, k, v, sinks, recent, positions, rotation)
    batch, heads, length, head_dim = q.shape
    k, v = expand_heads(k, heads), expand_heads(v, heads)
    scale = head_dim**-0.5 if scale is None else scale
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for h in range(heads):
            cache: list[int] = []                                       # the tokens kept, oldest first
            for i in range(length):
                cache.append(i)
                query, keys = q[b, h, i], k[b, h, cache]                # (D,) and (tokens kept, D)
                if positions == "cache" and rotation is not None:
                    cos, sin = (table.expand(batch, length, head_dim)[b] for table in rotation)
                    last = len(cache) - 1                               # the place of token i
                    query = rotate(unrotate(query, cos[i], sin[i]), cos[last], sin[last])
                    keys = rotate(unrotate(keys, cos[cache], sin[cache]), cos[: last + 1], sin[: last + 1])
                weights = torch.softmax(scale * (keys @ query), dim=0)
                out[b, h, i] = weights @ v[b, h, cache]
                if len(cache) > sinks + recent:                         # only now: row i has attended
                    cache.pop(sinks)
    return out


def attention(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, recent: int, positions: str = "original",
              scale: float | None = None, rotation: Rotation | None = None, backend: str = "auto") -> Tensor:
    """StreamingLLM, vectorised: two intervals a row; with cache positions the sinks see a turned query.

    Args:
        q, k, v, sinks, recent, positions, scale, rotation: as in `loops`.
        backend: of `interval_attention`.

    Returns, Raises: those of `loops`.
    """
    check_inputs(q, k, v, sinks, recent, positions, rotation)
    visible = row_intervals(q.shape[2], sinks, recent, q.device)
    if positions == "original" or rotation is None:
        return interval_attention(q, k, v, visible, scale=scale, backend=backend)
    far_query = query_for_sinks(q, rotation, sinks + recent)
    return merged_attention(q, k, v, far_query, k, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, sinks: int, recent: int, positions: str = "original",
              scale: float | None = None, rotation: Rotation | None = None) -> Tensor:
    """Return the attention matrix, (B, H, L, L): rows sum to 1, tokens that were dropped are exactly 0.

    Args:
        q, k, sinks, recent, positions, scale, rotation: as in `loops`.

    Raises:
        ValueError: as `loops`.
    """
    check_inputs(q, k, k, sinks, recent, positions, rotation)
    length = q.shape[2]
    visible = row_intervals(length, sinks, recent, q.device)
    if positions == "original" or rotation is None:
        tokens = torch.eye(length, dtype=q.dtype, device=q.device)[None, None]
        return effective_attention(q, k, visible, tokens, scale=scale)
    return merged_matrix(q, k, query_for_sinks(q, rotation, sinks + recent), k, visible, scale=scale)


def represented(q: Tensor, k: Tensor, *, sinks: int, recent: int, **_: Any) -> Tensor:
    """Return bool (B, H, L, L): the tokens that each row sees, sinks and recent ones."""
    visible = row_intervals(q.shape[2], sinks, recent, q.device)
    return visible_mask(visible, q.shape[2]).expand(*q.shape[:2], -1, -1)


def row_intervals(length: int, sinks: int, recent: int, device: torch.device | str | None = None) -> Tensor:
    """Return int64 (1, 1, L, 2, 2): row i sees [0, min(sinks, a)) and [a, i + 1), a = max(0, i - recent)."""
    return intervals(torch.arange(length, device=device), sinks, recent + 1)


def query_for_sinks(q: Tensor, rotation: Rotation, full: int) -> Tensor:
    """Turn each query (B, H, L, D) to its place in the cache, min(i, full), full = sinks + recent."""
    place = torch.arange(q.shape[2], device=rotation[0].device).clamp_max(full)
    return turn(q, rotation, at(rotation, place))


def cache_tokens(length: int, sinks: int, recent: int) -> int:
    """Entries (a key and a value each) that a decoder keeps for one KV head after L tokens."""
    return min(length, sinks + recent)


def check_inputs(q: Tensor, k: Tensor, v: Tensor, sinks: int, recent: int, positions: str,
                 rotation: Rotation | None) -> None:
    """Raise ValueError naming the first argument that StreamingLLM cannot take."""
    check_qkv(q, k, v)
    check_counts(sinks=sinks, recent=recent)
    check_rotation(rotation, q)
    if positions not in POSITIONS:
        raise ValueError(f"positions: got {positions!r}, wanted 'original' or 'cache'; the paper's is 'cache', "
                         "which needs rotary positions")


def exact_when(length: int, *, sinks: int, recent: int, **_: Any) -> bool:
    """Nothing has been dropped when the last row attends."""
    return length <= sinks + recent + 1


MECHANISM = Mechanism(
    name="streaming_llm",
    title="StreamingLLM",
    paper="Xiao et al., Efficient Streaming Language Models with Attention Sinks, ICLR 2024, Section 3.2",
    loops=loops,
    attention=attention,
    effective=effective,
    defaults={"sinks": 4, "recent": 92},
    paper_presets={
        "public code, chat demo": {"sinks": 4, "recent": 2000, "positions": "cache"},
        "public code, perplexity": {"sinks": 1, "recent": 255, "positions": "cache"},
        "public code, cache class": {"sinks": 4, "recent": 512, "positions": "cache"},
    },
    causal_scope=every_row,
    needs_training=False,
    exact_when=exact_when,
    represented=represented,
)
