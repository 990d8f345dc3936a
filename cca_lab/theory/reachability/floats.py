"""Strict positivity in floating point: how small a weight can be before it is stored as zero.

CCA's Definition 1 calls a token reachable if its weight is positive. In real numbers every softmax weight is
positive; a stored weight is a multiple of the smallest subnormal number. The *gap* of a score is its distance below
the largest score, in nats: its weight is exp(-gap) times the largest weight.
"""

import math
from collections.abc import Callable, Mapping

import torch

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
EVENTS = ("zero", "flushed", "absorbed")
TOLERANCE = 1e-4  # nats; a cast from float64 may round twice on its way, which moves a bfloat16 gap by 2e-5
Gaps = Mapping[str, float]


def predicted_gaps(dtype: torch.dtype) -> dict[str, float]:
    """Return the smallest gap, in nats, at which a weight exp(-gap) is lost, for each of three kinds of loss.

    zero:      it rounds to 0. Half of the smallest subnormal number is a tie and rounds to the even 0.
    flushed:   it is subnormal, and hardware that flushes subnormal numbers reads it as 0.
    absorbed:  adding it to the largest weight, 1, has no effect: once rounded, it is at most half of the last
               place of 1.

    Args:
        dtype: float16, bfloat16 or float32.
    """
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    return {"zero": -math.log(smallest / 2), "flushed": -math.log(info.smallest_normal - smallest / 2),
            "absorbed": -math.log(info.eps / 2 * (1 + info.eps / 2))}


def lost(event: str, weight: float, dtype: torch.dtype) -> bool:
    """Whether a weight, computed in float64 and cast to `dtype`, is lost in the way `event` names."""
    cast = torch.tensor(weight, dtype=torch.float64).to(dtype)
    if event == "zero":
        return bool(cast == 0)
    if event == "flushed":
        return bool(cast < torch.finfo(dtype).smallest_normal)
    return bool(torch.ones((), dtype=dtype) + cast == 1)


def measured_gaps(dtype: torch.dtype) -> dict[str, float]:
    """Find by bisection the smallest gap at which exp(-gap) is lost; return it in nats, by event."""
    found = {}
    for event in EVENTS:
        low, high = 0.0, 200.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if lost(event, math.exp(-middle), dtype) else (middle, high)
        found[event] = high
    return found


def product_survives(gap_of_core: float, gap_in_core: float, dtype: torch.dtype) -> bool:
    """Whether the weight A phi of a token inside a core (Eq. 8) is positive in `dtype`: gaps add."""
    attention, phi = (torch.tensor(math.exp(-gap), dtype=torch.float64).to(dtype)
                      for gap in (gap_of_core, gap_in_core))
    return bool(attention * phi > 0)


def check_gaps(gaps: Callable[[torch.dtype], Gaps]) -> Finding:
    """Judge the predicted gaps at which weights are lost by measured ones, for each dtype and event."""
    numbers, errors = {}, {}
    for name, dtype in DTYPES.items():
        measured, predicted = measured_gaps(dtype), gaps(dtype)
        for event in EVENTS:
            numbers[f"{name} {event}"] = round(measured[event], 4)
            errors[name, event] = abs(predicted[event] - measured[event])
    (name, event), error = max(errors.items(), key=lambda item: item[1])
    if error > TOLERANCE:
        name, event = next(key for key, error in errors.items() if error > TOLERANCE)
        return Finding(False, f"{name}: a weight is {event} from a gap of {numbers[f'{name} {event}']:.2f} nats on, "
                              f"claimed {gaps(DTYPES[name])[event]:.2f}", numbers)
    zeros = ", ".join(f"{name} {numbers[f'{name} zero']:.2f}" for name in DTYPES)
    return Finding(True, f"zero from {zeros} nats on; largest error {error:.0e}", numbers)


CLAIMS = (
    Claim(
        id="P1.float", paper="CCA", place="Definition 1, Proposition 1", check=check_gaps,
        statement="every weight is positive: a_ij > 0 for all i > j", verdict=Verdict.HOLDS_IF, strength=Strength.EXACT,
        printed=lambda dtype: dict.fromkeys(EVENTS, math.inf), corrected=predicted_gaps,
        repair="in real numbers. In floating point a weight is 0 from a gap of 25 ln 2 (float16), 134 ln 2 "
               "(bfloat16), 150 ln 2 (float32) on, and absorbed by the largest from about 11 ln 2, 8 ln 2, "
               "24 ln 2 on",
        proof="A weight rounds to 0 once it is at most half of the smallest subnormal number: 2^-25, 2^-134, "
              "2^-150. 1 + w rounds to 1 once w is at most half of the last place of 1: 2^-11, 2^-8, 2^-24. "
              "The weight of a token inside a core is a product A phi, so its two gaps add: exp(-9) exp(-9) "
              "is 0 in float16."),
)
