"""Timing calls: interleaved rounds in rotating order, so that a machine that slows down slows all alike."""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import TypeVar

import torch

MOST_REPEATS = 200
LONG = 20  # times the least

Name = TypeVar("Name", bound=Hashable)


def synchronize() -> None:
    """Wait until a GPU, where there is one, has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(call: Callable[[], object], repeat: int = 1) -> float:
    """Return how long a call takes, what it leaves to a GPU included: the mean of `repeat` in a row."""
    synchronize()
    start = perf_counter()
    for _ in range(repeat):
        call()
    synchronize()
    return (perf_counter() - start) / repeat


def rotating(names: Sequence[Name], rounds: int) -> Iterator[tuple[int, Name]]:
    """Yield (round, name) for every name in every round; each round begins with the next name.

    Round -1 comes first. It warms up caches and compilers, and its times do not count.
    """
    for round_ in range(-1, rounds):
        turn = round_ % len(names)
        for name in (*names[turn:], *names[:turn]):
            yield round_, name


def interleave(calls: Mapping[Name, Callable[[], object]], rounds: int, least: float = 0.0) -> dict[Name, list[float]]:
    """Return the seconds of each call in each round, after one round that does not count; the order rotates.

    Args:
        calls: by name.
        rounds: how many count.
        least: a call that is shorter is repeated until this many seconds are measured; then its mean counts.
    """
    found: dict[Name, list[float]] = {name: [] for name in calls}
    repeats = dict.fromkeys(calls, 1)
    for round_, name in rotating(list(calls), rounds):
        if round_ >= 0:
            found[name].append(seconds(calls[name], repeats[name]))
            continue
        once = seconds(calls[name])
        if once < LONG * least:  # a long call is timed alone; a short one's first call says little about the next
            repeats[name] = math.ceil(least / max(seconds(calls[name]), least / MOST_REPEATS))
    return found


def median_and_range(values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the median, and [lowest, highest]."""
    return median(values), [min(values), max(values)]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return above / below, round by round: what slows a round slows both."""
    return [one / other for one, other in zip(above, below, strict=True)]
