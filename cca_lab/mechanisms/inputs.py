"""Checks of the arguments of mechanisms, and two small functions that most mechanisms use."""

import math

from torch import Tensor

from cca_lab.attention.arguments import check_tensors
from cca_lab.settings import check_integers


def expand_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat each KV head for the query heads that use it: (B, Hk, L, D) -> (B, H, L, D)."""
    return x if heads == x.shape[1] else x.repeat_interleave(heads // x.shape[1], dim=1)


def check_qkv(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise ValueError unless q, k, v are self-attention inputs: (B, H, L, D) and twice (B, Hk, L, D)."""
    check_tensors(q=q, k=k, v=v)
    if not q.is_floating_point() or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k, v: got {q.dtype}, {k.dtype}, {v.dtype}, wanted one floating dtype; cast them to it")
    if q.dim() != 4 or k.shape != v.shape or k.dim() != 4:
        raise ValueError(f"q, k, v: got {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}, wanted "
                         "(B, H, L, D) and twice (B, Hk, L, D); add the missing axes or make k and v alike")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        raise ValueError(f"k: got {tuple(k.shape)} for q {tuple(q.shape)}, wanted the same batch and "
                         "head_dim and a number of heads that divides q's; check the order of the axes")
    if q.shape[2] != k.shape[2] or q.shape[2] == 0:
        raise ValueError(f"q and k: got {q.shape[2]} and {k.shape[2]} tokens, wanted as many queries as "
                         "keys, at least one (self-attention over a whole sequence); to decode, use a cache")


def floor_of_share(share: float, count: int) -> int:
    """Return floor(share * count) for the decimal share: 0.29 of 100 is 29, though 0.29 * 100 is 28.99... in floats."""
    return math.floor(share * count + 1e-9)


def check_positive(**values: int) -> None:
    """Raise ValueError naming the first argument that is not a positive integer."""
    check_integers(1, **values)


def check_counts(**values: int) -> None:
    """Raise ValueError naming the first argument that is not an integer of 0 or more."""
    check_integers(0, **values)
