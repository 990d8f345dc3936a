"""The assignments, in order, and their tasks by id."""

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

ASSIGNMENTS: dict[str, Assignment] = {part.ASSIGNMENT.id: part.ASSIGNMENT for part in (
    a1_tiles, a2_sparsity, a3_coding, a4_pooling, a5_cca, a6_dga, a7_kernels,
    a8_caches, a9_mutants, a10_finetune)}


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
