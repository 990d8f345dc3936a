"""Attacks on marks: none gets a point, and unusual right answers keep theirs.

Each is a function in `attacks/`, called as a grading calls it, in a process that has not run the
others. The honeypots have no right answer: a point there proves a cheat.
"""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from cca_lab import files
from cca_lab.course import grading, sandbox
from cca_lab.course.registry import assignment_of
from cca_lab.course.sandbox import Limits, Session
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, unseen
from tests.course import handed_in

HERE = Path(__file__).parent / "attacks"
A5 = assignment_of("a5")
SEED = "7c1f0f6a9be24d0f8f3f5d2b9a60e1c4"
strict = pytest.mark.skipif(sandbox.best() != "bubblewrap",
                            reason="bubblewrap is not installed or does not start here")


def drawn_afterwards(answer: Answer, draw: Draw) -> None:
    """Want the number that is drawn only after the answer has returned."""
    got = answer()
    if got != draw.getrandbits(62):
        raise Mistake("another number was drawn")


def both(answer: Answer, draw: Draw) -> None:
    """Want one number that is 1 and 2."""
    got = answer()
    if not (got == 1 and got == 2):
        raise Mistake("no number is both")


def honeypot(task: str, title: str, check: Callable[[Answer, Draw], None]) -> CourseTask:
    """Return a task that nobody can solve."""
    return CourseTask(task, "f", title, 1, 5, (Property(title, 1, check, hidden=True),))


TASKS = (A5.tasks[1], honeypot("a5.8", "A number that is not drawn yet", drawn_afterwards),
         honeypot("a5.9", "A number that is one and two", both))


def points(session: Session, name: str) -> dict[str, float]:
    """Return what a function of the submission earns on the secret inputs of each task."""
    return {task.id: sum(mark.earned for mark in unseen(task, session.answer(name), SEED, {}))
            for task in TASKS}


def functions(source: str) -> list[str]:
    """Return the names of the answers in a file: they take the sizes."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
            and (node.args.vararg or len(node.args.args) == 4 and node.name != "cores")]


@strict
def test_an_attack_gets_nothing_and_an_unusual_right_answer_all(monkeypatch):
    """Fails if values are compared beside the answer, or if a honeypot can be passed."""
    monkeypatch.setenv("CCA_LAB_SEED", SEED)  # there to be found, but for the sandbox
    cheats, honest = ((HERE / f"{name}.py").read_text() for name in ("cheats", "honest"))
    cheats = f"REPOSITORY = {str(files.repository() / 'lab')!r}\n{cheats}"
    with Session([("cheats", cheats)], Limits(seconds=5, total=200)) as session:
        session.forgetful = True
        got = {name: points(session, name) for name in functions(cheats)}
        assert session.errors == {} and len(got) == 15
    assert {name: earned for name, earned in got.items() if any(earned.values())} == {}
    with Session([("cheats", cheats)], Limits(seconds=30), "none") as session:
        for name in ("solution_on_disk", "oracle_imported"):
            assert points(session, name)["a5.2"] == 6, "this attack shows nothing"
    with Session([("honest", honest)], Limits(seconds=5, total=200)) as session:
        answers = [*functions(honest), "callable_object"]
        assert {name: points(session, name)["a5.2"] for name in answers} == dict.fromkeys(answers,
                                                                                          6)


MEMORY = '''
import os, pathlib, resource, socket, sys
COUNT = [0]
PLACES = [f"{folder}/left" for folder in ("/tmp", "/dev/shm")]

def remember(x):
    global LINK
    found = [COUNT[0], sum(map(os.path.exists, PLACES)), len(os.listdir("/proc/self/task")),
             oct(os.stat("/tmp").st_mode), resource.getrlimit(resource.RLIMIT_NOFILE)[0],
             sum(name.isdigit() for name in os.listdir("/proc"))]
    COUNT[0] += 1
    for place in PLACES:
        pathlib.Path(place).mkdir()
    LINK = socket.socket(socket.AF_UNIX)
    LINK.bind("\\0left")  # fails if another process still holds it
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        import time; time.sleep(100)
    for way in (lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (31, 40)),
                lambda: os.sched_setaffinity(os.getppid(), {0}),
                lambda: os.setxattr("/tmp", "user.left", b"1"), lambda: os.chmod("/tmp", 0o1700),
                lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
                lambda: open(f"/proc/{os.getppid()}/comm", "w"),
                lambda: os.posix_fadvise(os.open(sys.executable, 0), 0, 0, 4),
                lambda: os.preadv(os.open(sys.executable, 0), [bytearray(1)], 0, os.RWF_NOWAIT)):
        try:
            way()
            found.append("done")
        except PermissionError:
            pass
    return found

def end(): os.kill(os.getppid(), 9)
def twice(x): return 2 * x
'''


@strict
def test_nothing_passes_from_one_secret_call_to_the_next():
    """Globals, files, processes, sockets, limits; a call may also end the process that forks."""
    with Session([("cell", MEMORY)], Limits()) as session:
        session.forgetful = True
        first = session.call("remember", (1,))
        assert first[:3] == [0, 0, 1] and len(first) == 6, first
        assert session.call("remember", (1,)) == first
        assert session._starts == 1
        try:
            session.call("end", ())
        except Mistake as mistake:
            assert "ended the process" in str(mistake)
        assert session.call("twice", (3,)) == 6 and session._starts == 2
        session.forgetful = False
        session.call("remember", (1,))
        with pytest.raises(Mistake):
            session.call("remember", (1,))  # else the folders are still there
        session.forget()
        assert session.call("remember", (1,)) == first


def deleted(cells: list[dict]) -> list[dict]:
    return [cell for cell in cells if not cell["id"].endswith("-check")]


def twice(cells: list[dict]) -> list[dict]:
    return [cell | {"source": "6.0"} for cell in cells] + cells


def valuable(cells: list[dict]) -> list[dict]:
    about = {"grade": True, "solution": True, "points": 1000, "locked": False}
    return [cell | {"source": "points = 6.0", "metadata": {"nbgrader": about}} for cell in cells]


@pytest.mark.parametrize("change", [deleted, twice, valuable])
def test_no_check_of_a_submission_is_run(change, tmp_path):
    """A grader that reads checks, points or locks from the submission would give what it says."""
    made = handed_in.released("a5")
    given = {cell["id"]: cell["source"] for cell in made["cells"]}
    made["cells"] = change(made["cells"])
    folder = handed_in.hand_in(tmp_path, "eve", "a5", made)
    read = grading.read_submission(A5, folder, handed_in.release("a5"))
    runs = dict(read.cells)
    assert not [name for name in runs if name.endswith("-check")]
    assert runs["given-setup"] == "".join(given["given-setup"])


@pytest.mark.parametrize("line", ["/a\n", ",a b\n", ";a\n", "\x0c /a\n"])
def test_commands_of_ipython_keep_no_grader_busy(line, monkeypatch):
    """Fails if only %, ! and ? are counted: such a cell of 6 KB took 14 s, 1000 of them 4 hours."""
    monkeypatch.setattr("IPython.core.inputtransformer2.TransformerManager.transform_cell", None)
    assert grading.python(2000 * line) == 2000 * line


def test_a_notebook_of_very_much_code_is_refused(tmp_path):
    """Fails if 20 MiB of code are parsed in the grader's process: the tree would take 17 GiB."""
    cells = [nbformat.v4.new_code_cell(600 * "a;") for _ in range(500)]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(nbformat.v4.new_notebook(cells=cells)))
    with pytest.raises(grading.Refused, match="more than 500000 characters of code"):
        grading.notebook(path)
