"""`cca-lab walkthrough`: run the notebooks in order, compare, and tell what came out."""

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

import nbformat
from nbformat import NotebookNode
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cca_lab.files import check_folder, replacing
from cca_lab.stored import matches, read_json
from cca_lab.views.comparison import compare_notebooks
from cca_lab.views.execution import Failure, execute, is_run
from cca_lab.views.notebook_files import choose, read
from cca_lab.views.notebook_tools import CHECK_TYPE, RESULT_TYPE
from cca_lab.views.pages import index_page, notebook_page

State = Literal["not run", "ok", "failed", "interrupted"]
NOT_RUN: Final = "not run"
OK: Final = "ok"
FAILED: Final = "failed"
INTERRUPTED: Final = "interrupted"
SUMMARY = "summary.json"
EXIT = {OK: 0, FAILED: 1, INTERRUPTED: 130}
UNKNOWN_SECONDS = 60.0  # assumed for a notebook that does not record its running time
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
# Of a cell's metadata; the second is how JupyterLab folds a section.
KEPT = ("tags", "jp-MarkdownHeadingCollapsed")


class CheckEntry(TypedDict):
    """A check of a notebook, as it is stored."""

    name: str
    passed: bool
    detail: str


class ResultEntry(TypedDict):
    """A headline number of a notebook, as it is stored."""

    name: str
    value: float
    unit: str


@dataclass
class Record:
    """The result of one notebook."""

    name: str    # of the file, without its suffix
    title: str   # its first heading
    digest: str  # SHA-256 of the file, so that a later edit invalidates the record
    state: State = NOT_RUN
    seconds: float = 0.0
    checks: list[CheckEntry] = field(default_factory=list)
    results: list[ResultEntry] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)  # from the committed outputs; no error
    failure: Failure | None = None

    def verdict(self) -> str:
        """Return the outcome in one line."""
        if self.state == NOT_RUN:
            return NOT_RUN
        if self.failure:
            return f"failed in cell {self.failure.cell}: {self.failure.error}"
        passed = sum(check["passed"] for check in self.checks)
        text = f"{self.state}, {self.seconds:.0f} s, {passed} of {len(self.checks)} checks passed"
        count = len(self.differences)
        return text + (f", {count} unlike the committed outputs" if count else "")


class Summary(TypedDict):
    """What `summary.json` holds of a run."""

    headline: str
    notebooks: list[Record]


