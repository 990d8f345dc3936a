"""The results of a walkthrough: one record per notebook, and a summary of them all."""

import hashlib
import html
import json
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from cca_lab.views.notebook_tools import CHECK_TYPE, RESULT_TYPE
from cca_lab.walkthrough.execution import Failure
from cca_lab.walkthrough.pages import page
from cca_lab.walkthrough.progress import duration

OK, FAILED, INTERRUPTED, NOT_RUN = "ok", "failed", "interrupted", "not run"


@dataclass
class Record:
    """The result of one notebook.

    Attributes:
        name: file name without its suffix.
        title: its first heading.
        digest: SHA-256 of the notebook file, so that a later edit invalidates the record.
        state: "ok", "failed", "interrupted" or "not run".
        seconds: running time.
        checks: its checks, each with name, passed and detail.
        results: its headline numbers, each with name, value and unit.
        differences: where its outputs differ from the committed ones; not an error, see `comparison`.
        failure: where and why it stopped.
    """

    name: str
    title: str
    digest: str
    state: str = NOT_RUN
    seconds: float = 0.0
    checks: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    failure: Failure | None = None

    def verdict(self) -> str:
        """Return the outcome in one line."""
        if self.state == NOT_RUN:
            return NOT_RUN
        if self.failure:
            return f"failed in cell {self.failure.cell} after {duration(self.seconds)}: {self.failure.error}"
        passed = sum(outcome["passed"] for outcome in self.checks)
        parts = [f"{self.state}, {duration(self.seconds)}, {passed} of {len(self.checks)} checks passed"]
        if self.differences:
            parts.append(f"{len(self.differences)} unlike the committed outputs")
        return ", ".join(parts)


def collect(notebook: NotebookNode, kind: str) -> list[dict[str, Any]]:
    """Collect the checks or the results that the cells of a notebook displayed."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return [dict(output.data[kind]) for output in outputs if kind in output.get("data", {})]


def collect_into(record: Record, notebook: NotebookNode) -> None:
    """Fill a record with the checks and results of the executed notebook."""
    record.checks = collect(notebook, CHECK_TYPE)
    record.results = collect(notebook, RESULT_TYPE)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a notebook file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def earlier_records(out: Path) -> dict[str, Record]:
    """Return the records of the last run from its `summary.json`, by notebook; empty if there is no such file."""
    try:
        stored = json.loads((out / "summary.json").read_text(encoding="utf-8"))["notebooks"]
        records = [Record(**{**entry, "failure": entry["failure"] and Failure(**entry["failure"])})
                   for entry in stored]
    except (OSError, ValueError, KeyError, TypeError):  # absent, or written by another version
        return {}
    return {record.name: record for record in records}


def headline(records: list[Record]) -> str:
    """Return the outcome of the whole run in one sentence."""
    checks = [outcome["passed"] for record in records for outcome in record.checks]
    ran = [record for record in records if record.state != NOT_RUN]
    complete = sum(record.state == OK for record in ran)
    return (f"{complete} of {len(records)} notebooks ran to their end, {sum(checks)} of {len(checks)} checks "
            f"passed, {duration(sum(record.seconds for record in ran))}.")


def machine() -> str:
    """Return a description of the machine and the versions."""
    return (f"Python {platform.python_version()}, torch {version('torch')}, "
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores")


def _number(entry: dict[str, Any]) -> str:
    value = entry["value"]
    shown = str(value) if isinstance(value, int) else f"{value:.4g}"
    return f"{shown} {entry['unit']}".rstrip()


def summary_markdown(records: list[Record]) -> str:
    """Return the summary as Markdown."""
    lines = ["# Walkthrough", "", headline(records), "", f"Run on {machine()}.", "",
             "| notebook | outcome |", "|---|---|"]
    lines += [f"| {record.name} | {record.verdict().replace('|', '/')} |" for record in records]
    for record in records:
        if record.state == NOT_RUN:
            continue
        lines += ["", f"## {record.title}", ""]
        lines += [f"* {'ok' if outcome['passed'] else 'FAILED'}: {outcome['name']}"
                  + (f" ({outcome['detail']})" if outcome["detail"] else "") for outcome in record.checks]
        lines += [f"* {entry['name']} = {_number(entry)}" for entry in record.results]
        lines += [f"* unlike the committed outputs: {difference}" for difference in record.differences]
        if record.failure:
            lines += ["", f"Cell {record.failure.cell}, `{record.failure.line}`", "", "```",
                      record.failure.traceback or record.failure.error, "```"]
    return "\n".join(lines) + "\n"


def _row(record: Record) -> str:
    passed = sum(outcome["passed"] for outcome in record.checks)
    results = [html.escape(f"{entry['name']} = {_number(entry)}") for entry in record.results]
    cells = [f'<a href="{record.name}.html">{html.escape(record.title)}</a><br><code>{record.name}</code>',
             f'<span class="{record.state.replace(" ", "-")}">{record.state}</span>',
             duration(record.seconds) if record.seconds else "",
             f"{passed} of {len(record.checks)}" if record.checks else "",
             "<br>".join(results)]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def index_page(records: list[Record]) -> str:
    """Return the table of contents as an HTML page."""
    heads = "".join(f"<th>{text}</th>" for text in ("notebook", "state", "time", "checks", "what came out"))
    rows = "\n".join(_row(record) for record in records)
    return page("Walkthrough",
                f"<h1>Walkthrough</h1>\n<p>{html.escape(headline(records))} {html.escape(machine())}.</p>\n"
                f"<table>\n<tr>{heads}</tr>\n{rows}\n</table>\n"
                '<p>Every check with its evidence: <a href="summary.md">summary.md</a>, '
                '<a href="summary.json">summary.json</a>.</p>')


def write_summary(records: list[Record], out: Path) -> None:
    """Write `summary.json` and `summary.md`."""
    stored = {"headline": headline(records), "machine": machine(),
              "notebooks": [asdict(record) for record in records]}
    (out / "summary.json").write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    (out / "summary.md").write_text(summary_markdown(records), encoding="utf-8")
