"""The checker in a cell and in a terminal: what a student reads."""

import pytest
import torch

from cca_lab import files
from cca_lab.course import check, front, points
from cca_lab.course.cell import CheckFailed
from cca_lab.course.registry import task_of
from tests.course import handed_in, matrix

COURSE = files.course_folder()


SOLVED: dict = {"torch": torch}
for source in matrix.solved("a5").values():
    exec(source, SOLVED)


def test_a_right_answer_reads_well(capsys):
    check("a5.2", SOLVED["intervals"])
    said = capsys.readouterr().out
    assert said.count("ok  ") == 3 and "6 of 6 points" in said and "other inputs" in said
    assert points("a5.2", SOLVED["intervals"]) == 6


def test_a_wrong_answer_names_the_mistake_on_the_smallest_example(capsys):
    early = task_of("a5.2").wrong["the window starts one token before sinks + group * n"]
    missed = "a5.2: not yet: every earlier token is read exactly once"
    with pytest.raises(CheckFailed, match=missed):
        check("a5.2", early)
    said = " ".join(capsys.readouterr().out.split())
    assert ("length 6, sinks 0, group 2, window 2: row 3 reads token 1 twice, inside a core and "
            "raw. This is what comes out when the window starts one token before") in said


def test_points_behind_tests_that_are_not_shown_are_counted(capsys):
    check("a5.5", SOLVED["pairs"])
    assert "3 of 4 points; 1 of the 4 behind tests that are not shown" in capsys.readouterr().out
    assert points("a5.5", SOLVED["pairs"]) == 4


def test_nothing_written_yet_raises_what_nbgrader_wants():
    def stub(*args):
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        check("a5.2", stub)


def test_an_error_of_the_answer_is_its_own_and_stops_no_autograding(monkeypatch, capsys):
    """In nbgrader's, `check` raises nothing, so that the last line, `points`, is reached."""
    with pytest.raises(ZeroDivisionError):
        check("a5.2", lambda *sizes: 1 // 0)
    capsys.readouterr()
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    check("a5.2", lambda *sizes: 1 // 0)
    assert "raised ZeroDivisionError" in capsys.readouterr().out


def test_the_package_is_not_there_when_marks_are_given(capsys):
    from cca_lab.mechanisms.cca.groups import visible_cores

    def intervals(length, sinks, group, window):
        return visible_cores(length, group, window)

    with pytest.raises(CheckFailed):
        check("a5.2", intervals)
    assert "uses visible_cores, and `cca_lab` is not there" in capsys.readouterr().out


def test_inputs_cannot_be_changed_by_the_answer():
    def read_counts(table, *sizes):
        counts = SOLVED["read_counts"](table, *sizes)
        table.zero_()
        return counts

    check("a5.3", read_counts)


def test_a_notebook_in_a_terminal(tmp_path, capsys):
    answers = {"a5.2": matrix.solved("a5")["a5-2-answer"],
               "a5.4": 'def printed_formula():\n    return {"group": 1}\n'}
    folder = handed_in.hand_in(tmp_path, "me", "a5", handed_in.filled("a5", answers))
    assert not front.check_notebook(folder / "a5_cca.ipynb", COURSE)
    said = capsys.readouterr().out
    assert "a5.2 Which columns a row reads: 6 of 6" in said
    assert "wanted a dict with the keys group" in said
    assert "a5.5 What it costs, without counting: 0 of 4\n  not written yet" in said
    assert "1 of the 20 is behind tests that are not shown" in said


def test_one_task_in_a_terminal(tmp_path, capsys):
    folder = handed_in.hand_in(tmp_path, "me", "a5", handed_in.solved("a5"))
    assert front.check_notebook(folder / "a5_cca.ipynb", COURSE, task="a5.2")
    said = capsys.readouterr().out
    assert "a5.2 Which columns a row reads: 6 of 6" in said and "a5.3" not in said
    assert "6 of 6 points.\nMarks" in said
    with pytest.raises(ValueError, match="task: got a6.2, which is no task of a5_cca.ipynb"):
        front.check_notebook(folder / "a5_cca.ipynb", COURSE, task="a6.2")


def test_a_terminal_of_windows_is_refused_at_the_door(tmp_path, monkeypatch):
    """Its Python has no module `resource`: every answer would be wrong for a reason of ours."""
    folder = handed_in.hand_in(tmp_path, "me", "a5", handed_in.solved("a5"))
    calls = (lambda: front.check_notebook(folder / "a5_cca.ipynb", COURSE, task="a5.2"),
             lambda: front.grade_class(tmp_path / "sub", COURSE))
    for call in calls:
        with monkeypatch.context() as patch, pytest.raises(
                ValueError, match="system: got nt, wanted Linux or macOS"):
            patch.setattr("os.name", "nt")
            call()
    assert not (tmp_path / "marks").exists()
