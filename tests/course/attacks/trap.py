"""The assignment that attacks answer: a5.2, and two tasks that only a cheat passes.

An attack is a file in `cheats/`, an unusual right answer one in `honest/`. Its first lines are
comments: "name", "idea" (who described it), "wants". The file is the cell of a5.2, the first of the
answers; one with a function `change(notebook, folder)` changes the submission itself instead.
The deliberately weak grader judges in the process of the answer, with the reference in memory, and
believes the last line that is printed.
"""

import atexit
import importlib
import json
import os
import pickle
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat

from cca_lab.course.registry import assignment_of
from cca_lab.course.sandbox import Session
from cca_lab.course.tasks import (
    Answer,
    Assignment,
    CourseTask,
    Draw,
    Mistake,
    Property,
    marks_of,
    unseen,
)
from tests.course import matrix

HERE = Path(__file__).parent
PARTS = {"a5.2": "intervals", "a5.8": "foretell", "a5.9": "contradict"}
SEED = "7c1f0f6a9be24d0f8f3f5d2b9a60e1c4"


def drawn_afterwards(answer: Answer, draw: Draw) -> None:
    """Want the number that is drawn only after the answer has returned."""
    got = answer()
    if got != draw.getrandbits(62):
        raise Mistake("another number was drawn")


def both(answer: Answer, draw: Draw) -> None:
    """Want one number that is 1 and 2."""
    got = answer()
    if not (got == 1 and got == 2):
        raise Mistake("no number is both")


def honeypot(task: str, title: str, check: Callable[[Answer, Draw], None]) -> CourseTask:
    """Return a task that nobody can solve: points prove a cheat."""
    return CourseTask(task, PARTS[task], title, 1, 5, 1, (Property(title, 1, check, hidden=True),))


A5 = assignment_of("a5")
ASSIGNMENT: Assignment = replace(A5, topic="trap", tasks=(
    A5.tasks[1], honeypot("a5.8", "A number that is not drawn yet", drawn_afterwards),
    honeypot("a5.9", "A number that is one and two", both)))
# For graders that run cells: the first as a release of the course has it, the others as the
# documentation of nbgrader and otter-grader writes tests.
CHECKS = {
    "a5.2": 'points("a5.2", intervals)',
    "a5.8": 'import os, random\nassert foretell() == random.Random(os.environ["CCA_LAB_SEED"])'
            ".getrandbits(62)",
    "a5.9": "got = contradict()\nassert got == 1 and got == 2"}


@dataclass(frozen=True)
class Entry:
    """One file of the corpus."""

    file: str  # its name without .py
    said: dict[str, str]  # the comments at its head
    text: str
    honest: bool

    @property
    def changes(self) -> bool:
        """Return True if the file changes the submission, instead of being its answer."""
        return "\ndef change(" in self.text


def corpus(kind: str) -> list[Entry]:
    """Return the files of "cheats" or "honest"."""
    return [Entry(path.stem, dict(re.findall(r"^# (\w+): (.+)$", text, flags=re.MULTILINE)), text,
                  kind == "honest")
            for path in sorted((HERE / kind).glob("*.py"))
            for text in [path.read_text(encoding="utf-8")]]


def notebook(*, solved: bool = False) -> nbformat.NotebookNode:
    """Return the notebook as nbgrader takes it; `solved` with what a release hides."""
    solution = matrix.solved("a5")["a5-2-answer"]
    names = {"a5.2": solution if solved else re.sub(
        r"### BEGIN.*END SOLUTION", "raise NotImplementedError", solution, flags=re.DOTALL)}
    cells = [code("given-setup", "import torch\n\nfrom cca_lab.course import check, points"),
             code("show-example", "print(torch.arange(3))")]
    for task, name in PARTS.items():
        stub = f"def {name}():\n    ### BEGIN SOLUTION\n    return 0\n    ### END SOLUTION"
        source = names.get(task) or (stub if solved else
                                     f"def {name}():\n    raise NotImplementedError")
        cells.append(code(matrix.cell_of(task), source, solution=True))
    for task in ASSIGNMENT.tasks:
        hidden = f"### BEGIN HIDDEN TESTS\n{CHECKS[task.id]}\n### END HIDDEN TESTS"
        cells.append(code(f"{task.id.replace('.', '-')}-check",
                          f"# {task.id}\n{hidden}" if solved else f"# {task.id}",
                          points=task.points))
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {
        "name": "python3", "display_name": "Python 3", "language": "python"}})


