"""The committed notebooks: their form, and that running them again says the same.

The mutants here are wrong outputs and ill-formed notebooks that must be noticed.
"""

import copy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output

from cca_lab import files
from cca_lab.views.comparison import compare_notebooks, compare_text
from cca_lab.views.execution import execute
from cca_lab.views.reader import tempting
from tests.notebook_rules import (
    climb_breaks,
    reader_breaks,
    rule_breaks,
    turn_breaks,
)
from tests.small_notebooks import printed

NOTEBOOKS = sorted(files.notebooks_folder().glob("*.ipynb"))
TRAINS = "14"  # for two minutes
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each_notebook
def test_a_notebook_is_well_formed_and_lets_its_reader_work(path: Path):
    made = nbformat.read(path, as_version=4)
    assert [*rule_breaks(made), *reader_breaks(made, path.stem[:2]), *turn_breaks(made),
            *climb_breaks(made)] == []


@each_notebook
def test_no_tempting_answer_is_what_came_out(path: Path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    given = [len(answers) for name, answers in tempting().items() if name[:2] == path.stem[:2]]
    told = sum(output.get("text", "").count("     tempting: ")
               for cell in cells for output in cell.outputs)
    assert told == sum(given) > 0  # `reveal` leaves out what came out


@pytest.mark.parametrize("path", [
    pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] * path.stem.startswith(TRAINS))
    for path in NOTEBOOKS])
def test_notebook_runs_and_prints_what_is_committed(path: Path):
    committed = nbformat.read(path, as_version=4)
    fresh = copy.deepcopy(committed)
    failure = execute(fresh)
    assert failure is None, f"cell {failure.cell}: {failure.line}\n{failure.traceback}"
    differences = compare_notebooks(committed, fresh)
    assert not differences, "\n".join([*differences,
                                       "if this is right, run `make notebooks` and commit"])


@pytest.mark.nightly
@pytest.mark.parametrize("number", ["01", "03"])
def test_where_triton_does_not_exist_the_lab_runs_the_kernels(number, monkeypatch):
    [path] = [path for path in NOTEBOOKS if path.stem.startswith(number)]
    made = nbformat.read(path, as_version=4)
    monkeypatch.setenv("PYTHONPATH", str(files.repository() / "tests" / "without_triton"))
    assert execute(made) is None
    printed = "".join(output.get("text", "") for cell in made.cells if cell.cell_type == "code"
                      for output in cell.outputs)
    assert "the lab's own interpreter runs the kernels" in printed


# The comparison


@pytest.mark.parametrize("committed, fresh", [
    ("loss 2.310", "loss 2.319"),  # within 1 %
    ("share 0.03", "share 0.04"),  # one unit of the last digit
    ("error 2.2e-16", "error 8.9e-16"),  # rounding is rounding
    ("error 0", "error 3e-17"), ("ratio 1", "ratio 0.999"),
    ("a   1.50 |", "a 1.5 |"),  # widths follow the numbers
    ("object at 0x7f0000001234", "object at 0x7f0000005678"),
])
def test_what_counts_as_the_same(committed, fresh):
    assert compare_text(committed, fresh) is None


@pytest.mark.parametrize("committed, fresh",
                         [("loss 2.31", "loss 2.36"), ("1024 tokens", "1025 tokens"),
                          ("error 1.0e-3", "error 2.0e-3"), ("gpt2", "gpt3"), ("a b", "a b c"),
                          ("1.0 2.0", "1.0"), ("value 1.0", "value nan"),
                          ("shape (2, 3)", "shape (3, 2)"), ("-0.5", "0.5")])
def test_what_counts_as_different(committed, fresh):
    assert compare_text(committed, fresh) is not None
    assert compare_text(fresh, committed) is not None


def _shown(**data: str):
    return [new_output("display_data",
                       data={key.replace("_", "/"): value for key, value in data.items()})]


MUTATIONS = {
    "changed number": lambda cell: cell.outputs[0].update(text="accuracy 0.71 of 64\n"),
    "changed count": lambda cell: cell.outputs[0].update(text="accuracy 0.81 of 65\n"),
    "changed word": lambda cell: cell.outputs[0].update(text="precision 0.81 of 64\n"),
    "missing output": lambda cell: cell.outputs.clear(),
    "additional output": lambda cell: cell.outputs.append(
        new_output("stream", name="stderr", text="warning")),
    "picture instead of text": lambda cell: cell.update(outputs=_shown(image_png="AA")),
    "changed source": lambda cell: cell.update(source="print(1)"),
}


@pytest.mark.parametrize("tags, noticed", [
    ((), set(MUTATIONS)),
    (("trained",), set(MUTATIONS) - {"changed number", "changed count"}),
    (("volatile",), set(MUTATIONS) - {"changed number", "changed count", "changed word"}),
], ids=["plain", "trained", "volatile"])
def test_comparison_notices_each_mutation_that_the_tag_does_not_excuse(tags, noticed):
    committed = printed("accuracy 0.81 of 64\n", tags)
    assert compare_notebooks(committed, copy.deepcopy(committed)) == []
    for name, mutate in MUTATIONS.items():
        fresh = copy.deepcopy(committed)
        mutate(fresh.cells[1])
        assert bool(compare_notebooks(committed, fresh)) == (name in noticed), name
    assert "trained" not in tags or compare_notebooks(printed("0.80", tags), printed("0.55", tags))
