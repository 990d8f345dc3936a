"""LM-Infinite: a Lambda-shaped mask, with the tokens of its left arm at one constant distance.

Han et al., "LM-Infinite: Zero-Shot Extreme Length Generalization for Large Language Models", NAACL 2024
(Section 4). Rows and tokens count from 0. Row i sees token t <= i

    as a local token    if i - t < local, at its true distance;
    as a global token   if t < global_tokens and i - t >= local, at the distance min(limit, i).

The local window counts the row's own token (StreamingLLM's does not: local = recent + 1), and a global token
that is still inside it is seen once, as a local one. With RoPE, "at the distance d" is: the query rotated at
position d, the keys of global tokens not rotated. That distance is the same for all global tokens. A limit
for each key, min(limit, i - t), would be the same thing only as long as limit <= local.

Models whose positions are added to the embeddings (GPT-2, OPT) keep them: without `rotation` there is no
distance to limit and the mask alone acts.

Differs from the paper and the public code:
  * `limit` defaults to `local`, the value that the public code's converter sets.
  * The public code takes min(limit, tokens so far - 1), the same for all rows of a prompt; min(limit, i) is
    what it takes when it decodes row i. The two agree wherever limit <= local.
  * The public code can add the k best tokens from between the two arms to a row, and handles no grouped
    queries. The former is left out, the latter work.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import effective_attention, interval_attention, visible_mask
from cca_lab.attention.arguments import check_rotation
from cca_lab.mechanisms.inputs import check_counts, check_positive, check_qkv, expand_heads
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation, at, rotate, turn, unrotate
from cca_lab.mechanisms.sinks import intervals, merged_attention, merged_matrix


def loops(q: Tensor, k: Tensor, v: Tensor, *, local: int, global_tokens: int, limit: int | None = None,
          scale: float | None = None, rotation: Rotation | None = None) -> Tensor:
    """LM-Infinite, row by row. The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        local: nearest tokens that a row sees, its own included, 1 or more.
        global_tokens: tokens at the start of the text that every row sees, 0 or more.
        limit: the distance of global tokens outside the window, 1 or more; None means `local`.
        scale: factor on the dot products; None means D**-0.5.
        rotation: the RoPE tables (cos, sin), (L, D) or (B, L, D), that q and k have already been
            rotated with (half-rotated layout); None if positions are not in q and k.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_inputs(q, k, v, local, global_tokens, limit, rotation)
    batch, heads, length, head_dim = q.shape
    k, v = expand_heads(k, heads), expand_heads(v, heads)
    scale = head_dim**-0.5 if scale is None else scale
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                near = [t for t in range(i + 1) if i - t < local]
                far = [t for t in range(i + 1) if i - t >= local and t < global_tokens]
                far_query, far_keys = q[b, h, i], k[b, h, far]           # (D,) and (global tokens, D)
                if rotation is not None:
                    cos, sin = (table.expand(batch, length, head_dim)[b] for table in rotation)
                    d = min(local if limit is None else limit, i)
                    far_query = rotate(unrotate(far_query, cos[i], sin[i]), cos[d], sin[d])
                    far_keys = rotate(unrotate(far_keys, cos[far], sin[far]), cos[0], sin[0])
                logits = torch.cat([far_keys @ far_query, k[b, h, near] @ q[b, h, i]])
                weights = torch.softmax(scale * logits, dim=0)
                out[b, h, i] = weights @ v[b, h, far + near]
    return out


