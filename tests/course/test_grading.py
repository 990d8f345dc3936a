"""Grading for real, in the sandbox: a class, and what a second run does."""

import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from cca_lab import files
from cca_lab.course import front, grading, reports, sandbox
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.sandbox import Limits, Session
from tests.course import classroom, handed_in
from tests.course.answers import a10

COURSE = files.course_folder()
A5 = assignment_of("a5")
RELEASE = COURSE / "release" / "a5_cca" / "a5_cca.ipynb"
QUICK = Limits(seconds=5.0, total=60.0)
strict = pytest.mark.skipif(sandbox.best() != "bubblewrap",
                            reason="bubblewrap is not installed or does not start here")


def graded(folder: Path, notebook: dict, assignment=A5, **options) -> grading.Record:
    submitted = handed_in.hand_in(folder, "somebody", "a5", notebook)
    return grading.grade(assignment, submitted, RELEASE, "a seed", QUICK, **options)


@pytest.mark.parametrize("kind",
                         [kind for kind in sandbox.KINDS if kind == "none" or sandbox.works(kind)])
def test_every_kind_of_sandbox_gives_the_same_marks(kind, tmp_path):
    record = graded(tmp_path, handed_in.solved("a5"), kind=kind)
    assert (record["earned"], record["sandbox"], record["notes"]) == (20, kind, [])
    wrong = handed_in.solved("a5", {"a5.2": classroom.WRONG})
    assert graded(tmp_path, wrong, kind=kind)["earned"] == 20 - classroom.LOST


@pytest.mark.parametrize("part", [
    pytest.param(part, marks=[] if name in ("a5", "a7") else pytest.mark.nightly)
    for name, part in ASSIGNMENTS.items()], ids=ASSIGNMENTS)
def test_every_solved_notebook_has_all_points_and_the_untouched_one_none(part, tmp_path):
    """As marks are given, a7 with Triton's interpreter included."""
    if part.id == "a7" and not find_spec("triton"):
        pytest.skip("there is no Triton for this system, so a7 cannot be graded on it")
    release = COURSE / "release" / part.name / f"{part.name}.ipynb"
    folder = handed_in.hand_in(tmp_path, "solved", part.id, handed_in.solved(part.id))
    if any(task.files for task in part.tasks):
        shutil.copytree(a10.folder(), folder, dirs_exist_ok=True)
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
    front.grade_class(submitted, marks, COURSE, jobs=2, unsafe=True)
    assert {record["student"]: None if record["status"] == "refused" else record["earned"]
            for record in grading.records(marks)} == wanted
    texts = {path: path.read_text() for path in marks.rglob("*.*")}
    (marks / "s03" / "a5_cca.json").unlink()  # as if it had been interrupted there
    (marks / "s06" / "a5_cca.json").write_text('{"stude')  # an editor's mistake, then deleted
    with pytest.raises(ValueError, match=r"s06/a5_cca.json is no JSON .*; delete the file"):
        front.grade_class(submitted, marks, COURSE, jobs=2, unsafe=True)
    (marks / "s06" / "a5_cca.json").unlink()
    begun = (marks / "s04" / "a5_cca.json").stat().st_mtime_ns
    front.grade_class(submitted, marks, COURSE, jobs=2, unsafe=True)
    assert (marks / "s04" / "a5_cca.json").stat().st_mtime_ns == begun
    assert [path for path, text in texts.items() if path.suffix in (".csv", ".html")
            and path.read_text() != text] == []
    page = (marks / "s18" / "feedback.html").read_text()
    assert "18 of 20" in page and "comes later" in page
    assert "right for a trillion tokens" in page


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
            grading.grade_folder(tmp_path / "submitted", tmp_path / "marks", COURSE,
                                 kind="none")
            assert len(times) == number, name


def test_a_link_to_another_notebook_is_refused(tmp_path):
    folder = tmp_path / "somebody" / "a5_cca"
    folder.mkdir(parents=True)
    (folder / "a5_cca.ipynb").symlink_to(COURSE / "source" / "a5_cca" / "a5_cca.ipynb")
    record = grading.grade(A5, folder, RELEASE, "a seed", QUICK)
    assert record["status"] == "refused" and "no plain file" in record["notes"][0]


