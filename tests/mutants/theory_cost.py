"""Wrong statements about cost, one for each claim, and wrong counts."""

from collections.abc import Callable
from math import isqrt
from typing import Any

from cca_lab.theory.cost.prefill import Baseline

BROKEN: dict[str, Any] = {
    "P1c.window": lambda group, window: window + group - 1,  # the token that Eq. 4 reads twice
    "P1c.quadratic": lambda length, group, window: length * (group + window),  # no term in L^2
    "P1c.linear": lambda length, group, window: length * (length // group + window + isqrt(group)),
    "P1c.every-g": lambda older: older**1.25,
    "P1c.best-g": (32, 64, 128, 256),  # past the turn at 124
    "P1c.storage": lambda length, group, window: group + window,  # the cores forgotten
    "P1c.amdahl": Baseline(square=True),  # no causal half
}


def every_group(length: int, group: int, window: int) -> int:
    """CCA's pairs if each row read floor(L/g) cores, as Eq. 6's m."""
    return sum(length // group + min(row, window + (row - window) % group)
               for row in range(1, length + 1))


def window_mod_row(length: int, group: int, window: int) -> int:
    """CCA's pairs with a raw window of s + (i mod g) tokens."""
    return sum(max(0, (row - window) // group) + min(row, window + row % group)
               for row in range(1, length + 1))


def printed_window(length: int, group: int, window: int) -> int:
    """CCA's pairs with Eq. 4 as printed, one token read twice."""
    cores = [max(0, (row - window) // group) for row in range(1, length + 1)]
    return sum(seen + row - group * seen + (1 if seen else 0)
               for row, seen in enumerate(cores, start=1))


PAIRS: tuple[Callable[[int, int, int], int], ...] = (every_group, window_mod_row, printed_window)
