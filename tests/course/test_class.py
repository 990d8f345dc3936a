"""A course that runs: who is missing, one student again, a mark's history, pages back."""

import csv
import errno
import os
from pathlib import Path

import pytest

from cca_lab.course import grading, sandbox
from cca_lab.course.registry import assignment_of
from cca_lab.course.tasks import GraderError
from cca_lab.files import course_folder, replacing
from tests.command import run_command
from tests.course import handed_in


@pytest.fixture(autouse=True)
def course(tmp_path, monkeypatch) -> Path:
    """A course without its notebooks' cells to run: whoever hands in has 10 points of a5."""
    for step in ("source", "release"):
        (tmp_path / step).symlink_to(course_folder() / step)
    for student in ("alice", "bob"):
        handed_in.hand_in(tmp_path / "sub", student, "a5", handed_in.released("a5"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "best", lambda: "bubblewrap")
    monkeypatch.setattr(grading, "fingerprint", lambda: "x")
    monkeypatch.setattr(grading, "grade", ten)
    return tmp_path


def ten(part, *more):
    record = grading.empty(part, "graded")
    record["tasks"][1]["earned"] = 10.0
    return record | {"earned": 10.0}


def run(*words: str, status: int = 0) -> str:
    made = run_command(["course", *words, "--course", "."])
    assert made.exit_code == status, made.output
    return made.output


def table(name: str) -> dict[str, dict[str, str]]:
    with Path("marks", name).open(newline="") as file:
        lines = list(csv.DictReader(file))
    return {line[next(iter(line))]: line for line in lines}


def test_who_is_missing_has_0_and_it_is_said():
    """The mutant that looks at folders alone leaves dave out; that of blanks shows no 0."""
    Path("students.csv").write_text("\ufefffirst_name,id\nAl,alice\nDave,dave\n")
    assert "dave a5_cca: absent" in run("grade", "sub")
    marks = table("marks.csv")
    assert {name: (line["a5_cca"], line["notes"]) for name, line in marks.items()} == {
        "alice": ("10", ""), "bob": ("10", "not in students.csv"), "dave": ("0", "a5_cca absent")}
    assert "Nothing was handed in" in Path("marks/dave/feedback.html").read_text()


def test_a_class_list_with_semicolons_is_refused():
    Path("students.csv").write_text("id;first_name\nalice;Al\n")
    assert "students.csv: a line has no id; " in run("grade", "sub", status=2)


def no_rights(name: str) -> bool:
    """Take all rights to a path away; False where that stops nobody, as for an administrator."""
    Path(name).chmod(0)
    return not os.access(name, os.R_OK)


def read_only(part, folder, release, *more):
    """Read a submission and run nothing."""
    try:
        grading.read_submission(part, folder, release)
    except grading.Refused as refused:
        return grading.empty(part, "refused", str(refused))
    return ten(part)


@pytest.mark.parametrize("name", ["sub/bob", "sub/bob/a5_cca", "sub/bob/a5_cca/a5_cca.ipynb"])
def test_what_cannot_be_read_is_a_line_of_its_student(name, monkeypatch):
    """Without a guard one folder ends the command, and nobody gets a report."""
    if not no_rights(name):
        pytest.skip("an administrator reads everything")
    monkeypatch.setattr(grading, "grade", read_only)
    try:
        run("grade", "sub")
    finally:
        Path(name).chmod(0o755)
    marks = table("marks.csv")
    assert marks["alice"]["a5_cca"] == "10"
    assert "cannot be read: its owner has to give the right to" in marks["bob"]["notes"]


def test_a_gradebook_that_is_not_there_is_not_made():
    run("grade", "sub")
    assert "gradebook: got nope" in run("report", "marks", "--gradebook", "nope", status=2)
    assert not Path("nope").exists()


def test_a_clone_that_submissions_can_read_is_refused(tmp_path, monkeypatch):
    """Without the check a clone below /usr shows solutions and classmates' work."""
    monkeypatch.setattr(sandbox, "SYSTEM", (str(tmp_path),))
    assert "which every submission can read" in run("grade", "sub", status=2)


def test_one_student_is_graded_again_and_another_spelling_grades_nobody(monkeypatch):
    """The mutant whose digest holds the path as it was written grades everybody."""
    run("grade", "sub")
    times: list[str] = []
    monkeypatch.setattr(grading, "grade", lambda part, folder, *more: (
        times.append(folder.parent.name), ten(part))[1])
    for words in (["./sub/"], ["../" + Path.cwd().name + "/sub"], [str(Path("sub").absolute())]):
        run("grade", *words, "--out", "marks")
    assert times == []
    run("grade", "sub", "--student", "alice")
    assert times == ["alice"] and set(table("marks.csv")) == {"alice", "bob"}
    assert "student: got 'al', wanted one of alice, bob" in run("grade", "sub", "--student", "al",
                                                                status=2)


def test_the_history_of_a_mark_is_kept(monkeypatch):
    """The mutant that writes it anew forgets; that which always appends repeats."""
    run("grade", "sub")
    run("report", "marks")
    before = Path("marks/history.csv").read_text()
    assert before.count("\n") == 3
    monkeypatch.setattr(grading, "grade", lambda part, *more: ten(part) | {
        "tasks": [task | {"earned": 1.0} for task in ten(part)["tasks"]]})
    run("grade", "sub", "--student", "bob")
    after = Path("marks/history.csv").read_text()
    assert after.startswith(before) and after.removeprefix(before).count("\n") == 1
    assert ",bob,a5_cca,7," in after.removeprefix(before)


def test_pages_go_back_into_folders_and_through_no_link(tmp_path):
    """The mutant that follows links writes alice's page over what bob chose."""
    run("grade", "sub")
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "sub/bob/feedback.html").symlink_to(tmp_path / "secret")
    (tmp_path / "sub/bob/.feedback.html.part").symlink_to(tmp_path / "secret")
    (tmp_path / "else").mkdir()
    (tmp_path / "marks/eve").mkdir()
    (tmp_path / "marks/eve/feedback.html").write_text("eve's")
    (tmp_path / "sub/eve").symlink_to(tmp_path / "else")
    said = run("report", "marks", "--feedback", "sub")
    assert "2 pages handed back in sub" in said and "sub/eve is a link" in said
    assert "for bob" in (tmp_path / "sub/bob/feedback.html").read_text()
    assert (tmp_path / "secret").read_text() == "mine" and not list((tmp_path / "else").iterdir())


