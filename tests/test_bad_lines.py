"""Bad command lines are refused in one line that says what is wrong."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.bad_lines import PATIENCE, Line, Outcome, every_line, problem_of
from tests.test_project import ROOT

NUMBER = 150  # about a tenth of all
SEED = "2026-11-27"
LINE = Line(("study", "gpu", "--gpus", "-1"), "--gpus", "-1")


@pytest.mark.parametrize("outcome, problem", [
    (Outcome(2, "error: gpus: got -1, wanted 2 or more\n", ()), None),
    (Outcome(2, "Usage: ...\nTry --help\nInvalid value for '--gpus'", ()), None),
    (Outcome(None, "", ()), f"no answer within {PATIENCE} s"),
    (Outcome(1, "Traceback (most recent call last):", ()), "a traceback"),
    (Outcome(0, "gpus", ()), "exit status 0"),
    (Outcome(2, "error: gpus: got -1", ("new",)), "changed: new"),
    (Outcome(2, "error: ranks: got less than one", ()),
     "a message that names neither the option nor the value"),
    (Outcome(2, "gpus: ...\n" * 3, ()), "a message of several lines")])
def test_each_way_to_fall_short_is_seen(outcome, problem):
    assert problem_of(LINE, outcome) == problem


def test_every_command_has_bad_lines_for_every_kind_of_option():
    lines = list(every_line())
    commands = Counter(" ".join(line.words[:2]) for line in lines)
    assert len(lines) > 1000 and len({line.option for line in lines}) > 60, commands
    for words in ("finetune --model", "study mqar", "course grade", "pretrain --out"):
        assert commands[words] > 10, commands


@pytest.mark.slow
def test_bad_lines_are_refused(tmp_path):
    """The same lines every time: `python -m tests.bad_lines FOLDER SEED NUMBER` draws others."""
    run = subprocess.run([sys.executable, "-m", "tests.bad_lines", str(tmp_path / "here"), SEED,
                          str(NUMBER)], cwd=ROOT, capture_output=True, text=True, check=True)
    done = json.loads(run.stdout)
    assert done["lines"] == NUMBER
    assert not done["short"], json.dumps(done["short"], indent=1)
