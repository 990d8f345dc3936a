"""What the commands of `cca-lab course` do and print."""

import os
import re
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from cca_lab.course import grading, release, reports, sandbox
from cca_lab.course.cell import lines_of
from cca_lab.course.grading import Record
from cca_lab.course.registry import ASSIGNMENTS, assignment_of, chosen, task_of
from cca_lab.course.tasks import Assignment
from cca_lab.files import check_folder, held

console = Console(highlight=False, soft_wrap=True, markup=False)


def say(text: str) -> None:
    """Print a text; bytes in it that are no UTF-8, such as of a path, are escaped."""
    console.print(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def check_file(path: Path, course: Path, only: str | None = None, task: str | None = None) -> bool:
    """Print what a notebook or `adapters.py` earns on the inputs shown; True if all is right."""
    need_posix()
    if not path.is_file():
        raise ValueError(f"file: got {path}, which is no file, wanted a notebook of the course or "
                         "adapters.py")
    if path.name == grading.ADAPTERS:
        assignments = chosen(only)
    else:
        assignments = [assignment_in(path)]
        if only and assignments != chosen(only):
            raise ValueError(f"only: got {only}, but {path.name} is of {assignments[0].id}; leave "
                             "it out")
    if task is not None:
        wanted = task_of(task)
        assignments = [replace(assignment, tasks=(wanted,)) for assignment in assignments
                       if wanted in assignment.tasks]
        if not assignments:
            raise ValueError(f"task: got {task}, which is no task of {path.name}")
    whole = True
    for assignment in assignments:
        record = grading.grade(assignment, path.parent, released(course, assignment), None,
                               path=path)
        findings = [finding for task in record["tasks"] for finding in task["findings"]]
        if len(assignments) > 1 and all(finding["unwritten"] for finding in findings):
            continue
        say("\n".join(progress(assignment, record)))
        whole &= record["status"] == "graded" and all(finding["earned"] >= finding["points"]
                                                      for finding in findings)
    return whole


def need_posix() -> None:
    """Raise ValueError where a submission cannot run in a process with limits."""
    if os.name != "posix":
        raise ValueError(f"system: got {os.name}, wanted Linux or macOS (on Windows, its Linux "
                         "subsystem); the cells of a notebook and `pytest lab` check everywhere")


def assignment_in(path: Path) -> Assignment:
    """Return the assignment of a notebook, by its name, or else by the tasks that it checks."""
    try:
        return assignment_of(path.stem)
    except ValueError:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            text = ""
        ids = set(re.findall(r"check\(\\?[\"'](a\d+)\.\d+", text)) & set(ASSIGNMENTS)
        if len(ids) != 1:
            raise ValueError(f"file: got {path.name}, wanted a notebook of one assignment, named "
                             f"such as {next(iter(ASSIGNMENTS.values())).name}.ipynb") from None
        return ASSIGNMENTS[ids.pop()]


def released(course: Path, assignment: Assignment) -> Path:
    """Return the notebook that students got; ValueError if the course's folder has none."""
    path = course / "release" / assignment.name / f"{assignment.name}.ipynb"
    if not path.is_file():
        raise ValueError(f"course: got {course}, without {path.relative_to(course)}; wanted the "
                         "folder lab/ of a clone")
    return path


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
    more = f", and a person gives {assignment.read} more" if assignment.read else ""
    return [*lines, f"{record['earned']:g} of {assignment.points} points; {unseen} of the "
            f"{assignment.points} are behind tests that are not shown{more}. Marks are given on "
            "other inputs."]


def grade_class(submitted: Path, out: Path, course: Path, only: str | None = None,
                jobs: int | None = None, gradebook: Path | None = None) -> bool:
    """Grade a folder of submissions and write the reports; True if no grading of ours failed.

    `jobs` submissions at a time, by default half the cores; marks go into nbgrader's database
    `gradebook` too, if one is given.
    """
    need_posix()
    entries = grading.submissions(submitted, only)
    if submitted.resolve() in (out.resolve(), *out.resolve().parents):
        raise ValueError(f"out: {out} is in the folder of the submissions, where it would be taken "
                         "for a student; choose another place")
    check_folder(out)
    grading.records(out)  # what is broken there is told before the work
    if gradebook is not None:
        reports.check_gradebook(gradebook)
    for _, assignment, _ in entries:
        released(course, assignment)
    kind = sandbox.best()
    warning = ("" if kind == "bubblewrap" else "; submissions can read files of this account: "
               "install bubblewrap (Linux) to keep them from it")
    say(f"{len(entries)} submissions, sandbox: {kind}{warning}")
    begun, count = time.monotonic(), 0

    def done(student: str, record: Record) -> None:
        nonlocal count
        count += 1
        note = f"; {'; '.join(record['notes'])}" if record["notes"] else ""
        say(f"{count:4} {student} {record['assignment']}: {record['status']}, "
            f"{record['earned']:g} of {record['points']}{note[:200]}")

    with held(out):
        records = grading.grade_folder(submitted, out, course, only=only, done=done,
                                       jobs=jobs or max(1, (os.cpu_count() or 2) // 2))
    seconds = time.monotonic() - begun
    say(f"{len(records)} submissions in {seconds:.0f} s, {seconds / len(records):.1f} s each")
    if gradebook is not None:
        reports.export(records, course, gradebook, submitted)
        say(f"marks written into {gradebook}")
    write_reports(out)
    return all(record["status"] != "failed" for record in records)


def write_reports(out: Path) -> None:
    """Write tables and pages from a folder of marks; ValueError if nothing was graded there."""
    if not (records := grading.records(out)):
        raise ValueError(f"marks: got {out}, where nothing was graded; run `cca-lab course grade` "
                         "first")
    paths = reports.write(records, out)
    say(f"{out / 'marks.csv'}, {out / 'tasks.csv'}, {out / 'class.html'} and "
        f"{len(paths) - 3} pages feedback.html, one in each student's folder")


def make_release(course: Path, only: str | None = None, *, check: bool = False,
                 adapters: bool = False) -> bool:
    """Make `release/`, or say what is not current; True if nothing is left to be done."""
    texts = release.files(course, only=only)
    if adapters:
        texts[course / grading.ADAPTERS] = release.adapters(course)
    paths = release.stale(texts) if check else release.write(texts)
    for path in paths:
        say(f"{'not current' if check else 'written'}: {path.relative_to(course)}")
    return not (check and paths)


def make_solutions(course: Path, only: str | None = None) -> None:
    """Make `solutions/` and say where it is."""
    for path in release.write(release.files(course, solved=True, only=only)):
        say(f"written: {path.relative_to(course)}")
