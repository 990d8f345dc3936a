"""The walkthrough: run the notebooks in order, and write pages and a summary of their results."""

import copy
import html
import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from rich.console import Console

from cca_lab.files import check_folder
from cca_lab.walkthrough import report
from cca_lab.walkthrough.comparison import compare_notebooks
from cca_lab.walkthrough.execution import OnCell, execute, is_run
from cca_lab.walkthrough.pages import notebook_body, page, title_of
from cca_lab.walkthrough.progress import Display, Planned
from cca_lab.walkthrough.report import Record

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130


def read(path: Path) -> NotebookNode:
    """Read a notebook file.

    Raises:
        ValueError: if the file is not a valid notebook.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        seconds = notebook.metadata.get("cca_lab", {}).get("seconds")
        if not isinstance(seconds, int | float | None):
            raise TypeError(f"seconds is {seconds!r}")
    except Exception as error:  # on a broken file nbformat may raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"notebooks: {path} cannot be read: {reason}; restore it with git") from error
    return notebook


def was_run(notebook: NotebookNode) -> bool:
    """Return whether a notebook holds the outputs of a run."""
    return any(cell.get("execution_count") for cell in notebook.cells)


def number_of(path: Path) -> str:
    """Return the part of a notebook's name that `--from` and `--only` take: "05"."""
    return path.stem.partition("_")[0]


def choose(folder: Path, start: str | None = None, only: str | None = None) -> tuple[list[Path], list[Path]]:
    """List the notebooks of a folder in order, and those to run.

    Args:
        folder: the folder of the notebooks.
        start: the beginning of the name of the first notebook to run, such as "05".
        only: the beginning of the name of the only notebook to run.

    Returns:
        All notebooks, and the chosen ones.

    Raises:
        ValueError: if there are no notebooks, if no name begins so, or if both `start` and `only` are given.
    """
    paths = sorted(folder.glob("*.ipynb"))
    if not paths:
        raise ValueError(f"notebooks: none in {folder}; run in a clone, or name another folder with --folder")
    if start and only:
        raise ValueError(f"from and only: got both ({start!r}, {only!r}), wanted one; leave one out")
    beginning = start or only
    if not beginning:
        return paths, paths
    found = [index for index, path in enumerate(paths) if path.stem.startswith(beginning)]
    if not found:
        names = ", ".join(path.stem for path in paths)
        raise ValueError(f"{'from' if start else 'only'}: no notebook begins with {beginning!r}; "
                         f"choose among {names}")
    return paths, paths[found[0]:] if start else [paths[index] for index in found]


def planned(path: Path) -> Planned:
    """Return how many cells a notebook will run, and how long it took when it was committed."""
    notebook = read(path)
    return Planned(path.stem, sum(map(is_run, notebook.cells)),
                   notebook.metadata.get("cca_lab", {}).get("seconds"))


