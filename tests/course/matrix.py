"""The matrix of assignments and answers, judged in this process; `tests/course/test_grading.py` uses the sandbox."""

import importlib
import linecache
import types
from functools import cache
from pathlib import Path

import nbformat

from cca_lab import paths
from cca_lab.course.cell import local
from cca_lab.course.marks import findings
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from tests.course.kinds import Right, Wrong

SECRET = "a seed for tests"


def entries() -> tuple[list[tuple[str, Right]], list[tuple[str, Wrong]]]:
    """Return the right and the wrong answers of all assignments, each with the assignment's id."""
    right, wrong = [], []
    for part in ASSIGNMENTS:
        module = importlib.import_module(f"tests.course.answers.{part}")
        right += [(part, entry) for entry in module.RIGHT]
        wrong += [(part, entry) for entry in module.WRONG]
    return right, wrong


@cache
def solved(part: str) -> dict[str, str]:
    """Return the sources of the solved notebook that an answer needs, by cell id, in order."""
    name = assignment_of(part).name
    notebook = nbformat.read(paths.repository() / "lab" / "source" / name / f"{name}.ipynb", 4)
    return {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"
            and (cell.id.startswith("given-") or cell.id.endswith("-answer"))}


def cell_of(task: str) -> str:
    """Return the id of a task's answer cell."""
    return f"{task.replace('.', '-')}-answer"


def spoilt(part: str, wrong: Wrong) -> dict[str, str]:
    """Return the changed answer by task."""
    if not wrong.old:
        return {wrong.task: wrong.new}
    source = solved(part)[cell_of(wrong.task)]
    assert source.count(wrong.old) == 1, f"{wrong.what}: its old text stands {source.count(wrong.old)} times"
    return {wrong.task: source.replace(wrong.old, wrong.new)}


def lost(part: str, changed: dict[str, str], said: list[str] | None = None) -> dict[str, float]:
    """Return the points that the assignment loses with some answers changed, by property.

    Args:
        part: the assignment's id.
        changed: sources by task.
        said: gets the messages.
    """
    scope = types.ModuleType("submission").__dict__
    cells = solved(part) | {cell_of(task): source for task, source in changed.items()}
    for name, source in cells.items():
        place = f"<{part} {name} {hash(source)}>"
        linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)  # for inspect
        exec(compile(source, place, "exec"), scope)
    result: dict[str, float] = {}
    assignment = assignment_of(part)
    folder = paths.repository() / "lab" / "source" / assignment.name
    for task in assignment.tasks:
        if not task.properties:
            continue
        answer = Path(scope["FOLDER"] if "FOLDER" in scope else folder) if task.files else scope[task.answer]
        for finding in findings(task, local(task, answer), SECRET):
            if not finding.full:
                result[finding.property.name] = finding.property.points - finding.earned
                if said is not None:
                    said.append(finding.message)
    return result
