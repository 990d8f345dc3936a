"""Every assignment: solved, other right answers, and wrong ones that lose what they should."""

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


def cases(entries):
    """Return test cases of answers; those of a10, which trains, are nightly but for one."""
    here = [entry for entry in entries if entry[0] in matrix.HERE]
    first = next((entry for part, entry in here if part == "a10"), None)
    return [pytest.param(part, entry, id=f"{part} {entry.what}", marks=[pytest.mark.nightly]
                         if part == "a10" and entry is not first else [])
            for part, entry in here]


RIGHT, WRONG = map(cases, matrix.entries())
FOLDERS = [pytest.param(name, said, change, id=said,
                        marks=[] if said == "nothing was trained" else pytest.mark.nightly)
           for name, changes in a10.WRONG_FOLDERS.items() for said, change in changes.items()]


@pytest.mark.parametrize("part", matrix.HERE)
def test_the_solved_notebook_has_all_points(part):
    assert matrix.lost(part, {}) == {}


@pytest.mark.parametrize(("part", "right"), RIGHT)
def test_another_right_answer_has_all_points(part, right):
    assert matrix.lost(part, right.cells) == {}


@pytest.mark.parametrize(("part", "wrong"), WRONG)
def test_a_wrong_answer_loses_what_it_should(part, wrong):
    said: list[str] = []
    assert matrix.lost(part, matrix.spoilt(part, wrong), said) == wrong.lost
    assert wrong.says in "\n".join(said)


@pytest.mark.nightly
@pytest.mark.parametrize("change", a10.RIGHT_FOLDERS.values(), ids=a10.RIGHT_FOLDERS)
def test_another_right_folder_of_a10_has_all_points(change):
    assert [mark.message for mark in matrix.of_folder(a10.changed(change)) if not mark.full] == []


@pytest.mark.parametrize(("name", "said", "change"), FOLDERS)
def test_a_wrong_folder_of_a10_is_told_its_own_sentence(name, said, change):
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
    wanted = sum(part == "a7" for entries in matrix.entries() for part, _ in entries)
    assert int(re.search(r"(\d+) passed", run.stdout).group(1)) >= wanted + 5, run.stdout[-500:]
    assert "skipped" not in run.stdout


def test_the_readme_lists_the_assignments():
    assert matrix.table() in (files.course_folder() / "README.md").read_text(encoding="utf-8")
