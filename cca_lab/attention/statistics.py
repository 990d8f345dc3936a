"""How many tokens a row of attention depends on: statistics of attention maps.

A row of attention is a distribution over the tokens it attends to: w_t >= 0 and sum_t w_t = 1. A
map stacks the rows of a text, (..., L, L) with row i zero after token i; leading axes are layers,
heads, batch. All functions raise ValueError for rows that are not distributions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING = 1e-6  # a running sum this close to the requested mass counts as having reached it
ROW_SUM_TOLERANCE = 1e-3


def keys_for_mass_loops(weights: Sequence[float], mass: float) -> int:
    """Count the largest weights of a row that reach a mass in (0, 1]: the specification."""
    total = 0.0
    for count, weight in enumerate(sorted(weights, reverse=True), start=1):
        total += weight
        if total >= mass - ROUNDING:
            return count
    return len(weights)


def entropy_loops(weights: Sequence[float]) -> float:
    """Return the entropy of a row in nats, - sum_t w_t ln w_t, 0 ln 0 = 0: the specification."""
    total = 0.0
    for weight in weights:
        if weight > 0:
            total -= weight * math.log(weight)
    return total


def held_mass(weights: Tensor) -> Tensor:
    """Return the mass c_k of the k largest weights of each row, k = 1 to L: (..., L) float64."""
    check_rows(weights)
    return weights.double().sort(dim=-1, descending=True).values.cumsum(dim=-1)


def keys_for_mass(weights: Tensor, mass: float) -> Tensor:
    """Count the largest weights of each row that reach a mass: the least k with c_k >= mass.

    Args:
        weights: (..., L), rows summing to 1.
        mass: the sum to reach, over 0 and at most 1.

    Returns:
        (...) int64, 1 to L.
    """
    if not 0 < mass <= 1:
        raise ValueError(
            f"mass: got {mass}, wanted a number over 0 and at most 1; choose 0.9, for example")
    below = held_mass(weights) < mass - ROUNDING  # (..., L)
    return (below.sum(dim=-1) + 1).clamp(max=weights.shape[-1])


def k90(weights: Tensor) -> Tensor:
    """Count the largest weights that reach 90 % of each row: (..., L) -> (...) int64."""
    return keys_for_mass(weights, 0.9)


def entropy(weights: Tensor) -> Tensor:
    """Return each row's entropy in nats, - sum_t w_t ln w_t with 0 ln 0 = 0: (...) float64."""
    check_rows(weights)
    return torch.special.entr(weights.double()).sum(dim=-1)


def effective_tokens(weights: Tensor) -> Tensor:
    """Return exp(H), the number of equal weights of the same entropy: (..., L) -> (...)."""
    return entropy(weights).exp()


def overlap(weights: Tensor, other: Tensor) -> Tensor:
    """Return the overlap of two rows, sum_t min(w_t, u_t): 1 if equal, 0 if they share no key.

    This is one minus their total variation distance: (..., L) twice -> (...) float64.
    """
    check_rows(weights)
    check_rows(other)
    return torch.minimum(weights.double(), other.double()).sum(dim=-1)


def received(maps: Tensor) -> Tensor:
    """Return the mean attention each token gets from later rows, relative to uniform attention.

        r_t = mean over i > t of (i + 1) w_{i,t}

    A uniform row i gives 1/(i + 1) to each of its tokens, so r_t = 1 under uniform attention.
    Maps (..., L, L) -> (..., L) float64; NaN for the last token, to which no later row attends.
    """
    check_maps(maps)
    length = maps.shape[-1]
    row = torch.arange(length, device=maps.device)
    relative = maps.double() * (row + 1)[:, None]  # (..., L, L)
    later = row[:, None] > row  # (row, token)
    return (relative * later).sum(dim=-2) / later.sum(dim=0)  # 0 / 0 at the last token


def mass_beyond(maps: Tensor, window: int, sinks: int = 0) -> Tensor:
    """Return each row's mass beyond its window: the sum of w_{i,t}, sinks <= t <= i - window.

    Args:
        maps: (..., L, L), rows summing to 1.
        window: number of nearest tokens inside the window, the row's own included.
        sinks: number of first tokens of the text that do not count as beyond the window.

    Returns:
        (..., L) float64, 0 to 1.
    """
    check_maps(maps)
    if window < 1 or sinks < 0:
        raise ValueError(f"window, sinks: got {window}, {sinks}, wanted at least 1 and 0; a row "
                         "attends to itself")
    token = torch.arange(maps.shape[-1], device=maps.device)
    beyond = (token <= token[:, None] - window) & (token >= sinks)  # (row, token)
    return (maps.double() * beyond).sum(dim=-1)


@dataclass(frozen=True)
class HeadSummary:
    """Means over the rows of a map, one number for each leading index such as (layer, head).

    Attributes:
        k90: number of largest weights that reach 90 % of a row.
        entropy: entropy of a row, in nats.
        effective_tokens: exp of the row's entropy.
        largest: largest weight of a row.
    """

    k90: Tensor
    entropy: Tensor
    effective_tokens: Tensor
    largest: Tensor


def summarise(maps: Tensor, first_row: int = 0) -> HeadSummary:
    """Average statistics of maps (..., L, L) over the rows from `first_row` on: (...) float64."""
    check_maps(maps)
    if not 0 <= first_row < maps.shape[-1]:
        raise ValueError(
            f"first_row: got {first_row}, wanted 0 to {maps.shape[-1] - 1}, the rows of the map")
    rows = maps[..., first_row:, :]
    statistics = k90(rows).double(), entropy(rows), effective_tokens(rows), rows.double().amax(
        dim=-1)
    return HeadSummary(*(values.mean(dim=-1) for values in statistics))


def check_rows(weights: Tensor) -> None:
    """Raise ValueError unless the last axis holds distributions."""
    if weights.ndim == 0 or weights.shape[-1] == 0:
        raise ValueError(
            f"weights: got shape {tuple(weights.shape)}, wanted (..., L) with L at least 1")
    error = (weights.double().sum(dim=-1) - 1).abs().max()
    # bfloat16 sums to 1 within 0.03
    tolerance = max(ROW_SUM_TOLERANCE, 4 * torch.finfo(weights.dtype).eps)
    if (weights < 0).any() or not error <= tolerance:
        raise ValueError(
            f"weights: a row is negative somewhere or sums to 1 only within {error:.2g}, wanted "
            "distributions over the last axis; pass softmax weights, and leave out padded rows")


def check_maps(maps: Tensor) -> None:
    """Raise ValueError unless these are square maps of distributions."""
    if maps.ndim < 2 or maps.shape[-1] != maps.shape[-2]:
        raise ValueError(f"maps: got shape {tuple(maps.shape)}, wanted (..., L, L), a row for each "
                         "token; see cca_lab.models.attention_maps")
    check_rows(maps)
