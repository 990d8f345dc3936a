"""Grading for real, in the sandbox, and what of a notebook is run."""

import json
import shutil
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from cca_lab.course import grading, sandbox
from cca_lab.course.registry import ASSIGNMENTS, assignment_of
from cca_lab.course.sandbox import Limits, Session
from tests.course import classroom, handed_in, matrix
from tests.course.answers import a10

A5 = assignment_of("a5")
FIRST, TABLE = (replace(A5, tasks=A5.tasks[number:number + 1]) for number in (0, 1))
strict = pytest.mark.skipif(sandbox.best() != "bubblewrap",
                            reason="bubblewrap is not installed or does not start here")


def graded(folder: Path, notebook: dict, assignment=A5, seed: str | None = "a seed",
           kind: str = sandbox.best()) -> grading.Record:
    submitted = handed_in.hand_in(folder, "somebody", "a5", notebook)
    return grading.grade(assignment, submitted, handed_in.release("a5"), seed, kind)


def test_without_a_sandbox_marks_are_the_same(tmp_path):
    """In bubblewrap they are those of the class in test_nbgrader.py."""
    wrong = handed_in.solved("a5", {"a5.2": classroom.WRONG})
    record = graded(tmp_path, wrong, TABLE, kind="none")
    assert (record["earned"], record["sandbox"], record["notes"]) == (4, "none", [])


@pytest.mark.nightly
@pytest.mark.parametrize("part", ASSIGNMENTS.values(), ids=ASSIGNMENTS)
def test_every_solved_notebook_has_all_points_and_the_untouched_one_none(part, tmp_path):
    """As marks are given, a7 with Triton's interpreter included."""
    if part.id == "a7" and not find_spec("triton"):
        pytest.skip("there is no Triton for this system, so a7 cannot be graded on it")
    release = handed_in.release(part.id)
    folder = handed_in.hand_in(tmp_path, "solved", part.id, handed_in.solved(part.id))
    if any(task.files for task in part.tasks):
        shutil.copytree(a10.folder(), folder, dirs_exist_ok=True)
    record = grading.grade(part, folder, release, "a seed", sandbox.best())
    assert (record["earned"], record["notes"]) == (part.points, [])
    folder = handed_in.hand_in(tmp_path, "untouched", part.id, handed_in.released(part.id))
    record = grading.grade(part, folder, release, "a seed", sandbox.best())
    assert record["earned"] == 0 and record["notes"] == []
    assert all(finding["unwritten"] for task in record["tasks"] for finding in task["findings"])


def test_secret_inputs_meet_a_process_without_memory_and_no_note_tells_of_them(tmp_path,
                                                                              monkeypatch):
    """Mutants: the process of the shown inputs goes on; errors of all starts are notes."""
    left = tmp_path / "left"
    source = (f"from pathlib import Path\nif Path({str(left)!r}).exists():\n"
              f"    raise ValueError('seen')\nPath({str(left)!r}).touch()\n"
              + matrix.solved("a5")["a5-1-answer"])
    seen, call = [], Session.call
    monkeypatch.setattr(Session, "call", lambda self, *args: (
        seen.append((self.forgetful, self._starts)), call(self, *args))[1])
    record = graded(tmp_path, handed_in.filled("a5", {"a5.1": source}), FIRST, kind="none")
    assert left.exists() and "seen" not in json.dumps(record["notes"])
    assert seen == sorted(seen) and {forgetful for forgetful, _ in seen} == {False, True}
    assert seen[-1] == (True, 1)  # that call starts the second process


def test_slow_exploration_is_said_before_it_costs_points(tmp_path, monkeypatch):
    """The mutant without the note lets a check pass what grading will cut off."""
    notebook = handed_in.solved("a5")
    notebook["cells"].append(classroom.cell_of("import time\ntime.sleep(2)"))
    monkeypatch.setattr(grading, "Limits", partial(Limits, starts=40.0))
    [note] = graded(tmp_path, notebook, FIRST, None)["notes"]
    assert "grading allows" in note and "cell-" in note


