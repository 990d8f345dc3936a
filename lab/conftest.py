"""`pytest lab -m a5_2` checks one task of adapters.py, `-m a5` one assignment, `pytest lab` everything."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton: kernels run without a GPU

import pytest

from cca_lab.course.registry import ASSIGNMENTS


def pytest_configure(config: pytest.Config) -> None:
    """Make a marker of each assignment and task."""
    for part in ASSIGNMENTS.values():
        config.addinivalue_line("markers", f"{part.id}: {part.title}")
        for task in part.tasks:
            config.addinivalue_line("markers", f"{task.id.replace('.', '_')}: {task.title}")
