"""Paths of the lab's own files, independent of the folder in which a notebook or a command runs."""

import os
from pathlib import Path

CLONE = "work in a clone and install it with `pip install -e .`"
ADVICE = f"{CLONE}, or point CCA_LAB_DATA to its data folder"
SHIPPED = Path("data", "models")  # prefix by which a shipped model is named, wherever the data folder is


def in_clone() -> bool:
    """Return whether this package was installed from a clone in editable mode, not from a wheel."""
    return (Path(__file__).resolve().parents[1] / "pyproject.toml").is_file()


def repository() -> Path:
    """Return the root of the clone that this package was installed from.

    Raises:
        ValueError: if the package was not installed from a clone in editable mode.
    """
    if not in_clone():
        raise ValueError(f"repository: no pyproject.toml beside {Path(__file__).parent}; {CLONE}")
    return Path(__file__).resolve().parents[1]


def data_folder() -> Path:
    """Return the folder of the shipped data: `CCA_LAB_DATA` if set, else the clone's, else the wheel's copy.

    Raises:
        ValueError: if there is no such folder.
    """
    chosen = os.environ.get("CCA_LAB_DATA")
    packed = Path(__file__).resolve().parent / "_data"
    folder = Path(chosen).resolve() if chosen else repository() / "data" if in_clone() else packed
    if not folder.is_dir():
        source = "CCA_LAB_DATA" if chosen else "the clone" if in_clone() else "the package"
        raise ValueError(f"data folder: {folder} (from {source}) is not a folder; {ADVICE}")
    return folder


def shipped_model(path: Path) -> Path:
    """Return the path of the shipped model named `data/models/NAME` in the data folder; any other path unchanged."""
    return models_folder() / path.name if path.parent == SHIPPED and not path.exists() else path


def models_folder() -> Path:
    """Return the folder of the shipped base models, one subfolder each."""
    return data_folder() / "models"


def results_folder() -> Path:
    """Return the folder of the shipped measurements, JSON files."""
    return data_folder() / "results"


def new_result(name: str) -> Path:
    """Return the default path of a new measurement: the results folder in a clone or with CCA_LAB_DATA, else `name`."""
    return results_folder() / name if in_clone() or "CCA_LAB_DATA" in os.environ else Path(name)


def course_folder() -> Path:
    """Return the folder of the course in the clone, `lab/`.

    Raises:
        ValueError: if the package was not installed from a clone.
    """
    return repository() / "lab"


def notebooks_folder() -> Path:
    """Return the folder of the notebooks of the clone."""
    return repository() / "notebooks"
