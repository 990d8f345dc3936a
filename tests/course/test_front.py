"""The course's commands: what is missing, broken or in the wrong place is named before the work."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cca_lab.course import grading, reports, sandbox
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.tasks import Mark
from tests.command import run_command
from tests.course import handed_in

A5 = assignment_of("a5")
READING = [["report", "marks"], ["grade", "sub"]]  # the commands that read records


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with submissions, and commands that work in it and grade nothing."""
    handed_in.hand_in(tmp_path / "sub", "al", "a5", handed_in.released("a5"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "best", lambda: "bubblewrap")
    return tmp_path


def record() -> dict[str, Any]:
    """Return a record as `grade` writes it, with marks of every kind."""
    task = A5.tasks[1]
    marks = [Mark(prop, 0.5, "wrong", shown=True) for prop in task.properties]
    return {"student": "al", "assignment": A5.name, "status": "graded", "notes": ["a note"],
            "sandbox": "none", "points": A5.points, "read": A5.read, "earned": 0.5, "key": "x",
            "tasks": [grading.task_record(task, marks)], "seconds": 1.5}


def refused(*words: str) -> str:
    run = run_command(["course", *words])
    *before, error = run.output.splitlines()
    assert run.exit_code == 2 and error.startswith("error: "), run.output
    assert not before or "sandbox" in before[0], "more than one line, or after the work"
    return f"{error}\n"


SELECTING = {"release": [], "release, checking": ["--check"], "solutions": [],
             "grade": ["sub"]}


@pytest.mark.parametrize("name", ["a99", "A5", "5", "a5_", "a5_cca.ipynb"])
@pytest.mark.parametrize("command", SELECTING)
def test_an_assignment_that_is_not_there_is_an_error_that_lists_them(command, name):
    """The mutant that compares names alone does nothing for these, and says so to nobody."""
    said = refused(command.split(",")[0].split()[0], *SELECTING[command], "--only", name)
    assert f"got '{name}', wanted one of {', '.join(ASSIGNMENTS)}" in said


@pytest.mark.parametrize("out", ["sub/marks", "sub", "sub/al/marks", "./sub/../sub/m", "link/m"])
def test_marks_inside_the_submissions_are_refused(out):
    """The mutant without the check grades a student called "marks" the next time."""
    Path("link").symlink_to("sub")
    before = sorted(Path("sub").rglob("*"))
    assert "out: " in refused("grade", "sub", "--out", out)
    assert sorted(Path("sub").rglob("*")) == before


def test_the_default_folder_of_marks_is_beside_the_submissions(folder, monkeypatch):
    monkeypatch.chdir(folder / "sub")
    monkeypatch.setattr(grading, "grade_folder", lambda *_, **__: [record()])
    Path("../marks/al").mkdir(parents=True)
    Path("../marks/al/a5_cca.json").write_text(json.dumps(record()))
    run = run_command(["course", "grade", "."])
    assert run.exit_code == 0 and Path("../marks/marks.csv").is_file(), run.output


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table assignment (x)")


GRADEBOOKS = {"text": lambda path: path.write_text("junk"), "pipe": os.mkfifo, "folder": os.mkdir,
              "another database": other_database}


@pytest.mark.parametrize("kind", GRADEBOOKS)
def test_what_is_no_gradebook_is_named_before_the_work(kind):
    pytest.importorskip("nbgrader")
    GRADEBOOKS[kind](Path("g.db"))
    assert "gradebook: g.db is " in refused("grade", "sub", "--gradebook", "g.db")
    assert not Path("marks").exists()


def test_a_student_whose_name_is_no_text_is_named():
    """The mutant without the check blames PYTHONIOENCODING after the work."""
    Path("sub", os.fsdecode(b"a\xffl"), "a5_cca").mkdir(parents=True)
    assert r"a\xffl in sub is no name in UTF-8; rename" in refused("grade", "sub")


def test_a_folder_of_marks_whose_name_is_no_text_is_shown_with_its_bytes(monkeypatch):
    out = Path(os.fsdecode(b"m\xff"))
    (out / "al").mkdir(parents=True)
    (out / "al" / "a5_cca.json").write_text(json.dumps(record()))
    run = run_command(["course", "report", str(out)])
    assert run.exit_code == 0 and (out / "marks.csv").is_file(), run.output


@pytest.mark.parametrize("kind", ["pipe", "half", "NaN", "bytes"])
def test_what_is_no_record_is_named_and_never_waited_for(kind):
    path = Path("marks/al/a5_cca.json")
    path.parent.mkdir(parents=True)
    texts = {"half": b'{"stude', "NaN": json.dumps({**record(), "earned": float("nan")}).encode(),
             "bytes": b"\xff"}
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(texts[kind])
    for command in READING:
        said = refused(*command)
        assert str(path) in said and said.endswith("; delete the file, and grade again\n"), said


@pytest.mark.parametrize("kind", ["pipe", "empty", "bytes"])
def test_a_seed_that_is_none_is_refused(kind):
    """The mutant that takes an empty seed grades on inputs that everybody can make."""
    path = Path("marks") / grading.SEED
    path.parent.mkdir()
    os.mkfifo(path) if kind == "pipe" else path.write_bytes(b"\xff" if kind == "bytes" else b"")
    assert f"marks: {path} is " in refused("grade", "sub")


def test_a_record_as_it_is_written_is_read_again():
    path = Path("marks/al/a5_cca.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record()))
    Path("marks/al/notes.json").write_text("[]")  # a teacher's
    assert grading.records(Path("marks")) == [record()]
    assert reports.write([record()], Path("marks"))
