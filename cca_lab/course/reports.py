"""Reports from a grading: tables (CSV), pages for students and the class, nbgrader's database.

Pages for students say which properties failed, and why only on inputs that a cell shows too.
Whatever came from a submission is escaped. nbgrader's database gets the marks too, so that a person
goes on in formgrader: reads the texts, comments, changes a mark.
"""

import contextlib
import csv
import io
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat

from cca_lab.course import release
from cca_lab.course.grading import Record, find_work, plain_text
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.tasks import Assignment
from cca_lab.extras import need
from cca_lab.files import check_file, replacing

HERE = Path(__file__).parent
UNSEEN = "fails on inputs that are not shown"
COURSE = "long-context-attention"  # as in lab/nbgrader_config.py


def write(records: list[Record], out: Path) -> list[Path]:
    """Write all reports of a folder of marks, and return their paths."""
    texts = {out / "marks.csv": marks(records), out / "tasks.csv": tasks(records),
             out / "class.html": page("class.html", rows=class_rows(records),
                                      assignments=totals(records))}
    for student in sorted({record["student"] for record in records}):
        handed_in = [shown(record) for record in records if record["student"] == student]
        texts[out / student / "feedback.html"] = page("student.html", student=student,
                                                      records=handed_in)
    for path, text in texts.items():
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return list(texts)


def marks(records: list[Record]) -> str:
    """Return a line per student with the points of checks in each assignment, and their sum."""
    names = [assignment.name for assignment in ASSIGNMENTS.values()
             if any(assignment.name == record["assignment"] for record in records)]
    lines = []
    for student in sorted({record["student"] for record in records}):
        earned = {record["assignment"]: record["earned"] for record in records
                  if record["student"] == student}
        lines.append([plain(student),
                      *(f"{earned[name]:g}" if name in earned else "" for name in names),
                      f"{sum(earned.values()):g}"])
    return table(["student", *names, "sum"], lines)


def tasks(records: list[Record]) -> str:
    """Return a line per student and task, with points that a person has to give."""
    none = [{"id": "", "earned": 0, "points": "", "read": ""}]
    return table(["student", "assignment", "task", "earned", "points", "to be read", "status",
                  "sandbox", "notes"],
                 ([plain(record["student"]), record["assignment"], task["id"],
                   f"{task['earned']:g}", task["points"], task["read"], record["status"],
                   record["sandbox"], plain("; ".join(record["notes"]))]
                  for record in records for task in record["tasks"] or none))


def table(head: list[str], lines: Iterable[list[Any]]) -> str:
    """Return CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return text.getvalue()


def plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula, on one line."""
    text = " ".join(text.split()).replace(";", ",")
    return f"'{text}" if text[:1] in tuple("=+-@") else text


def shown(record: Record) -> Record:
    """Return a record as its student may see it: messages only for inputs that a cell shows too."""
    def message(finding: dict[str, Any]) -> str:
        if finding["earned"] >= finding["points"]:
            return ""
        return finding["message"] if finding["shown"] else UNSEEN

    return record | {"tasks": [task | {"findings": [finding | {"message": message(finding)}
                                                    for finding in task["findings"]]}
                               for task in record["tasks"]]}


def totals(records: list[Record]) -> list[dict[str, Any]]:
    """Return, for each assignment, how many handed in and the mean of their points."""
    rows = []
    for assignment in ASSIGNMENTS.values():
        handed_in = [record for record in records if record["assignment"] == assignment.name]
        graded = [record["earned"] for record in handed_in if record["status"] == "graded"]
        if handed_in:
            rows.append({"name": assignment.name, "title": assignment.title,
                         "points": assignment.points, "graded": len(graded),
                         "others": len(handed_in) - len(graded),
                         "mean": sum(graded) / len(graded) if graded else 0.0,
                         "sandboxes": sorted({record["sandbox"] for record in handed_in
                                              if record["sandbox"]})})
    return rows


