"""Rotary positions (RoPE): moving queries and keys that arrive rotated to another position.

With e_p the table of position p, cos and sin of its angles read as one complex number for each pair of
features (j, j + D/2), a key of position p arrives as x e_p. It stands at position r after x e_p (e_r / e_p).
Su et al., "RoFormer", 2021, Section 3.2.
"""

import torch
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype

Rotation = tuple[Tensor, Tensor]  # cos and sin, half-rotated layout


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate features (..., D) by the angles of the tables cos, sin, broadcast to x."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def unrotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Undo `rotate`, also for tables that carry a factor: divide by e_p instead of conjugating."""
    return rotate(x, cos, -sin) / (cos.square() + sin.square())


def turn(x: Tensor, here: Rotation, there: Rotation) -> Tensor:
    """Move queries or keys from the positions they were rotated at to others.

    Args:
        x: (B, H, T, D), rotated with the tables `here`.
        here, there: cos and sin, each (T or 1, D) or (B or 1, T or 1, D).

    Returns:
        (B, H, T, D) in x's dtype, as if rotated with the tables `there`.
    """
    dtype = accumulation_dtype(x.dtype)
    here, there = ([_of_heads(table.to(x.device, dtype)) for table in tables] for tables in (here, there))
    return rotate(unrotate(x.to(dtype), *here), *there).to(x.dtype)


def at(rotation: Rotation, positions: Tensor | slice | list[int]) -> Rotation:
    """Return the tables' rows at the given positions: (..., L, D) -> (..., positions, D)."""
    cos, sin = rotation
    return cos[..., positions, :], sin[..., positions, :]


def _of_heads(table: Tensor) -> Tensor:
    """(T, D) -> (T, D), (B, T, D) -> (B, 1, T, D)."""
    return table.unsqueeze(1) if table.dim() == 3 else table
