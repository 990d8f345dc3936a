"""Numbers that the papers print, and the relation between them that the papers state.

The rows stand in `numbers.toml`. Scores that are compared with others are "ours / theirs", and one
number on the left is compared with each on the right. A printed number is right if it is the exact
one rounded at its last digit, a half either way, or cut there: 104.86 may be printed as 104 or 105.
Reductions in percent, whose columns round, are not cut, and sums are neither.
"""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

TABLE: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class Row(NamedTuple):
    """One row of the table."""

    paper: str
    relation: str
    place: str
    numbers: str
    instead: str  # what holds instead; "" if the relation holds

    @property
    def agrees(self) -> bool:
        """Whether the relation holds exactly where the table says that it does."""
        return holds(self.relation, self.numbers) != bool(self.instead)


def rows() -> Iterator[Row]:
    """Yield all rows of the table."""
    for paper, relations in TABLE.items():
        for relation, places in relations.items():
            for place, row in places.items():
                numbers, *instead = [row] if isinstance(row, str) else row
                yield Row(paper, relation, place, numbers, "".join(instead))


def holds(relation: str, numbers: str) -> bool:
    """Return whether numbers, as printed, stand in a relation of `RELATIONS`."""
    return RELATIONS[relation](*(side.split() for side in numbers.split("/")))


def right(exact: Fraction, printed: str) -> bool:
    """Return whether a printed number, not negative, is the exact one, rounded or cut."""
    low, end = _ends(printed)
    return low <= exact < end


def _ends(printed: str) -> tuple[Fraction, Fraction]:
    """Return the ends of the numbers that may be printed so; the lower may, the upper may not."""
    last_digit = Fraction(10) ** int(Decimal(printed).as_tuple().exponent)
    return Fraction(printed) - last_digit / 2, Fraction(printed) + last_digit


def _follows(formula: Callable[..., Fraction]) -> Callable[[Sequence[str]], bool]:
    """Return the relation "the last number is what the formula makes of the others"."""
    return lambda printed: right(formula(*map(Fraction, printed[:-1])), printed[-1])


def _is_rounded(exact: Fraction, printed: str) -> bool:
    low, end = _ends(printed)
    return low <= exact <= Fraction(printed) + (Fraction(printed) - low)


def _same(printed: Sequence[str]) -> bool:
    """Return whether one exact number would be right as each of the printed ones."""
    lows, highs = zip(*map(_ends, printed), strict=True)
    return max(lows) < min(highs)


def _leads(ours: list[str], theirs: list[str]) -> list[Fraction]:
    """Return our numbers minus theirs, side by side."""
    ours = ours * len(theirs) if len(ours) == 1 else ours
    theirs = theirs * len(ours) if len(theirs) == 1 else theirs
    return [Fraction(a) - Fraction(b) for a, b in zip(ours, theirs, strict=True)]


def _grows(numbers: Sequence[Fraction]) -> bool:
    return all(before < after for before, after in pairwise(numbers))


RELATIONS: dict[str, Callable[..., bool]] = {
    "mean": _follows(lambda *numbers: sum(numbers, Fraction(0)) / len(numbers)),
    "sum": lambda printed: sum(map(Fraction, printed[:-1])) == Fraction(printed[-1]),
    "product": _follows(lambda *numbers: prod(numbers, start=Fraction(1))),
    "quotient": _follows(lambda before, after: before / after),
    "reduction": lambda printed: _is_rounded(
        100 * (1 - Fraction(printed[1]) / Fraction(printed[0])), printed[-1]),  # in percent
    "same": _same,
    "above": lambda ours, theirs: all(lead >= 0 for lead in _leads(ours, theirs)),
    "below": lambda ours, theirs: all(lead <= 0 for lead in _leads(ours, theirs)),
    "lead grows": lambda ours, theirs: _grows(_leads(ours, theirs)),
    "rises": lambda numbers: _grows(list(map(Fraction, numbers))),
    "falls": lambda numbers: _grows([-Fraction(number) for number in numbers]),
}
