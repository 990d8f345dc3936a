"""What mechanisms share whose rows see what a boolean mask shows: too ragged for intervals, so one rung only."""

from collections.abc import Callable

import torch
from torch import Tensor

from cca_lab.attention import masked_attention
from cca_lab.attention.arguments import scale_of
from cca_lab.attention.dense import masked_matrix
from cca_lab.mechanisms.inputs import expand_heads


def attend_loops(q: Tensor, k: Tensor, v: Tensor, seen: Callable[[int, int, int], list[int]],
                 scale: float | None = None) -> Tensor:
    """Attend row by row to the tokens that `seen` names. What specifications end with.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D).
        seen: (batch, head, row) -> the tokens that the row reads.
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


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, *, scale: float | None = None,
           backend: str = "auto") -> Tensor:
    """Attend to the tokens of a mask, bool (b, h, L, L); ValueError for a backend that takes no mask."""
    check_dense(backend)
    return masked_attention(q, k, v, visible, scale=scale)


def matrix(q: Tensor, k: Tensor, visible: Tensor, *, scale: float | None = None) -> Tensor:
    """Return the attention matrix under a mask: (B, H, L, L), rows sum to 1, exactly 0 where hidden."""
    return masked_matrix(q, k, visible, scale_of(scale, q.shape[-1]))[0]


def causal_mask(length: int, device: torch.device | str | None = None) -> Tensor:
    """Return bool (L, L): True where token t is not later than row i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def best(scores: Tensor, rank: Tensor, count: int) -> Tensor:
    """Return the indices of the best scores, ascending; of equal scores the earlier one is taken.

    Args:
        scores: (..., N).
        rank: int64, broadcastable to scores: whatever its score, an index of lower rank goes first.
        count: how many are taken; all of them if there are fewer.

    Returns:
        int64 (..., min(count, N)).
    """
    order = scores.argsort(dim=-1, descending=True, stable=True)
    by_rank = rank.expand_as(order).gather(-1, order).argsort(dim=-1, stable=True)
    return order.gather(-1, by_rank)[..., :count].sort(dim=-1).values


def check_dense(backend: str) -> None:
    """Raise ValueError unless the backend can take a mask."""
    if backend not in ("auto", "dense"):
        raise ValueError(f"backend: got {backend!r}, wanted 'dense' or 'auto'; the rows of this mechanism see "
                         "no intervals, so it has no other form")
