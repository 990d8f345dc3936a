"""Rotary positions (RoPE): re-rotating queries and keys from their position to another one.

Each pair of features (j, j + D/2) is one complex number, and e_p = cos + i sin holds the angles of
position p. A key at position p arrives as x e_p. Multiplying it by e_r / e_p moves it to position
r, since x e_p (e_r / e_p) = x e_r. Su et al., "RoFormer", 2021, Section 3.2.
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
    """Undo `rotate`; dividing by e_p, not multiplying by its conjugate, allows scaled tables."""
    return rotate(x, cos, -sin) / (cos.square() + sin.square())


def turn(x: Tensor, here: Rotation, there: Rotation) -> Tensor:
    """Re-rotate queries or keys from their positions to other positions.

    Args:
        x: (B, H, T, D), rotated with the tables `here`.
        here, there: cos and sin of the old and new positions, (T or 1, D) or (B or 1, T or 1, D).

    Returns:
        (B, H, T, D) in x's dtype, as if rotated with the tables `there`.
    """
    dtype = accumulation_dtype(x.dtype)
    (cos, sin), to = ([_of_heads(table.to(x.device, dtype)) for table in tables]
                      for tables in (here, there))
    return rotate(unrotate(x.to(dtype), cos, sin), *to).to(x.dtype)


def at(rotation: Rotation, positions: Tensor | slice | list[int]) -> Rotation:
    """Return the tables' rows at the given positions: (..., L, D) -> (..., positions, D)."""
    cos, sin = rotation
    return cos[..., positions, :], sin[..., positions, :]


def copied(rotation: Rotation, tokens: slice) -> Rotation:
    """Return a copy of the tables (..., L, D) of some tokens, which does not keep all others."""
    cos, sin = at(rotation, tokens)
    return cos.clone(), sin.clone()


def of_rows(rotation: Rotation, rows: slice, tokens: slice = slice(None)) -> Rotation:
    """Return the tables (1 or B, L, D) of some batch rows and tokens; a single row serves all."""
    cos, sin = (table[slice(None) if len(table) == 1 else rows, tokens] for table in rotation)
    return cos, sin


def first_row(rotation: Rotation) -> Rotation:
    """Return the tables (1 or B, L, D) of the first batch row: all rows re-rotate by its angles."""
    cos, sin = rotation
    return rotation if cos.shape[0] == 1 else (cos[:1], sin[:1])


def _of_heads(table: Tensor) -> Tensor:
    """(T, D) -> (T, D), (B, T, D) -> (B, 1, T, D)."""
    return table.unsqueeze(1) if table.dim() == 3 else table
