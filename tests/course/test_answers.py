"""Every assignment: the solved notebook, other right answers, and wrong ones that lose exactly what they should."""

import pytest

from cca_lab.course.registry import ASSIGNMENTS
from tests.course import matrix

RIGHT, WRONG = matrix.entries()


@pytest.mark.parametrize("part", ASSIGNMENTS)
def test_the_solved_notebook_has_all_points(part):
    assert matrix.lost(part, {}) == {}


@pytest.mark.parametrize(("part", "right"), RIGHT, ids=lambda x: getattr(x, "what", x))
def test_another_right_answer_has_all_points(part, right):
    assert matrix.lost(part, right.cells) == {}


@pytest.mark.parametrize(("part", "wrong"), WRONG, ids=lambda x: getattr(x, "what", x))
def test_a_wrong_answer_loses_what_it_should(part, wrong):
    said: list[str] = []
    assert matrix.lost(part, matrix.spoilt(part, wrong), said) == wrong.lost
    assert wrong.says in "\n".join(said)


@pytest.mark.parametrize("part", ASSIGNMENTS)
def test_there_are_enough_of_both(part):
    assert sum(of == part for of, _ in RIGHT) >= 2 and sum(of == part for of, _ in WRONG) >= 8
