"""Marks in nbgrader's database, and each submission with its findings where nbgrader reads it.

Lists, due dates, comments, texts that a person reads, pages of feedback and the export are
nbgrader's. Findings stand below each check: points by property and what is wrong, with the reason
only on inputs that a cell shows too.
"""

import contextlib
import io
import json
import os
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from cca_lab.course.cell import UNSEEN, lines_of
from cca_lab.course.grading import Record, Refused, cells_of, find_work, released
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.tasks import Assignment
from cca_lab.extras import need
from cca_lab.files import check_file, replacing
from cca_lab.views import notebook_files
from cca_lab.views.notebook_tools import fenced

COURSE = "long-context-attention"  # as in lab/nbgrader_config.py
STAMP = "timestamp.txt"  # nbgrader's, beside the notebook: when it was handed in
# A page colors code in a time that may grow with the square of its length: longer cells are plain
# text, of which the first characters are shown.
COLORED, SHOWN, FURTHER = 5000, 20_000, 100  # characters of a cell, twice; cells of the student's


def write(records: list[Record], course: Path, database: Path, submitted: Path) -> None:
    """Write marks into the database, usually lab/gradebook.db, and notebooks into `autograded/`.

    A mark that a person gave stays, and is to be looked at again if the work was graded anew. A
    text waits for a person until it has one. What failed for a reason of ours is left out.
    """
    records = [record for record in records if record["status"] != "failed"]
    templates = {}
    with opened(database) as book:
        for assignment in ASSIGNMENTS.values():
            if any(record["assignment"] == assignment.name for record in records):
                book.update_or_create_assignment(assignment.name)
                templates[assignment.name] = enter(course, assignment, database)
        for record in records:
            write_marks(record, book, submitted)
        book.db.commit()
    assign_penalties(records, course, database)
    for record in records:
        name, folder = record["assignment"], Path(record["student"], record["assignment"])
        show(record, submitted / folder, templates[name], course / "autograded" / folder)


@contextlib.contextmanager
def opened(database: Path) -> Iterator[Any]:
    """Open or make nbgrader's database; it calls `alembic` by name, which lies beside Python.

    Raises:
        ValueError: for a file that is no such database.
    """
    need("nbgrader")
    check_file(database, "gradebook")
    before = os.environ.get("PATH", "")
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its database layer
        from nbgrader.api import Gradebook, StatementError

        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
        try:
            with Gradebook(f"sqlite:///{database.resolve()}", COURSE) as book:
                list(book.assignments)
                yield book
        except StatementError as error:
            raise ValueError(f"gradebook: {database} is no database of nbgrader, or not of its "
                             f"installed version ({getattr(error, 'orig', None) or error}); choose "
                             "another name") from error
        finally:
            os.environ["PATH"] = before


def enter(course: Path, assignment: Assignment, database: Path) -> NotebookNode:
    """Make the cells of an assignment known to the database, by nbgrader, and return them."""
    from nbgrader.preprocessors import SaveCells

    resources = {"nbgrader": {"notebook": assignment.name, "assignment": assignment.name,
                              "db_url": f"sqlite:///{database.resolve()}"}}
    return SaveCells().preprocess(notebook_files.read(released(course, assignment)), resources)[0]


def stamp_in(folder: Path) -> Any:
    """Return the time that nbgrader noted beside a notebook, or None."""
    from nbgrader.utils import parse_utc

    path = folder / STAMP
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and not path.is_symlink():
            with path.open(encoding="utf-8") as file:
                return parse_utc(file.read(40).strip())
    return None


