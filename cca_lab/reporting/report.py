"""The machine of a measurement, and how results are written and displayed."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cca_lab import freed_memory
from cca_lab.outputs import replacing

WIDE = 200  # width in characters of a table that is not printed to a terminal


def machine() -> dict[str, Any]:
    """Return the device, its threads and the versions that a measurement depends on."""
    from cca_lab.attention import native

    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu_attention": "native" if native.ready(torch.empty(1)) else "blocked",  # what "auto" uses
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
    """Write `data` as indented JSON to a temporary path, then rename it, so that no file is half written.

    Missing folders are made.
    """
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]],
                console: Console | None = None) -> None:
    """Print rows of text and numbers as a table, right-aligned except for the first column."""
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    if console is None:
        console = Console()
        if not console.is_terminal:
            console = Console(width=WIDE)  # a log has no width to fit the table to
    console.print(table)


def write_figure(path: str | Path, figure: Any, dpi: int = 110) -> None:
    """Write a Figure as PNG to a temporary path, then rename it, so that no file is half written."""
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png", dpi=dpi, metadata={"Software": None})
