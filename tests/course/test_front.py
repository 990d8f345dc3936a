"""The course's commands: what is broken or in the wrong place is named, and what is kept."""

import errno
import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from cca_lab.course import gradebook, grading, sandbox
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.tasks import GraderError
from cca_lab.files import course_folder, replacing
from tests.command import run_command
from tests.course import handed_in

pytest.importorskip("nbgrader")
POINTS = assignment_of("a5").points
RECORD = Path("marks/bob/a5_cca.json")


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory) -> Path:
    """Make one database: that takes a program of its own."""
    path = tmp_path_factory.mktemp("made") / "gradebook.db"
    with gradebook.opened(path):
        return path


@pytest.fixture(autouse=True)
def course(tmp_path, monkeypatch, empty_database) -> Path:
    """A course without its notebooks' cells to run: whoever hands in has 6 points of a5."""
    (tmp_path / "release").symlink_to(course_folder() / "release")
    (tmp_path / "source").symlink_to(course_folder() / "source")
    shutil.copy(empty_database, tmp_path)
    for student in ("alice", "bob"):
        handed_in.hand_in(tmp_path / "sub", student, "a5", handed_in.released("a5"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "best", lambda: "bubblewrap")
    monkeypatch.setattr(grading, "fingerprint", lambda: "x")
    monkeypatch.setattr(grading, "grade", six)
    return tmp_path


def six(part, *more, **options):
    record = grading.empty(part, "graded")
    record["tasks"][1]["earned"] = 6.0
    return record | {"earned": 6.0}


def run(*words: str, status: int = 0) -> str:
    made = run_command(["course", *words, "--course", "."])
    assert made.exit_code == status, made.output
    if status == 2:
        *before, error = made.output.splitlines()
        assert error.startswith("error: ") and not before, "more than one line, or after the work"
    return made.output


def marks() -> dict[str, float]:
    with gradebook.opened(Path("gradebook.db")) as book:
        return {each.student.id: each.score for each in book.assignment_submissions("a5_cca")}


@pytest.mark.parametrize("name", ["a99", "5", "a5_cca.ipynb"])
@pytest.mark.parametrize("command", [["release"], ["solutions"], ["grade", "sub"]],
                         ids=lambda words: words[0])
def test_an_assignment_that_is_not_there_is_an_error_that_lists_them(command, name):
    """The mutant that compares names alone does nothing for these, and says so to nobody."""
    said = run(*command, "--only", name, status=2)
    assert f"got '{name}', wanted one of {', '.join(ASSIGNMENTS)}" in said


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table assignment (x)")


def lists_of_names() -> dict[str, tuple[list[str], str]]:
    """Return what stands in the way, and what the command says of it."""
    names = {f"name {ascii(name)}": (["mkdir", name], "rename this folder")
             for name in ("a\x1b[31m", "a\u202eb", "alice ", "<b>", os.fsdecode(b"a\xffl"), "-a")}
    return {**names,
            "semicolons": (["--student", "carol"], "wanted one of alice, bob"),
            "text for a database": (["text", "gradebook.db"], "gradebook: gradebook.db is "),
            "pipe for a database": (["pipe", "gradebook.db"], "gradebook: gradebook.db is "),
            "folder for a database": (["folder", "gradebook.db"], "gradebook: gradebook.db is "),
            "another database": (["other", "gradebook.db"], "gradebook: gradebook.db is "),
            "empty seed": (["text", "marks/.seed"], "marks/.seed is empty"),
            "pipe for a seed": (["pipe", "marks/.seed"], "marks/.seed is a device, a pipe")}


MAKE = {"text": lambda path: path.write_text("" if path.name == ".seed" else "junk"),
        "pipe": os.mkfifo, "folder": Path.mkdir, "other": other_database}


@pytest.mark.parametrize("case", lists_of_names())
def test_what_stands_in_the_way_is_named_before_the_work(case):
    """Without the checks a terminal obeys, marks become a student, or a seed is known to all."""
    (first, second), wanted = lists_of_names()[case]
    Path("marks").mkdir()
    if first == "mkdir":
        Path("sub", second, "a5_cca").mkdir(parents=True)
    elif first in MAKE:
        Path(second).unlink(missing_ok=True)
        MAKE[first](Path(second))
    made = run_command(["course", "grade", "sub", "--course", ".",
                        *([first, second] if first.startswith("--") else [])])
    assert made.exit_code == 2 and wanted in made.output
    assert "\x1b" not in made.output and "\u202e" not in made.output
    assert not RECORD.exists()


def test_the_default_folder_of_marks_is_beside_the_submissions(course, monkeypatch):
    monkeypatch.chdir(course / "sub")
    assert run_command(["course", "grade", ".", "--course", ".."]).exit_code == 0
    assert (course / RECORD).is_file()


def no_rights(name: str) -> bool:
    """Take all rights to a path away; False where that stops nobody, as for an administrator."""
    Path(name).chmod(0)
    return not os.access(name, os.R_OK)


def read_only(part, folder, release, *more, **options):
    """Read a submission and run nothing."""
    try:
        grading.read_submission(part, folder, release)
    except grading.Refused as refused:
        return grading.empty(part, "refused", str(refused))
    return six(part)


@pytest.mark.parametrize("name", ["sub/bob", "sub/bob/a5_cca", "sub/bob/a5_cca/a5_cca.ipynb"])
def test_what_cannot_be_read_is_a_line_of_its_student(name, monkeypatch):
    """Without a guard one folder ends the command, and nobody gets a mark."""
    if not no_rights(name):
        pytest.skip("an administrator reads everything")
    monkeypatch.setattr(grading, "grade", read_only)
    try:
        said = run("grade", "sub", "--only", "a5")
    finally:
        Path(name).chmod(0o755)
    assert "bob a5_cca: refused, 0 of " in said
    assert "cannot be read: its owner has to give the right to" in said
    assert marks() == {"alice": 6, "bob": 0}


@pytest.mark.parametrize("attribute", ["SYSTEM", "readable"])
def test_a_clone_that_submissions_can_read_is_refused(tmp_path, monkeypatch, attribute):
    """Without the check a clone below /usr or Python's folder shows solutions and others' work."""
    places = (str(tmp_path),)
    monkeypatch.setattr(sandbox, attribute, places if attribute == "SYSTEM" else lambda: places)
    assert "which every submission can read" in run("grade", "sub", status=2)


def test_one_student_is_graded_again_and_another_spelling_grades_nobody(monkeypatch):
    """The mutant whose digest holds the path as it was written grades everybody."""
    run("grade", "sub")
    times: list[str] = []
    monkeypatch.setattr(grading, "grade", lambda part, folder, *more, **options: (
        times.append(folder.parent.name), six(part))[1])
    for words in (["./sub/"], ["../" + Path.cwd().name + "/sub"], [str(Path("sub").absolute())]):
        run("grade", *words)
    assert times == []
    said = run("grade", "sub", "--student", "alice")
    assert times == ["alice"] and f"6 of {POINTS} points" in said
    Path("sub/bob/a5_cca/more.py").touch()
    RECORD.write_text('{"stude')  # what an editor left is graded again
    run("grade", "sub")
    assert times == ["alice", "bob"] and json.loads(RECORD.read_text())["earned"] == 6
    assert "anew" not in RECORD.read_text()


def test_a_change_anywhere_in_the_package_makes_records_old(tmp_path, monkeypatch):
    """Checks take oracles from all of it: a hash of `course/` alone would keep wrong marks."""
    assert (grading.PACKAGE / "attention").is_dir()
    monkeypatch.undo()
    monkeypatch.setattr(grading, "PACKAGE", tmp_path / "package")
    seen = []
    for name in ("course/tasks.py", "attention/dense.py", "course/tasks.py"):
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{len(seen)}\n")
        seen.append(grading.fingerprint())
        assert grading.fingerprint() == seen[-1]
    assert len(set(seen)) == 3


def test_links_of_students_are_refused_or_noted():
    part, work = assignment_of("a5"), Path("sub/alice/a5_cca")
    Path("sub/eve").symlink_to(Path("sub/alice").absolute())
    with pytest.raises(grading.Refused, match="a link to a folder"):
        grading.find_work(part, Path("sub/eve/a5_cca"))
    os.link(work / "a5_cca.ipynb", "sub/bob/again")
    assert "hard link" in grading.find_work(part, work)[1][0]
    notebook = work / "a5_cca.ipynb"
    notebook.unlink()
    notebook.symlink_to(course_folder() / "source/a5_cca/a5_cca.ipynb")
    with pytest.raises(grading.Refused, match="no plain file"):
        grading.read_submission(part, work, handed_in.release("a5"))


@pytest.mark.parametrize("error", [GraderError("no sandbox"), OSError(errno.ENOSPC, "disk full")],
                         ids=["sandbox", "disk"])
def test_our_failure_is_said_and_is_no_mark(error, monkeypatch):
    """The mutant that takes it for the student's writes 0, and never grades again."""
    def grade(part, folder, *more, **options):
        if folder.parent.name == "bob":
            raise error
        return six(part)

    monkeypatch.setattr(grading, "grade", grade)
    said = run("grade", "sub", status=1)
    assert "bob a5_cca: failed; " in said and str(error) in said
    assert "1 submission could not be graded for a reason of the grader's own" in said
    assert marks() == {"alice": 6}
    monkeypatch.setattr(grading, "grade", six)
    run("grade", "sub")
    assert marks() == {"alice": 6, "bob": 6}


def test_a_full_disk_leaves_the_mark_before(monkeypatch):
    run("grade", "sub")
    before = RECORD.read_text()

    def full(path):
        if path.name == RECORD.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replacing(path)

    monkeypatch.setattr(grading, "replacing", full)
    said = run("grade", "sub", "--student", "bob", status=1)
    assert "the mark could not be written" in said
    assert RECORD.read_text() == before and marks()["bob"] == 6


def test_without_bubblewrap_one_has_to_say_that_it_is_unsafe(monkeypatch):
    monkeypatch.setattr(sandbox, "best", lambda: "none")
    one = "sub/bob/a5_cca/a5_cca.ipynb"
    for submitted in ("sub", one):
        said = run("grade", submitted, status=2)
        assert "a submission owns this account" in said and not Path("marks").exists()
    assert "sandbox: none" in run("grade", "sub", "--unsafe")
    for words in (["grade", one, "--unsafe"], ["check", one]):
        assert f"6 of {POINTS} points" in run(*words)


@pytest.mark.parametrize(("command", "seed"), [("check", None), ("grade", str)])
def test_one_notebook_is_graded_and_printed(command, seed, monkeypatch):
    """`check` takes the inputs that a cell shows, `grade` other ones; neither writes anything."""
    seeds = []
    monkeypatch.setattr(grading, "grade", lambda part, folder, release, seed, **more: (
        seeds.append(seed), six(part))[1])
    before = sorted(Path().rglob("*"))
    said = run(command, "sub/bob/a5_cca/a5_cca.ipynb")
    assert f"6 of {POINTS} points" in said
    assert ("Marks are given on other inputs" in said) == (seed is None)
    assert (seeds == [None]) if seed is None else isinstance(seeds[0], str)
    assert sorted(Path().rglob("*")) == before
