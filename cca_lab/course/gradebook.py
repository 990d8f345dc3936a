"""Marks into nbgrader's database, so that a person goes on in formgrader: reads the texts, comments, changes a mark."""

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from cca_lab.course import release, submission
from cca_lab.course.grading import Record
from cca_lab.course.registry import assignment_of
from cca_lab.course.tasks import Assignment
from cca_lab.extras import need
from cca_lab.outputs import replacing

COURSE = "long-context-attention"  # as in lab/nbgrader_config.py


def export(records: list[Record], course: Path, database: Path, submitted: Path) -> None:
    """Write the points of every check into the database, and the notebooks where formgrader shows them.

    A mark that a person gave stays. A text waits for a person until it has one.

    Args:
        records: what `grading.grade_folder` returned.
        course: the folder `lab/`.
        database: nbgrader's, usually lab/gradebook.db; it is made if need be.
        submitted: the folder of submissions.
    """
    with opened(database) as book:
        for name in dict.fromkeys(record["assignment"] for record in records):
            enter(course, assignment_of(name), database, book)
        for record in records:
            if record["status"] != "failed":
                _write(record, book)
        book.db.commit()
    for record in records:
        if record["status"] == "graded":
            show(submitted / record["student"] / record["assignment"], assignment_of(record["assignment"]),
                 course / "autograded" / record["student"] / record["assignment"])


@contextlib.contextmanager
def opened(database: Path) -> Iterator[Any]:
    """Open or make nbgrader's database; it calls `alembic` by name, which lies beside Python."""
    need("nbgrader")
    before = os.environ.get("PATH", "")
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its database layer
        from nbgrader.api import Gradebook

        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
        try:
            with Gradebook(f"sqlite:///{database.resolve()}", COURSE) as book:
                yield book
        finally:
            os.environ["PATH"] = before


def enter(course: Path, part: Assignment, database: Path, book: Any) -> None:
    """Make an assignment and its cells known to the database, by nbgrader's own steps."""
    from nbgrader.preprocessors import ComputeChecksums, LockCells, SaveCells

    book.update_or_create_assignment(part.name)
    notebook = release.read(course, part)
    resources = {"nbgrader": {"notebook": part.name, "assignment": part.name,
                              "db_url": f"sqlite:///{database.resolve()}"}}
    for step in (LockCells, ComputeChecksums, SaveCells):
        notebook, resources = step().preprocess(notebook, resources)


def _write(record: Record, book: Any) -> None:
    """Write the marks of one submission."""
    name = record["assignment"]
    book.update_or_create_student(record["student"])
    book.update_or_create_submission(name, record["student"])
    book.db.expire_all()
    for task in record["tasks"]:
        cell = task["id"].replace(".", "-") + ("-answer" if task["read"] else "-check")
        grade = book.find_grade(cell, name, name, record["student"])
        if task["read"]:
            grade.needs_manual_grade = grade.manual_score is None and record["status"] == "graded"
        else:
            grade.auto_score = task["earned"]
            grade.needs_manual_grade = False


def show(folder: Path, part: Assignment, to: Path) -> None:
    """Copy the notebook of a submission, without its outputs, to where formgrader looks for it."""
    try:
        path = submission.find(part, folder)[0]
        notebook = nbformat.reads(submission.text(path), 4)
    except Exception:  # an editor's file, or a notebook too damaged to be shown: its marks stand all the same
        return
    notebook.metadata = nbformat.from_dict({"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"nbgrader": cell.metadata.get("nbgrader", {})})
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:  # formgrader shows it in the teacher's browser: as text, not as HTML
            cell.cell_type, cell.source = "markdown", cell.source.replace("<", "&lt;").replace("](", "] (")
    with replacing(to / f"{part.name}.ipynb") as temporary:
        temporary.write_text(json.dumps(notebook), encoding="utf-8")
