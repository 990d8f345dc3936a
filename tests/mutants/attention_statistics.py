"""Wrong statistics of attention rows, each a mistake that is easy to make."""

import torch
from torch import Tensor


def keys_in_order(weights: Tensor, mass: float) -> Tensor:
    """Adds up the keys as they stand instead of the largest first."""
    return (weights.double().cumsum(dim=-1) < mass - 1e-6).sum(dim=-1) + 1


def keys_one_short(weights: Tensor, mass: float) -> Tensor:
    """Counts the keys before the mass is reached, without the one that reaches it."""
    held = weights.double().sort(dim=-1, descending=True).values.cumsum(dim=-1)
    return (held < mass - 1e-6).sum(dim=-1)


def keys_without_rounding(weights: Tensor, mass: float) -> Tensor:
    """Takes 0.1 added nine times for less than 0.9."""
    held = weights.double().sort(dim=-1, descending=True).values.cumsum(dim=-1)
    return (held < mass).sum(dim=-1) + 1


def keys_over_threshold(weights: Tensor, mass: float) -> Tensor:
    """Counts the keys of more than an even share, a different question."""
    return (weights > 1 / weights.shape[-1]).sum(dim=-1)


def entropy_without_guard(weights: Tensor) -> Tensor:
    """0 ln 0 is NaN."""
    return -(weights.double() * weights.double().log()).sum(dim=-1)


def entropy_in_bits(weights: Tensor) -> Tensor:
    """Base 2, so that exp of it counts nothing."""
    return torch.special.entr(weights.double()).sum(dim=-1) / torch.log(torch.tensor(2.0))


def window_without_itself(maps: Tensor, window: int, sinks: int = 0) -> Tensor:
    """Keeps `window` tokens besides the row's own: one too many."""
    token = torch.arange(maps.shape[-1])
    lost = (token < token[:, None] - window) & (token >= sinks)
    return (maps.double() * lost).sum(dim=-1)


def received_with_own(maps: Tensor) -> Tensor:
    """Counts what a token gives itself."""
    row = torch.arange(maps.shape[-1])
    later = row[:, None] >= row
    return (maps.double() * (row + 1)[:, None] * later).sum(dim=-2) / later.sum(dim=0)


def received_unscaled(maps: Tensor) -> Tensor:
    """Forgets that long rows have less for each token."""
    row = torch.arange(maps.shape[-1])
    later = row[:, None] > row
    return (maps.double() * later).sum(dim=-2) / later.sum(dim=0)
