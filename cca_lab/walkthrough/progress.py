"""The progress display while notebooks run: notebook, cell, time so far and time left."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

UNKNOWN_SECONDS = 60.0  # assumed for a notebook that does not record its running time
PLAIN_EVERY = 15.0  # seconds between two lines if there is no terminal


@dataclass(frozen=True)
class Planned:
    """One notebook of the run.

    Attributes:
        name: file name without its suffix.
        cells: number of code cells.
        seconds: running time on the authors' machine; None if not recorded.
    """

    name: str
    cells: int
    seconds: float | None = None

    @property
    def expected(self) -> float:
        """Expected running time on the authors' machine, in seconds."""
        return UNKNOWN_SECONDS if self.seconds is None else max(self.seconds, 1.0)


def seconds_left(plan: list[Planned], index: int, elapsed: float, in_notebook: float) -> float:
    """Estimate how long the rest of the run takes, in seconds.

    The finished notebooks show how fast this machine is, compared with the authors'.

    Args:
        plan: every notebook of the run.
        index: the current notebook, from 0.
        elapsed: seconds since the first notebook started.
        in_notebook: seconds since the current notebook started.
    """
    done = sum(planned.expected for planned in plan[:index])
    slowness = (elapsed - in_notebook) / done if done else 1.0
    here = plan[index].expected * slowness - in_notebook if index < len(plan) else 0.0
    return max(here, 0.0) + slowness * sum(planned.expected for planned in plan[index + 1:])


def duration(seconds: float) -> str:
    """Return seconds in words: "8 s", "3 min 05 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Display:
    """A progress bar on a terminal, plain lines elsewhere. Use it as a context manager."""

    def __init__(self, plan: list[Planned], console: Console,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self.console = console
        self.clock = clock
        self.index = 0
        self.cell = 0
        self.started = self.notebook_started = self.last_line = clock()
        self.live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.live.stop()

    def notebook(self, index: int) -> None:
        """Show that a notebook starts."""
        self.index, self.cell, self.notebook_started = index, 0, self.clock()
        if not self.console.is_terminal:
            self._line()

    def on_cell(self, number: int) -> None:
        """Show that a cell of the current notebook starts."""
        self.cell = number
        if not self.console.is_terminal and self.clock() - self.last_line >= PLAIN_EVERY:
            self._line()

    def done(self, text: str) -> None:
        """Show how the current notebook ended."""
        self.console.print(f"{self._place()} {self.plan[self.index].name}: {text}",
                           markup=False, highlight=False, soft_wrap=True)

    def _place(self) -> str:
        return f"[{self.index + 1}/{len(self.plan)}]"

    def _times(self) -> tuple[float, float]:
        now = self.clock()
        elapsed = now - self.started
        return elapsed, seconds_left(self.plan, self.index, elapsed, now - self.notebook_started)

    def _status(self) -> str:
        planned, (elapsed, left) = self.plan[self.index], self._times()
        where = f"cell {self.cell} of {planned.cells}" if self.cell else f"{planned.cells} cells"
        return (f"{self._place()} {planned.name}: {where}, "
                f"{duration(elapsed)} so far, about {duration(left)} left")

    def _line(self) -> None:
        self.last_line = self.clock()
        self.console.print(self._status(), markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> Table:
        elapsed, left = self._times()
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=max(elapsed + left, 1e-9), completed=elapsed, width=24),
                    Text(self._status()))
        return row
