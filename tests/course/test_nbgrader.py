"""With nbgrader itself: releases, marks, pages, and the commands of lab/README.md."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import Config

from cca_lab import files
from cca_lab.course import classlist, grading, reports, sandbox
from cca_lab.course.registry import assignment_of
from tests.command import run_command
from tests.course import handed_in, matrix

LAB = files.course_folder()


@pytest.fixture
def course(tmp_path):
    """A course folder with a5 and a2 only."""
    shutil.copy(LAB / "nbgrader_config.py", tmp_path)
    for step in ("source", "release"):
        for name in ("a5_cca", "a2_sparsity"):
            shutil.copytree(LAB / step / name, tmp_path / step / name)
    return tmp_path


def nbgrader(folder: Path, *words: str) -> str:
    run = subprocess.run([sys.executable, "-m", "nbgrader", *words], cwd=folder,
                         capture_output=True, text=True, check=False, env=os.environ
                         | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout + run.stderr


@pytest.mark.nightly
def test_nbgrader_makes_the_same_release_and_gives_honest_work_its_points(course):
    ours = (course / "release" / "a5_cca" / "a5_cca.ipynb").read_text()
    nbgrader(course, "generate_assignment", "a5_cca", "--force")
    assert (course / "release" / "a5_cca" / "a5_cca.ipynb").read_text().strip() == ours.strip()
    wrong = next(entry for part, entry in matrix.entries()[1]
                 if (part, entry.what) == ("a5", "one token of the future"))
    noisy = matrix.solved("a5")["a5-2-answer"].replace("    row = torch", '''
    import sys, warnings
    warnings.warn("a warning")
    print("\\r 3 of 5 |###  |", end="", file=sys.stderr)
    row = torch''')
    hand_in = {"solved": {}, "noisy": {"a5.2": noisy}, "wrong": matrix.spoilt("a5", wrong)}
    for student, changed in hand_in.items():
        handed_in.hand_in(course / "submitted", student, "a5", handed_in.solved("a5", changed))
    handed_in.hand_in(course / "submitted", "untouched", "a5", handed_in.released("a5"))
    nbgrader(course, "autograde", "a5_cca")
    with reports.opened(course / "gradebook.db") as book:
        scores = {entry.student.id: entry.score for entry in book.assignment_submissions("a5_cca")}
    assert scores == {"solved": 20, "noisy": 20, "wrong": 18, "untouched": 0}


@pytest.mark.nightly
def test_our_marks_go_into_its_database(course):
    handed_in.hand_in(course / "submitted", "ann", "a5", handed_in.solved("a5"))
    handed_in.hand_in(course / "submitted", "bob", "a5", "no notebook")
    records = grading.grade_folder(course / "submitted", course / "marks", course,
                                   kind=sandbox.required(unsafe=True))
    for _ in range(2):  # the second time changes nothing
        reports.export(records, course, course / "gradebook.db", course / "submitted")
        with reports.opened(course / "gradebook.db") as book:
            marks = {entry.student.id: (entry.score, entry.needs_manual_grade)
                     for entry in book.assignment_submissions("a5_cca")}
        assert marks == {"ann": (20, False), "bob": (0, False)}
    with reports.opened(course / "gradebook.db") as book:
        book.find_grade("a5-2-check", "a5_cca", "a5_cca", "ann").manual_score = 1.0
        book.db.commit()
    reports.export(records, course, course / "gradebook.db", course / "submitted")
    with reports.opened(course / "gradebook.db") as book:
        assert book.find_submission("a5_cca", "ann").score == 15
    assert (course / "autograded" / "ann" / "a5_cca" / "a5_cca.ipynb").is_file()
    assert not (course / "autograded" / "bob").exists()


def ungraded(course: Path, student: str, part: str = "a5") -> dict:
    """Return a record of a submission as if it had been graded, with no points."""
    return grading.empty(assignment_of(part), "graded") | {"student": student}


def test_points_for_texts_are_read_back_from_its_database(course):
    """The mutant that takes them for points of checks counts them twice, or waits for ever."""
    handed_in.hand_in(course / "submitted", "ann", "a2", handed_in.released("a2"))
    records, database = [ungraded(course, "ann", "a2")], course / "gradebook.db"
    reports.export(records, course, database, course / "submitted")
    [record] = classlist.marked(records, reports.given(records, database))
    assert (record["mark"], record["texts"]) == (0, None)
    assert classlist.notes(record) == ["a2_sparsity texts to be read"]
    with reports.opened(database) as book:
        for cell, score in (("a2-5-answer", 2.5), ("a2-1-check", 1.0)):
            book.find_grade(cell, "a2_sparsity", "a2_sparsity", "ann").manual_score = score
        book.db.commit()
    paths = reports.write(records, course / "marks", given=reports.given(records, database))
    assert paths[0].read_text() == ("student,a2_sparsity,a2_sparsity texts,sum,notes\n"
                                    "ann,3.5,2.5,3.5,\n")
    assert "2.5 of these points were given by a person" in paths[-1].read_text()


@pytest.mark.nightly
def test_late_work_costs_what_the_plugin_of_the_course_says(course):
    """By the time in nbgrader's file; the mutant that takes a file's own time is late for all."""
    settings = course / "nbgrader_config.py"
    settings.write_text(settings.read_text() + 'c.LateSubmissionPlugin.penalty_method = "zero"\n')
    database, records = course / "gradebook.db", []
    for student in ("ann", "bob"):
        folder = handed_in.hand_in(course / "submitted", student, "a5", handed_in.released("a5"))
        record = ungraded(course, student)
        record["tasks"][1]["earned"] = 6.0
        records.append(record)
    (folder / "timestamp.txt").write_text("2026-10-02 09:00:00.000000 UTC")
    with reports.opened(database) as book:
        book.update_or_create_assignment("a5_cca", duedate="2026-10-01 18:00:00 UTC")
    reports.export(records, course, database, course / "submitted")
    marked = classlist.marked(records, reports.given(records, database))
    assert [(record["mark"], record["late"]) for record in marked] == [(6, 0), (0, 6)]
    assert classlist.notes(marked[1]) == ["a5_cca late, 6 points lost"]


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


def pages(course: Path, students: list[str], part: str) -> dict[str, str]:
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
    reports.export([ungraded(course, name, "a2") for name in ("ann", "eve")], course,
                   course / "gradebook.db", course / "submitted")
    made = pages(course, ["ann", "eve"], "a2")
    for kind in ("formgrader", "feedback"):
        honest, page = Active(made["ann", kind]), Active(made["eve", kind])
        assert "pwned" in made["eve", kind], "the work is not shown"
        assert set(page.found) <= set(honest.found)
        assert made["eve", kind].count("<script") == made["ann", kind].count("<script")
        assert not re.search(r"href\{|pwned|evil\.example", page.text)
    nbformat.validate(nbformat.read(course / "autograded/eve/a2_sparsity/a2_sparsity.ipynb", 4))


README = (LAB / "README.md").read_text(encoding="utf-8").partition("## For teachers")[2]
BLOCKS = re.findall("^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines()]
ELSEWHERE = {"pip install": "test_wheel.py installs without a network",
             "jupyter lab": "waits for a person; test_browser.py looks for Formgrader in its menu"}


@pytest.mark.nightly
def test_the_commands_of_the_readme_run(course, monkeypatch):
    """In a copy of the course; `nbgrader formgrader`, which there is not, once stood there."""
    lab = course / "lab"
    lab.mkdir()
    for name in ("source", "release", "nbgrader_config.py"):
        (course / name).rename(lab / name)
    shutil.rmtree(lab / "source/a2_sparsity")
    handed_in.hand_in(lab / "submitted", "alice", "a5", handed_in.solved("a5"))
    monkeypatch.chdir(course)
    done = 0
    for command in COMMANDS:
        words = command.split()
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
        elif not command.startswith(tuple(ELSEWHERE)):
            if words[0] == "nbgrader":
                said = nbgrader(Path(), *words[1:])
            else:
                words += ["--course", "lab", *["--only", "a5"] * (words[-1] == "release"),
                          *["--unsafe"] * ("grade" in words)]  # where there is no bubblewrap
                run = run_command(words[1:])
                said = run.output
                assert run.exit_code == 0, f"{command}\n{said}"
            assert "Subcommands" not in said, f"{command} printed only its help"
            done += 1
    assert done >= 7 and (lab / "feedback/alice/feedback.html").is_file()
    assert (lab / "feedback/alice/a5_cca/a5_cca.html").is_file() and (lab / "grades.csv").is_file()
