"""The command line: a mistake is one line, nothing is destroyed, and every name listed is there."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cca_lab import cli
from cca_lab.models.recipe import Diverged
from cca_lab.options import parsed
from cca_lab.theory import prove
from cca_lab.theory.forall.terms import implied, integers
from tests.command import run_command

FULL = Path("/dev/full")  # a disk without room
FINETUNE = ("finetune", "--model", "model", "--attention", "cca")
MISTAKES = {  # words; what the line says
    "no such command": (["nonsense"], "cca-lab nonsense: is not a command"),
    "no such study": (["study", "nonsense"], "cca-lab study nonsense: is not a command"),
    "an option without a command": (["--nonsense"], "got --nonsense"),
    "an unknown option": (["doctor", "--nonsense", "1"], "--nonsense"),
    "a missing option": (["evaluate"], "--model"),
    "a missing argument": (["course", "check"], "PATH"),
    "no number": (["evaluate", "--model", "model", "--windows", "x"], "--windows: "),
    "a number out of range": (["evaluate", "--model", "model", "--windows", "-1"], "got -1"),
    "not finite": ([*FINETUNE, "--out", "run", "--learning-rate", "nan"], "got nan"),
    "none of the choices": ([*FINETUNE, "--out", "run", "--strategy", "x"], "choice 'x'"),
    "given twice": (["evaluate", "--model", "a", "--model", "b"], "--model: given 2 times"),
    "an empty text": (["evaluate", "--model", ""], "--model: got an empty text"),
    "a file that is missing": (["course", "check", "nothing.ipynb"], "nothing.ipynb"),
    "a folder that is missing": (["course", "grade", "nothing"], "nothing"),
    "an output over the model": ([*FINETUNE, "--out", "model"], "--out: model is also --model"),
    "an output in the model": ([*FINETUNE, "--out", "model/run"], "in the folder of the model"),
    "an output over the text": ([*FINETUNE, "--text", "text.txt", "--out", "text.txt"],
                                "--out: text.txt is also --text"),
    "an output over the questions": (["evaluate", "--model", "model", "--task", "niah_single",
                                      "text.txt", "--out", "text.txt"],
                                     "--out: text.txt is also --task"),
    "an output that is a folder": (["evaluate", "--model", "model", "--out", "text"],
                                   "out: text is a device, a pipe or a folder"),
    "no owner": (["site", "--repository", "a/b/c"], "--repository: got 'a/b/c'"),
    "an unknown mechanism": (["evaluate", "--model", "model", "--attention", "x"], "'x'"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with what the commands name, in which they run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")  # no word of an option is broken
    for name in ("model", "text"):
        (tmp_path / name).mkdir()
    (tmp_path / "text.txt").write_text("a text")
    return tmp_path


@pytest.mark.parametrize("words, told", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(folder, words, told):
    before = sorted(folder.rglob("*"))
    done = run_command(words)
    assert done.exit_code == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and told in line
    assert sorted(folder.rglob("*")) == before and (folder / "text.txt").read_text() == "a text"


@pytest.mark.parametrize("error, status, line", [
    (KeyboardInterrupt(), 130, ""), (BrokenPipeError(), 0, ""),
    (Diverged("step 3"), 3, "diverged: step 3"),
    (FileNotFoundError(2, "No such file or directory", "x.json"), 2,
     "error: --out: x.json: No such file or directory"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "error: not enough memory"),
    (KeyError("x"), 2, "error: KeyError: 'x' (--debug shows where)")])
def test_every_error_ends_in_one_place(monkeypatch, error, status, line):
    def fail(*_):
        raise error

    monkeypatch.setattr(cli, "run", fail)
    monkeypatch.setattr(cli, "_discard_output", lambda: None)
    done = run_command(["doctor", "--out", "x.json"])
    assert done.exit_code == status and done.stdout == ""
    assert done.stderr.startswith(line) and len(done.stderr.splitlines()) == bool(line)
    if line:
        assert "Traceback" in run_command(["doctor", "--debug"]).stderr


@pytest.mark.skipif(not FULL.exists(), reason="this system has no full device")
def test_a_full_disk_is_one_line():
    with FULL.open("w") as full:
        done = subprocess.run([sys.executable, "-m", "cca_lab", "study"], stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and done.stderr.splitlines() == [
        "error: [Errno 28] No space left on device"]


@pytest.mark.skipif(os.name != "posix", reason="a signal to oneself ends a process here")
def test_ctrl_c_ends_a_proof(monkeypatch):
    """The mutant that takes z3's "unknown" for an answer goes on."""
    pytest.importorskip("z3")

    def endless():
        x, y, z = integers("x y z")
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            implied([], (x * x * x + y * y * y + z * z * z != 114).term, 10**6)
        yield

    monkeypatch.setattr(prove, "proofs", endless)
    assert run_command(["prove"]).exit_code == 130


def test_every_command_has_a_sentence():
    for words in ([], ["study"], ["course", "--help"]):
        shown = run_command(words)
        assert shown.exit_code == 0 and not shown.stderr
        lines = [line for line in shown.stdout.splitlines() if line.startswith("  ")]
        assert len(lines) >= 4 and all(line.endswith(".") for line in lines)


def test_the_home_folder_is_written_out(monkeypatch, tmp_path):
    def command(*, out: Path) -> Path:
        """Return the path."""
        return out

    monkeypatch.setenv("HOME", str(tmp_path))
    assert parsed(command, ["--out=~/r"], "command") == tmp_path / "r"
