"""Submissions as files: the released notebook with some cells filled in, changed or gone."""

import json
from pathlib import Path

from cca_lab import files
from cca_lab.course import grading
from cca_lab.course.registry import assignment_of
from tests.course import matrix


def release(part: str) -> Path:
    """Return the path of the notebook that students get."""
    return grading.released(files.course_folder(), assignment_of(part))


def released(part: str) -> dict:
    """Return the notebook that students get, as JSON has it."""
    return json.loads(release(part).read_text(encoding="utf-8"))


def filled(part: str, answers: dict[str, str]) -> dict:
    """Return the released notebook with cells replaced, by task ("a5.2") or by cell id."""
    notebook = released(part)
    cells = {cell["id"]: cell for cell in notebook["cells"]}
    for name, source in answers.items():
        cells[matrix.cell_of(name) if "." in name else name]["source"] = source
    return notebook


def solved(part: str, changed: dict[str, str] | None = None) -> dict:
    """Return the released notebook with all answers of the solved one, and some of them changed."""
    answers = {name: source for name, source in matrix.solved(part).items()
               if name.endswith("-answer")}
    return filled(part, answers | (changed or {}))


def hand_in(folder: Path, student: str, part: str, notebook: dict | str, name: str = "") -> Path:
    """Write a submission, and return its folder."""
    assignment = assignment_of(part).name
    path = folder / student / assignment / (name or f"{assignment}.ipynb")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook),
                    encoding="utf-8")
    return path.parent
