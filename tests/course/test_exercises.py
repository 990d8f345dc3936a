"""Every exercise by its own table: what is right passes, what is wrong is told its own sentence."""

import ast
import linecache
import os
from dataclasses import replace

import nbformat
import pytest
import torch

from cca_lab import files
from cca_lab.course.cell import CheckFailed
from cca_lab.course.exercise import equals, examples
from cca_lab.course.registry import ASSIGNMENTS, TURNS
from cca_lab.course.tasks import CourseTask, marks_of, unseen

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TASKS = TURNS | {task.id: task for part in ASSIGNMENTS.values() for task in part.tasks}
TABLE = [pytest.param(task, prop, said, wrong, id=f"{task.id} {said[:60]}")
         for task in TASKS.values() for prop in task.properties
         for said, wrong in prop.wrong.items()]
RIGHT = [task for task in TASKS.values() if task.right]


@pytest.mark.parametrize("task", RIGHT, ids=lambda task: task.id)
def test_what_is_right_has_all_points(task):
    undriven = replace(task, drive=lambda answer: answer)
    for secret in (None, "one seed"):
        assert [mark.message for mark in marks_of(undriven, task.right, secret)
                if not mark.full and mark.property.right] == []


@pytest.mark.parametrize(("task", "prop", "said", "wrong"), TABLE)
def test_what_is_wrong_is_told_its_own_sentence(task, prop, said, wrong):
    """It never passes by luck, whatever the seed, nor is caught because its own code is broken.

    Two end in an error that a reader gets too: of an index, and of shapes.
    """
    alone = replace(task, properties=(prop,))
    [mark] = marks_of(alone, wrong, "a seed")
    assert not mark.full
    assert said in mark.message
    assert type(mark.error) in (type(None), IndexError, RuntimeError)
    assert not any(mark.full for mark in unseen(alone, wrong, "another seed", {}))


@pytest.mark.parametrize("task", RIGHT, ids=lambda task: task.id)
def test_what_is_no_answer_is_refused(task):
    """Nothing, and a list of NaN, are never right."""
    for other in (lambda *args: None, lambda *args: [torch.tensor(float("nan"))] * 7):
        assert not any(mark.full for mark in marks_of(task, other) if mark.property.right)


@pytest.mark.parametrize("path", sorted(files.notebooks_folder().glob("*.ipynb")),
                         ids=lambda path: path.stem[:2])
def test_the_solutions_in_the_notebooks_are_right(path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)  # notebook 16 imports a file beside it
    run(path)
    assert "done" in capsys.readouterr().out


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here")
def test_a_missing_axis_of_a_tile_is_seen(capsys):
    """Tiles have unequal sizes, so that no shape fits by chance."""
    [path] = files.notebooks_folder().glob("01_*.ipynb")
    with pytest.raises(RuntimeError, match="must match the size"):
        run(path, "seen = (column[None, :] <= row[:, None])", "seen = (column <= row)")
    assert "Is a [:, None] or a [None, :] missing?" in " ".join(capsys.readouterr().out.split())


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here")
@pytest.mark.parametrize(("number", "right", "wrong"), [
    ("03", "TABLE + (read * INTERVALS", "TABLE + (row * INTERVALS"),
    ("03", "(p * GROUP + GROUP - 1) * D", "(p * GROUP + GROUP * 10**6) * D"),
    ("01", "tl.load(K + place, mask=column[:, None] < L, other=0.0)", "tl.load(K + place)"),
    ("01", "tl.store(OUT + q_place, sums / total[:, None], mask=row[:, None] < L)",
     "tl.store(OUT + q_place, sums / total[:, None])")])
def test_a_kernel_that_reads_outside_is_told_so_and_does_not_end_python(number, right, wrong,
                                                                        capsys):
    [path] = files.notebooks_folder().glob(f"{number}_*.ipynb")
    with pytest.raises(CheckFailed):
        run(path, right, wrong)
    assert "elements outside of" in " ".join(capsys.readouterr().out.split())


def run(path, old="", new=""):
    """Run the solved turns of a notebook, and the imports of its other cells."""
    scope = {}
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type != "code" or "tl.constexpr" in cell.source and not INTERPRETED:
            continue
        source = cell.source.replace(old, new) if old else cell.source
        tree, name = ast.parse(source), f"<{cell.id} {hash(new)}>"
        if "your_turn(" not in source:
            tree.body = [node for node in tree.body if type(node) in (ast.Import, ast.ImportFrom)]
        linecache.cache[name] = len(source), None, source.splitlines(True), name
        exec(compile(tree, name, "exec"), scope)


def test_a_mistake_is_named_by_all_examples_that_follow():
    """On the smallest example two mistakes give the same; the larger ones tell them apart."""
    inputs = examples(lambda draw, length: (draw.normal(length),), 1, 3)
    task = CourseTask("99.1", "total", "A sum", 5, 1, (equals(
        "equal to adding", lambda x: x.sum(), inputs, "the sum", wrong={
            "the signs are lost": lambda x: -x.sum(), "the first is lost": lambda x: x.sum() - x[0],
            "the first counts twice": lambda x: x.sum() + x[0]}),))
    last = next(marks_of(task, lambda x: x.sum() + x[-1])).message
    assert "length 1: the sum is" in last and "This is what" not in last
    assert "when the first counts twice" in next(marks_of(task, lambda x: x.sum() + x[0])).message
    nan = next(marks_of(task, lambda x: x.sum() / 0 * 0)).message
    assert "the sum is nan: is it 0/0" in nan
