"""The machine of a measurement, and how progress, results and figures are shown."""

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cca_lab import freed_memory
from cca_lab.files import replacing

SECONDS_BETWEEN_LINES = 30.0


def machine() -> dict[str, Any]:
    """Return the device, its threads and the versions that a measurement depends on."""
    from cca_lab.attention import native

    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        # what "auto" uses
        "cpu_attention": "native" if native.ready(torch.empty(1)) else "blocked",
        "freed_memory": "kept" if freed_memory.kept() else "returned",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def command_line() -> str:
    """Return the command that runs now, as one would type it."""
    program = Path(sys.argv[0])
    return shlex.join(["cca-lab" if program.name == "__main__.py" else program.name, *sys.argv[1:]])


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name() -> str:
    """Return the name of `device`: the GPU's, or the CPU's with its number of threads."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{cpu_name()}, {torch.get_num_threads()} thread(s)"


def cpu_name() -> str:
    """Return the CPU's model as the system reports it, or its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def write_json(path: str | Path, data: Any) -> None:
    """Write `data` as indented JSON, whole or not at all; missing folders are made."""
    text = json.dumps(as_json(data), indent=1) + "\n"
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def as_json(data: Any) -> Any:
    """Return data as it is read from JSON; ValueError for a number that is not finite."""
    try:
        return json.loads(json.dumps(data, allow_nan=False))
    except ValueError as error:
        raise ValueError("result: holds a number that is not finite, and is not written; the model "
                         "computes such numbers, or was trained at too high a rate") from error


def write_figure(path: str | Path, figure: Any, dpi: int = 180) -> None:
    """Write a Figure as PNG, whole or not at all."""
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png", dpi=dpi, metadata={"Software": None})


@contextmanager
def training_progress(title: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """Yield a function report(done, text) that moves the bar to `done` of `total`."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_reporter(console, title, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(),
               TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[text]}"),
               TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(title, total=total, text="")
        yield lambda done, text: progress.update(bar, completed=done, text=text)


def _line_reporter(console: Console, title: str, total: float) -> Callable[[float, str], None]:
    """Return a reporter of a line at most every `SECONDS_BETWEEN_LINES`, and at the end."""
    start, last, first = time.monotonic(), float("-inf"), None

    def report(done: float, text: str) -> None:
        nonlocal last, first
        first = done if first is None else first  # a resumed run does not begin at 0
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES and done < total:
            return
        last = now
        left = (now - start) * (total - done) / (done - first) if done > first else float("nan")
        console.print(f"{title}  {min(100, 100 * done / total):3.0f} %  {text}  {now - start:.0f} "
                      f"s{_left(left)}", highlight=False)
    return report


def _left(seconds: float) -> str:
    return f", {max(0.0, seconds):.0f} s left" if seconds == seconds else ""
