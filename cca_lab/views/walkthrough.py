"""`cca-lab walkthrough`: run the notebooks in order, compare, and say what came out."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from rich.console import Console

from cca_lab.files import replacing
from cca_lab.views.comparison import compare_notebooks
from cca_lab.views.execution import Failure, execute, is_run
from cca_lab.views.notebook_files import read
from cca_lab.views.notebook_tools import CHECK_TYPE, RESULT_TYPE, Result

OK, FAILED, INTERRUPTED = 0, 1, 130  # exit statuses
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
# Of a cell's metadata; the second is how JupyterLab folds a section.
KEPT = ("tags", "jp-MarkdownHeadingCollapsed")


@dataclass(frozen=True)
class Run:
    """A notebook that was run."""

    path: Path
    notebook: NotebookNode  # with what its cells displayed, as far as it came
    status: int
    failure: Failure | None
    seconds: float

    def outcome(self) -> str:
        """Return in words how the run ended, a failure with its place and the error."""
        if self.failure:
            return (f"{self.failure.traceback}\n\n{self.path.name} failed in cell "
                    f"{self.failure.cell}: {self.failure.line}\n{self.failure.error}")
        if self.status == INTERRUPTED:
            return f"{self.path.name}: interrupted"
        return (f"{self.path.name}: ok, {self.seconds:.0f} s, "
                f"{len(collect(self.notebook, CHECK_TYPE))} checks passed")


def collect(notebook: NotebookNode, kind: str) -> list[Any]:
    """Collect the checks or the results that the cells of a notebook displayed."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [dict(output.data[kind]) for output in outputs if kind in output.get("data", {})]


def run_each(paths: Sequence[Path], console: Console) -> Iterator[Run]:
    """Run notebooks in order, and say which cell runs; the files are not changed."""
    for at, path in enumerate(paths, start=1):
        notebook = read(path)
        cells = sum(map(is_run, notebook.cells))
        label = f"{path.stem} ({at} of {len(paths)})"
        seconds = notebook.metadata.get("cca_lab", {}).get("seconds")
        say(console, f"{label}: {cells} cells" + (
            f", {seconds:.0f} s on the authors' machine" if seconds else ""))
        began, failure, status = time.monotonic(), None, OK
        with console.status(label) as line:  # only a terminal shows it

            def on_cell(cell: int, name: str = path.stem, cells: int = cells) -> None:
                line.update(f"{name}: cell {cell} of {cells}")

            try:
                failure = execute(notebook, on_cell)
                status = FAILED if failure else OK
            except KeyboardInterrupt:
                status = INTERRUPTED
        yield Run(path, notebook, status, failure, round(time.monotonic() - began, 1))


def walkthrough(paths: Sequence[Path], console: Console,
                show: Callable[[str, NotebookNode], Path] | None = None) -> int:
    """Run notebooks in order, stop at the first that fails, and return the exit status.

    Each is compared with its file. `show` writes the page of a notebook as soon as it has run.
    """
    same = 0
    for run in run_each(paths, console):
        page = show(run.path.name, run.notebook) if show else None
        say(console, run.outcome())
        if page:
            say(console, f"  {page}")
        if run.status:
            number = run.path.stem.partition("_")[0]
            say(console, f"Run again from there: make walkthrough FROM={number}"
                         f"   (or: cca-lab walkthrough --from {number})")
            return run.status
        for each in collect(run.notebook, RESULT_TYPE):
            say(console, f"  {Result(**each)!r}")
        differences = compare_notebooks(read(run.path), run.notebook)
        same += not differences
        for difference in differences:
            say(console, f"  unlike the committed outputs: {difference}")
    say(console, f"{len(paths)} notebooks ran to their end; "
                 f"{same} with the outputs that are committed")
    return OK


def say(console: Console, text: str) -> None:
    """Print a text as it is; a path that is no UTF-8 is shown with its bytes."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    console.print(shown, markup=False, highlight=False, soft_wrap=True)


def tidy(notebook: NotebookNode, seconds: float) -> None:
    """Keep, in place, only metadata that is the same on every machine, and the running time."""
    notebook.metadata = nbformat.from_dict({
        "kernelspec": KERNELSPEC, "language_info": {"name": "python"},
        "cca_lab": {"seconds": round(seconds)}})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in KEPT
                                            if cell.metadata.get(key)})


def refresh(paths: Sequence[Path], console: Console) -> int:
    """Run notebooks, write outputs into their files, and return the exit status."""
    for run in run_each(paths, console):
        say(console, run.outcome())
        if run.status:
            say(console, "The file was left as it was.")
            return run.status
        tidy(run.notebook, run.seconds)
        with replacing(run.path) as temporary:
            temporary.write_text(nbformat.writes(run.notebook) + "\n", encoding="utf-8")
    return OK
