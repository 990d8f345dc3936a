"""Every "your turn" cell: each wrong answer that readers give is told what is wrong with it.

The right answers are in the notebooks, whose committed outputs say "done". Wrong ones are in
tests/course/turns/: a module nbNN for each notebook with WRONG = {"05.1": {"what is wrong":
(function, "words of the message")}}.
"""

from importlib import import_module

import pytest

from cca_lab.course.registry import TURNS
from cca_lab.course.tasks import marks_of

TURNS = {name: task for name, task in TURNS.items() if not task.wrong}  # not moved yet
MODULES = {name[:2]: import_module(f"tests.course.turns.nb{name[:2]}") for name in TURNS}
WRONG = [(name, what, *wrong) for name in TURNS
         for what, wrong in MODULES[name[:2]].WRONG[name].items()]


@pytest.mark.parametrize("name, what, answer, words", WRONG,
                         ids=[f"{row[0]} {row[1]}" for row in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(name, what, answer, words):
    messages = [mark.message for mark in marks_of(TURNS[name], answer) if not mark.full]
    assert messages, f"{what} passes"
    assert any(words in message for message in messages), messages