def test_inputs_depend_on_the_secret(tmp_path):
    assert grading.secret(tmp_path / "one") != grading.secret(tmp_path / "two")
    assert grading.secret(tmp_path / "one") == grading.secret(tmp_path / "one")
    assert (tmp_path / "one" / grading.SEED).stat().st_mode & 0o077 == 0


BLACK = """label = (
    "%d of %d"
    % (1, 2)
)
assert (
    label
    != "1 of 3"
)
"""


@pytest.mark.parametrize("before", ["", "%matplotlib inline\n", "!ls -l\nfiles = !ls\n", "?len\n",
                                    "%%time\n", "%%capture out\n%precision 3\n"])
def test_commands_of_ipython_go_and_python_stays(before):
    """The mutant that cleans by lines takes the lines that begin with % and != for commands."""
    scope: dict = {}
    exec(grading.SHELL, scope)
    exec(grading.python(before + BLACK), scope)
    assert scope["label"] == "1 of 2"
    assert before or grading.python(BLACK) == BLACK


def test_what_is_no_python_stays_as_it_is_and_a_shell_is_not_run():
    assert grading.python("%%bash\nrm -rf /") == "pass"
    assert grading.python("def broken(:\n    pass\n") == "def broken(:\n    pass\n"
    long = "!x\n" * 100_000  # to be read once for each of its lines
    assert grading.python(long) == long


def test_helpers_in_cells_that_are_replaced_are_kept_and_given_names_win():
    """The mutant that drops them costs an import; that which runs them last lets them win."""
    release = [{"name": name, "source": source} for name, source in (
        ("given-setup", "from cca_lab.course import check\nWIDTH = 8"), ("show-1", "plot(WIDTH)"),
        ("scratch-1", ""), ("a5-1-answer", "..."), ("a5-1-check", "check()"))]
    theirs = ["import math\nfrom cca_lab.course import check, points\nWIDTH = 9",
              "def half(x):\n    return x / 2\nplot(half(WIDTH))", "FEW = 3\nslow = f()",
              "def answer():\n    return half(WIDTH) * FEW + math.pi", "class Kept: pass"]
    cells = [{"name": each["name"], "source": source}
             for each, source in zip(release, theirs, strict=True)]
    runs, notes = grading.arranged(cells, release)
    scope: dict = {}
    for name, source in runs:
        if name != "given-setup" or "cca_lab" not in source:
            exec(source, scope)
    exec("WIDTH = 8", scope) if dict(runs)["given-setup"] == release[0]["source"] else None
    assert [name for name, _ in runs] == ["given-setup-added", "given-setup", "show-1-added",
                                          "scratch-1-added", "a5-1-answer", "a5-1-check-added"]
    assert round(scope["answer"](), 2) == 15.14 and "slow" not in scope and "Kept" in scope
    assert notes == ["edited cells were replaced by the original ones: given-setup, show-1, "
                     "a5-1-check"]


def test_a_text_that_is_kept_in_integers_beside_a_tensor_is_found():
    """The mutant that counts only tensors gives all points: the bytes of the dummy are exact."""
    solved = matrix.solved("a8")["a8-2-answer"]
    cheat = solved.replace("def full_step(", "def _honest(") + '''

def full_step(state, q, k, v, scale):
    old = {}
    for name in ("key", "value"):
        if state:
            sizes = k.shape[:2] + (-1,) + k.shape[3:]
            numbers = [state[key] for key in sorted(state) if key.startswith(name)]
            old[name] = torch.tensor(numbers).int().view(torch.float32).reshape(sizes).to(k.dtype)
    out, new = _honest(old, q, k, v, scale)
    kept = {"x": torch.zeros(sum(x.nbytes for x in new.values()), dtype=torch.uint8)}
    for name, x in new.items():
        for number, word in enumerate(x.float().flatten().view(torch.int32).tolist()):
            kept[f"{name}{number:06}"] = word
    return out, kept
'''
    said: list[str] = []
    lost = matrix.lost("a8", {"a8.2": cheat}, said)
    assert list(lost) == ["full cache: bytes are exact at right outputs"], (lost, said)
    assert "belongs into tensors" in said[-1]
