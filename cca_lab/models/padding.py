"""Padded batches: shifting rows so that groups begin at the first real token."""

import torch
from torch import Tensor


def left_padding(mask: Tensor) -> Tensor:
    """Count the padding tokens before the first real token of each row.

    Args:
        mask: (B, L), nonzero at real tokens; padding may stand before and after them.

    Returns:
        (B,) int64; 0 for a row without any real token.

    Raises:
        ValueError: if padding stands between real tokens.
    """
    real = mask.bool()
    first = real.int().argmax(dim=-1)  # (B,), 0 where no token is real
    column = torch.arange(mask.shape[-1], device=mask.device)
    length = real.sum(dim=-1)
    block = (column >= first[:, None]) & (column < (first + length)[:, None])  # (B, L)
    if not torch.equal(block, real):
        raise ValueError("attention_mask: padding stands between real tokens, wanted it only before or after "
                         "them; remove the hole (groups are counted over neighbouring tokens)")
    return first


def roll_rows(x: Tensor, offset: Tensor, dim: int) -> Tensor:
    """Roll each batch row of x to the left by its own offset, cyclically along `dim`.

    Args:
        x: (B, ...) with L entries along `dim`.
        offset: (B,) int64; a negative offset rolls to the right.
    """
    length = x.shape[dim]
    index = (torch.arange(length, device=x.device) + offset[:, None]) % length  # (B, L)
    shape = [1] * x.ndim
    shape[0], shape[dim] = index.shape
    return x.take_along_dim(index.view(shape), dim=dim)


def check_positions(position_ids: Tensor | None, mask: Tensor | None, past: int = 0) -> None:
    """Raise ValueError for packed sequences: positions must rise by one from each real token to the next.

    Args:
        position_ids: (1 or B, L) or None.
        mask: (B, past + L), nonzero at real tokens, or None if all are.
        past: tokens in the cache.
    """
    if position_ids is None or position_ids.shape[-1] < 2:
        return
    rises = position_ids.diff(dim=-1) == 1  # (1 or B, L-1)
    if mask is not None:
        real = mask[:, past:].bool()
        rises = rises | ~(real[:, 1:] & real[:, :-1])
    if not rises.all():
        raise ValueError("position_ids: wanted positions that rise by one along each row, got a jump or a "
                         "restart; packed sequences are not supported: give every sequence its own row")
