"""Tiny notebooks for the tests of the walkthrough, built in code."""

from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output


def notebook(title: str, *sources: str) -> NotebookNode:
    """Return a notebook of a heading and code cells; the ids of the cells are always the same."""
    cells = [new_markdown_cell(title)] + [new_code_cell(source) for source in sources]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return new_notebook(cells=cells)


def write(folder: Path, name: str, title: str, *sources: str) -> Path:
    """Write such a notebook to a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook(title, *sources), path)
    return path


def printed(text: str, tags: tuple[str, ...] = ()) -> NotebookNode:
    """Return a notebook whose one cell has printed a text."""
    made = notebook("# Printed", "print()")
    made.cells[1].outputs = [new_output("stream", name="stdout", text=text)]
    made.cells[1].execution_count = 1
    made.cells[1].metadata.tags = list(tags)
    return made
