"""The assignments, in order, and their tasks by id."""

import importlib
import os
import pkgutil

from cca_lab.course import assignments
from cca_lab.course.tasks import Assignment, Task

ASSIGNMENTS: dict[str, Assignment] = {}
for _name in sorted((i.name for i in pkgutil.iter_modules(assignments.__path__)), key=lambda x: int(x.partition("_")[0][1:])):
    if os.environ.get("COURSE_ONLY", _name.partition("_")[0]) == _name.partition("_")[0]:
        _module = importlib.import_module(f"cca_lab.course.assignments.{_name}")
        if hasattr(_module, "ASSIGNMENT"):
            ASSIGNMENTS[_module.ASSIGNMENT.id] = _module.ASSIGNMENT


def assignment_of(name: str) -> Assignment:
    """Return an assignment by its id, such as "a5", or its folder's name.

    Raises:
        ValueError: if there is none.
    """
    found = ASSIGNMENTS.get(name.partition("_")[0])
    if found is None or name not in (found.id, found.name):
        raise ValueError(f"assignment: got {name!r}, wanted one of {', '.join(ASSIGNMENTS)}")
    return found


def task_of(task_id: str) -> Task:
    """Return a task by its id, such as "a5.2".

    Raises:
        ValueError: if there is none.
    """
    tasks = {task.id: task for part in ASSIGNMENTS.values() for task in part.tasks}
    if task_id not in tasks:
        raise ValueError(f"task: got {task_id!r}, wanted one of {', '.join(tasks)}")
    return tasks[task_id]
