"""The assignments, in order, and every task by id: theirs and those of the notebooks."""

from importlib import import_module

from cca_lab.course.tasks import Assignment, CourseTask

MODULES = ("a1_tiles", "a2_sparsity", "a5_cca", "a6_dga", "a7_kernels", "a8_caches", "a9_mutants",
           "a10_finetune")
NOTEBOOKS = 18

ASSIGNMENTS: dict[str, Assignment] = {
    name.partition("_")[0]: import_module(f"cca_lab.course.assignments.{name}").ASSIGNMENT
    for name in MODULES}
TURNS: dict[str, CourseTask] = {
    task.id: task for number in range(NOTEBOOKS)
    for task in import_module(f"cca_lab.course.turns.nb{number:02}").TURNS}


def assignment_of(name: str) -> Assignment:
    """Return an assignment by its id, such as "a5", or its folder's name."""
    assignment = ASSIGNMENTS.get(name.partition("_")[0])
    if assignment is None or name not in (assignment.id, assignment.name):
        raise ValueError(f"assignment: got {name!r}, wanted one of {', '.join(ASSIGNMENTS)}")
    return assignment


def chosen(only: str | None) -> list[Assignment]:
    """Return all assignments, or the one that is named."""
    return list(ASSIGNMENTS.values()) if only is None else [assignment_of(only)]


def task_of(task_id: str) -> CourseTask:
    """Return a task by its id, such as "a5.2" of an assignment or "05.4" of a notebook."""
    tasks = {task.id: task for assignment in ASSIGNMENTS.values()
             for task in assignment.tasks} | TURNS
    if task_id not in tasks:
        raise ValueError(f"task: got {task_id!r}, wanted one of {', '.join(tasks)}")
    return tasks[task_id]
