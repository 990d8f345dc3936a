"""Marks for submissions: each in a process of its own, every value made and compared here.

A folder of submissions is that of nbgrader: STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb. Each result is
written as soon as it is known, so that a grading that was interrupted goes on, and one that is
repeated changes nothing.
"""

import ast
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cca_lab.course.registry import chosen
from cca_lab.course.sandbox import STARTS, Limits, Session
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Mark, Mistake, clean, shown, unseen
from cca_lab.files import replacing
from cca_lab.stored import read_json, read_text

LARGEST = 20 * 2**20  # bytes of a notebook
CELLS = 1000  # of a notebook
CODE = 500_000  # characters of its code, which is parsed here: a tree of it takes 2 KB a line
MODULES = 20  # further Python files
FILES = 2000  # that the digest of a folder covers, and folders in folders
SEARCHED = 200_000  # characters that may be read for commands of IPython, once for each sign
TRANSFORMED = 20  # cells with commands of IPython
BODIES = ("time", "timeit", "capture", "prun")  # magics of a cell whose body is Python
# What stands for IPython where marks are given: its commands do nothing.
SHELL = """class Shell:
    def __getattr__(self, name):
        return lambda *args, **more: None

def get_ipython():
    return Shell()
"""
NAME = re.compile(r"\w[\w.@+-]*(?: [\w.@+-]+)*")  # pages of nbgrader show a student's name as HTML
SEED = ".seed"  # in the folder of marks
NOTES = 20  # of one submission
PACKAGE = Path(__file__).parents[1]
Record = dict[str, Any]  # of one student's assignment: see `empty`, `task_record`, `grade_folder`


class Refused(Exception):
    """Why a submission cannot be graded at all."""


class Submission(NamedTuple):
    """A submission that can be run."""

    cells: list[tuple[str, str]]  # name and source, in the order in which they are run
    notes: list[str]  # what the grader did about oddities


def read_submission(assignment: Assignment, folder: Path, release: Path,
                    path: Path | None = None) -> Submission:
    """Return what a folder holds; the locked cells of `release`, as students got it, are run.

    Raises:
        Refused: if there is nothing to run, or nothing may be read.
    """
    try:
        path, notes = (path, []) if path else find_work(assignment, folder)
        modules = []
        for file in sorted(folder.glob("*.py"))[:MODULES]:
            try:
                modules.append((file.stem, plain_text(file)))
            except Refused as refused:
                notes.append(f"a file was left out: {refused}")
        cells, more = arranged(notebook(path), notebook(release))
    except PermissionError as error:
        raise Refused(f"{Path(error.filename).name} cannot be read: its owner has to give the "
                      "right to") from None
    return Submission([*files(modules), *cells], [*notes, *more])


def released(course: Path, assignment: Assignment) -> Path:
    """Return the notebook that students got; ValueError if the course's folder has none."""
    path = course / "release" / assignment.name / f"{assignment.name}.ipynb"
    if not path.is_file():
        raise ValueError(f"course: got {course}, without {path.relative_to(course)}; wanted the "
                         "folder lab/ of a clone")
    return path


def find_work(assignment: Assignment, folder: Path) -> tuple[Path, list[str]]:
    """Return the file to grade, and notes."""
    if folder.is_symlink() or folder.parent.is_symlink():
        raise Refused("nothing was handed in but a link to a folder")
    if not folder.is_dir():
        raise Refused("nothing was handed in")
    wanted, notes = folder / f"{assignment.name}.ipynb", []
    if not wanted.exists() and not wanted.is_symlink():
        others = sorted(folder.glob("*.ipynb"))
        if len(others) != 1:
            more = f", but {len(others)} other notebooks" if others else ""
            raise Refused(f"there is no {wanted.name}{more}")
        notes.append(f"the notebook is called {others[0].name}, wanted {wanted.name}")
        wanted = others[0]
    if wanted.lstat().st_nlink > 1:
        notes.append(f"{wanted.name} is a hard link: the same file stands in another place, too")
    return wanted, notes


