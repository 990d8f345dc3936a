"""How many tokens a row of attention rests on: attention maps in, numbers out, no model and no picture.

A row of attention is a distribution over the tokens it reads: w_t >= 0 and sum_t w_t = 1. A map stacks
the rows of a text, (..., L, L) with row i zero after token i; leading axes are layers, heads, batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING = 1e-6  # a running sum this close to the wanted mass has reached it
ROW_SUM_TOLERANCE = 1e-3


def keys_for_mass_loops(weights: Sequence[float], mass: float) -> int:
    """Count the keys, largest first, that together hold a share of a row. The specification.

    Args:
        weights: one row, summing to 1.
        mass: the share, over 0 and at most 1.
    """
    held = 0.0
    for count, weight in enumerate(sorted(weights, reverse=True), start=1):
        held += weight
        if held >= mass - ROUNDING:
            return count
    return len(weights)


def entropy_loops(weights: Sequence[float]) -> float:
    """Return the entropy of one row in nats, - sum_t w_t ln w_t with 0 ln 0 = 0. The specification."""
    total = 0.0
    for weight in weights:
        if weight > 0:
            total -= weight * math.log(weight)
    return total


def held_mass(weights: Tensor) -> Tensor:
    """Return the mass that the k heaviest keys of each row hold: c_k = sum of the k largest w_t.

    Args:
        weights: (..., L), rows summing to 1.

    Returns:
        (..., L) float64, k = 1 .. L: never falling, 1 at the end.

    Raises:
        ValueError: if the rows are not distributions.
    """
    check_rows(weights)
    return weights.double().sort(dim=-1, descending=True).values.cumsum(dim=-1)


def keys_for_mass(weights: Tensor, mass: float) -> Tensor:
    """Count the keys of each row, largest first, that together hold a share: the least k with c_k >= mass.

    Args:
        weights: (..., L), rows summing to 1.
        mass: the share, over 0 and at most 1.

    Returns:
        (...) int64, 1 to L.

    Raises:
        ValueError: if the rows are not distributions, or the share is out of range.
    """
    if not 0 < mass <= 1:
        raise ValueError(f"mass: got {mass}, wanted a share over 0 and at most 1, such as 0.9")
    too_little = held_mass(weights) < mass - ROUNDING  # (..., L)
    return (too_little.sum(dim=-1) + 1).clamp(max=weights.shape[-1])


def k90(weights: Tensor) -> Tensor:
    """Count the keys that hold 90 % of each row: (..., L) -> (...) int64; see `keys_for_mass`."""
    return keys_for_mass(weights, 0.9)


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy of each row in nats, H = - sum_t w_t ln w_t with 0 ln 0 = 0.

    0 if one key has everything, ln n if n keys share it alike.

    Args:
        weights: (..., L), rows summing to 1.

    Returns:
        (...) float64.

    Raises:
        ValueError: if the rows are not distributions.
    """
    check_rows(weights)
    return torch.special.entr(weights.double()).sum(dim=-1)


def effective_tokens(weights: Tensor) -> Tensor:
    """Return exp(H) of each row: as spread as if so many keys shared it alike; (..., L) -> (...) float64."""
    return entropy(weights).exp()


def overlap(weights: Tensor, other: Tensor) -> Tensor:
    """Return what two rows have in common, sum_t min(w_t, u_t): 1 if they are equal, 0 if they share no key.

    One minus the total variation distance.

    Args:
        weights, other: (..., L) of one shape, rows summing to 1.

    Returns:
        (...) float64.
    """
    check_rows(weights)
    check_rows(other)
    return torch.minimum(weights.double(), other.double()).sum(dim=-1)


def received(maps: Tensor) -> Tensor:
    """Return how much attention each token gets from the tokens after it, in units of an even share.

        r_t = mean over i > t of (i + 1) w_{i,t}

    Row i, were it even, would give 1/(i + 1) to each token it reads, so 1 is an even share.

    Args:
        maps: (..., L, L), rows summing to 1.

    Returns:
        (..., L) float64; NaN for the last token, which no later row reads.
    """
    check_maps(maps)
    length = maps.shape[-1]
    row = torch.arange(length, device=maps.device)
    shares = maps.double() * (row + 1)[:, None]  # (..., L, L)
    later = row[:, None] > row  # (row, token)
    return (shares * later).sum(dim=-2) / later.sum(dim=0)  # 0 / 0 at the last token


def mass_beyond(maps: Tensor, window: int, sinks: int = 0) -> Tensor:
    """Return the mass each row puts on tokens beyond its window, the sum of w_{i,t} over t <= i - window.

    Args:
        maps: (..., L, L), rows summing to 1.
        window: how many of the nearest tokens the row would keep, its own included.
        sinks: how many of the very first tokens it would keep as well.

    Returns:
        (..., L) float64, 0 to 1.

    Raises:
        ValueError: if the maps are not square or the rows not distributions; for a window below 1.
    """
    check_maps(maps)
    if window < 1 or sinks < 0:
        raise ValueError(f"window, sinks: got {window}, {sinks}, wanted at least 1 and 0; a row reads itself")
    token = torch.arange(maps.shape[-1], device=maps.device)
    lost = (token <= token[:, None] - window) & (token >= sinks)  # (row, token)
    return (maps.double() * lost).sum(dim=-1)


@dataclass(frozen=True)
class HeadSummary:
    """Means over the rows of a map, one number for each leading index such as (layer, head).

    Attributes:
        k90: keys that hold 90 % of a row.
        entropy: in nats.
        effective_tokens: exp of the row's entropy.
        largest: the heaviest key's weight.
    """

    k90: Tensor
    entropy: Tensor
    effective_tokens: Tensor
    largest: Tensor


def summarise(maps: Tensor, first_row: int = 0) -> HeadSummary:
    """Average the statistics of the rows from `first_row` on; early rows have few keys to choose from.

    Args:
        maps: (..., L, L), rows summing to 1.
        first_row: 0 to L - 1.

    Returns:
        Values of shape (...), float64.

    Raises:
        ValueError: if the maps are not square or the rows not distributions, or no row is left.
    """
    check_maps(maps)
    if not 0 <= first_row < maps.shape[-1]:
        raise ValueError(f"first_row: got {first_row}, wanted 0 to {maps.shape[-1] - 1}, the rows of the map")
    rows = maps[..., first_row:, :]
    statistics = k90(rows).double(), entropy(rows), effective_tokens(rows), rows.double().amax(dim=-1)
    return HeadSummary(*(values.mean(dim=-1) for values in statistics))


def check_rows(weights: Tensor) -> None:
    """Raise ValueError unless the last axis holds distributions."""
    if weights.ndim == 0 or weights.shape[-1] == 0:
        raise ValueError(f"weights: got shape {tuple(weights.shape)}, wanted (..., L) with L at least 1")
    off = (weights.double().sum(dim=-1) - 1).abs().max()
    tolerance = max(ROW_SUM_TOLERANCE, 4 * torch.finfo(weights.dtype).eps)  # bfloat16 sums to 1 within 0.03
    if (weights < 0).any() or not off <= tolerance:
        raise ValueError(f"weights: a row is negative somewhere or sums to 1 only within {off:.2g}, wanted "
                         "distributions over the last axis; pass softmax weights, and leave out padded rows")


def check_maps(maps: Tensor) -> None:
    """Raise ValueError unless these are square maps of distributions."""
    if maps.ndim < 2 or maps.shape[-1] != maps.shape[-2]:
        raise ValueError(f"maps: got shape {tuple(maps.shape)}, wanted (..., L, L), a row for each token; "
                         "see cca_lab.models.attention_maps")
    check_rows(maps)
