"""Marks for submissions: each in a process of its own, every value made and compared here.

A folder of submissions is that of nbgrader: STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb. Each result is
written as soon as it is known, so that a grading that was interrupted goes on, and one that is
repeated changes nothing.
"""

import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from cca_lab.course import sandbox
from cca_lab.course.registry import ASSIGNMENTS, chosen
from cca_lab.course.sandbox import Limits, Session
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Mark, Mistake, clean, shown, unseen
from cca_lab.files import replacing
from cca_lab.stored import matches, read_json, read_text

LARGEST = 20 * 2**20  # bytes of a notebook
ADAPTERS = "adapters.py"
CELLS = 1000  # of a notebook
MODULES = 20  # further Python files
FILES = 2000  # that the digest of a folder covers, and folders in folders
SKIPPED = ("show-", "text-", "scratch-")
MAGIC = re.compile(r"^([ \t]*)[%!?].*$", flags=re.MULTILINE)  # what only IPython understands
SEED = ".seed"  # in the folder of marks
NOTES = 20  # of one submission
PACKAGE = Path(__file__).parents[1]
Record = dict[str, Any]  # as `RecordFile` says


class FindingFile(TypedDict):
    """What one property earned, in a file of marks."""

    name: str
    points: float
    earned: float
    shown: bool
    message: str
    unwritten: bool


class TaskFile(TypedDict):
    """What one task earned, in a file of marks."""

    id: str
    title: str
    points: float
    read: float
    earned: float
    findings: list[FindingFile]


class RecordFile(TypedDict):
    """A file of marks: one student's assignment."""

    student: str
    assignment: str
    status: Literal["graded", "refused", "failed"]
    notes: list[str]
    sandbox: str
    points: float
    read: float
    earned: float
    tasks: list[TaskFile]
    key: NotRequired[str]  # of what was graded; none if grading failed


class Refused(Exception):
    """Why a submission cannot be graded at all."""


@dataclass(frozen=True)
class Submission:
    """A submission that can be run."""

    cells: list[tuple[str, str]]  # name and source, in the order in which they are run
    notes: list[str]  # what the grader did about oddities, for the reports
    functions: bool = False  # the answers are named by their tasks' ids, as in `adapters.py`


def read_submission(assignment: Assignment, folder: Path, release: Path,
                    path: Path | None = None) -> Submission:
    """Return what a folder holds; the locked cells of `release`, as students got it, are run."""
    path, notes = (path, []) if path else find_work(assignment, folder)
    modules = [(file.stem, plain_text(file)) for file in sorted(folder.glob("*.py"))[:MODULES]
               if file != path]
    if path.name == ADAPTERS:
        return Submission([*files(modules), ("adapters", plain_text(path))], notes, functions=True)
    cells, more = arranged(notebook(path), notebook(release))
    return Submission([*files(modules), *cells], [*notes, *more])


def find_work(assignment: Assignment, folder: Path) -> tuple[Path, list[str]]:
    """Return the file to grade, and notes."""
    if folder.is_symlink() or not folder.is_dir():
        raise Refused("nothing was handed in")
    wanted = folder / f"{assignment.name}.ipynb"
    if wanted.exists() or wanted.is_symlink():
        return wanted, []
    others = sorted(folder.glob("*.ipynb"))
    if len(others) == 1:
        return others[0], [f"the notebook is called {others[0].name}, wanted {wanted.name}"]
    if (folder / ADAPTERS).exists():
        return folder / ADAPTERS, []
    more = f", but {len(others)} other notebooks" if others else ""
    raise Refused(f"there is no {wanted.name}{more}")


def plain_text(path: Path) -> str:
    """Return a file's text; it must be a plain file of reasonable size."""
    if path.is_symlink() or not path.is_file():
        raise Refused(f"{path.name} is no plain file")
    if path.stat().st_size > LARGEST:
        raise Refused(f"{path.name} has more than {LARGEST // 2**20} MiB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{path.name} is no text") from None


