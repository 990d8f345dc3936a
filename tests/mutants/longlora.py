"""Wrong shifted sparse attentions, one trap each."""

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from cca_lab.mechanisms import LongLoRA
from tests.mechanisms.forms import form
from tests.mutants.slips import slip

LOOPS, ROWS = form(LongLoRA, "loops"), "cca_lab.mechanisms.longlora.LongLoRA.row_by_row"


def under_mask(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Attend under a mask."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return scores.masked_fill(~visible, float("-inf")).softmax(-1) @ v


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


SHIFT, READ = "shift = g // 2 if 2 * h >= heads else 0", "list(range(block_starts[-1], i + 1))"

nothing_shifted = slip("no information ever crosses a border", LOOPS, (ROWS, SHIFT, "shift = 0"))
not_causal_inside = slip("rows read all of their block", LOOPS, (
    ROWS, READ, "[t for t in range(length) if (t - shift) // g == (i - shift) // g]"))
one_head_for_its_group = slip("the halves are those of the KV heads", LOOPS, (
    ROWS, SHIFT, "shift = g // 2 if 2 * (h * k.shape[1] // heads) >= max(2, k.shape[1]) else 0"))
