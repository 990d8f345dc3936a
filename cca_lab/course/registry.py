"""The assignments, in order, and every task by id: theirs and those of the notebooks."""

from cca_lab.course.assignments import (
    a1_tiles,
    a2_sparsity,
    a3_coding,
    a4_pooling,
    a5_cca,
    a6_dga,
    a7_kernels,
    a8_caches,
    a9_mutants,
    a10_finetune,
)
from cca_lab.course.tasks import Assignment, Task
from cca_lab.course.turns import (
    nb00,
    nb01,
    nb02,
    nb03,
    nb04,
    nb05,
    nb06,
    nb07,
    nb08,
    nb09,
    nb10,
    nb11,
    nb12,
    nb13,
    nb14,
    nb15,
    nb16,
)

ASSIGNMENTS: dict[str, Assignment] = {part.ASSIGNMENT.id: part.ASSIGNMENT for part in (
    a1_tiles, a2_sparsity, a3_coding, a4_pooling, a5_cca, a6_dga, a7_kernels,
    a8_caches, a9_mutants, a10_finetune)}
TURNS: dict[str, Task] = {task.id: task for part in (
    nb00, nb01, nb02, nb03, nb04, nb05, nb06, nb07, nb08, nb09, nb10, nb11, nb12, nb13, nb14, nb15, nb16)
    for task in part.TURNS}


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
    """Return a task by its id, such as "a5.2" of an assignment or "05.2" of a notebook.

    Raises:
        ValueError: if there is none.
    """
    tasks = {task.id: task for part in ASSIGNMENTS.values() for task in part.tasks} | TURNS
    if task_id not in tasks:
        raise ValueError(f"task: got {task_id!r}, wanted one of {', '.join(tasks)}")
    return tasks[task_id]
