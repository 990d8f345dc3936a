"""DGA's choice of focal tokens (Eq. 16) reads the future and may prefer the first tokens.

The score of a token is its mean attention weight over all later queries: editing the last token can
change which tokens are focal, and so any earlier output. The checks judge the package's own `DGA`,
whose masks are causal: with choose="prompt", Eq. 16 as printed, and with choose="blocks", where the
focal tokens of each block are chosen by its own queries and keys.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from cca_lab.mechanisms import DGA
from cca_lab.theory.causality.masks import Attend, edit_leak, jacobian_leak
from cca_lab.theory.claim import Outcome, Subjects

Matrix = Sequence[Sequence[Fraction]]
LENGTH, PREFIX = 24, 16
SIZES: dict[str, Any] = {"group": 4, "gamma": 0.0, "floor": 4}  # 4 focal tokens at every length
DRAWS = 120


def attend_prompt(*qkv: Tensor) -> Tensor:
    """DGA with Eq. 16 as printed, focal tokens of the whole text; q, k, v and output are (L, D)."""
    return DGA(choose="prompt", **SIZES).attention(*(x[None, None] for x in qkv))[0, 0]


def attend_blocks(*qkv: Tensor, block: int = 8) -> Tensor:
    """The causal variant: focal tokens of each finished block; q, k, v and output are (L, D)."""
    attention = DGA(choose="blocks", block=block, **SIZES).attention
    return attention(*(x[None, None] for x in qkv))[0, 0]


def check_choice(attend: Attend) -> Outcome:
    """Judge whether outputs stay if the last token is edited or a prefix read alone: 120 draws."""
    moved = prefix = 0
    largest = derivative = 0.0
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        q, k, v, *new = torch.randn(6, LENGTH, 2, generator=generator, dtype=torch.float64)
        change = edit_leak(attend, q, k, v, LENGTH - 1, [3 * x for x in new])
        moved += change > 1e-12
        largest = max(largest, change)
        if seed % 4 == 0:
            shorter, whole = attend(q[:PREFIX], k[:PREFIX], v[:PREFIX]), attend(q, k, v)[:PREFIX]
            prefix += bool((shorter - whole).abs().max() > 1e-12)
        if seed < 2:
            derivative = max(derivative, jacobian_leak(attend, q, k, v, LENGTH - 1))
    numbers = {"draws": DRAWS, "moved": moved, "largest_change": round(largest, 3),
               "largest_derivative": derivative, "prefix_differs": prefix}
    if moved or prefix or derivative:
        return Outcome(False, f"editing the last of 24 tokens moves earlier outputs in {moved} of "
                       f"{DRAWS} draws (by up to {largest:.1f}); the Jacobian reads "
                       f"{derivative:g}; 16 tokens alone differ in {prefix} of {DRAWS // 4}",
                       numbers)
    return Outcome(True, f"largest change 0 in {DRAWS} draws, Jacobian 0, 16 tokens alone equal",
                   numbers)


def exact_mean(weights: Matrix) -> list[Fraction]:
    """Eq. 16 in fractions: sum_j A_jt / (L - t)."""
    length = len(weights)
    return [sum((row[t] for row in weights), Fraction(0)) / (length - t) for t in range(length)]


def uniform_attention(length: int) -> list[list[Fraction]]:
    """Return attention in which every row weighs its past equally: A_jt = 1 / (j + 1)."""
    return [[Fraction(int(t <= j), j + 1) for t in range(length)] for j in range(length)]


SUBJECTS = {"D1.eq16": Subjects(check_choice, attend_prompt, corrected=attend_blocks)}