def attention(q: Tensor, k: Tensor, v: Tensor, *, local: int, global_tokens: int, limit: int | None = None,
              scale: float | None = None, rotation: Rotation | None = None, backend: str = "auto") -> Tensor:
    """LM-Infinite, vectorised: the two arms of the Lambda, merged by their log-sum-exp under RoPE.

    Args:
        q, k, v, local, global_tokens, limit, scale, rotation: as in `loops`.
        backend: of `interval_attention`.

    Returns, Raises: those of `loops`.
    """
    check_inputs(q, k, v, local, global_tokens, limit, rotation)
    visible = row_intervals(q.shape[2], local, global_tokens, q.device)
    if rotation is None:
        return interval_attention(q, k, v, visible, scale=scale, backend=backend)
    far_query, far_key = at_constant_distance(q, k, rotation, global_tokens, local if limit is None else limit)
    return merged_attention(q, k, v, far_query, far_key, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, local: int, global_tokens: int, limit: int | None = None,
              scale: float | None = None, rotation: Rotation | None = None) -> Tensor:
    """Return the attention matrix, (B, H, L, L): rows sum to 1, tokens outside the Lambda are exactly 0.

    Args:
        q, k, local, global_tokens, limit, scale, rotation: as in `loops`.

    Raises:
        ValueError: as `loops`.
    """
    check_inputs(q, k, k, local, global_tokens, limit, rotation)
    length = q.shape[2]
    visible = row_intervals(length, local, global_tokens, q.device)
    if rotation is None:
        tokens = torch.eye(length, dtype=q.dtype, device=q.device)[None, None]
        return effective_attention(q, k, visible, tokens, scale=scale)
    far_query, far_key = at_constant_distance(q, k, rotation, global_tokens, local if limit is None else limit)
    return merged_matrix(q, k, far_query, far_key, visible, scale=scale)


def represented(q: Tensor, k: Tensor, *, local: int, global_tokens: int, **_: Any) -> Tensor:
    """Return bool (B, H, L, L): the tokens under the Lambda."""
    visible = row_intervals(q.shape[2], local, global_tokens, q.device)
    return visible_mask(visible, q.shape[2]).expand(*q.shape[:2], -1, -1)


def row_intervals(length: int, local: int, global_tokens: int,
                  device: torch.device | str | None = None) -> Tensor:
    """Return int64 (1, 1, L, 2, 2): row i sees [0, min(global_tokens, a)) and [a, i + 1), a = i + 1 - local."""
    return intervals(torch.arange(length, device=device), global_tokens, local)


def at_constant_distance(q: Tensor, k: Tensor, rotation: Rotation, global_tokens: int,
                         limit: int) -> tuple[Tensor, Tensor]:
    """Turn queries to position min(limit, i) and global keys to position 0.

    Returns:
        far_query (B, H, L, D) and far_key (B, Hk, min(global_tokens, L), D).
    """
    position = torch.arange(q.shape[2], device=rotation[0].device).clamp_max(limit)
    first = slice(0, global_tokens)
    return (turn(q, rotation, at(rotation, position)),
            turn(k[:, :, first], at(rotation, first), at(rotation, slice(0, 1))))


def cache_tokens(length: int, local: int, global_tokens: int) -> int:
    """Entries (a key and a value each) that later rows still read after L tokens, for one KV head."""
    return min(length, global_tokens + local - 1)


def check_inputs(q: Tensor, k: Tensor, v: Tensor, local: int, global_tokens: int, limit: int | None,
                 rotation: Rotation | None) -> None:
    """Raise ValueError naming the first argument that LM-Infinite cannot take."""
    check_qkv(q, k, v)
    check_positive(local=local, limit=local if limit is None else limit)
    check_counts(global_tokens=global_tokens)
    check_rotation(rotation, q)


def exact_when(length: int, *, local: int, **_: Any) -> bool:
    """Every token is a local one, whose distance is its true one."""
    return length <= local


MECHANISM = Mechanism(
    name="lm_infinite",
    title="LM-Infinite",
    paper="Han et al., LM-Infinite: Zero-Shot Extreme Length Generalization for Large Language Models, "
          "NAACL 2024, Section 4",
    loops=loops,
    attention=attention,
    effective=effective,
    defaults={"local": 93, "global_tokens": 4},
    paper_presets={
        "public code": {"local": 2048, "global_tokens": 100},
        "public code, README": {"local": 4096, "global_tokens": 10},
    },
    causal_scope=every_row,
    needs_training=False,
    exact_when=exact_when,
    represented=represented,
)
