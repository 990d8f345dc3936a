"""Where the lab's own files are, whatever folder a notebook or a command runs in."""

import os
from pathlib import Path

ADVICE = "work in a clone and install it with `pip install -e .`, or point CCA_LAB_DATA to its data folder"


def repository() -> Path:
    """Return the root of the clone that this package was installed from.

    Raises:
        ValueError: if the package was not installed from a clone in editable mode.
    """
    root = Path(__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file():
        raise ValueError(f"repository: no pyproject.toml beside {Path(__file__).parent}; {ADVICE}")
    return root


def data_folder() -> Path:
    """Return the folder of the shipped data: `CCA_LAB_DATA` if set, else `data/` of the clone.

    Raises:
        ValueError: if there is no such folder.
    """
    chosen = os.environ.get("CCA_LAB_DATA")
    folder = Path(chosen).resolve() if chosen else repository() / "data"
    if not folder.is_dir():
        source = "CCA_LAB_DATA" if chosen else "the clone"
        raise ValueError(f"data folder: {folder} (from {source}) is not a folder; {ADVICE}")
    return folder


def models_folder() -> Path:
    """Return the folder of the shipped base models, one subfolder each."""
    return data_folder() / "models"


def results_folder() -> Path:
    """Return the folder of the shipped measurements, JSON files."""
    return data_folder() / "results"


def notebooks_folder() -> Path:
    """Return the folder of the notebooks of the clone."""
    return repository() / "notebooks"
