"""The columns to which DGA attends: focal tokens, pooled groups, raw tokens (Eq. 12 and 14)."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from cca_lab.attention import pool_groups
from cca_lab.attention.pooling import pooling_backend
from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms.dga.selection import FocalRule


def divide(focal: Tensor, rule: FocalRule) -> tuple[Tensor, Tensor]:
    """Return the indices of focal tokens, (B, Hk, F), and of grouped tokens, (B, Hk, K m), both ascending.

    Args:
        focal: bool (B, Hk, L), as `select` returns it.
        rule: the options.
    """
    count, span = rule.spans(focal.shape[-1])
    divided = focal[..., : count * span]
    order = divided.int().argsort(dim=-1, descending=True, stable=True)  # focal tokens first, both kinds in order
    focal_tokens = int(divided[0, 0].sum())
    return order[..., :focal_tokens], order[..., focal_tokens:]


def columns(q: Tensor, k: Tensor, v: Tensor, focal: Tensor, rule: FocalRule, scale: float | None,
            rotation: Rotation | None, *, backend: str = "auto") -> tuple[Tensor, Tensor]:
    """Put focal tokens and pooled groups in front of the raw tokens.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D).
        focal: bool (B, Hk, L).
        rule: the options.
        scale: factor on the dot products; None means D**-0.5.
        rotation: the RoPE tables with which q and k were rotated, or None.
        backend: of `interval_attention`; it sets that of the pooling too.

    Returns:
        [focal ; pooled ; raw] keys and values, (B, Hk, F + K + R, D), R = K m for choose="prompt", else L.
    """
    kept, others = divide(focal, rule)
    pooled = pool(q, k, v, others, rule.group, scale, rotation, backend=backend)
    raw = (take(x, others) if rule.choose == "prompt" else x for x in (k, v))
    keys, values = (torch.cat([take(x, kept), *parts], dim=2) for x, *parts in zip((k, v), pooled, raw, strict=True))
    return keys, values


def pool(q: Tensor, k: Tensor, v: Tensor, others: Tensor, group: int, scale: float | None,
         rotation: Rotation | None, *, backend: str = "auto") -> list[Tensor]:
    """Pool each m successive tokens of `others` with the query of the last one (Eq. 14).

    Args:
        others: indices of the grouped tokens, int64 (B, Hk, K m), ascending; `group` is m.
        The other arguments are those of `columns`.

    Returns:
        Pooled keys and values, (B, Hk, K, D).
    """
    kv_heads = k.shape[1]
    if rotation is not None:
        tables = (t.expand(len(others), kv_heads, *t.shape[-2:]) if t.dim() == 2 else
                  t[:, None].expand(len(others), kv_heads, -1, -1) for t in rotation)
        cos, sin = (take(t, others).flatten(0, 1) for t in tables)                      # (B Hk, K m, D)
        rotation = cos, sin
    pooled = pool_groups(*as_rows(q, k, v, others), group, scale=scale, rotation=rotation,
                         backend=pooling_backend(backend, count=others.shape[-1] // group))
    return [x[:, 0].unflatten(0, (-1, kv_heads)) for x in pooled]


def as_rows(q: Tensor, k: Tensor, v: Tensor, others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Take the tokens of each KV head and make it a batch row: (B Hk, H / Hk, K m, D), twice (B Hk, 1, K m, D)."""
    queries = take(q.unflatten(1, (k.shape[1], -1)), others[:, :, None])
    return queries.flatten(0, 1), take(k, others).flatten(0, 1)[:, None], take(v, others).flatten(0, 1)[:, None]


def group_weights(q: Tensor, k: Tensor, focal: Tensor, rule: FocalRule, scale: float | None) -> Tensor:
    """Return the weights P_z of the members of each group (Eq. 14), (B, Hk, K, m); Args as in `columns`."""
    rows = as_rows(q, k, k, divide(focal, rule)[1])
    _, _, phi = pool_groups(*rows, rule.group, scale=scale, return_phi=True, backend="torch")
    assert phi is not None  # only a maximum has no weights
    return phi[:, 0].unflatten(0, (-1, k.shape[1]))


def pooling_matrix(q: Tensor, k: Tensor, focal: Tensor, rule: FocalRule, scale: float | None) -> Tensor:
    """Return P, (B, Hk, F + K + R, L): the weight of each token in each column; R and Args as in `columns`."""
    length, phi = k.shape[2], group_weights(q, k, focal, rule, scale)
    kept, others = (one_hot(index, length).to(phi) for index in divide(focal, rule))     # (B, Hk, F or K m, L)
    pooled = (phi[..., None, :] @ others.unflatten(2, phi.shape[2:]))[..., 0, :]         # (B, Hk, K, L)
    raw = others if rule.choose == "prompt" else torch.eye(length).to(phi).expand(*k.shape[:2], -1, -1)
    return torch.cat([kept, pooled, raw], dim=2)


def take(x: Tensor, tokens: Tensor) -> Tensor:
    """Take tokens by index: x (..., L, D), tokens int64 (..., n) -> (..., n, D)."""
    return x.take_along_dim(tokens[..., None].to(x.device), dim=-2)
