"""The committed notebooks: their form, and that running them again says the same.

The mutants here are wrong outputs and ill-formed notebooks that must be noticed.
"""

import copy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_output

from cca_lab import files
from cca_lab.views.comparison import compare_notebooks, compare_text
from cca_lab.views.execution import execute
from cca_lab.views.reader import tempting
from cca_lab.views.walkthrough import tidy
from tests.notebook_rules import (
    MOST_IMAGE_BYTES,
    climb_breaks,
    reader_breaks,
    rule_breaks,
    turn_breaks,
)
from tests.small_notebooks import notebook, printed

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


# The rules


def well_formed():
    """A committed notebook that keeps to every rule."""
    made = notebook("# Title\n\n$x$.", "check('a', True)", "1 + 1")
    for number, cell in enumerate(made.cells[1:], start=1):
        cell.execution_count = number
    data = {"text/plain": "[ok] a", "application/vnd.cca-lab.check+json": {"name": "a"}}
    made.cells[1].outputs = [new_output("display_data", data=data)]
    tidy(made, seconds=3)
    return made


def outputs(made, *shown):
    made.cells[2].update(outputs=list(shown))


BROKEN_RULES = {
    "kernel": lambda made: made.metadata.kernelspec.update(name=".venv"),
    "title": lambda made: made.cells[0].update(source="Title"),
    "unknown tags": lambda made: made.cells[1].metadata.update(tags=["slow"]),
    "records 999 seconds": lambda made: made.metadata.cca_lab.update(seconds=999),
    "empty code cell": lambda made: made.cells[2].update(source=" "),
    "in order": lambda made: made.cells[2].update(execution_count=5),
    "nothing is checked": lambda made: made.cells[1].update(outputs=[]),
    "error output": lambda made: outputs(made, new_output("error", ename="E", evalue="",
                                                          traceback=[])),
    "stderr": lambda made: outputs(made, new_output("stream", name="stderr", text="w")),
    "check that failed": lambda made: outputs(
        made, new_output("stream", name="stdout", text="[ok] a\n[fail] b\n")),
    "picture": lambda made: outputs(made, *_shown(image_png="A" * MOST_IMAGE_BYTES * 2)),
    "scripts": lambda made: outputs(made, *_shown(application_javascript="1")),
    "path of one machine": lambda made: outputs(
        made, *_shown(text_plain="in /" + "home/me/x.py")),
}


@pytest.mark.parametrize("rule", [None, *BROKEN_RULES])
def test_each_rule_notices_what_breaks_it(rule):
    made = well_formed()
    if rule:
        BROKEN_RULES[rule](made)
    breaks = rule_breaks(made)
    assert len(breaks) == bool(rule) and all(rule in each for each in breaks), breaks


def read_by_hand():
    """A committed notebook in which a reader works, as the rules want it."""
    code = [text for number in (1, 2, 3) for text in (f'predict("07.{number}", "skip", "w")',
                                                      f'reveal("07.{number}", {number})')]
    made = notebook("# Title", *code, 'your_turn("07.4", one)', 'your_turn("07.5", two)',
                    "my_work()")
    for cell in made.cells[-3:-1]:
        cell.outputs = [new_output("stream", text="07.4: done\n")]
    made.cells[2].metadata.tags = made.cells[-1].metadata.tags = ["trained"]
    made.cells[1:1] = [new_markdown_cell("## 1 First (1 min)"), new_markdown_cell("## You can now")]
    return made


UNREADABLE = {
    "guesses": lambda made: made.cells.pop(4),
    "filled in": lambda made: made.cells[3].update(source='predict("07.1", 5, "words")'),
    "two to fourteen": lambda made: made.cells.pop(-2),
    "begin with 07": lambda made: made.cells[-2].update(source='your_turn("08.5", two)'),
    "not done": lambda made: made.cells[-2].update(outputs=[]),
    "by the count": lambda made: made.cells[1].update(source="## 1 First (9 min)"),
    "no minutes": lambda made: made.cells[1].update(source="## 1 First"),
    "You can now": lambda made: made.cells[2].update(source="## Good bye"),
    "repeats trained": lambda made: made.cells[-1].metadata.update(tags=[]),
    "alt text": lambda made: made.cells[4].update(outputs=_shown(image_png="A")),
}


@pytest.mark.parametrize("rule", [None, *UNREADABLE])
def test_each_rule_for_readers_notices_what_breaks_it(rule):
    made = read_by_hand()
    if rule:
        UNREADABLE[rule](made)
    breaks = reader_breaks(made, "07")
    assert len(breaks) == bool(rule) and all(rule in each for each in breaks), breaks


TURN = """def double(x):
    ### BEGIN SOLUTION
    # Hint: add it.
    # Hint: to itself.
    # Lost: what is twice 3?
    return (x + x) if x else x * 0
    ### END SOLUTION


your_turn("00.1", double)"""


def climbed():
    """A notebook that keeps to `climb_breaks` and `turn_breaks`."""
    made = notebook("# Title\n\n**Time:** 0 minutes to read, 5 minutes to write", "1", TURN)
    made.cells[1:1] = [new_markdown_cell("**Your turn (5 minutes, difficulty 1 of 5).** Write it.")]
    made.cells.append(new_markdown_cell("## What we saw\n\n**Further reading:**\n\n* This\n\n"
                                        "**Assignment:** [a1](../lab/release/a1/a1.ipynb)"))
    return made


NOT_CLIMBED = {
    "1 hints": lambda made: made.cells[3].update(source=TURN.replace("# Hint: to", "# to")),
    "0 help": lambda made: made.cells[3].update(source=TURN.replace("# Lost", "# Try")),
    "shows the solution": lambda made: made.cells[2].update(
        source="def twice(x):\n    return (x + x) if x else x * 0"),
    "the end lacks": lambda made: made.cells[-1].update(source="## What we saw"),
    "its beginning": lambda made: made.cells[0].update(source="# Title"),
    "above it stands not once": lambda made: made.cells[1].update(
        source="**Your turn (6 minutes, difficulty 1 of 5).** Write it."),
}


@pytest.mark.parametrize("rule", [None, *NOT_CLIMBED])
def test_each_rule_of_a_climbed_notebook_notices_what_breaks_it(rule):
    made = climbed()
    if rule:
        NOT_CLIMBED[rule](made)
    breaks = [*climb_breaks(made), *turn_breaks(made)]
    assert len(breaks) == bool(rule) and all(rule in each for each in breaks), breaks
