"""The solved notebooks and other answers, judged here; `test_grading.py` uses the sandbox."""

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
from cca_lab.course.tasks import Mark, marks_of
from cca_lab.files import repository

SECRET = "a seed for tests"
# Triton has to know before it is imported that it shall interpret: a7 has a process that begins so.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HERE = [part for part in ASSIGNMENTS if INTERPRETED or part != "a7"]


def answers(kind: str) -> list[tuple[str, str, dict[str, str]]]:
    """Return all answers of a kind, "RIGHT" or "WRONG": assignment, what is said, cells by task."""
    return [(part, what, cells) for part in ASSIGNMENTS for what, cells in getattr(
        importlib.import_module(f"tests.course.answers.{part}"), kind, {}).items()]


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


def of_folder(home: Path, name: str = "") -> list[Mark]:
    """Return the marks of the files in a folder: of all properties, or of the one named."""
    tasks = [task for part in ASSIGNMENTS.values() for task in part.tasks if task.files]
    return [mark for task in tasks for mark in marks_of(replace(task, properties=tuple(
        prop for prop in task.properties if name in ("", prop.name))),
        local(task, home / task.answer), SECRET)]


def lost(part: str, changed: dict[str, str], said: list[str] | None = None) -> dict[str, float]:
    """Return the points that the changed answers lose, or all if none is changed, by property.

    `said` gets the messages. Files that are handed in are not looked at.
    """
    scope = types.ModuleType("submission").__dict__
    cells = solved(part) | {cell_of(task): source for task, source in changed.items()}
    for name, source in cells.items():
        path = f"<{part} {name} {hash(source)}>"
        lines = source.splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)  # for inspect
        exec(compile(source, path, "exec"), scope)
    marks = [mark for task in assignment_of(part).tasks if task.properties and not task.files
             and (task.id in changed or not changed)
             for mark in marks_of(task, local(task, scope[task.answer]), SECRET) if not mark.full]
    if said is not None:
        said += [mark.message for mark in marks]
    return {mark.property.name: mark.property.points - mark.earned for mark in marks}


def table() -> str:
    """Return the table of assignments in lab/README.md."""
    return "\n".join(f"| {part.id} | [{part.title}](release/{part.name}/{part.name}.ipynb) | "
                     f"{', '.join(part.walkthroughs)} | {part.minutes} | {part.points} | "
                     f"{part.read or ''} |" for part in ASSIGNMENTS.values())
