"""Strict positivity in floating point: how small a weight can be before it is stored as zero.

CCA's Definition 1 calls a token reachable if its weight is positive. In real numbers every softmax
weight is; a stored one is a multiple of the smallest subnormal number. The *gap* of a score is its
distance below the largest, in nats: its weight is exp(-gap) times the largest weight.
"""

import math

import torch

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
EVENTS = ("zero", "flushed", "absorbed")


def predicted_gaps(dtype: torch.dtype) -> dict[str, float]:
    """Return the smallest gap, in nats, at which a weight exp(-gap) is lost, by kind of loss.

    zero:      it rounds to 0; half of the smallest subnormal is a tie, to the even 0.
    flushed:   it is subnormal, and hardware that flushes subnormal numbers reads it as 0.
    absorbed:  adding it to the largest weight, 1, has no effect: once rounded, it is at most half
               of the last place of 1.
    """
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    return {"zero": -math.log(smallest / 2),
            "flushed": -math.log(info.smallest_normal - smallest / 2),
            "absorbed": -math.log(info.eps / 2 * (1 + info.eps / 2))}


def lost(event: str, weight: float, dtype: torch.dtype) -> bool:
    """Whether a weight in float64, cast to `dtype`, is lost in the way `event` names."""
    cast = torch.tensor(weight, dtype=torch.float64).to(dtype)
    if event == "zero":
        return bool(cast == 0)
    if event == "flushed":
        return bool(cast < torch.finfo(dtype).smallest_normal)
    return bool(torch.ones((), dtype=dtype) + cast == 1)


def measured_gaps(dtype: torch.dtype) -> dict[str, float]:
    """Find by bisection the smallest gap, in nats, at which exp(-gap) is lost, by event."""
    gaps = {}
    for event in EVENTS:
        low, high = 0.0, 200.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if lost(event, math.exp(-middle), dtype) else (middle, high)
        gaps[event] = high
    return gaps


def product_survives(gap_of_core: float, gap_in_core: float, dtype: torch.dtype) -> bool:
    """Whether a core token's weight A phi (Eq. 8) is positive in `dtype`; gaps add."""
    attention, phi = (torch.tensor(math.exp(-gap), dtype=torch.float64).to(dtype)
                      for gap in (gap_of_core, gap_in_core))
    return bool(attention * phi > 0)
