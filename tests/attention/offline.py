"""Compiling kernels for an H100 that this machine need not have, exactly as their launchers would.

A substitute for the GPU's driver names the target; launches then compile and do not run.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from cca_lab.attention.kernels import launch

MATRIX_INSTRUCTIONS = r"wgmma\.mma_async|mma\.sync"


class H100:
    """The part of a driver that Triton uses while it compiles."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")


def resources(launched):
    """Compile what is launched; return the spilled bytes and matrix instructions of each kernel.

    The process can run no kernel afterwards.
    """
    compiled, run = [], JITFunction.run

    def compile_launch(self, *args, warmup=False, **kwargs):
        compiled.append((self.fn.__name__, run(self, *args, warmup=True, **kwargs).asm["ptx"]))

    driver.set_active(H100())
    JITFunction.run, launch.check_device = compile_launch, lambda x: None
    launched()
    return [{"kernel": kernel, "spilled": spilled(code),
             "matrix_instructions": len(re.findall(MATRIX_INSTRUCTIONS, code))}
            for kernel, code in compiled]


def spilled(code):
    """Return the bytes that a thread stores to memory for want of registers, by the assembler."""
    (architecture,) = re.findall(r"^\.target (\S+?),?\s", code, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(code)
        command = [get_ptxas(90).path, "-v", f"--gpu-name={architecture}", str(source),
                   "-o", str(source.with_suffix(".cubin"))]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return int(re.findall(r"(\d+) bytes spill stores", log)[0])
