"""Runs `kernels/` in the lab's interpreter, as if Triton did not exist; nightly in Triton's too."""

import os
import subprocess
import sys

import pytest
import torch

from cca_lab.attention.fused import installed
from cca_lab.files import repository

KERNELS = "tests/attention/kernels"
BOTH = f"{KERNELS}/test_both_interpreters.py"
WITHOUT_TRITON = str(repository() / "tests" / "without_triton")

pytestmark = pytest.mark.skipif(torch.cuda.is_available(),
                                reason="the kernels run on the GPU, in kernels/ itself")
needs_triton = pytest.mark.skipif(not installed(), reason="triton exists for Linux only")


def run(*arguments: str, **environment: str) -> None:
    """Run tests of the folder in a process, in which kernels are interpreted; none is skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    found = subprocess.run(command, cwd=repository(),
                           env=os.environ | {"TRITON_INTERPRET": "1"} | environment,
                           capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]
    assert " passed" in found.stdout and "skipped" not in found.stdout, found.stdout[-500:]


def test_kernels_in_the_labs_interpreter():
    run(KERNELS, f"--ignore={BOTH}", PYTHONPATH=WITHOUT_TRITON)


@needs_triton
def test_a_mechanism_in_both_interpreters():
    run(BOTH, "-k", "float32 and cca")


@pytest.mark.nightly
@needs_triton
def test_all_kernels_in_tritons_interpreter():
    run(KERNELS)
