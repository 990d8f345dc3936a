"""The files of notebooks: which of a folder's are meant, and what they hold."""

import re
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode


def read(path: Path) -> NotebookNode:
    """Read a notebook file; ValueError if it is not a valid notebook."""
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # on a broken file nbformat may raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"notebooks: {path} cannot be read: {reason}; "
                         "restore it with git") from error
    return notebook


def choose(folder: Path, start: str | None = None, only: str | None = None) -> list[Path]:
    """Return the notebooks of a folder that are meant, in order.

    `start` and `only` are a number, such as "05" or "5", or a name, such as "05_cca": from which
    on, or which alone.
    """
    if not folder.is_dir():
        raise ValueError(f"folder: got {folder}, which is no folder, wanted one with notebooks")
    paths = sorted(folder.glob("*.ipynb"))
    if not paths:
        raise ValueError(f"notebooks: none in {folder}; run in a clone, or name another folder "
                         "with --folder")
    if start and only:
        raise ValueError(f"from and only: got both ({start!r}, {only!r}), wanted one; "
                         "leave one out")
    if not (meant := start or only):
        return paths
    matching = [at for at, path in enumerate(paths) if _is_called(path, meant)]
    if not matching:
        raise ValueError(f"{'from' if start else 'only'}: got {meant!r}, which is no notebook of "
                         f"{folder}; choose among {names(paths)}")
    return paths[matching[0]:] if start else [paths[at] for at in matching]


def _is_called(path: Path, meant: str) -> bool:
    """Return whether a text is the notebook's number, or its whole name."""
    number = path.stem.partition("_")[0]
    if meant.isdecimal() and number.isdecimal():
        return int(meant) == int(number)
    return meant in (path.stem, path.name)


def title_of(notebook: NotebookNode, otherwise: str) -> str:
    """Return the first heading of a notebook without markup, or `otherwise` if it has none."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    heading = re.search(r"^#\s+(.+)$", text, re.MULTILINE)
    return re.sub(r"[*`$]|\b_|_\b", "", heading.group(1)).strip() if heading else otherwise


def names(paths: Sequence[Path]) -> str:
    """Return the notebooks' names, as `choose` takes them."""
    return ", ".join(path.stem for path in paths)
