"""With nbgrader itself: its release is ours, it gives honest work our marks, and keeps them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cca_lab import files
from cca_lab.course import grading, reports
from tests.course import handed_in, matrix

LAB = files.course_folder()


@pytest.fixture
def course(tmp_path):
    """A course folder with a5 only."""
    shutil.copy(LAB / "nbgrader_config.py", tmp_path)
    for step in ("source", "release"):
        shutil.copytree(LAB / step / "a5_cca", tmp_path / step / "a5_cca")
    return tmp_path


def nbgrader(folder: Path, *words: str) -> str:
    run = subprocess.run([sys.executable, "-m", "nbgrader", *words], cwd=folder,
                         capture_output=True, text=True, check=False, env=os.environ
                         | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout + run.stderr


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


def test_our_marks_go_into_its_database(course):
    handed_in.hand_in(course / "submitted", "ann", "a5", handed_in.solved("a5"))
    handed_in.hand_in(course / "submitted", "bob", "a5", "no notebook")
    records = grading.grade_folder(course / "submitted", course / "marks", course)
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
