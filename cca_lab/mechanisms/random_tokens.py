"""Random tokens: of each older group of g tokens one, drawn by lot, stays; the others are dropped. A baseline.

The groups, the local window and so the number of entries are those of CCA-Attention (`cca.py`): row i sees

    one token of each of the n(i) = max(0, floor((i + 1 - s) / g)) oldest groups, and raw tokens [g n(i), i].

A method that chooses or pools with care should beat it at the same g and s.

The lots are drawn once from `seed`: that of a group does not depend on the text, the batch, the head or the
length. So every row sees its past only, and reading a prompt at once or token by token gives the same. A draw
from each group, rather than among all older tokens, keeps the subset the same as the text grows and spread
over it evenly. No paper: the comparison is this lab's.
"""

from random import Random
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import effective_attention, interval_attention
from cca_lab.mechanisms.cca_rows import core_count, intervals
from cca_lab.mechanisms.inputs import check_counts, check_positive, check_qkv, expand_heads
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation


def loops(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int, seed: int = 0,
          scale: float | None = None, rotation: Rotation | None = None) -> Tensor:
    """Attend to one random token of each older group and to raw nearby tokens, row by row.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        group: g, tokens of which one is kept.
        window: s, the fewest nearest tokens (the row's own included) that all stay.
        seed: of the lots, 0 or more.
        scale: factor on the dot products; None means D**-0.5.
        rotation: not used; keys keep the positions they were rotated to.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_inputs(q, k, v, group, window, seed)
    batch, heads, length, head_dim = q.shape
    k, v = expand_heads(k, heads), expand_heads(v, heads)
    scale = head_dim**-0.5 if scale is None else scale
    kept = kept_tokens(length // group, group, seed)
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                n = max(0, (i + 1 - window) // group)                    # groups older than the window
                seen = kept[:n] + list(range(group * n, i + 1))
                weights = torch.softmax(scale * (k[b, h, seen] @ q[b, h, i]), dim=0)
                out[b, h, i] = weights @ v[b, h, seen]
    return out


def attention(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int, seed: int = 0,
              scale: float | None = None, rotation: Rotation | None = None, backend: str = "auto") -> Tensor:
    """The same, vectorised: attend once over [kept ; raw], with the intervals of CCA-Attention.

    Args:
        q, k, v, group, window, seed, scale, rotation: as in `loops`.
        backend: of `interval_attention`.

    Returns, Raises: those of `loops`.
    """
    check_inputs(q, k, v, group, window, seed)
    length = q.shape[2]
    kept = kept_tokens(core_count(length, group, window), group, seed)
    keys, values = (torch.cat([x[:, :, kept], x], dim=2) for x in (k, v))  # (B, Hk, C + L, D)
    visible = intervals(length, group, window, q.device)
    return interval_attention(q, keys, values, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, group: int, window: int, seed: int = 0, scale: float | None = None,
              rotation: Rotation | None = None) -> Tensor:
    """Return the attention matrix, (B, H, L, L): rows sum to 1, tokens that were dropped are exactly 0.

    Args:
        q, k, group, window, seed, scale, rotation: as in `loops`.

    Raises:
        ValueError: as `loops`.
    """
    check_inputs(q, k, k, group, window, seed)
    length = q.shape[2]
    kept = kept_tokens(core_count(length, group, window), group, seed)
    tokens = torch.eye(length, dtype=q.dtype, device=q.device)
    pools = torch.cat([tokens[kept], tokens])[None, None]                # (1, 1, C + L, L)
    keys = torch.cat([k[:, :, kept], k], dim=2)
    return effective_attention(q, keys, intervals(length, group, window, q.device), pools, scale=scale)


def represented(q: Tensor, k: Tensor, *, group: int, window: int, seed: int = 0, **_: Any) -> Tensor:
    """Return bool (B, H, L, L): raw tokens of each row, and the kept ones of its older groups."""
    token = torch.arange(q.shape[2], device=q.device)
    raw_from = (token + 1 - window).clamp_min(0).div(group, rounding_mode="floor") * group     # (L,)
    kept = torch.zeros(len(token), dtype=torch.bool, device=q.device)
    kept[kept_tokens(len(token) // group, group, seed)] = True
    seen = (token <= token[:, None]) & (kept | (token >= raw_from[:, None]))
    return seen.expand(*q.shape[:2], -1, -1)


def kept_tokens(count: int, group: int, seed: int) -> list[int]:
    """Return the token that stays of each of the first `count` groups; the same ones first for any count."""
    draw = Random(int(seed))
    return [p * group + draw.randrange(group) for p in range(count)]


def check_inputs(q: Tensor, k: Tensor, v: Tensor, group: int, window: int, seed: int) -> None:
    """Raise ValueError naming the first argument that does not fit."""
    check_qkv(q, k, v)
    check_positive(group=group, window=window)
    check_counts(seed=seed)


def exact_when(length: int, *, group: int, window: int, **_: Any) -> bool:
    """No row has an older group, or groups have one token."""
    return length < group + window or group == 1


MECHANISM = Mechanism(
    name="random_tokens",
    title="Random tokens",
    paper="A baseline; no paper",
    loops=loops,
    attention=attention,
    effective=effective,
    defaults={"group": 16, "window": 64, "seed": 0},
    paper_presets={},
    causal_scope=every_row,
    needs_training=False,
    exact_when=exact_when,
    represented=represented,
)
