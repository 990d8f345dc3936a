"""Grading for real, in the sandbox: cheats, a class, and what a second run does."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from cca_lab import files
from cca_lab.course import front, grading, reports, sandbox
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.sandbox import Limits, Session
from tests.course import classroom, handed_in, matrix
from tests.course.cheats import CHEATS, FINDER, HEAD

COURSE = files.course_folder()
A5 = assignment_of("a5")
RELEASE = COURSE / "release" / "a5_cca" / "a5_cca.ipynb"
QUICK = Limits(seconds=5.0, total=60.0)
strict = pytest.mark.skipif(sandbox.best() != "bubblewrap",
                            reason="bubblewrap is not installed or does not start here")
WRONG = next(entry for part, entry in matrix.entries()[1]
             if (part, entry.what) == ("a5", "one token of the future"))


def graded(folder: Path, notebook: dict, assignment=A5, **options) -> grading.Record:
    submitted = handed_in.hand_in(folder, "somebody", "a5", notebook)
    return grading.grade(assignment, submitted, RELEASE, "a seed", QUICK, **options)


@strict
@pytest.mark.parametrize("what", CHEATS)
def test_a_cheat_scores_nothing(what, tmp_path):
    # What acts only when a5.2 is called cannot touch the other tasks; whatever acts when its cell
    # runs is there whenever the process starts, and all tasks are graded.
    called = CHEATS[what].startswith((HEAD, FINDER))
    record = graded(tmp_path, handed_in.filled("a5", {"a5.2": CHEATS[what]}),
                    assignment=replace(A5, tasks=A5.tasks[1:2]) if called else A5)
    assert (record["status"], record["earned"]) == ("graded", 0)
    assert not Path("unpickled-by-the-grader").exists()
    assert "the seed was found" not in json.dumps(record)


@strict
def test_the_cheats_are_no_strawmen():
    """What the sandbox hides is there to be found without it."""
    for what in ("import the grader's own oracle", "scan the heap for the oracle"):
        scope: dict = {}
        exec("import torch\n" + CHEATS[what], scope)
        table = scope["intervals"](6, 0, 2, 2)
        assert table.shape == (6, 3, 2) and table.any()


@pytest.mark.parametrize("kind",
                         [kind for kind in sandbox.KINDS if kind == "none" or sandbox.works(kind)])
def test_every_kind_of_sandbox_gives_the_same_marks(kind, tmp_path):
    record = graded(tmp_path, handed_in.solved("a5"), kind=kind)
    assert (record["earned"], record["sandbox"], record["notes"]) == (20, kind, [])
    wrong = handed_in.solved("a5", matrix.spoilt("a5", WRONG))
    assert graded(tmp_path, wrong, kind=kind)["earned"] == 18


@pytest.mark.parametrize("part", ASSIGNMENTS.values(), ids=ASSIGNMENTS)
def test_every_solved_notebook_has_all_points_and_the_untouched_one_none(part, tmp_path):
    """As marks are given, a7 with Triton's interpreter included."""
    if part.id == "a7" and not find_spec("triton"):
        pytest.skip("there is no Triton for this system, so a7 cannot be graded on it")
    release = COURSE / "release" / part.name / f"{part.name}.ipynb"
    folder = handed_in.hand_in(tmp_path, "solved", part.id, handed_in.solved(part.id))
    if any(task.files for task in part.tasks):
        shutil.copytree(matrix.files(part.id, {}), folder, dirs_exist_ok=True)
    record = grading.grade(part, folder, release, "a seed")
    assert (record["earned"], record["notes"]) == (part.points, [])
    if part.id not in ("a5", "a7", "a10"):  # test_release.py has all of them, without a sandbox
        return
    folder = handed_in.hand_in(tmp_path, "untouched", part.id, handed_in.released(part.id))
    record = grading.grade(part, folder, release, "a seed")
    assert record["earned"] == 0 and record["notes"] == []
    assert all(finding["unwritten"] for task in record["tasks"] for finding in task["findings"])


@strict
def test_a_sandbox_has_no_network_and_few_rights(tmp_path):
    source = '''
import os, socket
def connect():
    with socket.socket() as link:
        link.settimeout(2)
        link.connect(("192.0.2.1", 80))
def files(): return [path for path in (PROJECT, PACKAGE, "/etc/passwd") if os.path.exists(path)]
def user(): return [os.getuid(), len([name for name in os.listdir("/proc") if name.isdigit()])]
def environment(): return dict(os.environ)
def twice(x): return 2 * x
'''
    project = str(files.repository() / "pyproject.toml")
    source += f"PROJECT, PACKAGE = {project!r}, {reports.__file__!r}\n"
    with Session([("cell", source)], QUICK) as session:
        with pytest.raises(Exception, match="connect raised OSError"):
            session.call("connect", ())
        assert session.call("files", ()) == []
        uid, processes = session.call("user", ())
        assert uid != 0 and processes <= 3
        assert set(session.call("environment", ())) <= {*sandbox.ENVIRONMENT, "HOME", "TMPDIR",
                                                        "PWD"}
        assert session.call("twice", (2,)) == 4


