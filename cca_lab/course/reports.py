"""Reports from a grading: tables (CSV), pages for students and the class, nbgrader's database.

Pages for students say which properties failed, and why only on inputs that a cell shows too.
Whatever came from a submission is escaped. nbgrader's database gets the marks too, so that a person
goes on in formgrader: reads the texts, comments, changes a mark; what was given there is read back.
"""

import contextlib
import csv
import io
import json
import os
import re
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from cca_lab.course import classlist, release
from cca_lab.course.cell import UNSEEN
from cca_lab.course.classlist import Given
from cca_lab.course.grading import Record, Refused, cells_of, work_in
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.tasks import Assignment
from cca_lab.extras import need
from cca_lab.files import check_file, replacing

HERE = Path(__file__).parent
COURSE = "long-context-attention"  # as in lab/nbgrader_config.py
STAMP = "timestamp.txt"  # nbgrader's, beside the notebook: when it was handed in


def write(records: list[Record], out: Path, roster: Collection[str] = (),
          given: Given | None = None) -> list[Path]:
    """Write all reports of a folder of marks, and return their paths.

    `roster` names the students of the class, `given` is what a person gave.
    """
    records = classlist.marked(records, given or {})
    texts = {out / "marks.csv": marks(records, roster), out / "tasks.csv": tasks(records),
             out / "class.html": page("class.html", rows=class_rows(records),
                                      assignments=totals(records))}
    for student in students(records):
        handed_in = [shown(record) for record in records if record["student"] == student]
        texts[out / student / "feedback.html"] = page("student.html", student=student,
                                                      records=handed_in)
    for path, text in texts.items():
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    remember(records, out / "history.csv")
    return list(texts)


def students(records: list[Record]) -> list[str]:
    """Return all students, once, in alphabetical order."""
    return sorted({record["student"] for record in records})


def names_of(records: list[Record]) -> list[str]:
    """Return the names of the assignments that anybody handed in, in order."""
    return [assignment.name for assignment in ASSIGNMENTS.values()
            if any(assignment.name == record["assignment"] for record in records)]


def points(number: float | None) -> str:
    """Return points for a table: nothing for a mark that is not known."""
    return "" if number is None else f"{number:g}"


def marks(records: list[Record], roster: Collection[str]) -> str:
    """Return a line per student: marks, the points of texts in them, their sum, what to know."""
    names = names_of(records)
    read = [name for name in names if any(record["texts"] is not None for record in records
                                          if record["assignment"] == name)]
    lines = []
    for student in students(records):
        found = {record["assignment"]: record for record in records
                 if record["student"] == student}
        said = [note for name in names if name in found for note in classlist.notes(found[name])]
        if roster and student not in roster:
            said.insert(0, f"not in {classlist.STUDENTS}")
        lines.append([plain(student),
                      *(points(found[name]["mark"]) if name in found else "" for name in names),
                      *(points(found[name]["texts"]) if name in found else "" for name in read),
                      points(sum(record["mark"] or 0.0 for record in found.values())),
                      plain("; ".join(said))])
    head = ["student", *names, *(f"{name} texts" for name in read), "sum", "notes"]
    return table([head, *lines])


def tasks(records: list[Record]) -> str:
    """Return a line per student and task, with the points that a person gives."""
    head = ["student", "assignment", "task", "earned", "points", "to be read", "read", "status",
            "sandbox", "notes"]
    return table([head, *(
        [plain(record["student"]), record["assignment"], task["id"],
         "" if record["status"] == "failed" else points(task["earned"]), task["points"],
         task["read"], points(task["text"]), record["status"], record["sandbox"],
         plain("; ".join(record["notes"]))] for record in records for task in record["tasks"])])


def remember(records: list[Record], path: Path) -> None:
    """Append a line for each mark that changed; what stands there is never changed."""
    head = ["time", "student", "assignment", "mark", "texts", "status"]
    before: dict[tuple[str, str], list[str]] = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            before = {(line[1], line[2]): line[3:] for line in csv.reader(file) if len(line) > 3}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [[now, plain(record["student"]), record["assignment"], points(record["mark"]),
              points(record["texts"]), record["status"]] for record in records]
    lines = [line for line in lines if before.get((line[1], line[2])) != line[3:]]
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(table(([] if before else [head]) + lines))


def give_back(out: Path, folder: Path) -> tuple[list[Path], list[Path]]:
    """Copy each student's page into that student's folder; return the copies, and links left out.

    A student may have put links there, or a folder of that name: nothing goes through either.
    """
    written, left = [], []
    for page_of in sorted(out.glob("*/feedback.html")):
        path = folder / page_of.parent.name / page_of.name
        if path.parent.is_symlink() or path.is_dir() and not path.is_symlink():
            left.append(path.parent if path.parent.is_symlink() else path)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(page_of.read_text(encoding="utf-8"))
        written.append(path)
    return written, left


