"""Sentences about scores, times and trends, judged on the printed tables."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

from cca_lab.theory.claim import Finding, chosen
from cca_lab.theory.published import tables

SHOWN = 4  # losses that the evidence lists


class Pair(NamedTuple):
    """A method and another one at one place of a table.

    Attributes:
        place: table and column.
        ours: the number of the method that the sentence is about.
        other: the other method.
        theirs: its number.
        lower: whether the lower number is the better one.
    """

    place: str
    ours: str
    other: str
    theirs: str
    lower: bool = False

    @property
    def gain(self) -> Decimal:
        """By how much the first is better."""
        return (Decimal(self.ours) - Decimal(self.theirs)) * (-1 if self.lower else 1)


class Fall(NamedTuple):
    """A score, or a time, of one method at a short length and at a longer one."""

    method: str
    start: str
    end: str

    @property
    def change(self) -> Decimal:
        """The change to the longer length."""
        return Decimal(self.end) - Decimal(self.start)

    @property
    def share(self) -> Decimal:
        """The change as a share of the value at the short length."""
        return self.change / Decimal(self.start)


def averages(rows: tuple[tables.Row, ...], ours: str, blocks: Iterable[str]) -> tuple[Pair, ...]:
    """Return the printed average of a method against each other one, for some tables."""
    return tuple(Pair(f"{block}, average", tables.find(rows, block, ours).average, row.method, row.average)
                 for block in blocks for row in rows if row.block == block and row.method != ours)


def columns(rows: tuple[tables.Row, ...], ours: str, block: str, names: tuple[str, ...]) -> tuple[Pair, ...]:
    """Return the columns of a method against each other one, for one table."""
    first = tables.find(rows, block, ours)
    return tuple(Pair(f"{block}, {name}", one, row.method, other) for row in rows
                 if row.block == block and row.method != ours
                 for name, one, other in zip(names, first.numbers, row.numbers, strict=True))


def check_ahead(pairs: tuple[Pair, ...], within: Callable[[Pair], bool] | None = None) -> Finding:
    """Judge "the first is at least as good as the other", place by place."""
    cases = chosen(pairs, within)
    lost = [pair for pair in cases if pair.gain < 0]
    if not lost:
        closest = min(cases, key=lambda pair: pair.gain)
        return Finding(True, f"none of {len(cases)} is worse; the closest is {_shown(closest)}",
                       {"cases": len(cases), "lost": 0})
    more = "" if len(lost) <= SHOWN else "; .."
    return Finding(False, f"worse in {len(lost)} of {len(cases)}: {'; '.join(map(_shown, lost[:SHOWN]))}{more}",
                   {"cases": len(cases), "lost": len(lost)})


def _shown(pair: Pair) -> str:
    return f"{pair.place}: {pair.ours} against {pair.theirs} ({pair.other})"


def check_ranks(ranks: Mapping[str, int]) -> Finding:
    """Judge the rank of DGA-LLM's exact match among the efficient methods at each length."""
    pairs = efficient(columns(tables.DGA_AVERAGES, "DGA-LLM", "Table 2", tables.DGA_EM_LENGTHS))
    exact = {length: 1 + sum(pair.gain < 0 for pair in pairs if pair.place == f"Table 2, {length}") for length in ranks}
    return Finding(exact == dict(ranks), f"ranks {', '.join(f'{rank} at {length}' for length, rank in exact.items())}",
                   {f"rank at {length}": rank for length, rank in exact.items()})