def write_marks(record: Record, book: Any, submitted: Path) -> None:
    """Write the marks of one submission, and when it was handed in, if that is known."""
    name, student = record["assignment"], record["student"]
    time = stamp_in(submitted / student / name)
    book.update_or_create_student(student)
    book.update_or_create_submission(name, student, **({"timestamp": time} if time else {}))
    book.db.expire_all()
    for task in record["tasks"]:
        cell = task["id"].replace(".", "-") + ("-answer" if task["read"] else "-check")
        grade = book.find_grade(cell, name, name, student)
        if grade.manual_score is not None:
            grade.needs_manual_grade = grade.needs_manual_grade or record.get("anew", False)
        else:
            grade.needs_manual_grade = bool(task["read"]) and record["status"] == "graded"
        if not task["read"]:
            grade.auto_score = task["earned"]


def assign_penalties(records: list[Record], course: Path, database: Path) -> None:
    """Let nbgrader take points off late work, by the plugin of the course's nbgrader_config.py."""
    from nbgrader.preprocessors import AssignLatePenalties
    from traitlets.config.loader import PyFileConfigLoader

    loader = PyFileConfigLoader("nbgrader_config.py", path=str(course))
    config = loader.load_config() if (course / "nbgrader_config.py").exists() else None
    for record in records:
        AssignLatePenalties(config=config).preprocess(
            nbformat.v4.new_notebook(), {"nbgrader": {
                "notebook": record["assignment"], "assignment": record["assignment"],
                "student": record["student"], "db_url": f"sqlite:///{database.resolve()}"}})


def show(record: Record, folder: Path, template: NotebookNode, to: Path) -> None:
    """Write a submission for formgrader: the released cells with the student's answers.

    Only sources come from the student, never metadata, outputs or attachments, and Markdown becomes
    a block of plain text: a teacher's browser runs and loads nothing of it.
    """
    try:
        cells = cells_of(find_work(assignment_of(to.name), folder)[0])
    except (Refused, OSError):  # the record says why
        cells = []
    theirs = {cell["name"]: cell["source"] for cell in cells}
    known = {cell.id for cell in template.cells}
    notes = ["This could not be graded:"] * (record["status"] == "refused") + record["notes"]
    made = [nbformat.v4.new_markdown_cell(inert("\n".join(notes)))] * bool(notes)
    for cell in template.cells:
        cell = nbformat.from_dict(cell)
        if cell.metadata.nbgrader.solution:
            source = theirs.get(cell.id, "(this cell is missing)")
            if cell.cell_type == "markdown" or len(source) > COLORED:
                cell = nbformat.v4.new_markdown_cell(inert(source), id=cell.id,
                                                     metadata=cell.metadata)
            cell.source = source if cell.cell_type == "code" else cell.source
        elif said := "\n".join(findings(record, cell.id)):
            cell.outputs = [nbformat.v4.new_output("stream", text=said + "\n")]
        made.append(cell)
    further = [cell for cell in cells if cell["name"] not in known and cell["source"].strip()]
    made += [nbformat.v4.new_markdown_cell(inert(cell["source"])) for cell in further[:FURTHER]]
    notebook = nbformat.v4.new_notebook(cells=made, metadata=template.metadata)
    with replacing(to / f"{to.name}.ipynb") as temporary:
        temporary.write_text(json.dumps(notebook), encoding="utf-8")


def findings(record: Record, cell: str) -> list[str]:
    """Return the lines below a check, as its student may see them."""
    return [line for task in record["tasks"] if cell == f"{task['id'].replace('.', '-')}-check"
            for line in lines_of(
                (finding["name"], finding["earned"], finding["points"],
                 "" if finding["earned"] >= finding["points"] else
                 finding["message"] if finding["shown"] else UNSEEN)
                for finding in task["findings"])]


def inert(text: str) -> str:
    """Return Markdown that shows a text as it is, in lines that fit on a screen."""
    if len(text) > SHOWN:
        text = f"{text[:SHOWN]}\n... and {len(text) - SHOWN} characters more in the notebook"
    lines = [part for line in text.split("\n") for part in textwrap.wrap(
        line, 100, replace_whitespace=False, drop_whitespace=False) or [""]]
    return fenced("\n".join(lines), "text")
