"""Freed memory that is kept: a tensor of the size of the last one costs no page faults."""

import os
import platform
import subprocess
import sys

import pytest

from cca_lab.freed_memory import KEPT

TENSORS, BYTES, PAGE = 20, 48 << 20, 4096
PROGRAM = """
import resource, sys
import torch
from cca_lab import freed_memory
if sys.argv[1] != "before":
    assert freed_memory.keep_freed_memory() is freed_memory.kept() is True
for turn in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(int(sys.argv[2])):
        torch.zeros(int(sys.argv[3]) // 4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(program, *arguments, **environment):
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True,
                          text=True, timeout=60, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are glibc's")
def test_a_tensor_of_the_size_of_the_last_one_costs_no_page_faults():
    faults = {kind: int(run(PROGRAM, kind, str(TENSORS), str(BYTES)))
              for kind in ("before", "kept")}
    assert faults["kept"] < TENSORS * BYTES / PAGE / 50 < faults["before"], faults


def test_what_the_user_has_set_is_left_alone():
    ask = "from cca_lab.freed_memory import keep_freed_memory; print(keep_freed_memory())"
    assert run(ask, MALLOC_TRIM_THRESHOLD_=str(KEPT)) == "False"
    assert run(ask, MALLOC_MMAP_THRESHOLD_=str(KEPT)) == "False"
