"""`pytest lab -m a5_2` checks one task of adapters.py, `-m a5` an assignment, `pytest lab` all."""

import os

# Before anything imports Triton: kernels run without a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from cca_lab.course.registry import ASSIGNMENTS


def pytest_configure(config: pytest.Config) -> None:
    """Make a marker of each assignment and task."""
    for assignment in ASSIGNMENTS.values():
        config.addinivalue_line("markers", f"{assignment.id}: {assignment.title}")
        for task in assignment.tasks:
            config.addinivalue_line("markers", f"{task.id.replace('.', '_')}: {task.title}")
