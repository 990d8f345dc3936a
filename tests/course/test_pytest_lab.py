"""`pytest lab`: plain functions in lab/a5.py, and no file of a submission."""

import re
import shutil
import subprocess
import sys

import pytest

from cca_lab import files
from tests.course import matrix


@pytest.mark.nightly
def test_a_file_is_checked_task_by_task_and_a_submission_is_not_collected(tmp_path):
    """The mutant that collects everything runs a submission's conftest.py as the teacher."""
    lab, left = tmp_path / "lab", tmp_path / "left"
    lab.mkdir()
    for name in ("conftest.py", "test_answers.py"):
        shutil.copy(files.course_folder() / name, lab)
    (lab / "a5.py").write_text("\n".join([
        "import torch", matrix.solved("a5")["a5-2-answer"],
        "def pairs(length, sinks, group, window):\n    return None"]))
    theirs = lab / "submitted" / "eve" / "a5_cca"
    theirs.mkdir(parents=True)
    for name in ("conftest.py", "test_x.py"):
        (theirs / name).write_text(f"open({str(left)!r}, 'w')\n")
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c",
                          "/dev/null", f"--rootdir={tmp_path}", str(lab), "-m",
                          "a5_2 or a5_4 or a5_5"], capture_output=True, text=True, check=False)
    assert "1 failed, 3 passed, 1 skipped" in run.stdout, run.stdout
    failed = run.stdout.partition("FAILURES")[2].partition("short test summary")[0]
    assert "pairs is NoneType" in failed or "wanted a number" in failed, run.stdout
    assert not re.search("assert|Finding|^>", failed), "more than the sentence"
    assert not left.exists()
