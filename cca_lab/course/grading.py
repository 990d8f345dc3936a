"""Marks for submissions: each in a process of its own, every value made and compared here.

A folder of submissions is that of nbgrader: STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb. Each result is written as soon as it
is known, so that a grading that was interrupted goes on, and one that is repeated changes nothing.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from cca_lab.course import sandbox, submission
from cca_lab.course.marks import Finding, shown, unseen
from cca_lab.course.registry import ASSIGNMENTS
from cca_lab.course.sandbox import Limits
from cca_lab.course.session import Session
from cca_lab.course.tasks import Answer, Assignment, Mistake, Task, clean
from cca_lab.outputs import replacing

Record = dict[str, Any]
PACKAGE = Path(__file__).parents[1]
SEED = ".seed"  # in the folder of marks
NOTES = 20  # of one submission


def grade(part: Assignment, folder: Path, release: Path, seed: str | None, limits: Limits | None = None,
          kind: str | None = None, path: Path | None = None) -> Record:
    """Return what a submission earned.

    Args:
        part: the assignment.
        folder: the submission's.
        release: the notebook that students got.
        seed: the instructor's; None for the inputs that are shown only.
        limits: for the submission; by default those of the assignment.
        kind: of sandbox; by default the best.
        path: the file in the folder, if that is known.

    Returns:
        "assignment", "status" ("graded" or "refused"), "notes", "earned", "points", "read" (points that a person
        gives), "sandbox", "seconds", and "tasks": each with its id, points and findings.
    """
    begun = time.monotonic()
    kind = kind or sandbox.best()
    record: Record = {"assignment": part.name, "status": "graded", "notes": [], "sandbox": kind, "points": part.points,
                      "read": part.read}
    try:
        handed_in = submission.read(part, folder, release, path)
    except submission.Refused as refused:
        record |= {"status": "refused", "notes": [clean(str(refused))], "earned": 0.0,
                   "tasks": [task_record(task, []) for task in part.tasks]}
    else:
        limits = limits or Limits(seconds=part.seconds, total=max(180.0, 8 * part.seconds))
        with Session(handed_in.cells, limits, kind) as session:
            answers = {task.id: answer_of(task, session, folder, handed_in.functions) for task in part.tasks}
            found = {task.id: shown(task, answers[task.id]) for task in part.tasks}
            if seed is None:
                tasks = [task_record(task, list(found[task.id].values())) for task in part.tasks]
            else:  # after all that is shown: no message that a student reads can carry an input that is not
                session.stop()
                tasks = [task_record(task, list(unseen(task, answers[task.id], seed, found[task.id])))
                         for task in part.tasks]
            notes = handed_in.notes + [f"{name}: {text}" for name, text in session.errors.items()]
            record["notes"] = [clean(note) for note in notes[:NOTES]]
        record |= {"tasks": tasks, "earned": round(sum(task["earned"] for task in tasks), 2)}
    record["seconds"] = round(time.monotonic() - begun, 1)
    return record


def answer_of(task: Task, session: Session, folder: Path, functions: bool) -> Answer:
    """Return the answer of a task as its checks call it."""
    if not task.files:
        return session.answer(task.id.replace(".", "_") if functions else task.answer)

    def place() -> Path:
        path = folder / task.answer
        if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
            raise Mistake(f"{task.answer} is a link, wanted the files themselves")
        if not path.exists():
            raise NotImplementedError(task.answer)
        return path

    return place


def task_record(task: Task, found: list[Finding]) -> Record:
    """Return a task's findings as JSON has them."""
    return {"id": task.id, "title": task.title, "points": task.points, "read": task.read,
            "earned": round(sum(finding.earned for finding in found), 2),
            "findings": [{"name": finding.property.name, "points": finding.property.points, "earned": finding.earned,
                          "shown": finding.shown and not finding.property.hidden, "message": finding.message,
                          "unwritten": isinstance(finding.error, NotImplementedError)} for finding in found]}