def efficient(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Return the pairs against methods other than full attention."""
    return tuple(pair for pair in pairs if pair.other != "vanilla")


def check_growth(pairs: tuple[Pair, ...], within: Callable[[Pair], bool] | None = None) -> Finding:
    """Judge "the lead grows from each column to the next"."""
    cases = chosen(pairs, within)
    leads = [pair.gain for pair in cases]
    shown = ", ".join(f"{lead:+} at {pair.place.split(', ')[-1]}" for pair, lead in zip(cases, leads, strict=True))
    grows = all(after > before for before, after in pairwise(leads))
    return Finding(grows, f"the lead is {shown}", {"rises": sum(after > before for before, after in pairwise(leads))})


def check_steeper(methods: tuple[str, ...]) -> Finding:
    """Judge "these methods lose more EM than DGA-LLM", at 16K or 32K, in points or as a share of the score at 4K."""
    rows = {method: tables.find(tables.DGA_AVERAGES, "Table 2", method).numbers for method in (*methods, "DGA-LLM")}
    told = []
    for column, length in ((2, "16K"), (3, "32K")):
        falls = {name: Fall(name, numbers[0], numbers[column]) for name, numbers in rows.items()}
        own = falls.pop("DGA-LLM")
        told.append(f"4K to {length}: {', '.join(map(_fallen, [*falls.values(), own]))}")
        if all(fall.change < own.change for fall in falls.values()) or \
                all(fall.share < own.share for fall in falls.values()):
            return Finding(True, told[-1])
    return Finding(False, "; ".join(told))


def _fallen(fall: Fall) -> str:
    return f"{fall.method} {fall.change:+} ({100 * fall.share:+.1f} %)"


def check_rise(methods: tuple[str, ...], within: Callable[[str], bool] | None = None) -> Finding:
    """Judge "from 4K to 16K the latency of these methods rises more than that of DGA-LLM", in ms or in percent."""
    falls = {name: Fall(name, numbers[0], numbers[2]) for name, numbers in tables.DGA_LATENCY.items()}
    own, cases = falls["DGA-LLM"], [falls[name] for name in chosen(methods, within)]
    slow = [fall for fall in cases if fall.change <= own.change and fall.share <= own.share]
    told = ", ".join(map(_fallen, [*(slow or cases), own]))
    return Finding(not slow, f"4K to 16K, ms: {told}", {"slower": len(slow)})


def check_curves(directions: Mapping[str, str], curves: Mapping[str, tuple[str, ...]]) -> Finding:
    """Judge "rises" or "falls" of columns of a table: strictly, from each column to the next."""
    wrong = [f"{name}: {', '.join(curves[name])}, claimed to be one that {way}" for name, way in directions.items()
             if not all((after > before) == (way == "rises") and after != before
                        for before, after in pairwise(map(Decimal, curves[name])))]
    return Finding(not wrong, "; ".join(wrong) or "; ".join(
        f"{name} {way}, {curves[name][0]} to {curves[name][-1]}" for name, way in directions.items()),
        {"curves": len(directions), "wrong": len(wrong)})


def check_words(called: Mapping[str, tuple[str, str]]) -> Finding:
    """Judge words for sizes: whatever is called slight must be smaller than whatever is called substantial."""
    slight = {what: Decimal(size) for what, (word, size) in called.items() if word == "slight"}
    large = {what: Decimal(size) for what, (word, size) in called.items() if word == "substantial"}
    fits = not slight or not large or max(slight.values()) < min(large.values())
    return Finding(fits, "; ".join(f"{what}: {size} points, called {word}" for what, (word, size) in called.items()))


def check_degrades(falls: Mapping[str, tuple[str, str]]) -> Finding:
    """Judge columns said to fall without complementary tokens (DGA, Table 7): column -> (with them, without)."""
    full, without, vanilla = (tuple(map(Decimal, tables.find(tables.DGA_AVERAGES, *name).numbers)) for name in (
        ("Table 1", "DGA-LLM"), ("Table 7", "w/o complementary tokens"), ("Table 1", "vanilla")))
    scores = dict(zip(tables.LONGBENCH, zip(full, without, strict=True), strict=True))
    for name, printed in falls.items():
        before, after = scores[name]
        if after >= before or (before, after) != tuple(map(Decimal, printed)):
            return Finding(False, f"{name}: {before} with them, {after} without; claimed {' to '.join(printed)}")
    rises = sum(after > before for before, after in scores.values())
    equal = sum(after == other for other, after in zip(vanilla, without, strict=True))
    return Finding(True, f"{' and '.join(falls)} fall; {rises} of {len(full)} columns rise (Single-Doc. QA 3.61 to "
                   f"6.43), and {equal} equal Table 1's row of vanilla attention", {"rises": rises, "equal": equal})


def check_score(name: str, cited: tuple[str, ...], rows: Mapping[str, tuple[tables.Row, ...]]) -> Finding:
    """Judge the name of a score: each cited number must be an average of a table of that score."""
    found = [score for score, group in rows.items() if set(cited) <= {row.average for row in group}]
    return Finding(name in found, f"{', '.join(cited)} are averages of {' and '.join(found)}; called {name}")
