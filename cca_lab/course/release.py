"""What is made from solved notebooks: students' notebooks and solutions."""

import contextlib
import io
import logging
import os
import re
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from cca_lab.course.registry import chosen
from cca_lab.course.solved import BEGIN, END, solution_of
from cca_lab.course.tasks import Assignment
from cca_lab.extras import need
from cca_lab.files import check_folder, replacing
from cca_lab.views import notebook_files


def read(course: Path, assignment: Assignment) -> NotebookNode:
    """Return the solved notebook of an assignment."""
    path = course / "source" / assignment.name / f"{assignment.name}.ipynb"
    if not path.is_file():
        raise ValueError(f"course: got {course}, without {path.relative_to(course)}; wanted the "
                         "folder lab/ of a clone")
    return notebook_files.read(path)


def released(source: NotebookNode) -> NotebookNode:
    """Return the notebook that students get, by nbgrader's own steps and without its database."""
    need("nbgrader")
    with contextlib.redirect_stderr(io.StringIO()):  # importing its database layer warns
        from nbgrader import preprocessors
    notebook = deepcopy(source)
    resources: dict[str, Any] = {}
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    for step in ("LockCells", "ClearSolutions", "ClearOutput", "CheckCellMetadata",
                 "ClearHiddenTests", "ComputeChecksums"):
        notebook, resources = getattr(preprocessors, step)().preprocess(notebook, resources)
    return notebook


def solutions(source: NotebookNode) -> NotebookNode:
    """Return a notebook with the release's stubs, a folded hint and solution below each."""
    cells = []
    originals = {cell.id: cell for cell in source.cells}
    for cell in released(source).cells:
        cell.metadata.pop("nbgrader", None)
        cells.append(cell)
        if cell.cell_type == "code" and cell.id.endswith("-answer"):
            cells.append(nbformat.v4.new_markdown_cell(folded(originals[cell.id].source),
                                                       id=f"{cell.id}-folded"))
    return nbformat.v4.new_notebook(cells=cells, metadata=source.metadata)


def folded(source: str) -> str:
    """Return the Markdown of a solved cell: hints, "I am lost" and the solution, each folded."""
    hints, lost, code = solution_of(source)
    names = ["A hint", "Another hint", *["One more hint"] * len(hints)]
    shown = [*zip(names, hints, strict=False), ("I am lost", lost),
             ("A solution", f"```python\n{code}\n```")]
    return "\n\n".join(f"<details><summary>{name}</summary>\n\n{text}\n\n</details>"
                       for name, text in shown if text)


def files(course: Path, *, solved: bool = False, only: str | None = None) -> dict[Path, str]:
    """Return the texts of the notebooks in `release/`, or if `solved` in `solutions/`, by path."""
    texts, folder = {}, course / ("solutions" if solved else "release")
    for assignment in chosen(only):
        source = read(course, assignment)
        notebook = solutions(source) if solved else released(source)
        path = folder / assignment.name / f"{assignment.name}.ipynb"
        texts[path] = nbformat.writes(notebook) + "\n"
    return texts


def write(texts: dict[Path, str]) -> list[Path]:
    """Write files whose text changed, and return those."""
    changed = stale(texts)
    for path in changed:
        with replacing(path) as temporary:
            temporary.write_text(texts[path], encoding="utf-8")
    return changed


def stale(texts: dict[Path, str]) -> list[Path]:
    """Return the files that are missing or have another text."""
    return [path for path, text in texts.items()
            if not path.is_file() or path.read_text(encoding="utf-8") != text]


# The notebooks for a reader who works: without outputs, with stubs for what is to be written.

STUB = "raise NotImplementedError  # your turn"
REGION = re.compile(rf"^([ \t]*){BEGIN}\n.*?^[ \t]*{END}$", flags=re.DOTALL | re.MULTILINE)
SKIPPED = re.compile(r'(\bpredict\("[\d.]+",\s*)"skip"')  # the committed pages show all answers
BESIDE = re.compile(r"\]\((\.\./[^)\s]+)\)")  # a link to another folder of the clone


def to_work_in(notebook: NotebookNode, *, up: str = "..") -> NotebookNode:
    """Return a notebook without outputs and guesses; help is folded below each stub.

    In links `up` replaces "..": the way from the new folder to that above the committed notebooks.
    """
    made = deepcopy(notebook)
    cells, made.cells = made.cells, []
    for cell in cells:
        made.cells.append(cell)
        if cell.cell_type == "markdown":
            cell.source = BESIDE.sub(lambda link: f"]({up}{link.group(1)[2:]})", cell.source)
        else:
            cell.outputs, cell.execution_count = [], None
            cell.source = SKIPPED.sub(r"\1...", cell.source)
            if BEGIN in cell.source:
                made.cells.append(nbformat.v4.new_markdown_cell(folded(cell.source),
                                                                id=f"{cell.id}-folded"[:64]))
                cell.source = REGION.sub(rf"\1{STUB}", cell.source)
    return made


def build(notebooks: Path, out: Path, *, start: str | None = None,
          only: str | None = None) -> tuple[list[Path], list[Path]]:
    """Write the notebooks to work in; return which were written, and which were there and stay.

    `start` and `only` choose among them, as in `cca_lab.views.notebook_files.choose`.
    """
    meant = notebook_files.choose(notebooks, start, only)
    if out.resolve() == notebooks.resolve():
        raise ValueError(f"out: got {out}, where the committed notebooks are; choose another "
                         "folder")
    check_folder(out)
    up = Path(os.path.relpath(notebooks.parent.resolve(), out.resolve())).as_posix()
    left = [out / path.name for path in meant if (out / path.name).exists()]
    sources = [path for path in meant if out / path.name not in left]
    made = {path.name: to_work_in(notebook_files.read(path), up=up) for path in sources}
    out.mkdir(parents=True, exist_ok=True)
    for path in notebooks.glob("*.py"):  # modules that notebooks import
        if not (out / path.name).exists():
            shutil.copy(path, out / path.name)
    for name, notebook in made.items():
        with replacing(out / name) as temporary:
            nbformat.write(notebook, temporary)
    return [out / name for name in made], left
