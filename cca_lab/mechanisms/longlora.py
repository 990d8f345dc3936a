"""Shifted sparse attention (S2-Attn) of LongLoRA: training in blocks, half of the heads shifted by half a block.

Chen et al., "LongLoRA: Efficient Fine-tuning of Long-Context Large Language Models", ICLR 2024
(Section 3.2, Figure 2). Rows, tokens and heads count from 0, G is the block length. Row i reads the
tokens of its own block up to itself. Borders between blocks lie

    at 0, G, 2G, ...                for the first half of the heads
    at G/2, G/2 + G, G/2 + 2G, ...  for the second half

so information crosses the borders from layer to layer. Only for training: the trained model attends in full.

Differs from the paper and the public code:
  * The paper shifts by rolling the sequence, so that the last block of the shifted heads holds the end of
    the text and, after it, its beginning, which then sees the future. Here, as in the code's path for
    FlashAttention, the shifted heads have half a block at either end, and nothing wraps around.
  * Any length: the last block may be short (the code wants L to be a multiple of G).
  * An odd G is shifted by floor(G / 2); the code rolls forth by one more than back. Of an odd number of
    heads, the first ceil(H / 2) stay unshifted.
  * G is a number of tokens (int), or a share of the length (float, the paper's 1/4), rounded down, at least 1.
    With a share, what a row reads depends on the length of the text.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import effective_attention, interval_attention, visible_mask
from cca_lab.mechanisms import masked
from cca_lab.mechanisms.inputs import check_positive, check_qkv, floor_of_share
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation


def loops(q: Tensor, k: Tensor, v: Tensor, *, group: int | float, scale: float | None = None,
          rotation: Rotation | None = None) -> Tensor:
    """Shifted sparse attention, row by row. The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        group: G, tokens of a block; a float is a share of L.
        scale: factor on the dot products; None means D**-0.5.
        rotation: not used; keys keep the positions they were rotated to.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_qkv(q, k, v)
    heads, length = q.shape[1:3]
    g = group_length(group, length)

    def seen(b: int, h: int, i: int) -> list[int]:
        shift = g // 2 if 2 * h >= heads else 0
        borders = [t for t in range(i + 1) if t == 0 or (t - shift) % g == 0]
        return list(range(borders[-1], i + 1))

    return masked.attend_loops(q, k, v, seen, scale)


def attention(q: Tensor, k: Tensor, v: Tensor, *, group: int | float, scale: float | None = None,
              rotation: Rotation | None = None, backend: str = "auto") -> Tensor:
    """Shifted sparse attention, vectorised: one interval a row, for each half of the heads its own.

    Args:
        q, k, v, group, scale, rotation: as in `loops`.
        backend: of `interval_attention`.

    Returns, Raises: those of `loops`.
    """
    check_qkv(q, k, v)
    visible = intervals(q.shape[2], group_length(group, q.shape[2]), q.shape[1], q.device)
    return interval_attention(q, k, v, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, group: int | float, scale: float | None = None,
              rotation: Rotation | None = None) -> Tensor:
    """Return the attention matrix E, (B, H, L, L), with attention(q, k, v) = E v; options of `loops`."""
    check_qkv(q, k, k)
    heads, length = q.shape[1:3]
    raw = torch.eye(length, dtype=q.dtype, device=q.device)[None, None]
    visible = intervals(length, group_length(group, length), heads, q.device)
    return effective_attention(q, k, visible, raw, scale=scale)


def represented(q: Tensor, k: Tensor, *, group: int | float, **_: Any) -> Tensor:
    """Return which tokens each row reads, bool (B, H, L, L)."""
    heads, length = q.shape[1:3]
    visible = visible_mask(intervals(length, group_length(group, length), heads, q.device), length)
    return visible.expand(q.shape[0], heads, length, length)


def intervals(length: int, group: int, heads: int, device: torch.device | str | None = None) -> Tensor:
    """Return what each row of each head reads, from its block's first token to itself.

    Args:
        length: L, tokens.
        group: G, tokens of a block.
        heads: H, query heads; the second half is shifted.
        device: where to build the result.

    Returns:
        int64 (1, H, L, 1, 2), half-open.
    """
    row = torch.arange(length, device=device)
    shifted = 2 * torch.arange(heads, device=device) >= heads                     # (H,)
    shift = (group // 2) * shifted[:, None]                                       # (H, 1)
    start = shift + torch.div(row - shift, group, rounding_mode="floor") * group  # (H, L)
    return torch.stack([start.clamp(min=0), (row + 1).expand_as(start)], dim=-1)[None, :, :, None]


def group_length(group: int | float, length: int) -> int:
    """Return G in tokens, of which a float is a share of the length; ValueError if it is neither."""
    if not isinstance(group, float):
        check_positive(group=group)
        return group
    if not 0 < group <= 1:
        raise ValueError(f"group: got {group}, wanted a positive integer of tokens, or a share of the length over "
                         "0 and at most 1; the paper's is 0.25")
    return max(1, floor_of_share(group, length))


def exact_when(length: int, *, group: int | float, **_: Any) -> bool:
    """The shifted heads, too, have one block, the half one at the start."""
    return length == 1 or length <= group_length(group, length) // 2


MECHANISM = Mechanism(
    name="longlora",
    title="LongLoRA, shifted sparse attention",
    paper="Chen et al., LongLoRA: Efficient Fine-tuning of Long-Context Large Language Models, ICLR 2024, "
          "Section 3.2",
    loops=loops,
    attention=attention,
    effective=effective,
    represented=represented,
    defaults={"group": 128},
    paper_presets={"a quarter of the length (Section 3.2)": {"group": 0.25}},
    causal_scope=every_row,
    needs_training=True,
    exact_when=exact_when,
    length_matters=lambda *, group, **_: isinstance(group, float),
    training_only=True,
)
