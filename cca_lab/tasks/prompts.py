"""The tasks that commands take by name, and files of one's own questions."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cca_lab.tasks import ruler
from cca_lab.tasks.examples import Example, Task
from cca_lab.tasks.own import OwnQuestions, own_questions

__all__ = ["TASKS", "AnyTask", "Example", "OwnQuestions", "Task", "chosen_tasks", "make_task"]
CLASSES: tuple[type[Task], ...] = (
    ruler.NiahSingle, ruler.NiahMultikey, ruler.NiahMultivalue, ruler.VariableTracking,
    ruler.KeyValues)
TASKS = {task.name: task for task in CLASSES}
AnyTask = Task | OwnQuestions


def make_task(name: str, **difficulty: Any) -> Task:
    """Return the task of a name with a difficulty.

    Args:
        name: one of `TASKS`.
        difficulty: fields of the task's class; those left out keep their defaults.

    Raises:
        ValueError: for an unknown name.
        TypeError: for an unknown field.
    """
    if name not in TASKS:
        raise ValueError(f"task: got {name!r}, wanted one of {', '.join(TASKS)}, or a file of "
                         "questions in JSON lines")
    return TASKS[name](**difficulty)


def chosen_tasks(sources: Sequence[str | Path], difficulty: Sequence[str] = ()
                 ) -> tuple[AnyTask, ...]:
    """Return the tasks that a command names.

    Args:
        sources: each one of `TASKS`, or a file of questions.
        difficulty: each NAME=VALUE with a JSON value, for the tasks that have the name.

    Raises:
        ValueError: for a source that is neither, the same task twice, or a difficulty that no task
            has.
    """
    values = dict(map(_value, difficulty))
    tasks: list[AnyTask] = []
    taken: set[str] = set()
    for source in map(str, sources):
        if source not in TASKS and Path(source).is_file():
            task: AnyTask = own_questions(source)
        else:
            task = make_task(source)
            own = {name: value for name, value in values.items() if name in vars(task)}
            task, taken = make_task(source, **own), taken | own.keys()
        if task in tasks:
            raise ValueError(f"task: got {task.name} twice, wanted once; leave one out")
        tasks.append(task)
    if len(difficulty) != len(taken):
        raise ValueError(f"difficulty: got {' '.join(difficulty)}, wanted NAME=VALUE of a task, "
                         "once each, such as digits=5")
    return tuple(tasks)


def _value(text: str) -> tuple[str, Any]:
    """Return the name and the value of a NAME=VALUE."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError as error:
        raise ValueError(f"difficulty: got {text}, wanted NAME=VALUE with a number, true or "
                         "false, such as digits=5") from error
