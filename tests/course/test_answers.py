"""Every assignment: solved, other right answers, and what no table of an exercise can hold."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cca_lab import files
from tests.course import matrix
from tests.course.answers import a10

SLOW = ("a6", "a9")  # their right answers are called often: nightly, but for the solved notebooks
RIGHT, WRONG = ([pytest.param(*entry, id=" ".join(entry[:2]),
                              marks=[pytest.mark.nightly] * (kind == "RIGHT" and entry[0] in SLOW))
                 for entry in matrix.answers(kind) if entry[0] in matrix.HERE]
                for kind in ("RIGHT", "WRONG"))
FOLDERS = [pytest.param(name, said, change, id=f"a10 {said}",
                        marks=[] if said == "nothing was trained" else pytest.mark.nightly)
           for name, changes in a10.WRONG_FOLDERS.items() for said, change in changes.items()]


@pytest.mark.parametrize("part", matrix.HERE)
def test_the_solved_notebook_has_all_points(part):
    assert matrix.lost(part, {}) == {}


@pytest.mark.parametrize(("part", "what", "cells"), RIGHT)
def test_another_right_answer_has_all_points(part, what, cells):
    assert matrix.lost(part, cells) == {}


@pytest.mark.parametrize(("part", "said", "cells"), WRONG)
def test_a_wrong_answer_is_told_why(part, said, cells):
    messages: list[str] = []
    assert matrix.lost(part, cells, messages)
    assert said in "\n".join(messages)


@pytest.mark.parametrize("change", [
    pytest.param(change, id=f"a10 {what}", marks=pytest.mark.nightly)
    for what, change in a10.RIGHT_FOLDERS.items()])
def test_a_right_folder_has_all_points(change):
    assert [mark.message for mark in matrix.of_folder(a10.changed(change)) if not mark.full] == []


@pytest.mark.parametrize(("name", "said", "change"), FOLDERS)
def test_a_wrong_folder_is_told_its_own_sentence(name, said, change):
    [mark] = matrix.of_folder(a10.changed(change), name)
    assert not mark.full
    assert said in mark.message


@pytest.mark.nightly
@pytest.mark.skipif(matrix.INTERPRETED or not find_spec("triton"),
                    reason="no Triton here, or this is that process")
def test_a7_in_a_process_that_interprets():
    tests = [str(Path(__file__).with_name(f"test_{name}.py"))
             for name in ("answers", "release", "exercises")]
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k",
                          "(a7 or outside or axis or notebooks) and not process", *tests],
                         capture_output=True, text=True, check=False, cwd=files.repository(),
                         env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", run.stdout).group(1)) >= 50, run.stdout[-500:]
    assert "skipped" not in run.stdout


def test_the_readme_lists_the_assignments():
    assert matrix.table() in (files.course_folder() / "README.md").read_text(encoding="utf-8")
