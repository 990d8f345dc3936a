"""Submissions that want to stop the class, or to carry something out: each is refused."""

import json
import os
import time
from pathlib import Path

import nbformat
import pytest
import torch

from cca_lab import files
from cca_lab.course import front, grading, reports, sandbox
from cca_lab.course.compare import describe
from cca_lab.course.registry import assignment_of
from cca_lab.course.sandbox import STARTS, Limits, Session
from cca_lab.course.tasks import Mistake
from tests.course import handed_in, matrix
from tests.course.cheats import HEAD

COURSE = files.course_folder()
A5 = assignment_of("a5")
RELEASE = COURSE / "release" / "a5_cca" / "a5_cca.ipynb"
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no such files")


def grade(folder: Path, source: str, part: str = "a5", task: str = "a5.2") -> grading.Record:
    assignment = assignment_of(part)
    submitted = handed_in.hand_in(folder, "somebody", part, handed_in.filled(part, {task: source}))
    return grading.grade(assignment, submitted, front.released(COURSE, assignment), "a seed",
                         Limits(seconds=5, total=40))


def test_a_message_that_cannot_be_written_stops_nobody(tmp_path, capsys):
    odd = 'raise ValueError("\\ud800 \\x1b[31m" + 10**6 * "A")\n'
    for student, source in (("eve", HEAD + "    " + odd), ("mallory", odd)):
        handed_in.hand_in(tmp_path / "submitted", student, "a5",
                          handed_in.filled("a5", {"a5.2": source}))
    handed_in.hand_in(tmp_path / "submitted", "alice", "a5", handed_in.solved("a5"))
    assert front.grade_class(tmp_path / "submitted", tmp_path / "marks", COURSE)
    assert "alice,20,20" in (tmp_path / "marks" / "marks.csv").read_text()
    assert (tmp_path / "marks" / "eve" / "a5_cca.json").stat().st_size < 20_000
    assert "\x1b" not in capsys.readouterr().out


@posix
def test_files_that_cannot_be_read_stop_nobody(tmp_path):
    submitted = tmp_path / "submitted"
    for student in ("alice", "bob", "carol", "dave", "erin"):
        handed_in.hand_in(submitted, student, "a5", handed_in.solved("a5"))
    Path(os.fsdecode(os.fsencode(submitted / "bob" / "a5_cca") + b"/\xff.txt")).touch()
    deep = submitted / "carol" / "a5_cca"
    for _ in range(300):
        deep = deep / "d"
        deep.mkdir()
    with (submitted / "dave" / "a5_cca" / "large").open("wb") as file:
        file.truncate(10**12)
    os.mkfifo(submitted / "erin" / "a5_cca" / "pipe")
    link = submitted / "frank"
    link.mkdir()
    (link / "a5_cca").symlink_to("/")
    begun = time.monotonic()
    digests = {path.name: grading.digest(path / "a5_cca") for path in submitted.iterdir()}
    assert time.monotonic() - begun < 5 and len(digests) == 6
    again = grading.digest(submitted / "alice" / "a5_cca")
    (submitted / "alice" / "a5_cca" / "x").write_text("changed")
    assert again == digests["alice"] != grading.digest(submitted / "alice" / "a5_cca")
    with pytest.raises(grading.Refused, match="nothing was handed in"):
        grading.read_submission(A5, link / "a5_cca", RELEASE)


def test_the_time_of_a_submission_is_limited_as_a_whole():
    source = "import time\ndef slow():\n    time.sleep(0.8)\n"
    with Session([("cell", source)], Limits(seconds=2, total=3)) as session:
        begun = time.monotonic()
        with pytest.raises(Mistake, match="more than 3 seconds in all"):
            for _ in range(50):
                session.call("slow", ())
        assert time.monotonic() - begun < 20


def test_what_cannot_be_sent_is_a_mistake_and_leaves_nobody_waiting():
    """Were it not, the child would take the next call for the answer to its callback."""
    source = "def ask(f):\n    return f()\ndef twice(x):\n    return 2 * x\n"
    large = torch.zeros(2**23 + 1)
    with Session([("text", f"x = {9 * 2**20 * 'x'!r}"), ("cell", source)],
                 Limits(seconds=20, total=90)) as session:
        for value, why in ((large, "32 MiB of tensors"), (10**5000, "4300 digits")):
            with pytest.raises(Mistake, match=f"given returned what cannot be sent: .*{why}"):
                session.call("ask", (lambda value=value: value,))
            assert session.call("twice", (2,)) == 4
        with pytest.raises(Mistake, match="the arguments of twice, with what it returned before, "
                                          "cannot be sent: more"):
            session.call("twice", (large,))
        assert session.call("twice", (2,)) == 4
        assert session.errors == {"text": "the cell cannot be sent: more than 8 MiB of numbers and "
                                          "text, or 32 MiB of tensors"}


