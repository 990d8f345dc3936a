"""The progress bar of every long command; plain lines if there is no terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def training_progress(title: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """Yield a function report(done, text) that moves the bar.

    Args:
        title: text before the bar.
        total: the last value of `done` (tokens, steps).
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_reporter(console, title, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
               TextColumn("{task.fields[text]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(title, total=total, text="")
        yield lambda done, text: progress.update(bar, completed=done, text=text)


def _line_reporter(console: Console, title: str, total: float) -> Callable[[float, str], None]:
    """Return a reporter that prints a line at most every `SECONDS_BETWEEN_LINES`, and at the end."""
    start, last, first = time.monotonic(), float("-inf"), None

    def report(done: float, text: str) -> None:
        nonlocal last, first
        first = done if first is None else first  # a resumed run does not begin at 0
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES and done < total:
            return
        last = now
        left = (now - start) * (total - done) / (done - first) if done > first else float("nan")
        console.print(f"{title}  {100 * done / total:3.0f} %  {text}  {now - start:.0f} s{_left(left)}",
                      highlight=False)
    return report


def _left(seconds: float) -> str:
    return f", {max(0.0, seconds):.0f} s left" if seconds == seconds else ""