def class_rows(records: list[Record]) -> list[dict[str, Any]]:
    """Return a row for each property: how many failed, who, and the most frequent message."""
    rows = []
    for assignment in ASSIGNMENTS.values():
        handed_in = [record for record in records if record["assignment"] == assignment.name
                     and record["status"] == "graded"]
        for task in assignment.tasks if handed_in else ():
            for wanted in task.properties:
                all_marks = [(record["student"], finding) for record in handed_in
                             for entry in record["tasks"] if entry["id"] == task.id
                             for finding in entry["findings"] if finding["name"] == wanted.name]
                failed = [(student, finding) for student, finding in all_marks
                          if finding["earned"] < finding["points"]]
                said = Counter(finding["message"] for _, finding in failed
                               if not finding["unwritten"])
                rows.append({"assignment": assignment.name, "task": task.id, "title": task.title,
                             "property": wanted.name, "points": wanted.points,
                             "of": len(all_marks), "failed": [student for student, _ in failed],
                             "unwritten": sum(finding["unwritten"] for _, finding in failed),
                             "message": said.most_common(1)[0][0] if said else ""})
    return rows


def page(template: str, **values: Any) -> str:
    """Return a page from a template beside this module; everything in it is escaped."""
    need("jinja2")
    from jinja2 import Environment, FileSystemLoader

    pages = Environment(loader=FileSystemLoader(HERE / "pages"), autoescape=True, trim_blocks=True,
                        lstrip_blocks=True)
    return pages.get_template(template).render(**values)


def export(records: list[Record], course: Path, database: Path, submitted: Path) -> None:
    """Write the points of every check into the database, and notebooks to formgrader's folder.

    A mark that a person gave stays. A text waits for a person until it has one. The database is
    nbgrader's, usually lab/gradebook.db; it is made if need be.
    """
    with opened(database) as book:
        for name in dict.fromkeys(record["assignment"] for record in records):
            enter(course, assignment_of(name), database, book)
        for record in records:
            if record["status"] != "failed":
                write_marks(record, book)
        book.db.commit()
    for record in records:
        if record["status"] == "graded":
            folder = Path(record["student"], record["assignment"])
            show(submitted / folder, assignment_of(record["assignment"]),
                 course / "autograded" / folder)


def check_gradebook(database: Path) -> None:
    """Raise ValueError for a file that is no database of nbgrader; make one if there is none."""
    with opened(database) as book:
        list(book.assignments)


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
                yield book
        except StatementError as error:
            raise ValueError(f"gradebook: {database} is no database of nbgrader, or not of its "
                             f"installed version ({getattr(error, 'orig', None) or error}); choose "
                             "another name") from error
        finally:
            os.environ["PATH"] = before


def enter(course: Path, assignment: Assignment, database: Path, book: Any) -> None:
    """Make an assignment and its cells known to the database, by nbgrader's own steps."""
    from nbgrader.preprocessors import ComputeChecksums, LockCells, SaveCells

    book.update_or_create_assignment(assignment.name)
    notebook = release.read(course, assignment)
    resources = {"nbgrader": {"notebook": assignment.name, "assignment": assignment.name,
                              "db_url": f"sqlite:///{database.resolve()}"}}
    for step in (LockCells, ComputeChecksums, SaveCells):
        notebook, resources = step().preprocess(notebook, resources)


def write_marks(record: Record, book: Any) -> None:
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


def show(folder: Path, assignment: Assignment, to: Path) -> None:
    """Copy the notebook of a submission, without its outputs, to where formgrader looks for it."""
    try:
        path = find_work(assignment, folder)[0]
        notebook = nbformat.reads(plain_text(path), 4)
    except Exception:  # an editor's file, or a notebook too damaged to be shown; its marks stand
        return
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"nbgrader": cell.metadata.get("nbgrader", {})})
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:  # formgrader shows it in the teacher's browser: as text, not as HTML
            cell.cell_type = "markdown"
            cell.source = cell.source.replace("<", "&lt;").replace("](", "] (")
    with replacing(to / f"{assignment.name}.ipynb") as temporary:
        temporary.write_text(json.dumps(notebook), encoding="utf-8")