def files(modules: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return cells that write further modules, which the others may import."""
    return [(f"file_{name}",
             f"import pathlib; pathlib.Path({name + '.py'!r}).write_text({source!r})")
            for name, source in modules]


def notebook(path: Path) -> list[dict[str, Any]]:
    """Return a notebook's code cells as {"name", "source"}; without an id the name is None."""
    content = plain_text(path)
    if not content.strip():
        raise Refused(f"{path.name} is empty")
    try:
        cells = json.loads(content)["cells"]
        if len(cells) > CELLS:
            raise Refused(f"{path.name} has more than {CELLS} cells")
        code = []
        for cell in cells:
            if cell["cell_type"] == "code":
                source = cell["source"]
                source = "".join(source) if isinstance(source, list) else source
                graded = cell.get("metadata", {}).get("nbgrader", {})
                name = graded.get("grade_id") or cell.get("id")
                code.append({"name": name if isinstance(name, str) else None,
                             "source": source + ""})
        return code
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{path.name} is no notebook ({type(error).__name__})") from None


def arranged(cells: list[dict[str, Any]],
             release: list[dict[str, Any]]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the cells to run and notes: given cells as released, checks left out."""
    original = {cell["name"]: cell["source"] for cell in release}
    seen = [cell["name"] for cell in cells]
    locked = [name for name in original
              if not name.endswith("-answer") and not name.startswith("scratch-")]
    edited = [cell["name"] for cell in cells if cell["name"] in locked
              and cell["source"].strip() != original[cell["name"]].strip()]
    gone = [name for name in original if name not in seen]
    notes = []
    if edited:
        notes.append(f"edited cells were replaced by the original ones: {', '.join(edited)}")
    if gone:
        notes.append(f"cells are missing: {', '.join(gone)}")
    runs = [(name, original[name]) for name in gone if name.startswith("given-")]
    taken = {name for name, _ in runs}
    for number, cell in enumerate(cells):
        name = cell["name"]
        if name in original and (name.startswith(SKIPPED) or name.endswith("-check")):
            continue
        source = original[name] if name in locked else MAGIC.sub(r"\1pass", cell["source"])
        known = name if name in original else f"cell-{number}"
        runs.append((known if known not in taken else f"{known}-{number}", source))
        taken.add(known)
    return runs, notes


def digest(folder: Path) -> str:
    """Return a hash of a submission's files and names; links are not followed."""
    total, files = hashlib.sha256(), 0
    top = folder if folder.is_dir() and not folder.is_symlink() else os.devnull
    for root, below, names in os.walk(top):
        below.sort()
        if len(Path(root).parts) - len(folder.parts) > 10:
            below.clear()
        for name in sorted(names)[:FILES]:
            path = Path(root, name)
            about = path.lstat()
            total.update(b"\0".join([os.fsencode(path), str(about.st_size).encode()]))
            if stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST:
                with path.open("rb") as file:
                    total.update(hashlib.file_digest(file, "sha256").digest())
            elif stat.S_ISREG(about.st_mode):
                total.update(str(about.st_mtime_ns).encode())
        files += len(names)
        if files > FILES:
            break
    return total.hexdigest()


def grade(assignment: Assignment, folder: Path, release: Path, seed: str | None,
          limits: Limits | None = None, kind: str | None = None,
          path: Path | None = None) -> Record:
    """Return what a submission earned: "status" is "graded" or "refused".

    `seed` is the instructor's, None for the inputs that are shown only; `kind` is the sandbox's.
    """
    begun = time.monotonic()
    kind = kind or sandbox.best()
    record: Record = {"assignment": assignment.name, "status": "graded", "notes": [],
                      "sandbox": kind, "points": assignment.points, "read": assignment.read}
    try:
        handed_in = read_submission(assignment, folder, release, path)
    except Refused as refused:
        record |= {"status": "refused", "notes": [clean(str(refused))], "earned": 0.0,
                   "tasks": [task_record(task, []) for task in assignment.tasks]}
    else:
        limits = limits or Limits(seconds=assignment.seconds,
                                  total=max(180.0, 8 * assignment.seconds))
        with Session(handed_in.cells, limits, kind) as session:
            answers = {task.id: answer_of(task, session, folder, handed_in.functions)
                       for task in assignment.tasks}
            known = {task.id: shown(task, answers[task.id]) for task in assignment.tasks}
            if seed is not None:
                # After all that is shown, so that no message carries an input that is not.
                session.stop()
            tasks = [task_record(task, known[task.id].values() if seed is None else
                                 unseen(task, answers[task.id], seed, known[task.id]))
                     for task in assignment.tasks]
            notes = handed_in.notes + [f"{name}: {text}" for name, text in session.errors.items()]
            record["notes"] = [clean(note) for note in notes[:NOTES]]
        record |= {"tasks": tasks, "earned": round(sum(task["earned"] for task in tasks), 2)}
    record["seconds"] = round(time.monotonic() - begun, 1)
    return record


def answer_of(task: CourseTask, session: Session, folder: Path, functions: bool) -> Answer:
    """Return the answer of a task as its checks call it."""
    if not task.files:
        return session.answer(task.id.replace(".", "_") if functions else task.answer)

    def answer_folder() -> Path:
        path = folder / task.answer
        if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
            raise Mistake(f"{task.answer} is a link, wanted the files themselves")
        if not path.exists():
            raise NotImplementedError(task.answer)
        return path

    return answer_folder


def task_record(task: CourseTask, results: Iterable[Mark]) -> Record:
    """Return a task's findings as JSON has them."""
    marks = list(results)
    return {"id": task.id, "title": task.title, "points": task.points, "read": task.read,
            "earned": round(sum(mark.earned for mark in marks), 2),
            "findings": [{"name": mark.property.name, "points": mark.property.points,
                          "earned": mark.earned,
                          "shown": mark.shown and not mark.property.hidden,
                          "message": mark.message,
                          "unwritten": isinstance(mark.error, NotImplementedError)}
                         for mark in marks]}


def submissions(folder: Path, only: str | None = None) -> list[tuple[str, Assignment, Path]]:
    """Return (student, assignment, folder) of everybody for all that anybody handed in."""
    if not folder.is_dir():
        raise ValueError(f"folder: got {folder}, which is no folder, wanted "
                         "STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb in it")
    students = sorted(path for path in folder.iterdir()
                      if path.is_dir() and not path.name.startswith("."))
    for student in students:
        written = os.fsencode(student.name).decode("utf-8", "backslashreplace")
        if written != student.name:
            raise ValueError(f"folder: {written} in {folder} is no name in UTF-8; rename this "
                             "student's folder")
    wanted = [assignment for assignment in chosen(only)
              if any((student / assignment.name).exists() for student in students)]
    if not wanted:
        raise ValueError(f"folder: got {folder}, which holds no submission of "
                         f"{only or 'any assignment'}, wanted STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb, "
                         "such as alice/a5_cca/a5_cca.ipynb")
    return [(student.name, assignment, student / assignment.name) for assignment in wanted
            for student in students]


def secret(out: Path) -> str:
    """Return the instructor's seed, drawn once and kept in the folder of marks."""
    path, advice = out / SEED, "delete it, and grade again: everything is graded with another one"
    if not path.exists():
        with replacing(path) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_hex(16))
    seed = read_text(path, "marks", advice).strip()
    if not seed:  # with which everybody could make the inputs
        raise ValueError(f"marks: {path} is empty, wanted the seed of the inputs; {advice}")
    return seed


def grade_folder(folder: Path, out: Path, course: Path, *, only: str | None = None, jobs: int = 1,
                 limits: Limits | None = None, kind: str | None = None,
                 done: Callable[[str, Record], None] = lambda student, record: None
                 ) -> list[Record]:
    """Grade every submission of a folder, `jobs` at a time, and call `done` after each.

    Records are kept in `out`/STUDENT/ASSIGNMENT.json: what is there is not graded again unless
    something changed. Where grading failed for a reason of ours, the status is "failed".
    """
    seed, version = secret(out), fingerprint()

    def grade_one(student: str, assignment: Assignment, folder_of: Path) -> Record:
        release = course / "release" / assignment.name / f"{assignment.name}.ipynb"
        path = out / student / f"{assignment.name}.json"
        try:
            inputs = [digest(folder_of), version, seed, plain_text(release)]
            key = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
            if (known := read_record(path)) and known.get("key") == key:
                return known
            record = grade(assignment, folder_of, release, seed, limits, kind)
        except Exception as error:  # ours, not the submission's: the others are graded all the same
            record = {"assignment": assignment.name, "status": "failed",
                      "notes": [clean(f"{type(error).__name__}: {error}")],
                      "points": assignment.points, "read": assignment.read, "earned": 0.0,
                      "tasks": [], "sandbox": "", "seconds": 0}
        record = {"student": student, **record}
        if record["status"] != "failed":
            record["key"] = key
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(record, indent=1))
        return record

    graded: dict[int, Record] = {}
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(grade_one, *entry): number
                   for number, entry in enumerate(submissions(folder, only))}
        for future in as_completed(running):
            graded[running[future]] = future.result()
            done(future.result()["student"], future.result())
    return [graded[number] for number in sorted(graded)]


def records(out: Path) -> list[Record]:
    """Return all records of a folder of marks, by assignment and student."""
    return [record for assignment in ASSIGNMENTS.values()
            for path in sorted(out.glob(f"*/{assignment.name}.json"))
            if (record := read_record(path))]


def read_record(path: Path) -> Record | None:
    """Return a record, or None if there is none; ValueError if it is not as it was written."""
    advice = "delete the file, and grade again"
    if not path.exists():
        return None
    record: Record = read_json(path, "marks", advice)
    matches(record, RecordFile, str(path), advice)
    for name, wanted in (("student", path.parent.name), ("assignment", path.stem)):
        if record[name] != wanted:
            raise ValueError(f"{path}: {name}: got {record[name]!r}, wanted {wanted!r}, by its "
                             f"path; {advice}")
    return record


def fingerprint() -> str:
    """Return a hash of the package, from all of which checks take parts: records grow old."""
    total = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        about = path.relative_to(PACKAGE).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()
        total.update("\n".join(about).encode())
    return total.hexdigest()
