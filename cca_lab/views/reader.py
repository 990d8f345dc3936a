"""What a reader guessed and wrote: predictions before a run, and the work of "your turn" cells."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import EllipsisType
from typing import Any

Guess = float | str | bool
MOST = 10  # times what came out: beyond that a percentage says nothing
SKIP = "skip"  # in the place of a guess: show the answer without one
NOT_YET = "no guess yet: write one in the place of the dots, and run the cell again"
WAITS = f'guess first, or write "{SKIP}" in the place of the dots; then run both cells again'


@dataclass
class _Entry:
    """A line of the reader's table."""

    what: str
    guess: Guess | None = None
    actual: Guess | None = None
    done: bool | None = None
    copied: bool = False
    skipped: bool = False
    source: str = ""


_entries: dict[str, _Entry] = {}


@cache
def tempting() -> dict[str, list[tuple[Guess, str]]]:
    """Return for each guess the wrong answers that tempt, and where each comes from."""
    return tomllib.loads(Path(__file__).with_name("guesses.toml").read_text(encoding="utf-8"))


def predict(name: str, guess: Guess | EllipsisType, what: str) -> None:
    """Note what the reader expects; with the dots, only say what is asked.

    Args:
        name: the notebook and a number, such as "05.3".
        guess: a number, a word, True or False; or "skip", to see the answer without a guess.
        what: is guessed.

    Raises:
        ValueError: for something else than a guess.
    """
    if guess is not ... and not _is_guess(guess):
        raise ValueError(f"guess: got {guess!r}, wanted a number, a word, or True or False; "
                         f'leave the dots if unsure, or write "{SKIP}"')
    skipped = guess == SKIP
    given = None if guess is ... or skipped else guess
    _entries[name] = _Entry(what, given, skipped=skipped)
    said = NOT_YET if guess is ... else "skipped" if skipped else f"you say {_shown(guess)}"
    print(f"{name} {what}: {said}")


def reveal(name: str, actual: Any) -> None:
    """Say what came out (a number, a word, True or False), and how far off the guess was.

    It waits for a guess, or for "skip". Of a wrong guess that tempts it says where it comes from.
    """
    actual = actual.item() if hasattr(actual, "item") else actual
    entry = _entries.setdefault(
        name, _Entry(f'(the cell with predict("{name}", ...) was not run)'))
    if entry.guess is None and not entry.skipped:
        print(f"{name} {entry.what}: {WAITS}")
        return
    entry.actual = actual
    lines = [f"{name} {entry.what}: {_shown(actual)}"]
    if entry.guess is not None:
        lines[0] += f" (you said {_shown(entry.guess)}: {distance(entry.guess, actual)})"
    for wrong, why in tempting().get(name, []):
        if distance(wrong, actual) == "right":
            continue  # a measurement that came out otherwise on this machine
        if entry.skipped:
            lines.append(f"     tempting: {_shown(wrong)}, {why}")
        elif entry.guess is not None and distance(entry.guess, wrong) == "right":
            lines.append(f"     {_shown(wrong)} is tempting: {why}")
    print("\n".join(lines))


def written(name: str, what: str, done: bool | None, *, copied: bool = False,
            source: str = "") -> None:
    """Note how a "your turn" cell stands: True is right, False not yet, None not begun.

    What was right once stays done. `copied` says that it is the folded solution, `source` is what
    the reader wrote.
    """
    before = _entries.get(name)
    if before is None or not before.done:
        _entries[name] = _Entry(what, done=done, copied=copied, source=source)
    elif done and not copied:
        before.copied, before.source = False, source


def is_done(name: str) -> bool:
    """Return whether a turn such as "03.6" was right once."""
    return name in _entries and bool(_entries[name].done)


def source_of(name: str) -> str:
    """Return what the reader wrote in a turn, once it was right; nothing for a folded solution."""
    return _entries[name].source if is_done(name) else ""


def climbed(turns: Mapping[str, str]) -> set[str]:
    """Return the forms of a mechanism that the reader wrote: those whose turn is done, not copied.

    `turns` names the turn of each form, such as {"loops": "03.6"}.
    """
    entries = {form: _entries[name] for form, name in turns.items() if name in _entries}
    return {form for form, entry in entries.items() if entry.done and not entry.copied}


def my_work() -> None:
    """Print a table of the guesses and the "your turn" cells of this notebook."""
    if not _entries:
        print("Nothing guessed or written yet.")
        return
    rows = [(name, entry.what, *_row(entry))
            for name, entry in sorted(_entries.items(), key=lambda item: _order(item[0]))]
    head = ("", "", "yours", "came out", "")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(4)]
    for row in (head, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[4]]).rstrip())


def distance(guess: Guess, actual: Guess) -> str:
    """Return in words how far a guess is from what came out."""
    if isinstance(guess, str) and not isinstance(actual, (str, bool)):
        try:
            guess = float(guess)  # a number in quotes
        except ValueError:
            return "not so: a number was asked for"
    if isinstance(guess, (str, bool)) or isinstance(actual, (str, bool)):
        same = _word(guess) == _word(actual)
        return "right" if same else "not so"
    if math.isclose(guess, actual, rel_tol=0.005, abs_tol=1e-12):
        return "right"
    off, side = abs(guess - actual), "too many" if guess > actual else "too few"
    if not (isinstance(guess, int) and isinstance(actual, int)):
        side = "too much" if guess > actual else "too little"
    share = f", {100 * off / abs(actual):.0f} %" if actual and off <= MOST * abs(actual) else ""
    return f"{_shown(off)} {side}{share}"


def _row(entry: _Entry) -> tuple[str, str, str]:
    if entry.guess is None and entry.actual is None:
        return ({True: "done", False: "not right yet", None: "-"}[entry.done], "",
                "the folded solution" if entry.copied else "")
    yours = "-" if entry.guess is None else _shown(entry.guess)
    came = "-" if entry.actual is None else _shown(entry.actual)
    if entry.guess is None or entry.actual is None:
        return yours, came, ""
    return yours, came, distance(entry.guess, entry.actual)


def _order(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", name)]  # 14.2 comes before 14.10


def _is_guess(value: object) -> bool:
    return isinstance(value, str | bool | int) or isinstance(value, float) and not math.isnan(value)


def _word(value: Guess) -> str:
    return str(value).strip().lower()


def _shown(value: Guess) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
