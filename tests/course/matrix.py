"""The matrix of assignments and answers, judged here; `test_grading.py` uses the sandbox."""

import ast
import importlib
import linecache
import os
import types
from dataclasses import replace
from functools import cache
from pathlib import Path

import nbformat

from cca_lab.course.cell import local
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.tasks import CourseTask, Mark, marks_of
from cca_lab.files import repository
from tests.course.kinds import Right, Wrong

SECRET = "a seed for tests"
# Triton has to know before it is imported that it shall interpret: a7 has a process that begins so.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HERE = [part for part in ASSIGNMENTS if INTERPRETED or part != "a7"]


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
    notebook = nbformat.read(repository() / "lab" / "source" / name / f"{name}.ipynb", 4)
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
    count = source.count(wrong.old)
    assert count == 1, f"{wrong.what}: its old text stands {count} times"
    return {wrong.task: source.replace(wrong.old, wrong.new)}


def affected(part: str, changed: set[str]) -> list[CourseTask]:
    """Return the tasks whose answers use a changed cell, directly or through other answers."""
    defines, uses = {}, {}
    for name, source in solved(part).items():
        tree = ast.parse(source)
        defines[name] = {node.name for node in tree.body
                         if isinstance(node, ast.FunctionDef | ast.ClassDef)} | {
            target.id for node in tree.body if isinstance(node, ast.Assign)
            for target in node.targets if isinstance(target, ast.Name)}
        uses[name] = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    reached = {cell_of(task) for task in changed}
    while more := {name for name in uses for other in reached
                   if uses[name] & defines.get(other, set())} - reached:
        reached |= more
    files_changed = any(task.files and task.id in changed for task in assignment_of(part).tasks)
    return [task for task in assignment_of(part).tasks if task.properties
            and (not changed or cell_of(task.id) in reached or task.files and files_changed)]


def of_folder(home: Path, name: str = "") -> list[Mark]:
    """Return the marks of the files in a folder: of all properties, or of the one named."""
    tasks = [task for part in ASSIGNMENTS.values() for task in part.tasks if task.files]
    return [mark for task in tasks for mark in marks_of(replace(task, properties=tuple(
        prop for prop in task.properties if name in ("", prop.name))),
        local(task, home / task.answer), SECRET)]


def lost(part: str, changed: dict[str, str], said: list[str] | None = None) -> dict[str, float]:
    """Return the points that the assignment loses with some answers changed, by property.

    What does not depend on the changed tasks is not checked again, unless none is changed. `said`
    gets the messages.
    """
    scope = types.ModuleType("submission").__dict__
    cells = solved(part) | {cell_of(task): source for task, source in changed.items()}
    for name, source in cells.items():
        path = f"<{part} {name} {hash(source)}>"
        lines = source.splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)  # for inspect
        exec(compile(source, path, "exec"), scope)
    result: dict[str, float] = {}
    for task in affected(part, set(changed)):
        answer = importlib.import_module(f"tests.course.answers.{part}").folder() / task.answer if (
            task.files) else scope[task.answer]
        for finding in marks_of(task, local(task, answer), SECRET):
            if not finding.full:
                result[finding.property.name] = finding.property.points - finding.earned
                if said is not None:
                    said.append(finding.message)
    return result


def table() -> str:
    """Return the table of assignments in lab/README.md."""
    return "\n".join(f"| {part.id} | [{part.title}](release/{part.name}/{part.name}.ipynb) | "
                     f"{', '.join(part.walkthroughs)} | {part.minutes} | {part.points} | "
                     f"{part.read or ''} |" for part in ASSIGNMENTS.values())
