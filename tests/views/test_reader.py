"""What a reader guesses and writes: how far off it is, the table, the "your turn" cells."""

import json
from types import SimpleNamespace

import pytest
import torch

from cca_lab.course import cell, solved
from cca_lab.course.registry import TURNS
from cca_lab.course.tasks import CourseTask, Mistake, Property
from cca_lab.views import reader
from cca_lab.views.reader import distance, my_work, predict, reveal


@pytest.fixture(autouse=True)
def nothing_yet(monkeypatch):
    monkeypatch.setattr(reader, "_entries", {})
    monkeypatch.setattr(reader, "tempting", lambda: {
        "05.1": [(10, "the window alone"), (25, "all tokens")]})


@pytest.mark.parametrize("guess, actual, words", [
    (17, 12, "5 too many, 42 %"), (9, 12, "3 too few, 25 %"), (12, 12, "right"),
    (0.5, 0.32, "0.18 too much, 56 %"), (0.3201, 0.32, "right"), (1.0, 4, "3 too little, 75 %"),
    (3, 0, "3 too many"), (float("inf"), 2.0, "inf too much"), ("Mean ", "mean", "right"),
    ("max", "mean", "not so"), (True, True, "right"), (True, False, "not so"),
    ("yes", 1, "not so: a number was asked for"), ("5.0", 5, "right"), (60, 0.6, "59.4 too much")])
def test_how_far_off(guess, actual, words):
    assert distance(guess, actual) == words


def test_a_guess_and_what_came_out(capsys):
    predict("05.1", 17, "columns")
    reveal("05.1", torch.tensor(12))
    said = capsys.readouterr().out
    assert said == "05.1 columns: you say 17\n05.1 columns: 12 (you said 17: 5 too many, 42 %)\n"


def test_dots_are_no_guess_and_stop_nothing_and_the_answer_waits(capsys):
    predict("05.1", ..., "columns")
    reveal("05.1", 12)
    said = capsys.readouterr().out
    assert "no guess yet" in said and "guess first" in said and "12" not in said
    assert reader._entries["05.1"].actual is None


def test_who_skips_is_told_the_answer_and_the_tempting_ones(capsys):
    predict("05.1", "skip", "columns")
    reveal("05.1", 12)
    assert capsys.readouterr().out.splitlines() == [
        "05.1 columns: skipped", "05.1 columns: 12", "     tempting: 10, the window alone",
        "     tempting: 25, all tokens"]


@pytest.mark.parametrize("guess, told", [(10, "the window alone"), (25.0, "all tokens"),
                                         (12, ""), (11, "")])
def test_a_tempting_guess_is_told_where_it_comes_from(capsys, guess, told):
    predict("05.1", guess, "columns")
    reveal("05.1", 12)
    assert capsys.readouterr().out.partition("is tempting: ")[2].strip() == told


def test_what_came_out_is_not_tempting(capsys):
    predict("05.1", "skip", "columns")
    reveal("05.1", 25)
    assert "tempting: 10" in (said := capsys.readouterr().out) and "all tokens" not in said


def test_the_table_has_a_line_each_in_reading_order(capsys):
    predict("05.2", 0.5, "weight")
    predict("05.1", "skip", "columns")
    reveal("05.1", 12)
    reader.written("05.3", "a core", True)
    reader.written("05.10", "a window", False)
    capsys.readouterr()
    my_work()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["yours", "came", "out"]
    assert lines[1:] == [["05.1", "columns", "-", "12"], ["05.2", "weight", "0.5", "-"],
                         ["05.3", "a", "core", "done"], ["05.10", "a", "window", "not", "right",
                                                         "yet"]]


def test_what_is_no_guess_is_refused():
    with pytest.raises(ValueError, match="^guess: got"):
        predict("05.1", [1], "columns")


def test_what_was_not_asked_is_said_and_stops_nothing(capsys):
    reveal("05.1", 3)
    said = capsys.readouterr().out
    assert said.startswith('05.1 (the cell with predict("05.1", ...) was not run): guess first')


# ---------------------------------------------------------------- your turn

def doubled(answer, draw):
    """Twice the number."""
    if answer(3) != 6:
        raise Mistake(f"answer(3) is {answer(3)}, wanted 6")


@pytest.fixture
def turn(monkeypatch):
    """One task in the registry."""
    monkeypatch.setitem(TURNS, "99.1", CourseTask(
        "99.1", "double", "Twice", 1, 1, (Property("doubles", 1, doubled),)))


def test_a_wrong_answer_is_told_why_and_stops(turn, capsys):
    with pytest.raises(cell.CheckFailed, match="99.1: not yet: doubles"):
        cell.your_turn("99.1", lambda x: x)
    assert "answer(3) is 3, wanted 6" in capsys.readouterr().out
    assert reader._entries["99.1"].done is False


def test_what_is_not_written_stops_nothing(turn, capsys):
    def double(x):
        raise NotImplementedError

    cell.your_turn("99.1", double)
    assert "not written yet" in capsys.readouterr().out and reader._entries["99.1"].done is None


def test_a_form_is_climbed_once_its_turn_is_done(turn, capsys):
    assert reader.climbed({"loops": "99.1"}) == set()
    with pytest.raises(cell.CheckFailed):
        cell.your_turn("99.1", lambda x: x)
    assert reader.climbed({"loops": "99.1"}) == set()
    cell.your_turn("99.1", lambda x: 2 * x)
    assert reader.climbed({"loops": "99.1", "dense": "99.2"}) == {"loops"}


SOLVED = 'def double(x):\n    """Twice."""\n    {}return x + x{}\n\n\nyour_turn("99.1", double)'


@pytest.mark.parametrize("typed, marked", [
    (SOLVED.format("", ""), False),
    (SOLVED.format("# mine\n    ", "  # honestly"), False),
    (SOLVED.format("", "").replace("x + x", "2 * x"), True),
    (SOLVED.format("### BEGIN SOLUTION\n    ", "\n    ### END SOLUTION"), True),
], ids=["copied", "copied, with comments", "another way", "the committed notebook"])
def test_a_rung_that_is_copied_is_not_marked(typed, marked, turn, tmp_path, monkeypatch, capsys):
    """The mutant that compares text calls a copy with a comment the reader's own."""
    committed = SOLVED.format("### BEGIN SOLUTION\n    # Hint: add.\n    ",
                              "\n    ### END SOLUTION")
    (tmp_path / "99_test.ipynb").write_text(json.dumps({"cells": [{"source": [committed]}]}))
    monkeypatch.setattr(solved, "notebooks_folder", lambda: tmp_path)
    session = SimpleNamespace(user_ns={"In": ["", typed]})
    monkeypatch.setattr("IPython.get_ipython", lambda: session)
    cell.your_turn("99.1", lambda x: 2 * x)
    assert reader.climbed({"loops": "99.1"}) == ({"loops"} if marked else set())
    my_work()
    assert ("the folded solution" in capsys.readouterr().out) != marked


def test_a_copy_does_not_unmark_what_was_written_and_is_made_good_by_writing():
    for copies, marked in (((False, True), True), ((True, False), True), ((True, True), False)):
        reader._entries.clear()
        for copied in copies:
            reader.written("99.1", "title", True, copied=copied)
        assert bool(reader.climbed({"loops": "99.1"})) == marked
