"""Timing of calls in interleaved rounds of rotating order, so that a slowdown of the machine affects all alike."""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import TypeVar

import torch

MOST_REPEATS = 200
LONG = 20  # a call of this many times `least` is timed alone

Name = TypeVar("Name", bound=Hashable)


def synchronize() -> None:
    """Wait until the GPU, if there is one, has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(call: Callable[[], object], repeat: int = 1) -> float:
    """Return the seconds of a call, including its work on a GPU: the mean of `repeat` calls in a row."""
    synchronize()
    start = perf_counter()
    for _ in range(repeat):
        call()
    synchronize()
    return (perf_counter() - start) / repeat


def rotating(names: Sequence[Name], rounds: int) -> Iterator[tuple[int, Name]]:
    """Yield (round, name) for every name in every round; each round begins with the next name.

    Round -1 comes first: it warms up caches and compilers, and its times are not counted.
    """
    for round_ in range(-1, rounds):
        first = round_ % len(names)
        for name in (*names[first:], *names[:first]):
            yield round_, name


def interleave(calls: Mapping[Name, Callable[[], object]], rounds: int, least: float = 0.0) -> dict[Name, list[float]]:
    """Return the seconds of each call in each round, after one warm-up round; the order rotates.

    Args:
        calls: calls by name.
        rounds: number of counted rounds.
        least: seconds; a shorter call is repeated until this much time is measured, and its mean is taken.
    """
    found: dict[Name, list[float]] = {name: [] for name in calls}
    repeats = dict.fromkeys(calls, 1)
    for round_, name in rotating(list(calls), rounds):
        if round_ >= 0:
            found[name].append(seconds(calls[name], repeats[name]))
            continue
        once = seconds(calls[name])
        if once < LONG * least:  # the first call of a short one is not typical of the next ones
            repeats[name] = math.ceil(least / max(seconds(calls[name]), least / MOST_REPEATS))
    return found


def median_and_range(values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the median and [lowest, highest]."""
    return median(values), [min(values), max(values)]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return above / below, round by round, since what slows a round slows both."""
    return [one / other for one, other in zip(above, below, strict=True)]