BLACK = """label = (
    "%d of %d"
    % (1, 2)
)
assert (
    label
    != "1 of 3"
)
"""


@pytest.mark.parametrize("before", ["", "%matplotlib inline\n", "!ls -l\nfiles = !ls\n", "?len\n",
                                    "%%time\n", "%%capture out\n%precision 3\n"])
def test_commands_of_ipython_go_and_python_stays(before):
    """The mutant that cleans by lines takes the lines that begin with % and != for commands."""
    scope: dict = {}
    exec(grading.SHELL, scope)
    exec(grading.python(before + BLACK), scope)
    assert scope["label"] == "1 of 2"
    assert before or grading.python(BLACK) == BLACK


def test_what_is_no_python_stays_as_it_is_and_a_shell_is_not_run():
    assert grading.python("%%bash\nrm -rf /") == "pass"
    assert grading.python("def broken(:\n    pass\n") == "def broken(:\n    pass\n"
    long = "!x\n" * 100_000  # to be read once for each of its lines
    assert grading.python(long) == long


def test_helpers_in_cells_that_are_replaced_are_kept_and_given_names_win():
    """The mutant that drops them costs an import; that which runs them last lets them win."""
    release = [{"name": name, "source": source} for name, source in (
        ("given-setup", "from cca_lab.course import check\nWIDTH = 8"), ("show-1", "plot(WIDTH)"),
        ("scratch-1", ""), ("a5-1-answer", "..."), ("a5-1-check", "check()"))]
    theirs = ["import math\nfrom cca_lab.course import check, points\nWIDTH = 9",
              "def half(x):\n    return x / 2\nplot(half(WIDTH))", "FEW = 3\nslow = f()",
              "def answer():\n    return half(WIDTH) * FEW + math.pi", "class Kept: pass"]
    cells = [{"name": each["name"], "source": source}
             for each, source in zip(release, theirs, strict=True)]
    runs, notes = grading.arranged(cells, release)
    scope: dict = {}
    for name, source in runs:
        if name != "given-setup" or "cca_lab" not in source:
            exec(source, scope)
    exec("WIDTH = 8", scope) if dict(runs)["given-setup"] == release[0]["source"] else None
    assert [name for name, _ in runs] == ["given-setup-added", "given-setup", "show-1-added",
                                          "scratch-1-added", "a5-1-answer", "a5-1-check-added"]
    assert round(scope["answer"](), 2) == 15.14 and "slow" not in scope and "Kept" in scope
    assert notes == ["edited cells were replaced by the original ones: given-setup, show-1, "
                     "a5-1-check"]


def test_slow_exploration_is_said_before_it_costs_points(tmp_path):
    """The mutant without the note lets a check pass what grading will cut off."""
    notebook = handed_in.solved("a5")
    notebook["cells"].append({"cell_type": "code", "id": "explore", "metadata": {},
                              "source": "import time\ntime.sleep(2)"})
    folder = handed_in.hand_in(tmp_path, "somebody", "a5", notebook)
    record = grading.grade(replace(A5, tasks=A5.tasks[:1]), folder, RELEASE, None,
                           Limits(seconds=20.0, starts=40.0))
    [note] = record["notes"]
    assert "grading allows" in note and "cell-" in note


def test_our_own_failure_costs_nobody_points(tmp_path, monkeypatch):
    submitted, marks = tmp_path / "submitted", tmp_path / "marks"
    handed_in.hand_in(submitted, "somebody", "a5", handed_in.solved("a5"))
    monkeypatch.setattr(sandbox, "command", lambda *args: ["false"])
    assert not front.grade_class(submitted, marks, COURSE, unsafe=True)
    assert grading.records(marks)[0]["status"] == "failed"
    monkeypatch.undo()
    assert front.grade_class(submitted, marks, COURSE, unsafe=True)
    assert grading.records(marks)[0]["earned"] == 20
