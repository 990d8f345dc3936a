"""`check`, `points` and `your_turn` in a cell of the student's notebook; nobody trusts them.

Marks come from `cca_lab.course.grading`, which runs the submission in a process of its own.
"""

import ast
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from cca_lab.course import library, wire
from cca_lab.course.registry import task_of
from cca_lab.course.solved import BEGIN, solved_cells
from cca_lab.course.tasks import Answer, CourseTask, Mark, marks_of
from cca_lab.views.reader import written

PACKAGE = "cca_lab"
UNSEEN = "fails on inputs that are not shown"
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
        CheckFailed: if a property does not hold. In nbgrader's autograding nothing is raised: see
            `points`.
        ValueError: if there is no such task, or the answer is none.
    """
    task = task_of(task_id)
    marks = list(marks_of(task, local(task, answer)))
    print("\n".join(report(task, marks)), flush=True)
    if os.environ.get("NBGRADER_EXECUTION") != "autograde":
        raise_what(task_id, [mark for mark in marks if not mark.full])


def raise_what(task_id: str, wrong: list[Mark]) -> None:
    """Raise the first error of the answer itself, or else `CheckFailed` if anything is wrong."""
    for mark in wrong:
        if mark.error is not None:
            raise mark.error.with_traceback(answers_frames(mark.error.__traceback__))
    if wrong:
        raise CheckFailed(f"{task_id}: not yet: "
                          f"{'; '.join(mark.property.name for mark in wrong)}")


def your_turn(task_id: str, answer: Answer) -> None:
    """Check what a reader wrote, such as for "05.4"; nothing unwritten stops a run.

    Raises:
        CheckFailed: if something is wrong.
        ValueError: if there is no such task, or the answer is no function.
    """
    task = task_of(task_id)
    marks = list(marks_of(task, local(task, answer, note=False)))
    if any(isinstance(mark.error, NotImplementedError) for mark in marks):
        written(task_id, task.title, None)
        print(f"{task_id} {task.title}: not written yet; hints and a solution are folded below")
        return
    wrong = [mark for mark in marks if not mark.full]
    cell, copied = _cell(), not wrong and _is_folded_solution(task_id)
    written(task_id, task.title, not wrong, copied=copied, source="" if wrong or copied or (
        BEGIN in cell) else library.definitions(cell))
    if not wrong and cell:
        library.keep(task_id, answer, cell, copied=copied)
    print("\n".join([f"{task_id} {task.title}", *lines_of(map(row_of, marks), marked=False)])
          if wrong else f"{task_id} {task.title}: done", flush=True)
    raise_what(task_id, wrong)


def _cell() -> str:
    """Return the source of the notebook's cell that runs, or nothing outside of a notebook."""
    session = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return session.user_ns.get("In", [""])[-1] if session else ""


def _is_folded_solution(task_id: str) -> bool:
    """Say whether the cell that runs is a turn's folded solution, whatever its layout and comments.

    The committed notebooks show their solutions between two marks, and are no copies.
    """
    cell = _cell()
    if not cell or BEGIN in cell:
        return False
    solved = solved_cells(task_id.partition(".")[0]).get(task_id, "")
    return ast.dump(ast.parse(cell)) == ast.dump(ast.parse(solved))


def points(task_id: str, answer: Answer | str | Path) -> float:
    """Return an answer's points, hidden properties included, in the last line of nbgrader's tests.

    The seed of the inputs is the environment variable CCA_LAB_SEED, or a fixed one. nbgrader runs
    this in the student's own process: use it for a look, and `cca-lab course grade` for marks.
    """
    task = task_of(task_id)
    seed = os.environ.get("CCA_LAB_SEED", "nbgrader")
    return round(sum(mark.earned for mark in marks_of(task, local(task, answer), seed)), 2)


def report(task: CourseTask, marks: list[Mark]) -> list[str]:
    """Return the lines that say what each property earned."""
    last = f"  {sum(mark.earned for mark in marks):g} of {task.points} points"
    if task.unseen:
        last += f"; {task.unseen} of the {task.points} behind tests that are not shown"
    return [f"{task.id} {task.title}", *lines_of(map(row_of, marks)),
            last + ". Marks are given on other inputs."]


Row = tuple[str, float, float, str]  # a property's name, what it earned, its points, a message


def row_of(mark: Mark) -> Row:
    """Return a mark as a row of `lines_of`."""
    return mark.property.name, mark.earned, mark.property.points, mark.message


def lines_of(rows: Iterable[Row], *, marked: bool = True) -> list[str]:
    """Return a line for each property, its points if `marked`, and below it its message, once."""
    lines, before = [], ""
    for name, earned, points, message in rows:
        sign = "ok  " if earned >= points else "part" if earned else "no  "
        head = f"  {sign} {name}" + (f" ({earned:g} of {points:g})" if marked else "")
        if message and message == before:
            lines.append(f"{head}: the same")
        else:
            lines += [head, *textwrap.wrap(message, 100, initial_indent=" " * 7,
                                           subsequent_indent=" " * 7)]
        before = message
    return lines


def local(task: CourseTask, answer: Answer | str | Path, *, note: bool = True) -> Answer:
    """Return the answer, called with copies and returning a copy, as in another process.

    `note` says if it uses this package. The answer of a `shared` task is returned as it is.
    ValueError if it is not what the task asks for.
    """
    if task.files:
        if callable(answer):
            raise ValueError(f"answer: got a function, wanted the folder of {task.id}, such as "
                             f"{task.answer!r}")
        folder = Path(answer)
        return lambda: folder
    if not callable(answer):
        raise ValueError(f"answer: got {type(answer).__name__}, wanted the function {task.answer} "
                         f"of {task.id}")
    if note and (used := of_the_package(answer)):
        print(f"Note: {task.answer} uses {', '.join(used)}, and `{PACKAGE}` is not there when "
              "marks are given.")
    if task.shared:
        return answer
    function: Callable[..., Any] = answer

    def call(*args: Any) -> Any:
        return wire.by_value(function(*(wire.by_value(arg) for arg in args)))

    return call


def answers_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the checker's frames at its beginning."""
    while trace is not None and trace.tb_next is not None and Path(
            trace.tb_frame.f_code.co_filename).is_relative_to(HERE):
        trace = trace.tb_next
    return trace


def of_the_package(function: Callable[..., Any]) -> list[str]:
    """Return the names through which a function uses the package, as far as its source shows."""
    try:
        used, source = inspect.getclosurevars(function), inspect.getsource(function)
    except (OSError, TypeError, ValueError):
        return []
    homes = {name: getattr(value, "__module__", None) or getattr(value, "__name__", None)
             for name, value in {**used.globals, **used.nonlocals}.items()}
    return sorted([*re.findall(rf"^\s*(?:from|import) +({PACKAGE}\b[\w.]*)", source, re.MULTILINE),
                   *(name for name, home in homes.items()
                     if str(home).partition(".")[0] == PACKAGE)])
