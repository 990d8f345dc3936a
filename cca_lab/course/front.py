"""What the commands of `cca-lab course` do and print."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from cca_lab.course import gradebook, grading, release, sandbox
from cca_lab.course.cell import lines_of
from cca_lab.course.compare import many
from cca_lab.course.grading import Record
from cca_lab.course.registry import ASSIGNMENTS, assignment_of, task_of
from cca_lab.course.tasks import Assignment, GraderError
from cca_lab.files import check_folder, held

console = Console(highlight=False, soft_wrap=True, markup=False)


def say(text: str) -> None:
    """Print a text; bytes of a path that are no UTF-8, and codes for terminals, are escaped."""
    text = "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1]
                   for sign in text.encode("utf-8", "backslashreplace").decode("utf-8"))
    console.print(text)


def check_notebook(path: Path, course: Path, task: str | None = None, *,
                   secret: bool = False, unsafe: bool = False) -> bool:
    """Print what a notebook earns; True if all.

    Inputs are those that a cell shows, for one's own work. With `secret` ones it is another's, and
    runs in bubblewrap only, unless `unsafe`.
    """
    need_posix()
    if not path.is_file():
        raise ValueError(f"file: got {path}, which is no file, wanted a notebook of the course")
    assignment = assignment_in(path)
    if task is not None:
        if task_of(task) not in assignment.tasks:
            raise ValueError(f"task: got {task}, which is no task of {path.name}")
        assignment = replace(assignment, tasks=(task_of(task),))
    with failing_in_a_line():
        kind = sandbox.required(unsafe or not secret)
        record = grading.grade(assignment, path.parent, grading.released(course, assignment),
                               secrets.token_hex() if secret else None, kind=kind, path=path)
    say("\n".join(progress(assignment, record)))
    if not secret:
        say("Marks are given on other inputs.")
    return record["status"] == "graded" and all(
        finding["earned"] >= finding["points"]
        for each in record["tasks"] for finding in each["findings"])


@contextmanager
def failing_in_a_line() -> Iterator[None]:
    """Let a failure of the grader itself end a command as any other error does."""
    try:
        yield
    except GraderError as error:
        raise ValueError(f"grader: {error}; try again") from error


def need_posix() -> None:
    """Raise ValueError where a submission cannot run in a process with limits."""
    if os.name != "posix":
        raise ValueError(f"system: got {os.name}, wanted Linux or macOS (on Windows, its Linux "
                         "subsystem); the cells of a notebook and `pytest lab` check everywhere")


def assignment_in(path: Path) -> Assignment:
    """Return the assignment of a notebook, whose name stands in that of the file."""
    found = [part for part in ASSIGNMENTS.values() if part.name in path.name]
    if len(found) != 1:
        raise ValueError(f"file: got {path.name}, wanted a notebook of one assignment, named such "
                         f"as {next(iter(ASSIGNMENTS.values())).name}.ipynb")
    return found[0]


def progress(assignment: Assignment, record: Record) -> list[str]:
    """Return what a student reads in a terminal."""
    lines = [f"{assignment.name}: {assignment.title}",
             *(f"note: {note}" for note in record["notes"])]
    for task in record["tasks"]:
        if not task["findings"]:
            continue
        lines.append(f"{task['id']} {task['title']}: {task['earned']:g} of {task['points']}")
        if all(finding["unwritten"] for finding in task["findings"]):
            lines.append("  not written yet")
            continue
        lines += lines_of((finding["name"], finding["earned"], finding["points"],
                           finding["message"]) for finding in task["findings"])
        if unseen := task["points"] - sum(finding["points"] for finding in task["findings"]):
            lines.append(f"       not shown ({unseen})")
    unseen = sum(task.unseen for task in assignment.tasks)
    verb = "is" if unseen == 1 else "are"
    hidden = (f"; {unseen} of the {assignment.points} {verb} behind tests that are not shown"
              if unseen else "")
    more = f"; a person gives {assignment.read} more" if assignment.read else ""
    return [*lines, f"{record['earned']:g} of {many(assignment.points, 'point')}{hidden}{more}."]


def grade_class(submitted: Path, course: Path, only: str | None = None, jobs: int | None = None, *,
                student: str | None = None, unsafe: bool = False) -> bool:
    """Grade a folder of submissions into nbgrader's database; True if no grading of ours failed.

    Args:
        submitted, course: folders of submissions, with `marks/` beside it for the seed and the
            records, and of the course.
        only: one assignment.
        jobs: submissions at a time, by default half the cores.
        student: the only one to be graded, again if need be.
        unsafe: whether to go on without bubblewrap.
    """
    need_posix()
    entries = grading.submissions(submitted, only, student)
    named = submitted.name not in ("", "..")  # beside "." is outside it
    out = (submitted if named else submitted.resolve()).parent / "marks"
    check_folder(out)
    for _, assignment, _ in entries:
        grading.released(course, assignment)
    with failing_in_a_line():
        kind = sandbox.required(unsafe)
    for path in (submitted, out, course, Path(__file__)):
        if kind == "bubblewrap" and sandbox.visible(path):
            raise ValueError(f"sandbox: {path} lies in a folder of the system or of Python, such "
                             "as /usr, which every submission can read; move the clone or the "
                             "folder out of it")
    database = course / "gradebook.db"
    with gradebook.opened(database):  # what is no database is told before the work
        stamped = sum(gradebook.stamp_in(folder) is not None for *_, folder in entries)
    say(f"{many(len(entries), 'submission')}, {stamped} of them with nbgrader's time (no other is "
        f"ever late); sandbox: {kind}")
    begun, count = time.monotonic(), 0

    def done(record: Record) -> None:
        nonlocal count
        count += 1
        note = f"; {'; '.join(record['notes'])}" if record["notes"] else ""
        points = ("" if record["status"] == "failed" else
                  f", {record['earned']:g} of {record['points']}")
        say(f"{count:4} {record['student']} {record['assignment']}: {record['status']}{points}"
            f"{note[:200]}")

    with held(out):
        records = grading.grade_folder(
            submitted, out, course, kind, jobs or max(1, (os.cpu_count() or 2) // 2),
            only=only, student=student, done=done)
        gradebook.write(records, course, database, submitted)
    if student is not None:
        for record in records:
            say("\n".join(progress(assignment_of(record["assignment"]), record)))
    seconds = time.monotonic() - begun
    say(f"{many(len(records), 'submission')} in {seconds:.0f} s, "
        f"{seconds / len(records):.1f} s each; marks are in {database}")
    if failed := sum(record["status"] == "failed" for record in records):
        say(f"{many(failed, 'submission')} could not be graded for a reason of the grader's own: "
            "no mark was given; grade again")
    return not failed


def make(course: Path, only: str | None = None, *, solved: bool = False) -> None:
    """Make `release/`, or `solutions/` if `solved`."""
    texts = release.files(course, solved=solved, only=only)
    paths = release.write(texts)
    for path in paths:
        say(f"written: {path.relative_to(course)}")
    if not paths:
        say(f"{many(len(texts), 'notebook')} already current")