def table(lines: Iterable[list[Any]]) -> str:
    """Return CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
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
        graded = [record["mark"] for record in handed_in if record["status"] == "graded"]
        if handed_in:
            rows.append({"name": assignment.name, "title": assignment.title,
                         "points": assignment.points + assignment.read * any(
                             record["texts"] is not None for record in handed_in),
                         "graded": len(graded),
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
    templates = {}
    with opened(database) as book:
        for name in names_of(records):
            templates[name] = enter(course, assignment_of(name), database, book)
        for record in records:
            if record["status"] in ("graded", "refused"):
                write_marks(record, book, submitted)
        book.db.commit()
    assign_penalties(records, course, database)
    for record in records:
        if record["status"] == "graded":
            name, folder = record["assignment"], Path(record["student"], record["assignment"])
            show(submitted / folder, templates[name], course / "autograded" / folder)


def given(records: list[Record], database: Path) -> Given:
    """Return what a person gave for each task of each submission, None for what nobody judged.

    Beside the tasks stands what nbgrader takes off for lateness.
    """
    from nbgrader.api import MissingEntry

    found: Given = {}
    with opened(database) as book:
        for record in records:
            name, student = record["assignment"], record["student"]
            with contextlib.suppress(MissingEntry):
                found[student, name] = {
                    task["id"]: None if grade.manual_score is None
                    else grade.manual_score + (grade.extra_credit or 0.0)
                    for task in record["tasks"]
                    for grade in [book.find_grade(cell_of(task), name, name, student)]}
                found[student, name][classlist.LATE] = book.find_submission_notebook(
                    name, name, student).late_submission_penalty
    return found


def cell_of(task: Record) -> str:
    """Return the id of the cell that has a task's points in nbgrader."""
    return task["id"].replace(".", "-") + ("-answer" if task["read"] else "-check")


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


def enter(course: Path, assignment: Assignment, database: Path, book: Any) -> NotebookNode:
    """Make an assignment and its cells known to the database, and return them, by nbgrader."""
    from nbgrader.preprocessors import ComputeChecksums, LockCells, SaveCells

    book.update_or_create_assignment(assignment.name)
    notebook = release.read(course, assignment)
    resources = {"nbgrader": {"notebook": assignment.name, "assignment": assignment.name,
                              "db_url": f"sqlite:///{database.resolve()}"}}
    for step in (LockCells, ComputeChecksums, SaveCells):
        notebook, resources = step().preprocess(notebook, resources)
    return notebook


def write_marks(record: Record, book: Any, submitted: Path) -> None:
    """Write the marks of one submission, and when it was handed in if nbgrader's file says so."""
    from nbgrader.utils import parse_utc

    name, stamp = record["assignment"], {}
    path = submitted / record["student"] / name / STAMP
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and not path.is_symlink():
            with path.open(encoding="utf-8") as file:
                stamp = {"timestamp": parse_utc(file.read(40).strip())}
    book.update_or_create_student(record["student"])
    book.update_or_create_submission(name, record["student"], **stamp)
    book.db.expire_all()
    for task in record["tasks"]:
        grade = book.find_grade(cell_of(task), name, name, record["student"])
        if task["read"]:
            grade.needs_manual_grade = grade.manual_score is None and record["status"] == "graded"
        else:
            grade.auto_score = task["earned"]
            grade.needs_manual_grade = False


def assign_penalties(records: list[Record], course: Path, database: Path) -> None:
    """Let nbgrader take points off late work, by the plugin of the course's nbgrader_config.py."""
    from nbgrader.preprocessors import AssignLatePenalties
    from traitlets.config.loader import PyFileConfigLoader

    loader = PyFileConfigLoader("nbgrader_config.py", path=str(course))
    config = loader.load_config() if (course / "nbgrader_config.py").exists() else None
    for record in records:
        if record["status"] == "graded":
            AssignLatePenalties(config=config).preprocess(
                nbformat.v4.new_notebook(), {"nbgrader": {
                    "notebook": record["assignment"], "assignment": record["assignment"],
                    "student": record["student"], "db_url": f"sqlite:///{database.resolve()}"}})


def show(folder: Path, template: NotebookNode, to: Path) -> None:
    """Write a submission for formgrader: the solved notebook's cells with the student's answers.

    Only sources come from the student, never metadata, outputs or attachments, and Markdown becomes
    a block of plain text: a teacher's browser runs and loads nothing of it.
    """
    path = work_in(assignment_of(to.name), folder)
    try:
        cells = cells_of(path) if path else []
    except Refused:  # an editor's file; its marks stand
        return
    theirs = {cell["name"]: cell["source"] for cell in cells}
    known = {cell.id for cell in template.cells}
    made = [nbformat.from_dict({**cell, "source": theirs.get(cell.id, "(this cell is missing)")
                                if cell.metadata.nbgrader.solution else cell.source})
            for cell in template.cells]
    for cell in made:
        if cell.cell_type == "markdown" and cell.metadata.nbgrader.solution:
            cell.source = inert(cell.source)
    further = [nbformat.v4.new_markdown_cell(inert(cell["source"])) for cell in cells
               if cell["name"] not in known and cell["source"].strip()]
    notebook = nbformat.v4.new_notebook(cells=[*made, *further], metadata=template.metadata)
    with replacing(to / f"{to.name}.ipynb") as temporary:
        temporary.write_text(json.dumps(notebook), encoding="utf-8")


def inert(text: str) -> str:
    """Return Markdown that shows a text as it is, in lines that fit on a screen."""
    lines = [part for line in text.split("\n") for part in textwrap.wrap(
        line, 100, replace_whitespace=False, drop_whitespace=False) or [""]]
    fence = "`" * (3 + max((len(run) for run in re.findall("`+", text)), default=0))
    return "\n".join([f"{fence}text", *lines, fence])
