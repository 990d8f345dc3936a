"""The tasks that commands take by name, and files of one's own questions."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from cca_lab.tasks import ruler
from cca_lab.tasks.examples import Example, Task
from cca_lab.tasks.own import OwnQuestions, own_questions

__all__ = ["TASKS", "AnyTask", "Example", "OwnQuestions", "Task", "chosen_task", "chosen_tasks",
           "make_task"]
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
        ValueError: for an unknown name, or settings that make no question.
        TypeError: for an unknown field.
    """
    if name not in TASKS:
        raise ValueError(f"task: got {name!r}, wanted one of {', '.join(TASKS)}, or a file of "
                         "questions in JSON lines")
    return TASKS[name](**difficulty)


def chosen_task(source: str | Path, difficulty: Sequence[str] = ()) -> AnyTask:
    """Return the task that a command names.

    Args:
        source: one of `TASKS`, or a file of questions.
        difficulty: each a number, which sets the task's main difficulty, or NAME=VALUE with a JSON
            value.

    Raises:
        ValueError: for a source that is neither, or a difficulty that it does not take.
    """
    if str(source) not in TASKS and Path(source).is_file():
        if difficulty:
            raise ValueError(f"difficulty: got {difficulty[0]!r} for a file of questions, wanted "
                             "none; leave it out")
        return own_questions(source)
    name = str(source)
    main = make_task(name).main
    values: dict[str, Any] = {}
    for text in difficulty:
        field, equals, value = text.partition("=")
        if not equals:
            field, value = main or "", text
        if not field:
            such = ", ".join(f"{known.name}={json.dumps(known.default)}"
                             for known in fields(TASKS[name]))
            raise ValueError(
                f"difficulty: got {text!r} for {name}, wanted NAME=VALUE, such as {such}")
        if field in values:
            raise ValueError(f"difficulty: {field} given twice, wanted once; leave one out")
        values[field] = json.loads(value)
    return make_task(name, **values)


def chosen_tasks(sources: Sequence[str], difficulty: Sequence[str] = ()) -> tuple[AnyTask, ...]:
    """Return the tasks that a command names.

    Args:
        sources: as in `chosen_task`.
        difficulty: as in `chosen_task`; a number is for all tasks, NAME=VALUE for those that have
            the name.

    Raises:
        ValueError: for a source or a difficulty that is refused, the same task twice, or a
            difficulty without a task.
    """
    if difficulty and not sources:
        raise ValueError(f"difficulty: got {difficulty[0]!r} without --task; name the task too")
    tasks: list[AnyTask] = []
    every = {name for source in sources for name in _difficulties(source)}
    for source in sources:
        others = every.difference(_difficulties(source))
        task = chosen_task(source,
                           [text for text in difficulty if text.partition("=")[0] not in others])
        if task in tasks:
            raise ValueError(f"task: got {task.name} twice, wanted once; leave one out")
        tasks.append(task)
    return tuple(tasks)


def _difficulties(source: str) -> list[str]:
    """Return the names of a task's difficulties; a file has none."""
    return [field.name for field in fields(TASKS[source])] if source in TASKS else []
