"""`check` and `points` in a cell of the student's own notebook: quick, friendly, and trusted by nobody.

Marks come from `cca_lab.course.grading`, which runs the submission in a process of its own.
"""

import ast
import inspect
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cca_lab.course import wire
from cca_lab.course.marks import Finding, findings
from cca_lab.course.registry import task_of
from cca_lab.course.tasks import Answer, Task

PACKAGE = "cca_lab"


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
            raise finding.error
    if wrong := [finding.property.name for finding in found if not finding.full]:
        raise CheckFailed(f"{task_id}: not yet: {'; '.join(wrong)}")


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
    for finding in found:
        sign = "ok  " if finding.full else "part" if finding.earned else "no  "
        lines.append(f"  {sign} {finding.property.name} ({finding.earned:g} of {finding.property.points})")
        if finding.message:
            lines += textwrap.wrap(finding.message, 100, initial_indent=" " * 7, subsequent_indent=" " * 7)
    earned = sum(finding.earned for finding in found)
    last = f"  {earned:g} of {task.points} points"
    if task.unseen:
        last += f"; {task.unseen} stand behind tests that are not shown"
    return [*lines, last + ". Marks are given on other inputs."]


def local(task: Task, answer: Answer | str | Path) -> Answer:
    """Return the answer, called with copies and returning a copy, as in another process.

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
    if used := of_the_package(answer):
        print(f"Note: {task.answer} uses {', '.join(used)}, and `{PACKAGE}` is not there when marks are given.")
    function: Callable[..., Any] = answer

    def call(*args: Any) -> Any:
        return wire.by_value(function(*(wire.by_value(arg) for arg in args)))

    return call


def of_the_package(function: Callable[..., Any]) -> list[str]:
    """Return the names through which a function uses the package, as far as its source shows."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return []
    found = set()
    scope = getattr(function, "__globals__", {})
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == PACKAGE:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] == PACKAGE}
        elif isinstance(node, ast.Name) and node.id in scope:
            value = scope[node.id]
            home = getattr(value, "__module__", None) or getattr(value, "__name__", "")
            if isinstance(home, str) and home.partition(".")[0] == PACKAGE and value is not sys.modules["__main__"]:
                found.add(node.id)
    return sorted(found)
