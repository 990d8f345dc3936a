"""Shifted sparse attention (S2-Attn) of LongLoRA: blocks, shifted for half of the heads.

Chen et al., "LongLoRA: Efficient Fine-tuning of Long-Context Large Language Models", ICLR 2024
(Section 3.2, Figure 2). Rows, tokens and heads count from 0, G is the block length. Row i reads the
tokens of its own block up to itself. The borders between blocks are

    at 0, G, 2G, ...                for the first half of the heads
    at G/2, G/2 + G, G/2 + 2G, ...  for the second half

so information crosses the borders from layer to layer. Only for training: the trained model uses
full attention.

Differs from the paper and the public code:
  * The paper shifts by rolling the sequence, so that the last block of the shifted heads holds the
    end of the text and, after it, the beginning, which then sees the future. Here, as in the code's
    path for FlashAttention, the shifted heads have half a block at either end.
  * L can be any length: the last block may be short (the code needs a multiple of G).
  * An odd G is shifted by floor(G / 2); the code rolls forward by one more than back. Of an odd
    number of heads, the first ceil(H / 2) stay unshifted.
  * G is a number of tokens (int), or a share of the length (float, the paper's 1/4), rounded down,
    at least 1. With a share, what a row reads depends on the length of the text.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cca_lab.attention.intervals import table_of
from cca_lab.mechanisms.base import Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.indices import block_columns, head_shift
from cca_lab.mechanisms.tokens import attend_loops, floor_of_share
from cca_lab.settings import check_integers


@dataclass(frozen=True, kw_only=True)
class LongLoRA(Mechanism):
    """LongLoRA: each row reads its own block; half of the heads have shifted blocks.

    Attributes:
        group: G, the number of tokens in a block; a float is a share of L.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    group: int | float = 128

    name: ClassVar[str] = "longlora"
    title: ClassVar[str] = "LongLoRA, shifted sparse attention"
    paper: ClassVar[str] = ("Chen et al., LongLoRA: Efficient Fine-tuning of Long-Context Large "
                            "Language Models, ICLR 2024, Section 3.2")
    sizes: ClassVar[tuple[str, ...]] = ("group",)
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "a quarter of the length (Section 3.2)": {"group": 0.25}}
    needs_training: ClassVar[bool] = True
    training_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        group_length(self.group, 1)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute shifted sparse attention row by row: the specification."""
        heads, length = q.shape[1:3]
        g = group_length(self.group, length)

        def seen(b: int, h: int, i: int) -> list[int]:
            shift = g // 2 if 2 * h >= heads else 0
            block_starts = [t for t in range(i + 1) if t == 0 or (t - shift) % g == 0]
            return list(range(block_starts[-1], i + 1))

        return attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the tokens, of which each row sees one interval; two halves of heads."""
        heads, length = q.shape[1:3]
        group = group_length(self.group, length)
        return [Columns(q, k, v, intervals(length, group, heads, q.device))]

    def exact_when(self, length: int) -> bool:
        """Return True if the text has one block in the shifted heads too, the half one."""
        return length == 1 or length <= group_length(self.group, length) // 2

    @property
    def length_matters(self) -> bool:
        """Whether G is a share of the length, and so depends on it."""
        return isinstance(self.group, float)


def intervals(length: int, group: int, heads: int,
              device: torch.device | str | None = None) -> Tensor:
    """Return the interval that each row of H heads reads, its block: (1, H, L, 1, 2)."""
    row = torch.arange(length, device=device)
    shift = head_shift(torch.arange(heads, device=device)[:, None], heads, group)  # (H, 1)
    return table_of(row, block_columns(row, shift, group))[None]


def group_length(group: int | float, length: int) -> int:
    """Return G in tokens, where a float is a share of the length; ValueError for other values."""
    if not isinstance(group, float):
        check_integers(1, group=group)
        return group
    if not 0 < group <= 1:
        raise ValueError(f"group: got {group}, wanted a positive integer of tokens, or a share of "
                         "the length over 0 and at most 1; the paper's is 0.25")
    return max(1, floor_of_share(group, length))
