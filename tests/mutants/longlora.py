"""Wrong shifted sparse attentions, one trap each."""

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from tests.mutants.minference import under_mask


def rolled(q: Tensor, k: Tensor, v: Tensor, *, group: int, back: int | None = None) -> Tensor:
    """Roll the shifted heads by half a block, attend in blocks, roll back: the last block wraps.

    As the paper prints it and the public code's plain path does it, for L a multiple of the group:
    the first G/2 tokens stand behind the last G/2, and read them.
    """
    half, shift = q.shape[1] // 2, group // 2
    k, v = expand_heads(k, q.shape[1]), expand_heads(v, q.shape[1])
    rolled = [torch.cat([x[:, :half], x[:, half:].roll(-shift, dims=2)], dim=1) for x in (q, k, v)]
    row = torch.arange(q.shape[2])
    blocks = (row[:, None] // group == row // group) & (row <= row[:, None])
    out = under_mask(*rolled, blocks)
    return torch.cat([out[:, :half], out[:, half:].roll(shift if back is None else back, dims=2)],
                     dim=1)


def rolled_back_one_short(q: Tensor, k: Tensor, v: Tensor, *, group: int) -> Tensor:
    """-G // 2 forth and G // 2 back, as in the public code: one token apart for an odd G."""
    half = q.shape[1] // 2
    k, v = expand_heads(k, q.shape[1]), expand_heads(v, q.shape[1])
    row = torch.arange(q.shape[2])
    forth, back = group - group // 2, group // 2
    # half blocks at the ends, no wrap
    start = (row + group - forth) // group * group - (group - forth)
    blocks = [(row >= x[:, None]) & (row <= row[:, None]) for x in (row // group * group, start)]
    plain, shifted = (under_mask(q[:, heads], k[:, heads], v[:, heads], mask)
                      for heads, mask in zip((slice(half), slice(half, None)), blocks, strict=True))
    return torch.cat([plain, shifted.roll(back - forth, dims=2)], dim=1)


def nothing_shifted(q: Tensor, k: Tensor, v: Tensor, *, group: int) -> Tensor:
    """All heads in the same blocks: no information ever crosses a border."""
    row = torch.arange(q.shape[2])
    return under_mask(q, k, v, (row[:, None] // group == row // group) & (row <= row[:, None]))


def not_causal_inside(q: Tensor, k: Tensor, v: Tensor, *, group: int) -> Tensor:
    """Rows read all of their block."""
    row, heads = torch.arange(q.shape[2]), torch.arange(q.shape[1])
    shift = torch.where(2 * heads >= len(heads), group // 2, 0)[:, None]
    block = torch.div(row - shift, group, rounding_mode="floor")                    # (H, L)
    return under_mask(q, k, v, block[:, :, None] == block[:, None])


def one_head_for_its_group(q: Tensor, k: Tensor, v: Tensor, *, group: int) -> Tensor:
    """Grouped queries: the halves are those of the KV heads; a single one is not shifted."""
    row, kv_heads = torch.arange(q.shape[2]), k.shape[1]
    shift = torch.where(2 * torch.arange(kv_heads) >= max(2, kv_heads), group // 2, 0)
    shift = shift.repeat_interleave(q.shape[1] // kv_heads)[:, None]
    block = torch.div(row - shift, group, rounding_mode="floor")
    return under_mask(q, k, v, (block[:, :, None] == block[:, None]) & (row <= row[:, None]))
