"""What a student handed in, read without trusting it: the cells that are run, and what is remarkable about them."""

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cca_lab.course.tasks import Assignment

LARGEST = 20 * 2**20  # bytes of a notebook
ADAPTERS = "adapters.py"
CELLS = 1000  # of a notebook
MODULES = 20  # further Python files
FILES = 2000  # that the digest of a folder covers, and folders in folders
SKIPPED = ("show-", "text-", "scratch-")


class Refused(Exception):
    """Why a submission cannot be graded at all."""


@dataclass(frozen=True)
class Submission:
    """A submission that can be run.

    Attributes:
        cells: name and source, in the order in which they are run.
        notes: what the grader did about oddities, for the reports.
        functions: the task's answers are named by their ids, as in `adapters.py`, not as in the notebook.
    """

    cells: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)
    functions: bool = False


def read(part: Assignment, folder: Path, release: Path, path: Path | None = None) -> Submission:
    """Return what a folder holds for an assignment.

    Args:
        part: the assignment.
        folder: the submission's.
        release: the notebook that students got; its locked cells are run in place of the submission's.
        path: the file in it, if that is known.

    Raises:
        Refused: saying why.
    """
    path, notes = (path, []) if path else find(part, folder)
    modules = [(file.stem, text(file)) for file in sorted(folder.glob("*.py"))[:MODULES] if file != path]
    if path.name == ADAPTERS:
        return Submission([*files(modules), ("adapters", text(path))], notes, functions=True)
    cells, more = arranged(notebook(path), notebook(release))
    return Submission([*files(modules), *cells], [*notes, *more])


def find(part: Assignment, folder: Path) -> tuple[Path, list[str]]:
    """Return the file to grade, and notes."""
    if folder.is_symlink() or not folder.is_dir():
        raise Refused("nothing was handed in")
    wanted = folder / f"{part.name}.ipynb"
    if wanted.exists() or wanted.is_symlink():
        return wanted, []
    others = sorted(folder.glob("*.ipynb"))
    if len(others) == 1:
        return others[0], [f"the notebook is called {others[0].name}, wanted {wanted.name}"]
    if (folder / ADAPTERS).exists():
        return folder / ADAPTERS, []
    raise Refused(f"there is no {wanted.name}" + (f", but {len(others)} other notebooks" if others else ""))


def text(path: Path) -> str:
    """Return a file's text; it must be a plain file of reasonable size."""
    if path.is_symlink() or not path.is_file():
        raise Refused(f"{path.name} is no plain file")
    if path.stat().st_size > LARGEST:
        raise Refused(f"{path.name} has more than {LARGEST // 2**20} MiB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{path.name} is no text") from None


def files(modules: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return cells that write further modules, which the others may import."""
    return [(f"file_{name}", f"import pathlib; pathlib.Path({name + '.py'!r}).write_text({source!r})")
            for name, source in modules]


def notebook(path: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook, each as {"name", "source"}; name is None for one without a grade id.

    Raises:
        Refused: if it is no notebook.
    """
    content = text(path)
    if not content.strip():
        raise Refused(f"{path.name} is empty")
    try:
        cells = json.loads(content)["cells"]
        if len(cells) > CELLS:
            raise Refused(f"{path.name} has more than {CELLS} cells")
        found = []
        for cell in cells:
            if cell["cell_type"] == "code":
                source = cell["source"]
                source = "".join(source) if isinstance(source, list) else source
                name = cell.get("metadata", {}).get("nbgrader", {}).get("grade_id") or cell.get("id")
                found.append({"name": name if isinstance(name, str) else None, "source": source + ""})
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{path.name} is no notebook ({type(error).__name__})") from None


def arranged(cells: list[dict[str, Any]], release: list[dict[str, Any]]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the cells to run and notes: given ones as released, checks left out, everything else as handed in."""
    original = {cell["name"]: cell["source"] for cell in release}
    seen = [cell["name"] for cell in cells]
    locked = [name for name in original if not name.endswith("-answer") and not name.startswith("scratch-")]
    edited = [cell["name"] for cell in cells
              if cell["name"] in locked and cell["source"].strip() != original[cell["name"]].strip()]
    gone = [name for name in original if name not in seen]
    notes = []
    if edited:
        notes.append(f"edited cells were replaced by the original ones: {', '.join(edited)}")
    if gone:
        notes.append(f"cells are missing: {', '.join(gone)}")
    runs = [(name, original[name]) for name in gone if name.startswith("given-")]
    taken = {name for name, _ in runs}
    for number, cell in enumerate(cells):
        name = cell["name"]
        if name in original and (name.startswith(SKIPPED) or name.endswith("-check")):
            continue
        source = original[name] if name in locked else without_magics(cell["source"])
        known = name if name in original else f"cell-{number}"
        runs.append((known if known not in taken else f"{known}-{number}", source))
        taken.add(known)
    return runs, notes


def without_magics(source: str) -> str:
    """Return a cell without the lines that only IPython understands."""
    return re.sub(r"^([ \t]*)[%!?].*$", r"\1pass", source, flags=re.MULTILINE)


def digest(folder: Path) -> str:
    """Return a hash of what is in a submission, names included; links are not followed, large files only measured."""
    total, files = hashlib.sha256(), 0
    for place, below, names in os.walk(folder if folder.is_dir() and not folder.is_symlink() else os.devnull):
        below.sort()
        if len(Path(place).parts) - len(folder.parts) > 10:
            below.clear()
        for name in sorted(names)[:FILES]:
            path = Path(place, name)
            about = path.lstat()
            total.update(b"\0".join([os.fsencode(path), str(about.st_size).encode()]))
            if stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST:
                with path.open("rb") as file:
                    total.update(hashlib.file_digest(file, "sha256").digest())
            elif stat.S_ISREG(about.st_mode):
                total.update(str(about.st_mtime_ns).encode())
        files += len(names)
        if files > FILES:
            break
    return total.hexdigest()
