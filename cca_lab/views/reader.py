"""What a reader guessed and wrote: predictions before a run, and the work of "your turn" cells."""

import math
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

Guess = float | str | bool
MOST = 10  # times what came out: beyond that a percentage says nothing
NOT_YET = "no guess yet: write one in the place of the dots, and run the cell again"


@dataclass
class _Entry:
    """A line of the reader's table."""

    what: str
    guess: Guess | None = None
    actual: Guess | None = None
    done: bool | None = None


_entries: dict[str, _Entry] = {}


def predict(name: str, guess: Guess | EllipsisType, what: str) -> None:
    """Note what the reader expects; with the dots, only say what is asked.

    `name` is the notebook and a number, such as "05.3"; a guess is a number, a word, True or False.
    """
    if guess is not ... and not _is_guess(guess):
        raise ValueError(f"guess: got {guess!r}, wanted a number, a word, or True or False; "
                         "leave the dots if unsure")
    _entries[name] = _Entry(what, None if guess is ... else guess)
    print(f"{name} {what}: {NOT_YET if guess is ... else f'you say {_shown(guess)}'}")


def reveal(name: str, actual: Any) -> None:
    """Say what came out (a number, a word, True or False), and how far off the guess was."""
    actual = actual.item() if hasattr(actual, "item") else actual
    if not _is_guess(actual):
        raise ValueError(
            f"actual: got {type(actual).__name__}, wanted a number, a word, or True or False")
    entry = _entries.setdefault(
        name, _Entry(f'(the cell with predict("{name}", ...) was not run)'))
    entry.actual = actual
    said = ""
    if entry.guess is not None:
        said = f" (you said {_shown(entry.guess)}: {distance(entry.guess, actual)})"
    print(f"{name} {entry.what}: {_shown(actual)}{said}")


def written(name: str, what: str, done: bool | None) -> None:
    """Note how a "your turn" cell stands: True is right, False not yet, None not begun."""
    kept = name in _entries and _entries[name].done  # what was right once stays done
    _entries[name] = _Entry(what, done=kept or done)


def my_work() -> None:
    """Print a table of the guesses and the "your turn" cells of this notebook."""
    if not _entries:
        print("Nothing guessed or written yet.")
        return
    rows = [(name, entry.what, *_row(entry)) for name, entry in sorted(_entries.items())]
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
        return {True: ("done", "", ""), False: ("not right yet", "", ""),
                None: ("-", "", "")}[entry.done]
    yours = "-" if entry.guess is None else _shown(entry.guess)
    came = "-" if entry.actual is None else _shown(entry.actual)
    if entry.guess is None or entry.actual is None:
        return yours, came, ""
    return yours, came, distance(entry.guess, entry.actual)


def _is_guess(value: object) -> bool:
    return isinstance(value, str | bool | int) or isinstance(value, float) and not math.isnan(value)


def _word(value: Guess) -> str:
    return str(value).strip().lower()


def _shown(value: Guess) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
