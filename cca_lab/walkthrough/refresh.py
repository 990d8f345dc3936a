"""For maintainers: run the notebooks in place, so that the committed outputs match the code."""

import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from rich.console import Console

from cca_lab.walkthrough.execution import execute
from cca_lab.walkthrough.progress import Display, duration
from cca_lab.walkthrough.run import choose, planned, read

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT = ("tags", "jp-MarkdownHeadingCollapsed")  # of a cell's metadata; the second is how JupyterLab folds a section


def tidy(notebook: NotebookNode, seconds: float) -> None:
    """Keep, in place, only metadata that is the same on every machine, and the notebook's running time.

    `cca-lab walkthrough` estimates the remaining time from it.
    """
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": {"name": "python"},
                                            "cca_lab": {"seconds": round(seconds)}})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in KEPT if cell.metadata.get(key)})


def refresh(folder: Path, *, start: str | None = None, only: str | None = None,
            console: Console | None = None) -> int:
    """Run notebooks and write the outputs into their files; the file of a notebook that fails is not changed.

    Returns:
        The exit status: 0, or 1 if a notebook failed.
    """
    console = console or Console()
    _, chosen = choose(folder, start, only)
    with Display([planned(path) for path in chosen], console) as display:
        for index, path in enumerate(chosen):
            display.notebook(index)
            notebook, began = read(path), time.monotonic()
            failure = execute(notebook, display.on_cell)
            seconds = time.monotonic() - began
            if failure:
                display.done(f"failed in cell {failure.cell}: {failure.line}\n{failure.traceback}\n"
                             f"{failure.error}\nThe file was left as it was.")
                return 1
            tidy(notebook, seconds)
            nbformat.write(notebook, path)
            display.done(f"written, {duration(seconds)}")
    return 0
