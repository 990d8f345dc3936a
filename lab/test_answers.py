"""One test for each property of each task, on lab/a5.py and its like, with inputs that cells show.

Such a file holds the functions of the notebook under their names; what is missing is skipped.
"""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from cca_lab.course.cell import local
from cca_lab.course.registry import ASSIGNMENTS
from cca_lab.course.tasks import CourseTask, Property, marks_of

CASES = [pytest.param(task, shown, id=f"{task.id} {shown.name}", marks=[
    getattr(pytest.mark, assignment.id), getattr(pytest.mark, task.id.replace(".", "_"))])
         for assignment in ASSIGNMENTS.values() for task in assignment.tasks
         for shown in task.properties if not shown.hidden and not task.files]


@pytest.mark.parametrize(("task", "shown"), CASES)
def test_answer(task: CourseTask, shown: Property) -> None:
    path = Path(__file__).with_name(f"{task.id.partition('.')[0]}.py")
    scope = runpy.run_path(str(path)) if path.exists() else {}
    if task.answer not in scope:
        pytest.skip("not written yet")
    [mark] = marks_of(replace(task, properties=(shown,)), local(task, scope[task.answer]))
    if isinstance(mark.error, NotImplementedError):
        pytest.skip("not written yet")
    if mark.error is not None:
        raise mark.error
    if not mark.full:
        pytest.fail(mark.message, pytrace=False)
