"""The tasks that commands take by name, and files of one's own questions."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from cca_lab.tasks.examples import Example, Task
from cca_lab.tasks.own import OwnQuestions, own_questions
from cca_lab.tasks.ruler import (
    CommonWords,
    FrequentWords,
    KeyValues,
    NiahMultikey,
    NiahMultivalue,
    NiahSingle,
    VariableTracking,
)

__all__ = [
    "TASKS", "AnyTask", "Example", "OwnQuestions", "Task", "chosen_task", "chosen_tasks",
    "make_task"
]

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (NiahSingle, NiahMultikey, NiahMultivalue, VariableTracking, CommonWords,
                 FrequentWords, KeyValues)
}
AnyTask = Task | OwnQuestions


def make_task(name: str, **difficulty: Any) -> Task:
    """Return the task of a name with a difficulty.

    Args:
        name: one of `TASKS`.
        difficulty: fields of the task's class; those left out keep their defaults.

    Raises:
        ValueError: for an unknown name, a field that the task does not have, or a value out of
            range.
    """
    if name not in TASKS:
        raise ValueError(
            f"task: got {name!r}, wanted one of {', '.join(TASKS)}, or a file of questions in JSON "
            "lines"
        )
    own = [field.name for field in fields(TASKS[name])]
    for field in difficulty:
        if field not in own:
            raise ValueError(f"difficulty: {field!r} is none of {name}, wanted {' or '.join(own)}")
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
            raise ValueError(
                f"difficulty: got {difficulty[0]!r} for a file of questions, wanted none; leave it "
                "out"
            )
        return own_questions(source)
    name = str(source)
    main = make_task(name).main
    found: dict[str, Any] = {}
    for text in difficulty:
        field, equals, value = text.partition("=")
        if not equals:
            field, value = main or "", text
        if not field:
            own = ", ".join(f"{one.name}={json.dumps(one.default)}" for one in fields(TASKS[name]))
            raise ValueError(
                f"difficulty: got {text!r} for {name}, wanted NAME=VALUE, such as {own}")
        if field in found:
            raise ValueError(f"difficulty: {field} given twice, wanted once; leave one out")
        try:
            found[field] = json.loads(value)
        except ValueError as error:
            raise ValueError(
                f"difficulty: got {text!r}, wanted a number, or NAME=VALUE with a number, true or "
                "false") from error
    return make_task(name, **found)


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
    found: list[AnyTask] = []
    for source in sources:
        own = {field.name for field in fields(TASKS[source])} if source in TASKS else set()
        others = _names(sources) - own
        task = chosen_task(source,
                           [text for text in difficulty if text.partition("=")[0] not in others])
        if task in found:
            raise ValueError(f"task: got {task.name} twice, wanted once; leave one out")
        found.append(task)
    return tuple(found)


def _names(sources: Sequence[str]) -> set[str]:
    """Return the names of every difficulty that one of the tasks has."""
    return {field.name for source in sources if source in TASKS for field in fields(TASKS[source])}
