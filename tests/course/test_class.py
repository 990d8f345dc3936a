"""A course that runs: who is missing or late, one student again, a mark's history, pages back."""

import csv
import errno
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.course import grading, sandbox, similar
from cca_lab.course.registry import assignment_of
from cca_lab.course.tasks import GraderError
from cca_lab.files import course_folder, replacing
from tests.course import handed_in, matrix

HEAD = "id,first_name,last_name,email,lms_user_id\n"


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
    made = CliRunner().invoke(app, ["course", *words, "--course", "."])
    assert made.exit_code == status, made.output
    return made.output


def table(name: str) -> dict[str, dict[str, str]]:
    with Path("marks", name).open(newline="") as file:
        lines = list(csv.DictReader(file))
    return {line[next(iter(line))]: line for line in lines}


def test_who_is_missing_has_0_and_it_is_said():
    """The mutant that looks at folders alone leaves dave out; that of blanks shows no 0."""
    Path("students.csv").write_text("\ufeff" + HEAD + "alice,,,,\ndave,,,,\n")
    assert "dave a5_cca: absent" in run("grade", "sub")
    marks = table("marks.csv")
    assert {name: (line["a5_cca"], line["notes"]) for name, line in marks.items()} == {
        "alice": ("10", ""), "bob": ("10", "not in students.csv"), "dave": ("0", "a5_cca absent")}
    assert "Nothing was handed in" in Path("marks/dave/feedback.html").read_text()


def test_a_day_late_costs_its_share_and_an_extension_needs_no_grading(monkeypatch):
    """The mutant that rounds days down, that takes bob's day for all, and that grades again."""
    Path("deadlines.csv").write_text("assignment,due,percent,student\na5,2026-10-01,10,\n"
                                     "a5,2026-10-05,10,bob\n")
    for student, time in (("alice", "2026-10-03 01:00:00.000 UTC"), ("bob", "2026-10-05T12:00")):
        Path("sub", student, "a5_cca", "timestamp.txt").write_text(time)
    monkeypatch.setenv("TZ", "UTC")
    run("grade", "sub")
    line = table("marks.csv")["alice"]
    assert (line["a5_cca"], line["notes"]) == ("8", "a5_cca 2 days late, 2 points lost")
    assert table("marks.csv")["bob"]["a5_cca"] == "10"
    assert table("tasks.csv")["alice"]["days late"] == "2"
    page = Path("marks/alice/feedback.html").read_text()
    assert "2 days late, which costs 2 of 10 points" in page
    monkeypatch.setattr(grading, "grade", lambda *_: pytest.fail("graded"))
    Path("deadlines.csv").write_text("assignment,due,percent\na5,2026-10-02 23:00,10\n")
    run("report", "marks")
    assert table("marks.csv")["alice"]["a5_cca"] == "9"
    for line in ("a5,soon,10", "a99,2026-10-01,10", "a5,2026-10-01,200", "a5,2026-10-01,"):
        Path("deadlines.csv").write_text(f"assignment,due,percent\n{line}\n")
        assert "error: deadlines.csv" in run("report", "marks", status=2)


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


def test_canvas_and_moodle_find_their_columns():
    """Canvas's importer wants Student and ID first and Section before the assignments."""
    Path("students.csv").write_text(HEAD + "alice,Al,Ice,al@x.org,17\nbob,,,,\n")
    run("grade", "sub")
    rows = list(csv.reader(Path("marks/canvas.csv").open()))
    assert rows == [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "a5_cca"],
                    ["Points Possible", "", "", "", "", "20"],
                    ["Ice, Al", "17", "", "alice", "", "10"], ["bob", "", "", "bob", "", "10"]]
    rows = list(csv.reader(Path("marks/moodle.csv").open()))
    assert rows[:2] == [["Username", "ID number", "Email address", "a5_cca"],
                        ["alice", "17", "al@x.org", "10"]]


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


RENAMED = '''
# all mine
def intervals(n, first, size, last):
    """My own words."""
    i = torch.arange(n)
    visible = ((i + 1 - first - last) // size).clamp(min=0)
    rest = int(visible[-1])
    nil = torch.zeros_like(i)
    begin = torch.minimum(first + size * visible, i + 1)
    a = torch.stack([nil, rest + nil, rest + begin], dim=-1)
    b = torch.stack(
        [visible, rest + torch.minimum(i + 1, nil + first), rest + i + 1], dim=-1
    )
    return torch.stack([a, b], dim=-1)
'''


def test_a_copy_with_other_names_is_found_and_another_way_is_not(tmp_path):
    """The mutant that compares texts misses bob; that which counts stubs names dan and eli."""
    loops = next(entry.cells["a5.2"] for part, entry in matrix.entries()[0]
                 if part == "a5" and "a5.2" in entry.cells)
    answers = {"alice": matrix.solved("a5")["a5-2-answer"], "bob": RENAMED, "carol": loops}
    for student, source in answers.items():
        handed_in.hand_in(tmp_path / "sub", student, "a5", handed_in.filled("a5", {"a5.2": source}))
    stubs = Path(shutil.copy(course_folder() / "adapters.py", ".")).read_text()
    for student in ("dan", "eli"):
        handed_in.hand_in(tmp_path / "sub", student, "a5", stubs, "adapters.py")
    pairs = similar.write(Path("sub"), Path(), Path("similarity.csv"))
    assert {(pair.student, pair.other) for pair in pairs} >= {("alice", "bob")}
    named = {name for pair in pairs for name in (pair.student, pair.other)}
    assert pairs[0].share >= 0.9 and not named & {"carol", "dan", "eli"}, pairs
    assert "a5_cca,alice,bob," in Path("similarity.csv").read_text()