@pytest.mark.parametrize("names", [["a\x1b[31m"], ["a\u202eb"], ["alice "], ["class.html"],
                                   ["<b>"], ["Alice"], ["\uff41lice"]], ids=ascii)
def test_a_name_that_is_taken_for_something_else_is_refused_before_the_work(names):
    """Without the check a page is written over the class's, or a terminal obeys."""
    for name in names:
        Path("sub", name, "a5_cca").mkdir(parents=True)
    said = run("grade", "sub", status=2)
    assert "rename" in said and "\x1b" not in said and "\u202e" not in said
    assert not Path("marks").exists()


def test_links_of_students_are_refused_or_noted():
    part, work = assignment_of("a5"), Path("sub/alice/a5_cca")
    Path("sub/eve").symlink_to(Path("sub/alice").absolute())
    with pytest.raises(grading.Refused, match="a link to a folder"):
        grading.find_work(part, Path("sub/eve/a5_cca"))
    os.link(work / "a5_cca.ipynb", "sub/bob/again")
    assert "hard link" in grading.find_work(part, work)[1][0]


@pytest.mark.parametrize("error", [GraderError("no sandbox"), OSError(errno.ENOSPC, "disk full")],
                         ids=["sandbox", "disk"])
def test_our_failure_is_said_and_is_no_mark(error, monkeypatch):
    """The mutant that takes it for the student's writes 0, and never grades again."""
    def grade(part, folder, *more):
        if folder.parent.name == "bob":
            raise error
        return ten(part)

    monkeypatch.setattr(grading, "grade", grade)
    said = run("grade", "sub", status=1)
    assert "bob a5_cca: failed; " in said and str(error) in said
    assert "1 submission could not be graded for a reason of the grader's own" in said
    line = table("marks.csv")["bob"]
    assert (line["a5_cca"], line["notes"]) == ("", "a5_cca the grader failed, grade again")
    monkeypatch.setattr(grading, "grade", ten)
    run("grade", "sub")
    assert table("marks.csv")["bob"]["a5_cca"] == "10"


def test_a_full_disk_leaves_the_mark_before(monkeypatch):
    run("grade", "sub")
    before = Path("marks/bob/a5_cca.json").read_text()

    def full(path):
        if path.name == "a5_cca.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        return replacing(path)

    monkeypatch.setattr(grading, "replacing", full)
    said = run("grade", "sub", "--student", "bob", status=1)
    assert "the mark could not be written" in said
    assert Path("marks/bob/a5_cca.json").read_text() == before


def test_without_bubblewrap_one_has_to_say_that_it_is_unsafe(monkeypatch):
    monkeypatch.setattr(sandbox, "best", lambda: "none")
    said = run("grade", "sub", status=2)
    assert "a submission owns this account" in said and not Path("marks").exists()
    assert "2 submissions, sandbox: none" in run("grade", "sub", "--unsafe")
