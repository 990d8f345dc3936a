"""What a measurement ran on, and how results are written and shown."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDE = 200  # columns of a table that is not printed to a terminal


def machine() -> dict[str, Any]:
    """The device, its threads and the versions that a measurement depends on."""
    from cca_lab.attention import native

    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu_attention": "native" if native.ready(torch.empty(1)) else "blocked",  # what "auto" takes
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name() -> str:
    """What `device` stands for, in words: the GPU's name, or the CPU's with its threads."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{cpu_name()}, {torch.get_num_threads()} thread(s)"


def cpu_name() -> str:
    """The CPU's model as the system calls it, or its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def write_json(path: str | Path, data: Any) -> None:
    """Write `data` as indented JSON, beside its place first and then renamed: never half a file.

    Folders that are missing are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    aside = path.with_name(f".{path.name}.part")  # what a killed command left is written over
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]],
                console: Console | None = None) -> None:
    """Print rows of text and numbers, aligned at their right but for the first column."""
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    if console is None:
        console = Console()
        if not console.is_terminal:
            console = Console(width=WIDE)  # a log has no width that a table could respect
    console.print(table)


def write_figure(path: str | Path, figure: Any, dpi: int = 110) -> None:
    """Write a Figure as PNG, beside its place first and then renamed: never half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    figure.savefig(aside, format="png", dpi=dpi, metadata={"Software": None})
    aside.replace(path)
