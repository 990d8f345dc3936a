"""Loops, choices and shares, for mechanisms whose rows read lists of tokens or a mask."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads


def attend_loops(q: Tensor, k: Tensor, v: Tensor, seen: Callable[[int, int, int], list[int]],
                 scale: float | None = None) -> Tensor:
    """Attend row by row to the tokens that `seen` returns; the last step of several specifications.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D).
        seen: maps (batch, head, row) to the tokens that the row reads.
        scale: factor on the dot products; None means D**-0.5.

    Returns:
        (B, H, L, D), in the dtype of q.
    """
    batch, heads, length, head_dim = q.shape
    k, v = expand_heads(k, heads), expand_heads(v, heads)
    scale = head_dim**-0.5 if scale is None else scale
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                tokens = seen(b, h, i)
                weights = torch.softmax(scale * (k[b, h, tokens] @ q[b, h, i]), dim=0)  # (tokens,)
                out[b, h, i] = weights @ v[b, h, tokens]
    return out


def causal_mask(length: int, device: torch.device | str | None = None) -> Tensor:
    """Return bool (L, L): True where token t is not later than row i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def best(scores: Tensor, count: int, rank: Tensor | None = None) -> Tensor:
    """Return the indices of the `count` highest scores, ascending; of equal ones the earlier.

    An index of lower `rank`, int64, broadcastable to scores, comes first, whatever its score.
    """
    order = scores.argsort(dim=-1, descending=True, stable=True)
    if rank is not None:
        order = order.gather(-1,
                             rank.expand_as(order).gather(-1, order).argsort(dim=-1, stable=True))
    return order[..., :count].sort(dim=-1).values


def floor_of_share(share: float, count: int) -> int:
    """Return floor(share * count): 0.29 of 100 is 29, though 0.29 * 100 is 28.99... in floats."""
    return math.floor(share * count + 1e-9)
