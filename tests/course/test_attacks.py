"""Attacks on marks, each a file: none gets a point, and unusual right answers keep theirs.

The honeypots have no right answer. A few attacks run each time, the whole corpus every night.
"""

import re

import nbformat
import pytest

from cca_lab.course import grading, sandbox
from cca_lab.course.sandbox import Limits, Session
from tests.course.attacks import trap

CHEATS, HONEST = trap.corpus("cheats"), trap.corpus("honest")
# One for each thing that an attack can reach: comparisons, the package, files, memory, the channel,
# the grader's records, the end of the process, the notebook itself.
EACH_TIME = {"comparisons_patched", "oracle_past_guard", "solution_on_disk", "parent_memory",
             "wire_replaced", "marks_written", "exit_by_timer", "check_twice"}
strict = pytest.mark.skipif(sandbox.best() != "bubblewrap",
                            reason="bubblewrap is not installed or does not start here")


def earned(entry: trap.Entry, folder) -> dict[str, float]:
    """Return the points of one submission, beside a classmate's, on the secret inputs."""
    nbformat.write(trap.notebook(), folder / "release.ipynb")
    right = next(other for other in HONEST if other.file == "loops")
    trap.hand_in(right, folder / "submitted" / "alice" / trap.ASSIGNMENT.name)
    work = folder / "submitted" / entry.file / trap.ASSIGNMENT.name
    trap.hand_in(entry, work)
    try:
        made = grading.read_submission(trap.ASSIGNMENT, work, folder / "release.ipynb")
    except grading.Refused:
        return {"refused": 0.0}
    with Session(made.cells, Limits(seconds=5, total=60)) as session:
        return trap.points(session)


@strict
@pytest.mark.parametrize("entry", [
    pytest.param(entry, marks=[] if entry.file in EACH_TIME else pytest.mark.nightly)
    for entry in CHEATS], ids=lambda entry: entry.file)
def test_an_attack_gets_nothing(entry, tmp_path, monkeypatch):
    """Fails if values are compared beside the answer, or if a honeypot can be passed."""
    monkeypatch.setenv("CCA_LAB_SEED", trap.SEED)  # there to be found, but for the sandbox
    assert set(earned(entry, tmp_path).values()) == {0.0}


@strict
@pytest.mark.parametrize("entry", [
    pytest.param(entry, marks=[] if entry.file == "byte_order_mark" else pytest.mark.nightly)
    for entry in HONEST if entry.changes], ids=lambda entry: entry.file)
def test_an_honest_accident_costs_nothing(entry, tmp_path):
    assert earned(entry, tmp_path) == {"a5.2": 6, "a5.8": 0, "a5.9": 0}


def test_unusual_right_answers_have_all_points():
    """In one process, each under a name of its own."""
    plain = [entry for entry in HONEST if not entry.changes]
    cells = [(entry.file, re.sub(r"\bintervals\b", f"intervals_{entry.file}", entry.text))
             for entry in plain]
    with Session([("setup", "import torch"), *cells], Limits(seconds=5, total=300)) as session:
        for entry in plain:
            assert trap.points(session, {"a5.2": f"intervals_{entry.file}"}) == {
                "a5.2": 6}, entry.file


@pytest.mark.parametrize("line", ["/a\n", ",a b\n", ";a\n", "\x0c /a\n"])
def test_commands_of_ipython_keep_no_grader_busy(line, monkeypatch):
    """Fails if only %, ! and ? are counted: such a cell of 6 KB took 14 s, 1000 of them 4 hours."""
    monkeypatch.setattr("IPython.core.inputtransformer2.TransformerManager.transform_cell", None)
    assert grading.python(2000 * line) == 2000 * line


def test_a_notebook_of_very_much_code_is_refused(tmp_path):
    """Fails if 20 MiB of code are parsed in the grader's process: the tree would take 17 GiB."""
    path, cells = tmp_path / "a.ipynb", [trap.code(f"cell-{i}", 600 * "a;") for i in range(500)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    with pytest.raises(grading.Refused, match="more than 500000 characters of code"):
        grading.notebook(path)


SOCKETS = """
import socket

def buffered():
    kept, sent = [], 0
    try:
        while len(kept) < 1000:
            kept += socket.socketpair()
    except OSError:
        pass
    for end in kept:
        end.setblocking(False)
        try:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)
        except OSError:
            pass
        try:
            while sent < 2**26:
                sent += end.send(bytes(4096))
        except OSError:
            pass
    return sent
"""


@strict
def test_sockets_hold_little_that_is_not_counted():
    """Fails if buffers may be large, or be many: two processes held 3 GiB that nobody counted."""
    with Session([("setup", SOCKETS)], Limits()) as session:
        assert 0 < session.call("buffered", ()) < 2**24