def submissions(folder: Path, only: str | None = None) -> list[tuple[str, Assignment, Path]]:
    """Return (student, assignment, folder) of everybody for every assignment that anybody handed in.

    Args:
        folder: of all submissions.
        only: name or id of one assignment.

    Raises:
        ValueError: if there is none.
    """
    if not folder.is_dir():
        raise ValueError(f"folder: got {folder}, which is no folder, wanted STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb in it")
    students = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    wanted = [part for part in ASSIGNMENTS.values() if only in (None, part.id, part.name)
              and any((student / part.name).exists() for student in students)]
    if not wanted:
        raise ValueError(f"folder: got {folder}, which holds no submission of {only or 'any assignment'}, wanted "
                         "STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb, such as alice/a5_cca/a5_cca.ipynb")
    return [(student.name, part, student / part.name) for part in wanted for student in students]


def secret(out: Path) -> str:
    """Return the instructor's seed, drawn once and kept in the folder of marks."""
    path = out / SEED
    if not path.exists():
        with replacing(path) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_hex(16))
    return path.read_text().strip()


def grade_folder(folder: Path, out: Path, course: Path, *, only: str | None = None, jobs: int = 1,
                 limits: Limits | None = None, kind: str | None = None,
                 done: Callable[[str, Record], None] = lambda student, record: None) -> list[Record]:
    """Grade every submission of a folder, and keep each record in `out`/STUDENT/ASSIGNMENT.json.

    Args:
        folder: of all submissions.
        out: for records; what it holds already is not graded again unless something changed.
        course: the folder `lab/`, for what students got.
        only: one assignment.
        jobs: submissions at a time.
        limits, kind: as for `grade`.
        done: called after each.

    Returns:
        The records, each with "student"; a submission whose grading failed for a reason of ours has the status
        "failed" and is graded again the next time.
    """
    seed = secret(out)
    version = fingerprint()

    def one(student: str, part: Assignment, place: Path) -> Record:
        release = course / "release" / part.name / f"{part.name}.ipynb"
        path = out / student / f"{part.name}.json"
        try:
            inputs = [submission.digest(place), version, seed, submission.text(release)]
            key = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
            if (known := read_record(path)) and known.get("key") == key:
                return known
            record = grade(part, place, release, seed, limits, kind)
        except Exception as error:  # ours, not the submission's: the others are graded all the same
            record = {"assignment": part.name, "status": "failed", "notes": [clean(f"{type(error).__name__}: {error}")],
                      "points": part.points, "read": part.read, "earned": 0.0, "tasks": [], "sandbox": "", "seconds": 0}
        record = {"student": student, **record}
        if record["status"] != "failed":
            record["key"] = key
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1))
        return record

    found: dict[int, Record] = {}
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(one, *entry): number for number, entry in enumerate(submissions(folder, only))}
        for future in as_completed(running):
            found[running[future]] = future.result()
            done(future.result()["student"], future.result())
    return [found[number] for number in sorted(found)]


def records(out: Path) -> list[Record]:
    """Return all records of a folder of marks, by assignment and student."""
    order = {part.name: number for number, part in enumerate(ASSIGNMENTS.values())}
    found = [record for path in sorted(out.glob("*/*.json")) if (record := read_record(path))]
    return sorted(found, key=lambda record: (order.get(record["assignment"], len(order)), record["student"]))


def read_record(path: Path) -> Record | None:
    """Return a record, or None if there is none that is whole."""
    try:
        record = json.loads(path.read_text())
        return record if {"student", "assignment", "tasks", "earned"} <= set(record) else None
    except (OSError, ValueError, TypeError):
        return None


def fingerprint() -> str:
    """Return a hash of the whole package, by which records know that they are old: checks use other parts of it too."""
    total = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        about = path.relative_to(PACKAGE).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()
        total.update("\n".join(about).encode())
    return total.hexdigest()
