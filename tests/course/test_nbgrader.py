"""With nbgrader itself: a class of eight by the commands of lab/README.md, marks and pages."""

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import Config

from cca_lab import files
from cca_lab.course import gradebook, grading
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from tests.command import run_command
from tests.course import classroom, handed_in, matrix

LAB = files.course_folder()
A5 = assignment_of("a5")


@pytest.fixture
def course(tmp_path):
    """A course's folder, lab/, with a5 and a2 only."""
    lab = tmp_path / "lab"
    for step in ("source", "release"):
        for name in ("a5_cca", "a2_sparsity"):
            shutil.copytree(LAB / step / name, lab / step / name)
    shutil.copy(LAB / "nbgrader_config.py", lab)
    return lab


def nbgrader(folder: Path, *words: str) -> str:
    run = subprocess.run([sys.executable, "-m", "nbgrader", *words], cwd=folder,
                         capture_output=True, text=True, check=False, env=os.environ
                         | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout + run.stderr


README = (LAB / "README.md").read_text(encoding="utf-8").partition("## For teachers")[2]
BLOCK = re.search("^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL).group(1)
COMMANDS = [line.split("#")[0].strip() for line in BLOCK.splitlines()]


def run(*words: str) -> str:
    made = run_command(["course", *words])
    assert made.exit_code == 0, made.output
    return made.output


def test_a_class_of_eight(course, monkeypatch):
    """One is right by other means, one from Colab, one late, one absent, one refused."""
    monkeypatch.setitem(ASSIGNMENTS, "a5", replace(A5, tasks=A5.tasks[1:2]))
    wanted = classroom.build(course / "submitted", course)
    with (course / "nbgrader_config.py").open("a") as file:
        file.write(classroom.PENALTY)
    with gradebook.opened(course / "gradebook.db") as book:
        book.update_or_create_assignment("a5_cca", duedate="2026-10-01 18:00:00 UTC")
    said = run("grade", str(course / "submitted"), "--course", str(course), "--unsafe")
    assert "7 submissions, 2 of them with nbgrader's time" in said
    assert "gus a5_cca: refused, 0 of" in said
    with gradebook.opened(course / "gradebook.db") as book:
        got = {each.student.id: (each.score, each.late_submission_penalty or 0.0)
               for each in book.assignment_submissions("a5_cca")}
    assert got == {name: (some or 6.0 * (name == "cem"), 6.0 * (name == "cem"))
                   for name, (some, _) in wanted.items() if name != "dave"}
    shown = (course / "autograded/eve/a5_cca/a5_cca.ipynb").read_text()
    for text in ("no   no row reads a later token (0 of 2)", "comes later",
                 "ok   every earlier token is read exactly once (2 of 2)"):
        assert text in shown
    assert "could not be graded" in (course / "autograded/gus/a5_cca/a5_cca.ipynb").read_text()


@pytest.mark.nightly
def test_the_commands_of_the_readme_run(course, monkeypatch):
    """On the same class, with all of a5."""
    wanted = classroom.build(course / "submitted", course)
    with (course / "nbgrader_config.py").open("a") as file:
        file.write(classroom.PENALTY)
    assert classroom.DUE[:26] in README
    nbgrader(course, *shlex.split(classroom.DUE)[1:])
    monkeypatch.chdir(course.parent)
    done = 0
    for command in COMMANDS:
        words = command.replace("alice", "eve").split()
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
        elif words[0] in ("nbgrader", "cca-lab"):
            more = ["--course", "lab", *["--unsafe"] * ("grade" in words),
                    *["--only", "a5"] * (words[-1] == "release")]
            said = (nbgrader(Path(), *words[1:]) if words[0] == "nbgrader" else
                    run(*words[2:], *more))
            assert "Subcommands" not in said, f"{command} printed only its help"
            done += 1
    assert done == 6
    with Path("grades.csv").open() as file:
        lines = {line["student_id"]: line for line in csv.DictReader(file)}
    assert {name: float(line["score"]) for name, line in lines.items()} == {
        name: whole for name, (_, whole) in wanted.items()}
    assert float(lines["cem"]["raw_score"]) == A5.points
    page = Path("feedback/eve/a5_cca/a5_cca.html").read_text()
    assert "no   no row reads a later token (0 of 2)" in page and "comes later" in page
    assert "could not be graded" in Path("feedback/gus/a5_cca/a5_cca.html").read_text()


@pytest.mark.nightly
def test_nbgrader_makes_the_same_release_and_gives_honest_work_its_points(course):
    ours = (course / "release" / "a5_cca" / "a5_cca.ipynb").read_text()
    nbgrader(course, "generate_assignment", "a5_cca", "--force")
    assert (course / "release" / "a5_cca" / "a5_cca.ipynb").read_text().strip() == ours.strip()
    noisy = classroom.noisy(matrix.solved("a5")["a5-2-answer"])
    for student, notebook in {"solved": handed_in.solved("a5"),
                              "noisy": handed_in.solved("a5", {"a5.2": noisy}),
                              "wrong": handed_in.solved("a5", {"a5.2": classroom.WRONG}),
                              "untouched": handed_in.released("a5")}.items():
        handed_in.hand_in(course / "submitted", student, "a5", notebook)
    nbgrader(course, "autograde", "a5_cca")
    with gradebook.opened(course / "gradebook.db") as book:
        scores = {entry.student.id: entry.score for entry in book.assignment_submissions("a5_cca")}
    assert scores == {"solved": A5.points, "noisy": A5.points, "wrong": A5.points - classroom.LOST,
                      "untouched": 0}


def record(student: str, part: str = "a5", **more) -> grading.Record:
    """Return a record of a submission as if it had been graded, with no points."""
    return grading.empty(assignment_of(part), "graded") | {"student": student} | more


def test_what_a_person_gave_stays_and_is_looked_at_again_when_work_changed(course):
    """The mutant that writes over manual scores, or never asks again, is found."""
    handed_in.hand_in(course / "submitted", "ann", "a2", handed_in.released("a2"))
    database = course / "gradebook.db"

    def written(**more) -> tuple[float, list[str]]:
        made = record("ann", "a2", **more)
        made["tasks"][1]["earned"] = 2.0
        gradebook.write([made], course, database, course / "submitted")
        with gradebook.opened(database) as book:
            grades = book.find_submission_notebook("a2_sparsity", "a2_sparsity", "ann").grades
            return sum(grade.score for grade in grades), sorted(
                grade.cell.name for grade in grades if grade.needs_manual_grade)

    assert written(anew=True) == (2.0, ["a2-5-answer"])
    with gradebook.opened(database) as book:
        for cell, score in (("a2-5-answer", 2.5), ("a2-1-check", 1.0)):
            grade = book.find_grade(cell, "a2_sparsity", "a2_sparsity", "ann")
            grade.manual_score, grade.needs_manual_grade = score, False
        book.db.commit()
    assert written() == (5.5, [])
    assert written(anew=True) == (5.5, ["a2-1-check", "a2-5-answer"])


class Active(HTMLParser):
    """What a page loads, follows or runs, and what stands outside of plain blocks."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple] = []
        self.text, self.plain = "", 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.plain += tag == "pre"
        if tag in ("iframe", "object", "embed", "form", "svg", "base", "meta"):
            self.found.append((tag, *attrs))
        self.found += [(tag, name, value) for name, value in attrs
                       if name.startswith("on") or name in ("src", "href", "srcdoc", "style")]

    def handle_endtag(self, tag):
        self.plain -= tag == "pre"

    def handle_data(self, data):
        if not self.plain:
            self.text += data


EVIL = '''<script>window.pwned=1</script> <img src=x onerror="pwned=1"> <svg onload=pwned=1>
[reference] [r][1] <javascript:alert(1)> ![remote](https://evil.example/x.png)
$\\href{javascript:alert(1)}{click}$ \\(\\href{javascript:alert(2)}{click}\\)
~~~
````
</pre><script>window.pwned=2</script>
![inline](attachment:x.png)
[1]: javascript:alert(3)
[reference]: javascript:alert(4)
'''
IDS = '"><img src=x onerror=window.pwned=1>'


def pages(course: Path, students: list[str], part: str) -> dict[tuple[str, str], str]:
    """Return what nbgrader shows to the teacher, and writes as feedback."""
    name = assignment_of(part).name
    nbgrader(course, "generate_feedback", name, "--force")
    config = Config()
    config.HTMLExporter.template_name = "formgrade"  # as its server extension sets it
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    found = {}
    for student in students:
        path = Path(student, name, f"{name}.ipynb")
        shown = {"base_url": "", "index": 0, "total": 1, "student": "x", "submission_id": "x",
                 "assignment_id": name, "notebook_id": name, "notebook_path": "x"}
        found[student, "formgrader"] = HTMLExporter(config=config).from_filename(
            str(course / "autograded" / path), resources=shown)[0]
        found[student, "feedback"] = (course / "feedback" / path.with_suffix(".html")).read_text()
    return found


@pytest.mark.nightly
def test_nothing_of_a_submission_is_active_in_its_pages(course):
    """The mutant that keeps a student's metadata prints a grade id with a script in it, unescaped.

    Pages of eve load and run what those of ann do, whose notebook is the released one.
    """
    handed_in.hand_in(course / "submitted", "ann", "a2", handed_in.released("a2"))
    evil = handed_in.released("a2")
    evil["metadata"] |= {"widgets": {"x": 1}, "title": IDS, "language_info": {"name": IDS}}
    for number, cell in enumerate(evil["cells"]):
        cell["metadata"] = {"nbgrader": {**cell["metadata"].get("nbgrader", {}), "points": IDS,
                                         "comment": EVIL, "score": IDS}, "tags": [IDS]}
        if number % 3 == 0:
            cell["metadata"]["nbgrader"] |= {"grade_id": f"{IDS}{number}", "grade": True,
                                             "solution": True}
        if cell["id"] == "a2-5-answer" or cell["cell_type"] == "markdown" and number % 2:
            cell["source"] = EVIL
            cell["attachments"] = {"x.png": {"image/svg+xml": "<svg onload=alert(1)>"}}
        elif cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "display_data", "metadata": {},
                                "data": {"text/html": EVIL, "text/markdown": EVIL}}]
    evil["cells"] += [{"cell_type": kind, "id": f"x-{kind}", "source": EVIL, "metadata": {}}
                      for kind in ("markdown", "raw", "code")]
    handed_in.hand_in(course / "submitted", "eve", "a2", evil)
    said = record("eve", "a2", notes=[EVIL])
    said["tasks"][0]["findings"] = [{"name": "p", "points": 1, "earned": 0, "shown": True,
                                     "message": EVIL}]
    gradebook.write([record("ann", "a2"), said], course, course / "gradebook.db",
                    course / "submitted")
    made = pages(course, ["ann", "eve"], "a2")
    for kind in ("formgrader", "feedback"):
        honest, page = Active(made["ann", kind]), Active(made["eve", kind])
        assert "pwned" in made["eve", kind], "the work is not shown"
        assert set(page.found) <= set(honest.found)
        assert made["eve", kind].count("<script") == made["ann", kind].count("<script")
        assert not re.search(r"href\{|pwned|evil\.example", page.text)
    nbformat.validate(nbformat.read(course / "autograded/eve/a2_sparsity/a2_sparsity.ipynb", 4))


def test_code_that_stalls_a_page_s_colors_is_plain_text(course):
    """Coloring takes a time that grows with the square: 27 minutes for such a cell."""
    long = "'%" + 100_000 * "0"
    folder = handed_in.hand_in(course / "submitted", "eve", "a5",
                               handed_in.filled("a5", {"a5.2": long}))
    template = nbformat.read(handed_in.release("a5"), 4)
    gradebook.show(record("eve"), folder, template, course / "autograded/eve/a5_cca")
    shown = nbformat.read(course / "autograded/eve/a5_cca/a5_cca.ipynb", 4)
    [cell] = [cell for cell in shown.cells if cell.id == "a5-2-answer"]
    assert cell.cell_type == "markdown" and len(cell.source) < 30_000
    assert "characters more" in cell.source
