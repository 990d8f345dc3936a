"""The notebooks that students open: made from the solved ones, without a trace of a solution."""

import json
import re
from importlib.util import find_spec

import nbformat
import pytest
from nbclient import NotebookClient

from cca_lab import files
from cca_lab.course import release
from cca_lab.course.cell import local
from cca_lab.course.registry import ASSIGNMENTS
from cca_lab.course.tasks import marks_of
from tests.course import matrix

COURSE = files.course_folder()
HERE = [ASSIGNMENTS[part] for part in matrix.HERE]
every = pytest.mark.parametrize("part", ASSIGNMENTS.values(), ids=ASSIGNMENTS)


def student(part) -> nbformat.NotebookNode:
    return nbformat.read(COURSE / "release" / part.name / f"{part.name}.ipynb", 4)


@every
def test_the_release_is_current(part):
    assert release.stale(release.files(COURSE, only=part.id)) == []


def test_a_change_of_a_solved_notebook_is_seen(tmp_path):
    texts = release.files(COURSE, only="a5")
    path, text = next(iter(texts.items()))
    assert release.stale({path: text.replace("sinks", "sinks ", 1)}) == [path]
    assert release.write({tmp_path / "x.ipynb": text}) == [tmp_path / "x.ipynb"]
    assert release.write({tmp_path / "x.ipynb": text}) == []


@every
def test_cells_and_tasks_agree(part):
    """Points, names, order: what nbgrader reads in the notebook is what the registry says."""
    source = release.read(COURSE, part)
    cells = {cell.id: cell for cell in source.cells}
    grades = {cell.id: cell.metadata.nbgrader for cell in source.cells}
    assert [cell.metadata.nbgrader.grade_id for cell in source.cells] == list(cells)
    wanted = []
    for task in part.tasks:
        stem = task.id.replace(".", "-")
        if task.properties:
            wanted.append((f"{stem}-check", task.points))
            assert f'check("{task.id}", ' in cells[f"{stem}-check"].source
            assert task.files or f"def {task.answer}(" in cells[f"{stem}-answer"].source
        else:
            wanted.append((f"{stem}-answer", task.read))
    assert [(name, meta.points) for name, meta in grades.items() if meta.grade] == wanted
    intro = source.cells[0].source
    for task in part.tasks:
        name = re.escape(f"{task.id} {task.title}")
        row = (rf"\| {name} \| {task.points or task.read}\b[^|]*\| {task.minutes} "
               rf"\| {task.difficulty}\b")
        assert re.search(row, intro), f"{task.id}: no row of the table says {row}"
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in source.cells
               if cell.cell_type == "code")


@every
def test_no_solution_is_released(part):
    solved, given = release.read(COURSE, part), json.dumps(student(part))
    assert not [word for word in ("SOLUTION", "HIDDEN", "points(\\\"", "Hint:") if word in given]
    shown = "\n".join(cell.source for cell in solved.cells if release.BEGIN not in cell.source)
    for cell in solved.cells:
        if cell.cell_type == "code" and release.BEGIN in cell.source:
            for line in cell.source.split(release.BEGIN)[1].split(release.END)[0].split("\n"):
                if len(line.strip()) > 25 and line.strip() not in shown:
                    assert json.dumps(line.strip())[1:-1] not in given, line


@pytest.mark.parametrize("part", HERE, ids=matrix.HERE)
def test_the_untouched_release_scores_nothing(part):
    """And every failure is a NotImplementedError, not a mistake that a reader has to understand."""
    scope: dict = {}
    for cell in student(part).cells:
        if cell.cell_type == "code" and (cell.id.startswith("given-")
                                         or cell.id.endswith("-answer")):
            exec(cell.source, scope)
    for task in part.tasks:
        if task.properties and not task.files:
            marks = list(marks_of(task, local(task, scope[task.answer]), matrix.SECRET))
            assert sum(mark.earned for mark in marks) == 0
            assert all(isinstance(mark.error, NotImplementedError) for mark in marks), task.id


@every
def test_solutions_for_learners_hold_hint_and_solution_folded(part):
    made = release.solutions(release.read(COURSE, part))
    nbformat.validate(made)
    folded = [cell.source for cell in made.cells if cell.id.endswith("-folded")]
    written = sum(not task.properties or task.files for task in part.tasks)
    assert len(folded) >= len(part.tasks) - written
    assert all("<summary>A solution</summary>" in text and release.BEGIN not in text
               for text in folded)


@pytest.mark.parametrize("part", [part for part in ASSIGNMENTS.values()
                                  if not any(task.files for task in part.tasks)],
                         ids=lambda part: part.id)
def test_every_cell_of_a_solved_notebook_runs(part, tmp_path):
    """In a kernel, as a teacher would: checks, hidden tests and pictures; a10 asks for a model."""
    if part.id == "a7" and not find_spec("triton"):
        pytest.skip("there is no Triton for this system")
    notebook = release.read(COURSE, part)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in notebook.cells:
        if cell.id.endswith("-check"):
            assert cell.outputs[-1]["data"]["text/plain"] == str(
                float(cell.metadata.nbgrader.points)), cell.id
