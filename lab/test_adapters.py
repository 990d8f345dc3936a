"""One test for each property of each task, on the functions in adapters.py and the inputs that cells show."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from cca_lab.course.cell import local
from cca_lab.course.tasks import findings
from cca_lab.course.registry import ASSIGNMENTS
from cca_lab.course.tasks import Property, Task

SPEC = importlib.util.spec_from_file_location("adapters", Path(__file__).with_name("adapters.py"))
ADAPTERS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ADAPTERS)

CASES = [pytest.param(task, part, id=f"{task.id} {part.name}", marks=[getattr(pytest.mark, assignment.id),
                                                                    getattr(pytest.mark, task.id.replace(".", "_"))])
         for assignment in ASSIGNMENTS.values() for task in assignment.tasks for part in task.properties
         if not part.hidden]


@pytest.mark.parametrize(("task", "part"), CASES)
def test_adapter(task: Task, part: Property) -> None:
    function = getattr(ADAPTERS, task.id.replace(".", "_"))
    try:
        answer = local(task, function() if task.files else function)
    except NotImplementedError:
        pytest.skip("not written yet")
    found = next(findings(replace(task, properties=(part,)), answer))
    if isinstance(found.error, NotImplementedError):
        pytest.skip("not written yet")
    if found.error is not None:
        raise found.error
    assert found.full, found.message