def test_a_class(tmp_path, capsys):
    """By hand the same marks; a second run, and one after an interruption, change nothing."""
    submitted, marks = tmp_path / "submitted", tmp_path / "marks"
    wanted = classroom.build(submitted)
    front.grade_class(submitted, marks, COURSE, jobs=2)
    assert {record["student"]: None if record["status"] == "refused" else record["earned"]
            for record in grading.records(marks)} == wanted
    texts = {path: path.read_text() for path in marks.rglob("*.*")}
    (marks / "s03" / "a5_cca.json").unlink()  # as if it had been interrupted there
    (marks / "s06" / "a5_cca.json").write_text('{"stude')  # an editor's mistake, then deleted
    with pytest.raises(ValueError, match=r"s06/a5_cca.json is no JSON .*; delete the file"):
        front.grade_class(submitted, marks, COURSE, jobs=2)
    (marks / "s06" / "a5_cca.json").unlink()
    begun = (marks / "s04" / "a5_cca.json").stat().st_mtime_ns
    front.grade_class(submitted, marks, COURSE, jobs=2)
    assert (marks / "s04" / "a5_cca.json").stat().st_mtime_ns == begun
    assert [path for path, text in texts.items() if path.suffix in (".csv", ".html")
            and path.read_text() != text] == []
    page = (marks / "s17" / "feedback.html").read_text()
    assert "18 of 20" in page and "comes later" in page
    assert "only what a row reads is loaded" in page and "load(" not in page


def test_what_a_submission_says_is_escaped(tmp_path):
    notebook = handed_in.filled(
        "a5", {"a5.2": 'def intervals(*sizes):\n    raise ValueError("<script>=1</script>")\n'})
    record = graded(tmp_path, notebook) | {"student": "=cmd()"}
    for path in reports.write([record], tmp_path / "marks"):
        assert "<script>" not in path.read_text()
    assert "'=cmd()" in (tmp_path / "marks" / "marks.csv").read_text()


def test_inputs_depend_on_the_secret(tmp_path):
    assert grading.secret(tmp_path / "one") != grading.secret(tmp_path / "two")
    assert grading.secret(tmp_path / "one") == grading.secret(tmp_path / "one")
    assert (tmp_path / "one" / grading.SEED).stat().st_mode & 0o077 == 0


def test_a_change_anywhere_in_the_package_makes_records_old(tmp_path, monkeypatch):
    """Checks take oracles from all of it: a hash of `course/` alone would keep wrong marks."""
    assert (grading.PACKAGE / "attention").is_dir()
    for name in ("course/tasks.py", "attention/dense.py"):
        (tmp_path / "package" / name).parent.mkdir(parents=True)
        (tmp_path / "package" / name).write_text("before\n")
    times: list[str] = []

    def grade(part, *more):
        times.append(part.id)
        return {"assignment": part.name, "status": "graded", "notes": [], "earned": 0.0,
                "tasks": [], "points": part.points, "read": part.read, "sandbox": "none"}

    monkeypatch.setattr(grading, "PACKAGE", tmp_path / "package")
    monkeypatch.setattr(grading, "grade", grade)
    handed_in.hand_in(tmp_path / "submitted", "somebody", "a5", handed_in.released("a5"))
    for number, name in enumerate((None, "attention/dense.py", "course/tasks.py"), start=1):
        if name:
            (tmp_path / "package" / name).write_text("after\n")
        for _ in range(2):
            grading.grade_folder(tmp_path / "submitted", tmp_path / "marks", COURSE)
            assert len(times) == number, name


def test_a_link_to_another_notebook_is_refused(tmp_path):
    folder = tmp_path / "somebody" / "a5_cca"
    folder.mkdir(parents=True)
    (folder / "a5_cca.ipynb").symlink_to(COURSE / "source" / "a5_cca" / "a5_cca.ipynb")
    record = grading.grade(A5, folder, RELEASE, "a seed", QUICK)
    assert record["status"] == "refused" and "no plain file" in record["notes"][0]


def test_our_own_failure_costs_nobody_points(tmp_path, monkeypatch):
    submitted, marks = tmp_path / "submitted", tmp_path / "marks"
    handed_in.hand_in(submitted, "somebody", "a5", handed_in.solved("a5"))
    monkeypatch.setattr(sandbox, "command", lambda *args: ["false"])
    assert not front.grade_class(submitted, marks, COURSE)
    assert grading.records(marks)[0]["status"] == "failed"
    monkeypatch.undo()
    assert front.grade_class(submitted, marks, COURSE)
    assert grading.records(marks)[0]["earned"] == 20