def collect(notebook: NotebookNode, kind: str) -> list[Any]:
    """Collect the checks or the results that the cells of a notebook displayed."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [dict(output.data[kind]) for output in outputs if kind in output.get("data", {})]


@dataclass(frozen=True)
class Run:
    """A notebook that was run: its outputs, and its state, "ok", "failed" or "interrupted"."""

    path: Path
    notebook: NotebookNode
    state: State
    failure: Failure | None
    seconds: float


def run_each(paths: Sequence[Path], console: Console) -> Iterator[Run]:
    """Run notebooks in order, with a bar on a terminal, and a line for each elsewhere.

    Each notebook records its running time on the authors' machine: from what has run, the bar
    learns how fast this machine is. The files are not changed.
    """
    notebooks = [read(path) for path in paths]
    seconds = [notebook.metadata.get("cca_lab", {}).get("seconds") or UNKNOWN_SECONDS
               for notebook in notebooks]
    bar = Progress(TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn(),
                   TextColumn("so far, about"), TimeRemainingColumn(), TextColumn("left"),
                   console=console, transient=True, disable=not console.is_terminal,
                   speed_estimate_period=3600)
    task = bar.add_task("", total=sum(seconds))
    with bar:
        for at, (path, notebook) in enumerate(zip(paths, notebooks, strict=True)):
            label, cells = f"[{at + 1}/{len(paths)}] {path.stem}", sum(map(is_run, notebook.cells))
            if not console.is_terminal:
                _say(console, f"{label}: {cells} cells, {seconds[at]:.0f} s on the authors' "
                     "machine")

            def on_cell(cell: int, at: int = at, label: str = label, cells: int = cells) -> None:
                done = sum(seconds[:at]) + seconds[at] * (cell - 1) / cells
                text = f"{label}: cell {cell} of {cells}".replace("[", r"\[")
                bar.update(task, completed=done, description=text)

            began, failure = time.monotonic(), None
            state: State
            try:
                failure = execute(notebook, on_cell)
                state = FAILED if failure else OK
            except KeyboardInterrupt:
                state = INTERRUPTED
            yield Run(path, notebook, state, failure, round(time.monotonic() - began, 1))


def walkthrough(folder: Path, out: Path, *, start: str | None = None, only: str | None = None,
                with_pages: bool = True, console: Console | None = None) -> int:
    """Run the notebooks of a folder in order, stop at the first that fails, return the exit status.

    `out` keeps the executed notebooks, `summary.json`, and a page of each with an index; results of
    an earlier run stay as long as their notebook is the same.
    """
    console = console or Console()
    if out.resolve() == folder.resolve():
        raise ValueError(f"out: {out} is the folder of the notebooks themselves; choose another")
    check_folder(out)
    paths, chosen = choose(folder, start, only)
    records = _records(paths, chosen, out)
    out.mkdir(parents=True, exist_ok=True)
    for run in run_each(chosen, console):
        record = records[run.path.stem]
        record.state, record.failure, record.seconds = run.state, run.failure, run.seconds
        record.checks = collect(run.notebook, CHECK_TYPE)
        record.results = collect(run.notebook, RESULT_TYPE)
        committed = read(run.path)
        if run.state == OK and any(cell.get("execution_count") for cell in committed.cells):
            record.differences = compare_notebooks(committed, run.notebook)
        _write(out / run.path.name, nbformat.writes(run.notebook) + "\n")
        _write(out / SUMMARY, json.dumps(
            {"headline": headline(records.values()),
             "notebooks": [asdict(each) for each in records.values()]}, indent=1) + "\n")
        _say(console, f"{run.path.stem}: {record.verdict()}")
        if run.state != OK:
            break
    if with_pages:
        ran = [name for name, each in records.items() if each.state != NOT_RUN]
        for name in {path.stem for path in chosen} & set(ran):
            page = notebook_page(read(out / f"{name}.ipynb"), folder, out, ran)
            _write(out / f"{name}.html", page)
        index = index_page(records.values(), headline(records.values()))
        _write(out / "index.html", index)
    _say(console, _closing(run.path, record, out, with_pages, headline(records.values())))
    return EXIT[record.state]


def headline(records: Any) -> str:
    """Return the outcome of the whole run in one sentence, with the machine it ran on."""
    records = list(records)
    checks = [check["passed"] for record in records for check in record.checks]
    return (f"{sum(record.state == OK for record in records)} of {len(records)} notebooks ran to "
            f"their end, {sum(checks)} of {len(checks)} checks passed, in "
            f"{sum(record.seconds for record in records):.0f} s. Python "
            f"{platform.python_version()}, torch {version('torch')}, {platform.system()} "
            f"{platform.machine()}, {os.cpu_count()} cores.")


def _records(paths: list[Path], chosen: list[Path], out: Path) -> dict[str, Record]:
    """Return a record for each notebook: an earlier one if it is still true, else a new one."""
    earlier = _earlier(out / SUMMARY) if (out / SUMMARY).exists() else {}
    records = {}
    for path in paths:
        new = Record(path.stem, title_of(read(path), path.stem),
                     hashlib.sha256(path.read_bytes()).hexdigest())
        before = earlier.get(path.stem)
        keep = before is not None and before.digest == new.digest and path not in chosen
        records[path.stem] = before if keep and before else new
        if not keep:
            for suffix in (".ipynb", ".html"):
                (out / f"{path.stem}{suffix}").unlink(missing_ok=True)
    return records


def _earlier(path: Path) -> dict[str, Record]:
    """Return the records of an earlier run by name; ValueError if they are not as written here."""
    advice = f"delete {path}, and run all notebooks again"
    stored = read_json(path, "summary", advice)
    matches(stored, Summary, str(path), advice)
    records = {}
    for entry in stored["notebooks"]:
        record = Record(**{each.name: entry[each.name] for each in fields(Record)})
        if failed := entry["failure"]:
            record.failure = Failure(**{each.name: failed[each.name] for each in fields(Failure)})
        records[record.name] = record
    return records


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _closing(path: Path, record: Record, out: Path, with_pages: bool, summary: str) -> str:
    lines = [""]
    if record.failure:
        lines += [record.failure.traceback, "", f"{path.name} failed in cell "
                  f"{record.failure.cell}: {record.failure.line}", record.failure.error]
    if record.state != OK:
        number = path.stem.partition("_")[0]
        lines += [f"{path.name}: {record.state}. What ran before is kept in {out / path.name}",
                  f"Run again from there: make walkthrough FROM={number}"
                  f"   (or: cca-lab walkthrough --from {number})", ""]
    return "\n".join([*lines, summary, *([f"Pages: {out / 'index.html'}"] if with_pages else [])])


def _say(console: Console, text: str) -> None:
    # a path that is no UTF-8 is shown with its bytes
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    console.print(shown, markup=False, highlight=False, soft_wrap=True)


def title_of(notebook: NotebookNode, otherwise: str) -> str:
    """Return the first heading of a notebook without markup, or `otherwise` if it has none."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    heading = re.search(r"^#\s+(.+)$", text, re.MULTILINE)
    return re.sub(r"[*`$]|\b_|_\b", "", heading.group(1)).strip() if heading else otherwise


def tidy(notebook: NotebookNode, seconds: float) -> None:
    """Keep, in place, only metadata that is the same on every machine, and the running time."""
    notebook.metadata = nbformat.from_dict({
        "kernelspec": KERNELSPEC, "language_info": {"name": "python"},
        "cca_lab": {"seconds": round(seconds)}})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in KEPT
                                            if cell.metadata.get(key)})


def refresh(folder: Path, *, start: str | None = None, only: str | None = None,
            console: Console | None = None) -> int:
    """For maintainers: run notebooks, write outputs into their files, return the exit status."""
    console = console or Console()
    for run in run_each(choose(folder, start, only)[1], console):
        if run.state != OK:
            why = (f"failed in cell {run.failure.cell}: {run.failure.line}\n"
                   f"{run.failure.traceback}\n{run.failure.error}") if run.failure else run.state
            _say(console, f"{run.path.stem}: {why}\nThe file was left as it was.")
            return EXIT[run.state]
        tidy(run.notebook, run.seconds)
        _write(run.path, nbformat.writes(run.notebook) + "\n")
        _say(console, f"{run.path.stem}: written, {run.seconds:.0f} s")
    return 0
