"""Wrong full attentions, one trap each, on the way from the loop to the tiles."""

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from cca_lab.mechanisms.full import effective


def sees_one_ahead(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """tril(diagonal=1): row i also sees token i + 1."""
    return _masked(q, k, v, scale, diagonal=1)


def blind_to_itself(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """t < i in place of t <= i: a row does not see its own token (but row 0 does)."""
    return _masked(q, k, v, scale, diagonal=-1)


def _masked(q: Tensor, k: Tensor, v: Tensor, scale: float | None, diagonal: int) -> Tensor:
    length, scale = q.shape[2], q.shape[-1] ** -0.5 if scale is None else scale
    visible = torch.ones(length, length, dtype=torch.bool).tril(diagonal)
    visible[0, 0] = True
    scores = scale * q @ expand_heads(k, q.shape[1]).mT
    return scores.masked_fill(~visible, float("-inf")).softmax(-1) @ expand_heads(v, q.shape[1])


def softmax_after_mask_product(q: Tensor, k: Tensor, v: Tensor, *,
                               scale: float | None = None) -> Tensor:
    """Softmax over past and future, then the future set to 0: rows sum to less than 1."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    weights = (scale * q @ expand_heads(k, q.shape[1]).mT).softmax(-1).tril()
    return weights @ expand_heads(v, q.shape[1])


def no_running_max(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """exp of the bare score: right until it overflows."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    weights = (scale * q @ expand_heads(k, q.shape[1]).mT).exp().tril()
    return weights @ expand_heads(v, q.shape[1]) / weights.sum(-1, keepdim=True)


def accumulator_not_corrected(q: Tensor, k: Tensor, v: Tensor, *,
                              scale: float | None = None) -> Tensor:
    """Online softmax that rescales the running sum and forgets the accumulator."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    k, v = expand_heads(k, q.shape[1]), expand_heads(v, q.shape[1])
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    for i in range(q.shape[2]):
        scores = scale * (k[:, :, : i + 1] @ q[:, :, i, :, None]).squeeze(-1)  # (B, H, i+1)
        top = scores.cummax(-1).values  # the running max at each key
        running_sum = (scores - top[..., -1:]).exp().sum(-1, keepdim=True)
        out[:, :, i] = ((scores - top).exp()[..., None] * v[:, :, : i + 1]).sum(2) / running_sum
    return out


def diagonal_tile_unmasked(q: Tensor, k: Tensor, v: Tensor, *,
                           scale: float | None = None) -> Tensor:
    """Causal by tiles of 4 only: nothing is masked inside the last one."""
    length = q.shape[2]
    parts = [_unmasked_rows(q, k, v, scale, rows=slice(t, min(t + 4, length)))
             for t in range(0, length, 4)]
    return torch.cat(parts, dim=2)


def _unmasked_rows(q: Tensor, k: Tensor, v: Tensor, scale: float | None, rows: slice) -> Tensor:
    """Rows of attention over every key up to the last row of the tile."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    keys, values = (expand_heads(x[:, :, : rows.stop], q.shape[1]) for x in (k, v))
    return (scale * q[:, :, rows] @ keys.mT).softmax(-1) @ values


def one_kv_head_for_all(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Grouped queries read KV head h mod Hk, where head h belongs to h // (H / Hk)."""
    repeats = q.shape[1] // k.shape[1]
    return effective(q, k.repeat(1, repeats, 1, 1), scale=scale) @ v.repeat(1, repeats, 1, 1)


def first_sequence_for_all(q: Tensor, k: Tensor, v: Tensor, *,
                           scale: float | None = None) -> Tensor:
    """k[0] where k[b] is meant: right for a batch of one."""
    return effective(q, k[:1].expand(k.shape), scale=scale) @ expand_heads(v, q.shape[1])


def values_read_with_strides_of_keys(q: Tensor, k: Tensor, v: Tensor, *,
                                     scale: float | None = None) -> Tensor:
    """One set of strides for k and v, as in the public CCA kernel."""
    v = v.as_strided(v.shape, k.stride())
    return effective(q, k, scale=scale) @ expand_heads(v, q.shape[1])
