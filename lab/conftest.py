"""`pytest lab -m a5_2` checks one task of lab/a5.py, `-m a5` all of it, `pytest lab` every file."""

import os
from pathlib import Path

# Before anything imports Triton: kernels run without a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from cca_lab.course.registry import ASSIGNMENTS

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Collect one file of this folder: others, such as a submission's conftest.py, would run."""
    inside = HERE in collection_path.parents
    return True if inside and collection_path != HERE / "test_answers.py" else None


def pytest_configure(config: pytest.Config) -> None:
    """Make a marker of each assignment and task."""
    for assignment in ASSIGNMENTS.values():
        config.addinivalue_line("markers", f"{assignment.id}: {assignment.title}")
        for task in assignment.tasks:
            config.addinivalue_line("markers", f"{task.id.replace('.', '_')}: {task.title}")
