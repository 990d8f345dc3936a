"""The columns that DGA attends to: focal tokens, pooled groups, raw tokens (Eq. 12 and 14)."""

import torch
from torch import Tensor

from cca_lab.attention import pool_groups
from cca_lab.attention.pooling import pooling_backend
from cca_lab.mechanisms.dga_selection import FocalRule

Rotation = tuple[Tensor, Tensor]


def divide(focal: Tensor, rule: FocalRule) -> tuple[Tensor, Tensor]:
    """Indices of the focal tokens, (B, Hk, F), and of the tokens that are grouped, (B, Hk, K m), both in order.

    Args:
        focal: bool (B, Hk, L), as `select` returns it.
        rule: the options.
    """
    count, span = rule.spans(focal.shape[-1])
    divided = focal[..., : count * span]
    order = divided.int().argsort(dim=-1, descending=True, stable=True)  # focal ones first, each kind in order
    focal_tokens = int(divided[0, 0].sum())
    return order[..., :focal_tokens], order[..., focal_tokens:]


def columns(q: Tensor, k: Tensor, v: Tensor, focal: Tensor, rule: FocalRule, scale: float | None,
            rotation: Rotation | None, *, return_phi: bool = False,
            backend: str = "auto") -> tuple[Tensor, Tensor, Tensor | None]:
    """Put focal tokens and pooled groups in front of the raw tokens.

    Args:
        focal: bool (B, Hk, L).
        return_phi: also return the weights P, which the fused pooling does not keep.
        The others are those of `attention`.

    Returns:
        [focal ; pooled ; raw] keys and values, (B, Hk, F + K + K m or L, D), and the weights P, (B, Hk, K, m),
        or None.
    """
    kept, others = divide(focal, rule)
    pooled_k, pooled_v, phi = pool(q, k, v, others, rule.group, scale, rotation, return_phi, backend)
    raw_k, raw_v = (take(x, others) if rule.choose == "prompt" else x for x in (k, v))
    return torch.cat([take(k, kept), pooled_k, raw_k], dim=2), torch.cat([take(v, kept), pooled_v, raw_v], dim=2), phi


def pool(q: Tensor, k: Tensor, v: Tensor, others: Tensor, group: int, scale: float | None,
         rotation: Rotation | None, return_phi: bool, backend: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Pool each m successive tokens of `others`, judged by the last one's query (Eq. 14).

    Every KV head has its own list of tokens, so it goes through `pool_groups` as if it were a batch row.

    Args:
        others: int64 (B, Hk, K m), in order.
        The others are those of `columns`.

    Returns:
        Pooled keys and values, (B, Hk, K, D), and the weights P, (B, Hk, K, m), or None.
    """
    kv_heads = k.shape[1]
    queries = take(q.unflatten(1, (kv_heads, -1)), others[:, :, None]).flatten(0, 1)    # (B Hk, H / Hk, K m, D)
    k, v = (take(x, others).flatten(0, 1)[:, None] for x in (k, v))                     # (B Hk, 1, K m, D)
    if rotation is not None:
        tables = [t.expand(len(others), kv_heads, *t.shape[-2:]) if t.dim() == 2 else
                  t[:, None].expand(len(others), kv_heads, -1, -1) for t in rotation]
        rotation = tuple(take(t, others).flatten(0, 1) for t in tables)                 # (B Hk, K m, D)
    backend = pooling_backend(backend, count=others.shape[-1] // group, return_phi=return_phi)
    pooled = pool_groups(queries, k, v, group, scale=scale, rotation=rotation, return_phi=return_phi, backend=backend)
    pooled_k, pooled_v, *phi = (x[:, 0].unflatten(0, (-1, kv_heads)) for x in pooled)
    return pooled_k, pooled_v, phi[0] if phi else None


def take(x: Tensor, tokens: Tensor) -> Tensor:
    """Pick tokens: x (..., L, D), tokens int64 (..., n) -> (..., n, D)."""
    return x.take_along_dim(tokens[..., None].to(x.device), dim=-2)
