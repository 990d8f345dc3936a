"""Runs `kernels/` interpreted, in a process of its own: Triton reads the switch at import."""

import os
import subprocess
import sys

import pytest
import torch

from cca_lab.attention.fused import installed
from cca_lab.files import repository

FILES = ("test_interval.py", "test_pooling.py", "test_decode.py", "test_vertical_slash.py",
         "test_mechanisms.py", "test_caches.py", "test_lessons.py", "test_bounds.py",
         "test_tracing.py")


@pytest.mark.skipif(torch.cuda.is_available(),
                    reason="the kernels run on the GPU, in tests/attention/kernels itself")
@pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
@pytest.mark.parametrize("file", FILES)
def test_kernels_under_the_interpreter(file):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
               f"tests/attention/kernels/{file}"]
    run = subprocess.run(command, cwd=repository(), env=os.environ | {"TRITON_INTERPRET": "1"},
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout and "skipped" not in run.stdout, run.stdout[-500:]


def test_every_file_of_kernels_is_run():
    folder = repository() / "tests" / "attention" / "kernels"
    assert {path.name for path in folder.glob("test_*.py")} == set(FILES)
