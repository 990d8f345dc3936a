"""Every exercise by its own table: what is right passes, what is wrong is told its own sentence."""

import re
from dataclasses import replace

import pytest
import torch

from cca_lab.course.exercise import equals, examples
from cca_lab.course.registry import ASSIGNMENTS, TURNS
from cca_lab.course.tasks import CourseTask, marks_of, unseen

TASKS = TURNS | {task.id: task for part in ASSIGNMENTS.values() for task in part.tasks}
TABLE = [pytest.param(task, prop, said, wrong, id=f"{task.id} {said[:60]}")
         for task in TASKS.values() for prop in task.properties
         for said, wrong in prop.wrong.items()]
RIGHT = [task for task in TASKS.values() if task.right]


@pytest.mark.parametrize("task", RIGHT, ids=lambda task: task.id)
def test_what_is_right_has_all_points(task):
    undriven = replace(task, drive=lambda answer: answer)
    for secret in (None, "one seed"):
        assert [mark.message for mark in marks_of(undriven, task.right, secret)
                if not mark.full and mark.property.right] == []


@pytest.mark.parametrize(("task", "prop", "said", "wrong"), TABLE)
def test_what_is_wrong_is_told_its_own_sentence(task, prop, said, wrong):
    marks = {mark.property.name: mark for mark in marks_of(task, wrong, "a seed")}
    assert not marks[prop.name].full
    assert said in marks[prop.name].message


@pytest.mark.parametrize(("task", "prop", "said", "wrong"), TABLE)
def test_what_is_wrong_never_passes_by_luck(task, prop, said, wrong):
    for seed in ("two", "three"):
        assert not next(mark for mark in unseen(task, wrong, seed, {})
                        if mark.property is prop).full


@pytest.mark.parametrize("task", RIGHT, ids=lambda task: task.id)
def test_what_is_no_answer_is_refused(task):
    """Nothing, a truth value, a NaN and a result with one more part are never right."""
    for other in (lambda *args: None, lambda *args: [torch.tensor(float("nan"))] * 7):
        assert not any(mark.full for mark in marks_of(task, other) if mark.property.right)


def test_ids_name_their_notebook_and_differ():
    assert all(re.fullmatch(r"\d\d\.[1-9]\d?", name) for name in TURNS)
    assert len(TASKS) == len(TURNS) + sum(len(part.tasks) for part in ASSIGNMENTS.values())


@pytest.mark.parametrize("task", TURNS.values(), ids=TURNS)
def test_a_turn_takes_minutes_and_has_two_wrong_answers(task):
    assert 1 <= task.minutes <= 20 and task.properties and not task.read and not task.files
    assert not any(part.hidden for part in task.properties)


def test_a_mistake_is_named_by_all_examples_that_follow():
    """On the smallest example two mistakes give the same; the larger ones tell them apart."""
    inputs = examples(lambda draw, length: (draw.normal(length),), 1, 3)
    task = CourseTask("99.1", "total", "A sum", 5, 1, 1, (equals(
        "equal to adding", lambda x: x.sum(), inputs, "the sum", wrong={
            "the signs are lost": lambda x: -x.sum(), "the first is lost": lambda x: x.sum() - x[0],
            "the first counts twice": lambda x: x.sum() + x[0]}),))
    last = next(marks_of(task, lambda x: x.sum() + x[-1])).message
    assert "length 1: the sum is" in last and "This is what" not in last
    assert "when the first counts twice" in next(marks_of(task, lambda x: x.sum() + x[0])).message
    nan = next(marks_of(task, lambda x: x.sum() / 0 * 0)).message
    assert "the sum is nan: is it 0/0" in nan