def plain_text(path: Path) -> str:
    """Return a file's text; it must be a plain file of reasonable size."""
    if path.is_symlink() or not path.is_file():
        raise Refused(f"{path.name} is no plain file")
    if path.stat().st_size > LARGEST:
        raise Refused(f"{path.name} has more than {LARGEST // 2**20} MiB")
    try:
        return path.read_text(encoding="utf-8-sig")  # editors of Windows begin with a mark
    except UnicodeDecodeError:
        raise Refused(f"{path.name} is no text") from None


def files(modules: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return cells that write further modules, which the others may import."""
    return [(f"file_{name}",
             f"import pathlib; pathlib.Path({name + '.py'!r}).write_text({source!r})")
            for name, source in modules]


def notebook(path: Path) -> list[dict[str, Any]]:
    """Return a notebook's code cells, as `cells_of` does."""
    cells = [cell for cell in cells_of(path) if cell["type"] == "code"]
    if sum(len(cell["source"]) for cell in cells) > CODE:
        raise Refused(f"{path.name} has more than {CODE} characters of code")
    return cells


def cells_of(path: Path) -> list[dict[str, Any]]:
    """Return a notebook's cells as {"name", "type", "source"}; without an id the name is None."""
    content = plain_text(path)
    if not content.strip():
        raise Refused(f"{path.name} is empty")
    try:
        cells = json.loads(content)["cells"]
        if len(cells) > CELLS:
            raise Refused(f"{path.name} has more than {CELLS} cells")
        found = []
        for cell in cells:
            source = cell["source"]
            source = "".join(source) if isinstance(source, list) else source
            source = source.replace("\r\n", "\n")  # as editors of Windows write it
            graded = cell.get("metadata", {}).get("nbgrader", {})
            name = graded.get("grade_id") or cell.get("id")
            found.append({"name": name if isinstance(name, str) else None,
                          "type": cell["cell_type"], "source": source})
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{path.name} is no notebook ({type(error).__name__})") from None


def arranged(cells: list[dict[str, Any]],
             release: list[dict[str, Any]]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the cells to run and notes: given cells as released, checks and pictures left out.

    Imports, functions, classes and constants that a student wrote into a cell that is replaced or
    left out are run in its place, or before the given cell: helpers are kept, given names win.
    """
    original = {cell["name"]: cell["source"] for cell in release}
    theirs = [name for name in original if name.endswith("-answer")]
    edited = [cell["name"] for cell in cells if cell["name"] in original
              and not cell["name"].startswith("scratch-") and cell["name"] not in theirs
              and cell["source"].strip() != original[cell["name"]].strip()]
    gone = [name for name in original if name not in [cell["name"] for cell in cells]]
    notes = []
    if edited:
        notes.append(f"edited cells were replaced by the original ones: {', '.join(edited)}")
    if len(gone) == len(original):
        notes.append("no cell has its id, as in a notebook of Colab: the given cells were added")
    elif gone:
        notes.append(f"cells are missing: {', '.join(gone)}")
    runs = [(name, original[name]) for name in gone if name.startswith("given-")]
    taken = {name for name, _ in runs}
    shell = 0
    for number, cell in enumerate(cells):
        name, source = cell["name"], cell["source"]
        if shell < TRANSFORMED:
            source = python(source)
            shell += source != cell["source"]
        known = name if name in original else f"cell-{number}"
        parts = [(known, source)]
        if name in original and name not in theirs:
            parts = [(f"{known}-added", definitions(source, original[name]))]
            parts += [(known, original[name])] * name.startswith("given-")
        for known, source in parts:
            if source:
                runs.append((known if known not in taken else f"{known}-{number}", source))
                taken.add(known)
    return [("shell", SHELL)] * bool(shell) + runs, notes


def python(source: str) -> str:
    """Return a cell's source without what only IPython understands; if it is Python, as it is."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        ast.parse(source)
        return source
    signs = re.findall(r"[%!?]|(?:^|[^\S ]) *[,;/]", source)  # the last three begin a line
    if len(source) * len(signs) > SEARCHED:  # meant to keep the grader busy
        return source
    first, _, rest = source.strip().partition("\n")
    if first.startswith("%%"):  # of the whole cell, such as %%bash
        if first[2:].partition(" ")[0] not in BODIES:
            return "pass"
        source = rest
    from IPython.core.inputtransformer2 import TransformerManager

    with suppress(SyntaxError, ValueError, RecursionError, RuntimeError):
        return TransformerManager().transform_cell(source)
    return source


def definitions(source: str, original: str) -> str:
    """Return the imports, functions, classes and constants of `source` not in `original`."""
    try:
        before = {ast.dump(node) for node in ast.parse(original).body}
        added = [node for node in ast.parse(source).body if ast.dump(node) not in before]
        return "\n".join(ast.unparse(node) for node in added if defines(node))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def defines(node: ast.stmt) -> bool:
    """Return True for an import of what is there for marks, a function, a class or a constant."""
    if isinstance(node, ast.Assign):
        with suppress(ValueError, TypeError):
            return ast.literal_eval(node.value) is not Ellipsis
        return False
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [getattr(node, "module", None) or node.names[0].name]
        return not any(name.startswith(PACKAGE.name) for name in names)
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def digest(folder: Path) -> str:
    """Return a hash of a submission's files and names; links are not followed."""
    total, count = hashlib.sha256(), 0
    with suppress(PermissionError):
        if folder.is_symlink():
            return ""
    for root, below, names in os.walk(folder):
        below.sort()
        for path in [Path(root, name) for name in sorted(names)[:FILES]]:
            # relative, so that no other way to write the folder counts
            total.update(os.fsencode(path.relative_to(folder)) + b"\0")
            with suppress(PermissionError):
                about = path.lstat()
                total.update(str(about.st_size).encode())
                if stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST:
                    total.update(hashlib.sha256(path.read_bytes()).digest())
                elif stat.S_ISREG(about.st_mode):
                    total.update(str(about.st_mtime_ns).encode())
        count += len(names) + 1
        if count > FILES:
            break
    return total.hexdigest()


def grade(assignment: Assignment, folder: Path, release: Path, seed: str | None, kind: str,
          path: Path | None = None) -> Record:
    """Return what a submission earned: "status" is "graded" or "refused".

    `seed` is the instructor's, None for the inputs that are shown only; `kind` is the sandbox's.
    """
    begun = time.monotonic()
    record = empty(assignment, "graded") | {"sandbox": kind}
    try:
        handed_in = read_submission(assignment, folder, release, path)
    except Refused as refused:
        record |= empty(assignment, "refused", str(refused))
    else:
        limits = Limits(seconds=assignment.seconds, total=max(180.0, 8 * assignment.seconds))
        with Session(handed_in.cells, limits, kind) as session:
            answers = {task.id: answer_of(task, session, folder) for task in assignment.tasks}
            known = {task.id: shown(task, answers[task.id]) for task in assignment.tasks}
            # From here on the inputs are secret: no message of the submission is kept, and it
            # starts anew.
            notes = handed_in.notes + [f"{name}: {text}" for name, text in session.errors.items()]
            if sum(session.cell_seconds.values()) > limits.starts / STARTS:  # of each start
                notes.append(session.cell_times())
            session.stop()
            session.forgetful = True  # no call knows what another was asked
            tasks = [task_record(task, known[task.id].values() if seed is None else
                                 unseen(task, answers[task.id], seed, known[task.id]))
                     for task in assignment.tasks]
            record["notes"] = [clean(note) for note in notes[:NOTES]]
        record |= {"tasks": tasks, "earned": round(sum(task["earned"] for task in tasks), 2)}
    record["seconds"] = round(time.monotonic() - begun, 1)
    return record


def empty(assignment: Assignment, status: str, note: str = "") -> Record:
    """Return a record without points."""
    return {"assignment": assignment.name, "status": status, "notes": [clean(note)] if note else [],
            "sandbox": "", "points": assignment.points, "read": assignment.read, "earned": 0.0,
            "tasks": [task_record(task, []) for task in assignment.tasks]}


def answer_of(task: CourseTask, session: Session, folder: Path) -> Answer:
    """Return the answer of a task as its checks call it."""
    if not task.files:
        return session.answer(task.answer)

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


def submissions(folder: Path, only: str | None = None,
                student: str | None = None) -> list[tuple[str, Assignment, Path]]:
    """Return (student, assignment, folder) of all that was handed in, or of the one `student`."""
    if not folder.is_dir():
        raise ValueError(f"folder: got {folder}, which is no folder, wanted "
                         "STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb in it")
    students = sorted(path.name for path in folder.iterdir()
                      if path.is_dir() and not path.name.startswith("."))
    for name in students:
        if not NAME.fullmatch(name):
            raise ValueError(f"folder: {ascii(name)} in {folder} cannot be a student's name, which "
                             "has letters, digits and _ . @ + - only; rename this folder")
    if student is not None and student not in students:
        raise ValueError(f"student: got {student!r}, wanted one of {', '.join(students)}")
    found = [(name, assignment, folder / name / assignment.name) for assignment in chosen(only)
             for name in students if student in (None, name)
             and is_there(folder / name / assignment.name)]
    if not found:
        raise ValueError(f"folder: got {folder}, which holds no submission of "
                         f"{only or 'any assignment'}, wanted STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb, "
                         "such as alice/a5_cca/a5_cca.ipynb")
    return found


def is_there(folder: Path) -> bool:
    """Return True for a folder, a link, or what cannot be told as the one above is not readable."""
    try:
        return folder.exists() or folder.is_symlink()
    except PermissionError:
        return True


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


def grade_folder(folder: Path, out: Path, course: Path, kind: str, jobs: int, *,
                 only: str | None = None, student: str | None = None,
                 done: Callable[[Record], None]) -> list[Record]:
    """Grade every submission of a folder, `jobs` at a time, and call `done` after each.

    Records are kept in `out`/STUDENT/ASSIGNMENT.json: what is there is not graded again unless
    something changed, or one `student` is named; one that is returned has "anew" if it was graded
    now. Where grading failed for a reason of ours, the status is "failed"; if its record could not
    be written, the one before stays. `kind` is the sandbox's.
    """
    seed, version = secret(out), fingerprint()

    def grade_one(name: str, assignment: Assignment, folder_of: Path) -> Record:
        release = released(course, assignment)
        path = out / name / f"{assignment.name}.json"
        try:
            inputs = [digest(folder_of), version, seed, plain_text(release)]
            key = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
            known = read_record(path)
            if student is None and known.get("key") == key:
                return known
            record = grade(assignment, folder_of, release, seed, kind=kind) | {"key": key}
        except Exception as error:  # ours, not the submission's: the others are graded all the same
            record = empty(assignment, "failed", f"{type(error).__name__}: {error}")
        record = {"student": name, **record}
        try:
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(record, indent=1))
        except (OSError, ValueError) as error:  # such as a full disk
            return record | empty(assignment, "failed", f"the mark could not be written: {error}")
        return record | {"anew": True}

    graded: dict[int, Record] = {}
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(grade_one, *entry): number
                   for number, entry in enumerate(submissions(folder, only, student))}
        for future in as_completed(running):
            graded[running[future]] = future.result()
            done(future.result())
    return [graded[number] for number in sorted(graded)]


def read_record(path: Path) -> Record:
    """Return a record, empty if there is none that can be read: then the work is graded again."""
    try:
        record: Record = read_json(path, "marks", "grade again")
    except (OSError, ValueError):
        return {}
    return record


def fingerprint() -> str:
    """Return a hash of the package, from all of which checks take parts: records grow old."""
    total = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        about = path.relative_to(PACKAGE).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()
        total.update("\n".join(about).encode())
    return total.hexdigest()
