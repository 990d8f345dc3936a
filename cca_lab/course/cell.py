"""`check`, `points` and `your_turn` in a cell of the student's own notebook: quick, friendly, and trusted by nobody.

Marks come from `cca_lab.course.grading`, which runs the submission in a process of its own.
"""

import ast
import inspect
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from cca_lab.course import wire
from cca_lab.course.registry import task_of
from cca_lab.course.tasks import Answer, Finding, Task, findings
from cca_lab.views.reader import written

PACKAGE = "cca_lab"
HERE = Path(__file__).parent


class CheckFailed(AssertionError):
    """A check that found a mistake; notebooks show one line of it, for the messages stand above."""

    def _render_traceback_(self) -> list[str]:
        return [f"CheckFailed: {self}"]


def check(task_id: str, answer: Answer | str | Path) -> None:
    """Check an answer on the inputs that are shown, and print what is right and what is wrong.

    Args:
        task_id: such as "a5.2".
        answer: the function that was written; for a task that asks for files, their folder.

    Raises:
        NotImplementedError: if the answer is not written yet.
        CheckFailed: if a property does not hold. In nbgrader's autograding nothing is raised: see `points`.
        ValueError: if there is no such task, or the answer is none.
    """
    task = task_of(task_id)
    found = list(findings(task, local(task, answer)))
    print("\n".join(report(task, found)), flush=True)
    if os.environ.get("NBGRADER_EXECUTION") == "autograde":
        return
    for finding in found:
        if finding.error is not None:
            raise finding.error.with_traceback(own(finding.error.__traceback__))
    if wrong := [finding.property.name for finding in found if not finding.full]:
        raise CheckFailed(f"{task_id}: not yet: {'; '.join(wrong)}")


def your_turn(task_id: str, answer: Answer) -> None:
    """Check what the reader of a notebook wrote, and say what is wrong; nothing that is not written yet stops a run.

    Args:
        task_id: such as "05.2".
        answer: the function.

    Raises:
        CheckFailed: if something is wrong.
        ValueError: if there is no such task, or the answer is no function.
    """
    task = task_of(task_id)
    found = list(findings(task, local(task, answer, note=False)))
    if any(isinstance(finding.error, NotImplementedError) for finding in found):
        written(task_id, task.title, None)
        print(f"{task_id} {task.title}: not written yet; a hint and a solution are folded below")
        return
    wrong = [finding for finding in found if not finding.full]
    written(task_id, task.title, not wrong)
    lines, before = [f"{task_id} {task.title}{'' if wrong else ': done'}"], ""
    for finding in found if wrong else ():
        lines += told("no  " if finding in wrong else "ok  ", finding.property.name, finding.message, before)
        before = finding.message
    print("\n".join(lines), flush=True)
    for finding in wrong:
        if finding.error is not None:
            raise finding.error.with_traceback(own(finding.error.__traceback__))
    if wrong:
        raise CheckFailed(f"{task_id}: not yet: {'; '.join(finding.property.name for finding in wrong)}")


def points(task_id: str, answer: Answer | str | Path) -> float:
    """Return the points of an answer, hidden properties included: the last line of a test cell for nbgrader.

    The seed of the inputs is the environment variable CCA_LAB_SEED, or a fixed one. nbgrader runs this in the
    student's own process: use it for a look, and `cca-lab course grade` for marks.
    """
    task = task_of(task_id)
    seed = os.environ.get("CCA_LAB_SEED", "nbgrader")
    return round(sum(finding.earned for finding in findings(task, local(task, answer), seed)), 2)


def report(task: Task, found: list[Finding]) -> list[str]:
    """Return the lines that say what each property earned."""
    lines = [f"{task.id} {task.title}"]
    before = ""
    for finding in found:
        lines += lines_of(finding.property.name, finding.earned, finding.property.points, finding.message, before)
        before = finding.message
    earned = sum(finding.earned for finding in found)
    last = f"  {earned:g} of {task.points} points"
    if task.unseen:
        last += f"; {task.unseen} of the {task.points} behind tests that are not shown"
    return [*lines, last + ". Marks are given on other inputs."]


def lines_of(name: str, earned: float, points: float, message: str, before: str = "") -> list[str]:
    """Return the lines of one property with its points."""
    sign = "ok  " if earned >= points else "part" if earned else "no  "
    return told(sign, f"{name} ({earned:g} of {points:g})", message, before)


def told(sign: str, what: str, message: str, before: str = "") -> list[str]:
    """Return the line of a property, and its message below; "the same" for one that stood there just before."""
    head = f"  {sign} {what}"
    if message and message == before:
        return [f"{head}: the same"]
    return [head, *textwrap.wrap(message, 100, initial_indent=" " * 7, subsequent_indent=" " * 7)]


def local(task: Task, answer: Answer | str | Path, *, note: bool = True) -> Answer:
    """Return the answer, called with copies and returning a copy, as in another process.

    Args:
        task: of the answer.
        answer: a function, or the folder that the task asks for.
        note: say if the function uses this package, which is not there when marks are given.

    Raises:
        ValueError: if it is not what the task asks for.
    """
    if task.files:
        if callable(answer):
            raise ValueError(f"answer: got a function, wanted the folder of {task.id}, such as {task.answer!r}")
        folder = Path(answer)
        return lambda: folder
    if not callable(answer):
        raise ValueError(f"answer: got {type(answer).__name__}, wanted the function {task.answer} of {task.id}")
    if note and (used := of_the_package(answer)):
        print(f"Note: {task.answer} uses {', '.join(used)}, and `{PACKAGE}` is not there when marks are given.")
    function: Callable[..., Any] = answer

    def call(*args: Any) -> Any:
        return wire.by_value(function(*(wire.by_value(arg) for arg in args)))

    return call


def own(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the checker's frames at its beginning."""
    while trace is not None and trace.tb_next is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(
            HERE):
        trace = trace.tb_next
    return trace


def of_the_package(function: Callable[..., Any]) -> list[str]:
    """Return the names through which a function uses the package, as far as its source shows."""
    try:
        used = inspect.getclosurevars(function)
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, ValueError, SyntaxError):
        return []
    found = {f"{node.module}.{alias.name}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
             for alias in node.names if is_ours(node.module)}
    found |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
              if is_ours(alias.name)}
    for name, value in {**used.globals, **used.nonlocals}.items():
        if is_ours(getattr(value, "__module__", None)) or (inspect.ismodule(value) and is_ours(value.__name__)):
            found.add(name)
    return sorted(found)


def is_ours(name: str | None) -> bool:
    """Return True for a module of the package."""
    return isinstance(name, str) and name.partition(".")[0] == PACKAGE
