"""One test for each property of each task, on adapters.py and the inputs that cells show."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from cca_lab.course.cell import local
from cca_lab.course.registry import ASSIGNMENTS
from cca_lab.course.tasks import CourseTask, Property, marks_of

SPEC = importlib.util.spec_from_file_location("adapters", Path(__file__).with_name("adapters.py"))
ADAPTERS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ADAPTERS)

CASES = [pytest.param(task, shown, id=f"{task.id} {shown.name}", marks=[
    getattr(pytest.mark, assignment.id), getattr(pytest.mark, task.id.replace(".", "_"))])
         for assignment in ASSIGNMENTS.values() for task in assignment.tasks
         for shown in task.properties if not shown.hidden]


@pytest.mark.parametrize(("task", "shown"), CASES)
def test_adapter(task: CourseTask, shown: Property) -> None:
    function = getattr(ADAPTERS, task.id.replace(".", "_"))
    try:
        answer = local(task, function() if task.files else function)
    except NotImplementedError:
        pytest.skip("not written yet")
    mark = next(marks_of(replace(task, properties=(shown,)), answer))
    if isinstance(mark.error, NotImplementedError):
        pytest.skip("not written yet")
    if mark.error is not None:
        raise mark.error
    if not mark.full:
        pytest.fail(mark.message, pytrace=False)
