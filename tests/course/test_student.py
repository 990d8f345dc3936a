"""The notebooks to work in: made without what spoils, and never over a reader's own."""

import ast
import copy

import nbformat
import pytest

from cca_lab import files
from cca_lab.course.registry import TURNS
from cca_lab.course.release import BEGIN, END, STUB, build, to_work_in
from cca_lab.views.execution import execute
from tests.command import run_command
from tests.small_notebooks import notebook

SOLVED = f'''from cca_lab.course import your_turn

def double(x):
    """Twice."""
    {BEGIN}
    # Hint: add it
    # to itself.
    # Hint: or multiply it.
    # Lost: which number is twice 3?
    return x + x
    {END}

your_turn("99.1", double)'''
NOTEBOOKS = sorted(files.notebooks_folder().glob("*.ipynb"))


def written(*cells):
    made = notebook(*cells)
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"
    return made


def test_the_solution_is_folded_below_its_stub():
    made = to_work_in(written("# T", SOLVED))
    assert [cell.cell_type for cell in made.cells] == ["markdown", "code", "markdown"]
    code, folded = made.cells[1].source, made.cells[2].source
    assert f"    {STUB}\n\nyour_turn" in code and "x + x" not in code and BEGIN not in code
    for name, text in (("A hint", "add it to itself."), ("Another hint", "or multiply it."),
                       ("I am lost", "which number is twice 3?")):
        assert f"{name}</summary>\n\n{text}\n\n</details>" in folded
    assert "return x + x" in folded and BEGIN not in folded
    ast.parse(code)


def test_outputs_go_and_the_committed_notebook_stays():
    source = written("# T", "1 + 1")
    source.cells[1].outputs = [nbformat.v4.new_output("stream", text="2")]
    source.cells[1].execution_count = 1
    before = copy.deepcopy(source)
    made = to_work_in(source)
    assert made.cells[1].outputs == [] and made.cells[1].execution_count is None
    assert source == before


def test_a_skipped_guess_is_the_readers_again():
    made = to_work_in(written("# T", 'predict("99.1", "skip", "a word, such as skip")'))
    assert made.cells[1].source == 'predict("99.1", ..., "a word, such as skip")'


def test_links_to_other_folders_are_kept():
    made = to_work_in(written("# T\n[a](../docs/claims.md) [b](01_x.ipynb) "
                              "[c](https://example.org/../x)"), up="../..")
    assert made.cells[0].source == ("# T\n[a](../../docs/claims.md) [b](01_x.ipynb) "
                                    "[c](https://example.org/../x)")


def test_a_file_of_the_reader_is_never_replaced(tmp_path):
    new, left = build(files.notebooks_folder(), tmp_path / "mine")
    assert len(new) == len(NOTEBOOKS) and not left
    kept = tmp_path / "mine" / NOTEBOOKS[0].name
    kept.write_text("mine")
    (tmp_path / "mine" / NOTEBOOKS[1].name).unlink()
    new, left = build(files.notebooks_folder(), tmp_path / "mine")
    assert [path.name for path in new] == [NOTEBOOKS[1].name] and kept.read_text() == "mine"
    assert len(left) == len(NOTEBOOKS) - 1


def test_the_committed_notebooks_are_not_a_place_to_work_in():
    with pytest.raises(ValueError, match="^out: got .*; choose another folder"):
        build(files.notebooks_folder(), files.notebooks_folder() / ".." / "notebooks")


def test_the_command_says_what_it_did(tmp_path):
    words = ["notebooks", "--student", str(tmp_path / "mine")]
    first, again = (run_command(words) for _ in range(2))
    assert f"{len(NOTEBOOKS)} notebooks written" in first.stdout
    assert f"0 notebooks written, {len(NOTEBOOKS)} left as they are" in again.stdout


# ---------------------------------------------------------------- of every notebook

def used_turns(path):
    """Return the ids that the notebook's cells give to your_turn, and the solved cells."""
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    calls = [node.args[0].value for cell in cells for node in ast.walk(ast.parse(cell.source))
             if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "your_turn"]
    return calls, cells


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_turn_of_a_notebook_is_in_one_cell_with_its_solution(path):
    calls, cells = used_turns(path)
    assert sorted(calls) == sorted(name for name in TURNS if name.startswith(path.stem[:2]))
    for cell in cells:
        counts = {cell.source.count(text) for text in (BEGIN, END, 'your_turn("')}
        assert len(counts) == 1, cell.source
        assert "Hint:" in cell.source or BEGIN not in cell.source, f"no hint in {cell.source}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_other_cell_needs_what_the_reader_writes(path):
    _, cells = used_turns(path)
    turn = {node.name for cell in cells if BEGIN in cell.source
            for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef)}
    others = [node for cell in cells if BEGIN not in cell.source
              for node in ast.walk(ast.parse(cell.source))]
    # this waits for a body
    traced = [node.args[0] for node in others if isinstance(node, ast.Call)
              and getattr(node.func, "id", "") == "trace"]
    names = {node.id for node in others if isinstance(node, ast.Name) and node not in traced}
    assert not turn & names


@pytest.mark.nightly
def test_a_notebook_with_nothing_written_runs_to_its_end():
    number = "03"
    [path] = [path for path in NOTEBOOKS if path.stem.startswith(number)]
    made = to_work_in(nbformat.read(path, 4))
    failure = execute(made)
    assert failure is None, f"{failure.line}\n{failure.traceback}"
    printed = "".join(output.get("text", "") for cell in made.cells if cell.cell_type == "code"
                      for output in cell.outputs)
    assert printed.count("not written yet") == len([name for name in TURNS
                                                    if name.startswith(number)])
