"""Runs `kernels/` in Triton's interpreter and, as if Triton did not exist, in the lab's."""

import os
import subprocess
import sys

import pytest
import torch

from cca_lab.attention.fused import installed
from cca_lab.files import repository

FILES = ("test_interval.py", "test_pooling.py", "test_decode.py", "test_vertical_slash.py",
         "test_eviction.py", "test_mechanisms.py", "test_caches.py", "test_lessons.py",
         "test_bounds.py", "test_tracing.py", "test_tile_language.py", "test_both_interpreters.py")


# what runs the kernels, and what Python's path needs for it
INTERPRETERS = {"Triton's": "", "the lab's": str(repository() / "tests" / "without_triton")}


@pytest.mark.skipif(torch.cuda.is_available(),
                    reason="the kernels run on the GPU, in tests/attention/kernels itself")
@pytest.mark.parametrize(("file", "interpreter"), [
    (file, interpreter) for file in FILES for interpreter in INTERPRETERS
    if (interpreter != "Triton's" or installed())
    and (file, interpreter) != ("test_both_interpreters.py", "the lab's")])
def test_kernels_under_an_interpreter(file, interpreter):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
               f"tests/attention/kernels/{file}"]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    if path := INTERPRETERS[interpreter]:
        environment["PYTHONPATH"] = path
    run = subprocess.run(command, cwd=repository(), env=environment, capture_output=True,
                         text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout and "skipped" not in run.stdout, run.stdout[-500:]


def test_every_file_of_kernels_is_run():
    folder = repository() / "tests" / "attention" / "kernels"
    assert {path.name for path in folder.glob("test_*.py")} == set(FILES)
