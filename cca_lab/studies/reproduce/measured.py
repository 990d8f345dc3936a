"""Artefacts that are read from the lab's other measurements, and those out of reach."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from cca_lab.studies.reproduce.artefact import AGREES, DISAGREES, ROWS, Found


def rises(numbers: Sequence[float]) -> bool:
    """Return whether each number is larger than the one before it."""
    return all(left < right for left, right in pairwise(numbers))


CLAIMS: dict[str, Callable[[Sequence[float]], bool]] = {
    "rises": rises, "rises above 1": lambda ratios: min(ratios) > 1 and rises(ratios),
    "below 1": lambda ratios: max(ratios) < 1, "the last above 1": lambda ratios: ratios[-1] > 1}


@dataclass(frozen=True)
class Measured:
    """One artefact that is read from another study's file of data/results."""

    name: str
    paper: str
    place: str
    claim: str
    file: str
    command: str  # that writes the file
    by: str  # what tells the rows apart, such as "length"
    ratio: str  # the ratio to full attention that is claimed
    holds: str  # how, of `CLAIMS`
    rows: str = "rows"  # the key of the file's rows
    where: Mapping[str, Any] = field(default_factory=dict)  # of a row: a value, or several
    verdict: str = ""
    why: str = ""

    def found(self, data: Mapping[str, Any]) -> Found:
        """Return what a file says, on the machine of its measurement."""
        ratios = {row[self.by]: row[self.ratio] for row in data[self.rows] if all(
            row[key] in (value if isinstance(value, list) else [value])
            for key, value in self.where.items())}
        numbers = {f"{key:,} tokens" if isinstance(key, int) else key: f"{ratios[key]:.3g} x"
                   for key in sorted(ratios)}
        agrees = CLAIMS[self.holds]([ratios[key] for key in sorted(ratios)])
        return Found(numbers, AGREES if agrees else DISAGREES, 0, data["machine"]["cpu"])


@dataclass(frozen=True)
class OutOfReach:
    """One artefact that nothing here can tell about, and what would be needed."""

    name: str
    paper: str
    place: str
    claim: str
    why: str


MEASURED = tuple(Measured(name, **row) for name, row in ROWS["measured"].items())
OUT_OF_REACH = tuple(OutOfReach(name, **row) for name, row in ROWS["out-of-reach"].items())