class Walkthrough:
    """The records of a run, and the files that are written from them.

    Args:
        folder: the folder of the notebooks.
        out: the folder for the executed notebooks, the pages and the summary.
        start: see `choose`.
        only: see `choose`.
        with_pages: whether to write HTML pages.
    """

    def __init__(self, folder: Path, out: Path, *, start: str | None = None, only: str | None = None,
                 with_pages: bool = True) -> None:
        if out.resolve() == folder.resolve():
            raise ValueError(f"out: {out} is the folder of the notebooks themselves; choose another")
        check_folder(out)
        self.folder, self.out, self.with_pages = folder, out, with_pages
        paths, self.chosen = choose(folder, start, only)
        out.mkdir(parents=True, exist_ok=True)
        self.records = {path.stem: self._earlier_or_new(path) for path in paths}
        for path in paths:
            record = self.records[path.stem]
            if record.state == report.NOT_RUN:
                (out / path.name).unlink(missing_ok=True)
                self._write_page(record, f"<h1>{html.escape(record.title)}</h1>\n<p>Not run yet: "
                                         f"<code>make walkthrough FROM={number_of(path)}</code></p>")
        self.write_overview()

    def _earlier_or_new(self, path: Path) -> Record:
        new = Record(path.stem, title_of(read(path), path.stem), report.digest_of(path))
        earlier = report.earlier_records(self.out).get(path.stem)
        unchanged = earlier is not None and earlier.digest == new.digest
        return earlier if unchanged and path not in self.chosen else new

    def run_notebook(self, path: Path, on_cell: OnCell) -> Record:
        """Run one notebook, write its outputs and its page, and return its record."""
        record, committed = self.records[path.stem], read(path)
        notebook = copy.deepcopy(committed)
        began = time.monotonic()
        try:
            record.failure = execute(notebook, on_cell)
            record.state = report.FAILED if record.failure else report.OK
        except KeyboardInterrupt:
            record.state = report.INTERRUPTED
        record.seconds = round(time.monotonic() - began, 1)
        report.collect_into(record, notebook)
        if record.state == report.OK and was_run(committed):
            record.differences = compare_notebooks(committed, notebook)
        nbformat.write(notebook, self.out / path.name)
        if self.with_pages:
            self._write_page(record, notebook_body(notebook, self.folder, self.out))
        self.write_overview()
        return record

    def write_overview(self) -> None:
        """Write the summary and the index page from the present records."""
        records = list(self.records.values())
        report.write_summary(records, self.out)
        if self.with_pages:
            (self.out / "index.html").write_text(report.index_page(records), encoding="utf-8")

    def _write_page(self, record: Record, body: str) -> None:
        if not self.with_pages:
            return
        names = list(self.records)
        place = names.index(record.name)
        links = [("All notebooks", "index.html")]
        links += [(f"Previous: {name}", f"{name}.html") for name in names[max(place - 1, 0):place]]
        links += [(f"Next: {name}", f"{name}.html") for name in names[place + 1:place + 2]]
        target = self.out / f"{record.name}.html"
        target.write_text(page(record.title, body, links), encoding="utf-8")


def walkthrough(folder: Path, out: Path, *, start: str | None = None, only: str | None = None,
                with_pages: bool = True, console: Console | None = None) -> int:
    """Run the notebooks of a folder in order, with a progress display, and stop at the first that fails.

    Returns:
        The exit status: 0, 1 if a notebook failed, 130 if it was interrupted.
    """
    console = console or Console()
    run = Walkthrough(folder, out, start=start, only=only, with_pages=with_pages)
    outcome = report.OK
    with Display([planned(path) for path in run.chosen], console) as display:
        for index, path in enumerate(run.chosen):
            display.notebook(index)
            record = run.run_notebook(path, display.on_cell)
            display.done(record.verdict())
            outcome = record.state
            if outcome != report.OK:
                break
    console.print(_closing(record, path, run), markup=False, highlight=False, soft_wrap=True)
    return {report.OK: EXIT_OK, report.FAILED: EXIT_FAILED, report.INTERRUPTED: EXIT_INTERRUPTED}[outcome]


def _closing(record: Record, path: Path, run: Walkthrough) -> str:
    summary = report.headline(list(run.records.values()))
    kept = f"Summary: {run.out / 'summary.md'}" + (
        f"\nPages:   {run.out / 'index.html'}" if run.with_pages else "")
    if record.state == report.OK:
        return f"\n{summary}\n{kept}"
    lines = [""]
    if record.failure:
        lines += [record.failure.traceback, "",
                  f"{path.name} failed in cell {record.failure.cell}: {record.failure.line}",
                  record.failure.error]
    else:
        lines += [f"{path.name} was interrupted."]
    number = number_of(path)
    lines += [f"What ran before is kept in {run.out / path.name}",
              f"Run again from there: make walkthrough FROM={number}"
              f"   (or: cca-lab walkthrough --from {number})", "", summary, kept]
    return "\n".join(lines)