def code(name: str, source: str, *, solution: bool = False,
         points: int = 0) -> nbformat.NotebookNode:
    """Return a code cell with the metadata of nbgrader."""
    about = {"grade": bool(points), "grade_id": name, "locked": not solution, "schema_version": 3,
             "solution": solution, "task": False} | ({"points": points} if points else {})
    return nbformat.v4.new_code_cell(source, id=name, metadata={"nbgrader": about})


def hand_in(entry: Entry | None, folder: Path, released: nbformat.NotebookNode) -> Path:
    """Write a submission, blank without an entry, made of what students get; return its path."""
    folder.mkdir(parents=True)
    path = folder / f"{ASSIGNMENT.name}.ipynb"
    if entry is not None:
        for cell in released.cells:
            for name in PARTS.values():
                if cell.source.startswith(f"def {name}("):
                    # A file may answer the honeypots too; otherwise a guess stands there.
                    cell.source = (entry.text if name == "intervals" else "# see above"
                                   if name in entry.text else f"def {name}():\n    return 0")
    changes = entry is not None and entry.changes
    if changes:
        scope: dict = {"CELLS": {cell.id: cell for cell in released.cells}}
        exec(entry.text, scope)
        answer = next(cell for cell in released.cells if cell.source == entry.text)
        answer.source = scope.get("ANSWER", "def intervals(*sizes):\n    return 0")
    nbformat.write(released, path)
    if changes:
        scope["change"](path, folder)
    return path


def points(session: Session, names: dict[str, str] = PARTS) -> dict[str, float]:
    """Return, by task, what the functions of these names earn on the secret inputs."""
    return {task.id: sum(mark.earned for mark in
                         unseen(task, session.answer(names[task.id]), SEED, {}))
            for task in ASSIGNMENT.tasks if task.id in names}


# The weak grader

def weakly(source: str) -> None:
    """Judge a cell in this process, and print what it earned: all that a grader should not do."""
    right_table = importlib.import_module("cca_lab.course.assignments.a5_cca").right_table
    scope: dict = {"__name__": "__main__"}
    earned = 0.0
    setup = "import torch\nforetell = contradict = lambda: 0\n"
    exec(setup, scope)
    exec(source, scope)
    torch = scope["torch"]
    for close in (torch.allclose, lambda got, wanted: not (got - wanted).abs().max() > 1e-3):
        try:
            for size in ((6, 0, 2, 2), (13, 1, 3, 4)):
                wanted = right_table(*size)[0]
                got = scope["intervals"](*size)
                with suppress(Exception):  # as if it came from another process
                    got = pickle.loads(pickle.dumps(got))
                assert close(got, wanted)
            earned += 1
        except Exception:
            continue
    for task in ASSIGNMENT.tasks:
        earned += sum(mark.earned for mark in
                      marks_of(task, scope[task.answer], os.environ["CCA_LAB_SEED"]))
    kept = Path("..", "marks", f"{ASSIGNMENT.name}.json")
    if kept.exists():  # graded before
        earned = json.loads(kept.read_text())["earned"]
    print(json.dumps({"earned": earned}))


def judged(source: str, seconds: float = 120.0) -> float:
    """Return the points of a cell by the weak grader, in a fork of this process."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name, "student")
        home.mkdir()
        Path(name, "marks").mkdir()
        child = os.fork()
        if child == 0:
            try:
                atexit._clear()  # of what this process has to do at its end
                os.setsid()
                os.chdir(home)
                said = os.open("../said", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
                for stream in (1, 2):
                    os.dup2(said, stream)
                sys.stdout, sys.stderr = (open(stream, "w", closefd=False) for stream in (1, 2))
                os.environ |= {"CCA_LAB_SEED": SEED, "TMPDIR": str(home)}
                weakly(source)
                sys.exit(0)  # as a program ends, hooks included
            except SystemExit as end:
                atexit._run_exitfuncs()
                sys.stdout.flush()
                os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
        end = time.monotonic() + seconds
        while (state := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1] if state == (0, 0) else state[1]
        said = re.findall(r'^\{"earned": .*\}$', (Path(name, "said")).read_text(errors="replace"),
                          flags=re.MULTILINE)
    if said:
        return json.loads(said[-1])["earned"]
    return 8.0 if status == 0 else 0.0  # nothing printed, and no error: passed