def test_a_process_cannot_be_ended_for_ever():
    cells = [(f"cell-{number}", "import os\nos._exit(0)\n") for number in range(3 * STARTS)]
    with Session([*cells, ("good", "def good():\n    return 1\n")],
                 Limits(seconds=2, total=8)) as session:
        begun = time.monotonic()
        with pytest.raises(Mistake, match="ended its process"):
            session.call("good", ())
        assert time.monotonic() - begun < 40


def test_a_notebook_of_very_many_cells_is_refused(tmp_path):
    notebook = handed_in.released("a5")
    notebook["cells"] += [{"cell_type": "code", "source": "", "metadata": {}}] * 20_000
    path = handed_in.hand_in(tmp_path, "somebody", "a5", notebook) / "a5_cca.ipynb"
    with pytest.raises(grading.Refused, match="more than 1000 cells"):
        grading.notebook(path)


def test_large_values_are_described_in_a_few_letters():
    assert describe([[0] * 10**6] * 3) == "a list of 3"
    assert describe("x" * 10**6) == "a text of 1000000 letters"
    assert len(describe(list(range(10**6)))) < 30 and describe([1, 2]) == "[1, 2]"


@pytest.mark.skipif(sandbox.best() != "bubblewrap",
                    reason="bubblewrap is not installed or does not start here")
def test_no_message_carries_an_input_that_is_not_shown(tmp_path):
    """Inputs of the secret seed are kept, to be told by a later error on inputs that are shown."""
    record = grade(tmp_path, "SEEN = []\n" + HEAD + '''
    SEEN.append((length, sinks, group, window))
    if len(SEEN) > 8:
        raise ValueError("seen " + repr(SEEN[-2:]))
    return torch.zeros(length, 3, 2, dtype=torch.long)
''')
    told = json.dumps([finding["message"] for task in record["tasks"]
                       for finding in task["findings"] if finding["shown"]])
    shown = ["(1, 0, 1, 1)", "(6, 0, 2, 2)", "(8, 1, 2, 2)", "(9, 2, 3, 1)", "(13, 1, 3, 4)",
             "(20, 4, 5, 12)"]
    assert all(size in shown for size in told.replace("[", "]").split("]") if size.startswith("("))
    assert record["earned"] == 0


@pytest.mark.parametrize("forgets", [True, False])
def test_a_cache_that_lives_in_a_global_is_found(tmp_path, monkeypatch, forgets):
    """The state alone must do: else, if the process forgot nothing, this had all points."""
    if not forgets:
        monkeypatch.setattr(Session, "forget", lambda self: None)
    solved = matrix.solved("a8")["a8-2-answer"]
    name = assignment_of("a8").tasks[1].answer
    cheat = solved.replace(f"def {name}(", "def _honest(") + f'''

KEPT = {{}}
def {name}(state, q, k, v, *more):
    number = state.get("n", len(KEPT))
    out, new = _honest(KEPT.get(number, {{}}), q, k, v, *more)
    KEPT[number] = new
    size = sum(x.nbytes for x in new.values() if isinstance(x, torch.Tensor))
    return out, {{"n": number, "x": torch.zeros(size, dtype=torch.uint8)}}
'''
    record = grade(tmp_path, cheat, "a8", "a8.2")
    task = next(task for task in record["tasks"] if task["id"] == "a8.2")
    lost = [finding["name"] for finding in task["findings"]
            if finding["earned"] < finding["points"]]
    assert any("byte" in name for name in lost) == forgets, record


def test_nothing_active_is_shown_to_the_teacher(tmp_path):
    notebook = handed_in.solved("a5")
    notebook["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}
    notebook["cells"] += [
        {"cell_type": "markdown", "id": "x", "source": "<script>1</script> [a](javascript:1)",
         "metadata": {"nbgrader": {}}, "attachments": {}},
        {"cell_type": "raw", "id": "y", "source": "<img src=x onerror=1>", "metadata": {}}]
    folder = handed_in.hand_in(tmp_path, "somebody", "a5", notebook)
    reports.show(folder, A5, tmp_path / "shown")
    text = (tmp_path / "shown" / "a5_cca.ipynb").read_text()
    assert "<script" not in text and "<img" not in text and "widgets" not in text
    assert "](" not in text.split("javascript")[0][-5:]
    nbformat.validate(nbformat.reads(text, 4))
