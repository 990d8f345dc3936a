"""The assignment that attacks answer: a5.2, and two tasks that only a cheat passes.

An attack is a file in `cheats/`, an unusual right answer one in `honest/`. Its first lines are
comments: "name", "idea" (who described it), "wants". The file is the cell of a5.2, the first of the
answers; one with a function `change(notebook, folder)` changes the submission itself instead.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat

from cca_lab.course.registry import assignment_of
from cca_lab.course.sandbox import Session
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, unseen
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


def notebook() -> nbformat.NotebookNode:
    """Return the notebook that students get."""
    cells = [code("given-setup", "import torch\n\nfrom cca_lab.course import check, points"),
             code("show-example", "print(torch.arange(3))")]
    for task, name in PARTS.items():
        sizes = "length, sinks, group, window" if name == "intervals" else ""
        cells.append(code(matrix.cell_of(task),
                          f"def {name}({sizes}):\n    raise NotImplementedError", solution=True))
    cells += [code(f"{task.id.replace('.', '-')}-check", f"# {task.id}", points=task.points)
              for task in ASSIGNMENT.tasks]
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {
        "name": "python3", "display_name": "Python 3", "language": "python"}})


def code(name: str, source: str, *, solution: bool = False,
         points: int = 0) -> nbformat.NotebookNode:
    """Return a code cell with the metadata of nbgrader."""
    about = {"grade": bool(points), "grade_id": name, "locked": not solution, "schema_version": 3,
             "solution": solution, "task": False} | ({"points": points} if points else {})
    return nbformat.v4.new_code_cell(source, id=name, metadata={"nbgrader": about})


def hand_in(entry: Entry, folder: Path) -> Path:
    """Write a submission, made of what students get; return its path."""
    folder.mkdir(parents=True)
    path, released = folder / f"{ASSIGNMENT.name}.ipynb", notebook()
    for cell in released.cells:
        for name in PARTS.values():
            if cell.source.startswith(f"def {name}("):
                # A file may answer the honeypots too; otherwise a guess stands there.
                cell.source = (entry.text if name == "intervals" else "# see above"
                               if name in entry.text else f"def {name}():\n    return 0")
    if entry.changes:
        scope: dict = {"CELLS": {cell.id: cell for cell in released.cells}}
        exec(entry.text, scope)
        answer = next(cell for cell in released.cells if cell.source == entry.text)
        answer.source = scope.get("ANSWER", "def intervals(*sizes):\n    return 0")
    nbformat.write(released, path)
    if entry.changes:
        scope["change"](path, folder)
    return path


def points(session: Session, names: dict[str, str] = PARTS) -> dict[str, float]:
    """Return, by task, what the functions of these names earn on the secret inputs."""
    return {task.id: sum(mark.earned for mark in
                         unseen(task, session.answer(names[task.id]), SEED, {}))
            for task in ASSIGNMENT.tasks if task.id in names}

