"""Attacks on marks, each a file: none gets a point here, and most get points elsewhere.

The honeypots have no right answer. `python -m tests.course.attacks.measure` makes the table of
docs/teach/attacks.md for other graders too.
"""

import ast
import json
import re

import pytest

from cca_lab.course import grading, sandbox
from cca_lab.course.sandbox import Limits, Session
from tests.course.attacks import measure, trap

MEASURED = json.loads(measure.OUT.read_text(encoding="utf-8"))
CHEATS, HONEST = trap.corpus("cheats"), trap.corpus("honest")
# Some aim at the channel that only this grader has, some at what nbgrader and otter-grader close.
# They are counted all the same: a corpus of those that succeed would measure nothing.
NOWHERE = {"callback_of_nobody", "check_deleted", "check_replaced", "check_twice",
           "errors_swallowed", "fork_answers_twice", "integers_wrapped", "metadata_points",
           "numbers_of_small_floats", "recycled_memory", "table_too_large", "thread_floods",
           "tracebacks_silenced", "truth_of_two", "wire_replaced"}
LOST = {"helper_linked"}  # right answers that this grader does not accept
strict = pytest.mark.skipif(sandbox.best() != "bubblewrap",
                            reason="bubblewrap is not installed or does not start here")


def groups():
    """Return the attacks that are graded in one process, one after the other, and those alone.

    Those that only define something come first: what the others do when their cells run is there
    for all of a group. The table grades each alone.
    """
    alone = [entry for entry in CHEATS if entry.changes or "alone" in entry.said]
    rest = [entry for entry in CHEATS if entry not in alone]
    calm = [entry for entry in rest if all(
        isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)
        or isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Constant)
        for node in ast.parse(entry.text).body)]
    acting = [entry for entry in rest if entry not in calm]
    return [calm, *(acting[at:at + 7] for at in range(0, len(acting), 7))], alone


def handed_in(entry, folder):
    """Return the points of one submission."""
    released = trap.notebook()
    measure.nbformat.write(released, folder / "release.ipynb")
    trap.hand_in(entry, folder / entry.file / "submitted" / entry.file / measure.NAME, released)
    return measure.grade_ours(folder / entry.file)


@strict
@pytest.mark.parametrize("entry", groups()[1], ids=lambda entry: entry.file)
def test_an_attack_gets_nothing(entry, tmp_path, monkeypatch):
    """Fails if values are compared beside the answer, or if a honeypot can be passed."""
    monkeypatch.setenv("CCA_LAB_SEED", trap.SEED)  # there to be found, but for the sandbox
    assert set(handed_in(entry, tmp_path).values()) == {0.0}


@strict
@pytest.mark.parametrize("entries", groups()[0], ids=lambda entries: entries[0].file)
def test_attacks_in_one_notebook_get_nothing(entries, tmp_path, monkeypatch):
    """The same, each under names of its own."""
    monkeypatch.setenv("CCA_LAB_SEED", trap.SEED)
    monkeypatch.chdir(tmp_path)
    with together(entries) as session:
        for entry in entries:
            names = {task: f"{name}_{entry.file}" for task, name in trap.PARTS.items()
                     if name in entry.text}
            assert set(trap.points(session, names).values()) == {0.0}, entry.file
    assert not list(tmp_path.iterdir()), "something ran in this process"


def together(entries):
    """Return a session with the cells of several files, whose functions get their names."""
    names = re.compile(rf"\b({'|'.join(trap.PARTS.values())})\b")
    return Session([("setup", "import torch"), *(
        (entry.file, names.sub(rf"\1_{entry.file}", entry.text)) for entry in entries)],
        Limits(seconds=5, total=300))


@strict
def test_the_attacks_are_alive():
    """A corpus of files that no grader falls for would prove nothing."""
    weak = set(MEASURED["weak"]["row"]["attacks"]["names"])
    assert len(weak) >= 30
    dead = sorted(weak)
    for _ in range(3):  # threads and clocks are among them
        again = measure.measure("weak", dead)["earned"]
        dead = [name for name in dead if not sum(again[name].values())]
        if not dead:
            break
    assert dead == []
    fallen = {name for part in MEASURED.values() for name in part["row"]["attacks"]["names"]}
    assert {entry.file for entry in CHEATS} - fallen == NOWHERE


@strict
@pytest.mark.parametrize("entry", [entry for entry in HONEST if entry.changes],
                         ids=lambda entry: entry.file)
def test_an_honest_accident_costs_nothing(entry, tmp_path):
    wanted = 0 if entry.file in LOST else 6
    assert handed_in(entry, tmp_path) == {"a5.2": wanted, "a5.8": 0, "a5.9": 0}


def test_unusual_right_answers_have_all_points():
    plain = [entry for entry in HONEST if not entry.changes]
    with together(plain) as session:
        for entry in plain:
            assert trap.points(session, {"a5.2": f"intervals_{entry.file}"}) == {
                "a5.2": 0 if entry.file in LOST else 6}, entry.file


def test_the_corpus_says_where_it_comes_from():
    assert 40 <= len(CHEATS) <= 80 and len(HONEST) >= 20
    for entry in CHEATS:
        assert {"name", "idea", "wants"} <= set(entry.said), entry.file
    for kind in (CHEATS, HONEST):
        assert len({entry.said["name"] for entry in kind}) == len(kind)


def test_the_page_has_the_table_of_the_file():
    assert {"ours", "nbgrader", "otter", "weak"} == set(MEASURED)
    for part in MEASURED.values():
        assert part["row"] == measure.summary(part)
        assert {*part["earned"]} == {"blank", "solved", *(entry.file for entry in CHEATS + HONEST)}
    text = measure.PAGE.read_text(encoding="utf-8")
    assert measure.table(MEASURED) in text and text.count("\n") <= 60


@pytest.mark.parametrize("line", ["/a\n", ",a b\n", ";a\n", "\x0c /a\n"])
def test_commands_of_ipython_keep_no_grader_busy(line, monkeypatch):
    """Fails if only %, ! and ? are counted: such a cell of 6 KB took 14 s, 1000 of them 4 hours."""
    monkeypatch.setattr("IPython.core.inputtransformer2.TransformerManager.transform_cell", None)
    assert grading.python(2000 * line) == 2000 * line


def test_a_notebook_of_very_much_code_is_refused(tmp_path):
    """Fails if 20 MiB of code are parsed in the grader's process: the tree would take 17 GiB."""
    path, cells = tmp_path / "a.ipynb", [trap.code(f"cell-{i}", 600 * "a;") for i in range(500)]
    measure.nbformat.write(measure.nbformat.v4.new_notebook(cells=cells), path)
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
