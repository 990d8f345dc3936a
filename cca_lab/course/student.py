"""The notebooks for a reader who works: without outputs, and with stubs in the place of what is to be written."""

import os
import re
from copy import deepcopy
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from cca_lab.course.release import BEGIN, END, folded
from cca_lab.outputs import check_folder, replacing

STUB = "raise NotImplementedError  # your turn"
REGION = re.compile(rf"^([ \t]*){BEGIN}\n.*?^[ \t]*{END}$", flags=re.DOTALL | re.MULTILINE)
BESIDE = re.compile(r"\]\((\.\./[^)\s]+)\)")  # a link to another folder of the clone


def to_work_in(notebook: NotebookNode, *, up: str = "..") -> NotebookNode:
    """Return a notebook without outputs; below each stub, a hint and a solution are folded.

    Args:
        notebook: as committed.
        up: the way from the folder of the new notebook to that above the committed ones, in the place of "..".
    """
    made = deepcopy(notebook)
    made.cells = []
    for cell in deepcopy(notebook.cells):
        made.cells.append(cell)
        if cell.cell_type == "markdown":
            cell.source = BESIDE.sub(lambda link: f"]({up}{link.group(1)[2:]})", cell.source)
        else:
            cell.outputs, cell.execution_count = [], None
            if BEGIN in cell.source:
                made.cells.append(nbformat.v4.new_markdown_cell(folded(cell.source), id=f"{cell.id}-folded"[:64]))
                cell.source = REGION.sub(rf"\1{STUB}", cell.source)
    return made


def build(notebooks: Path, out: Path) -> tuple[list[Path], list[Path]]:
    """Write the notebooks to work in; those that are there already are the reader's, and stay as they are.

    Args:
        notebooks: folder of the committed ones.
        out: folder to write to; made if it is missing.

    Returns:
        The files that were written, and those that were left.

    Raises:
        ValueError: if `out` is the committed notebooks' folder, or cannot be written.
    """
    if out.resolve() == notebooks.resolve():
        raise ValueError(f"out: got {out}, where the committed notebooks are; choose another folder")
    check_folder(out).mkdir(parents=True, exist_ok=True)
    up = Path(os.path.relpath(notebooks.parent.resolve(), out.resolve())).as_posix()
    new, left = [], []
    for path in sorted(notebooks.glob("*.ipynb")):
        target = out / path.name
        if target.exists():
            left.append(target)
            continue
        with replacing(target) as temporary:
            nbformat.write(to_work_in(nbformat.read(path, as_version=4), up=up), temporary)
        new.append(target)
    return new, left
