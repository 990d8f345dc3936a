"""Compiling kernels for GPUs that this machine need not have, exactly as their launchers would.

A substitute for the GPU driver names a target; launches then compile and do not run. The compiler
reports the resources of each kernel: registers, spills, shared memory, matrix instructions.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from cca_lab.attention.kernels import launch

TARGETS = {"sm_80": GPUTarget("cuda", 80, 32), "sm_90": GPUTarget("cuda", 90, 32),
           "sm_100": GPUTarget("cuda", 100, 32)}
MATRIX_INSTRUCTIONS = r"wgmma\.mma_async|tcgen05\.mma|mma\.sync"


@dataclass(frozen=True)
class Resources:
    """The resources of one compiled kernel.

    Attributes:
        registers: registers of a thread.
        spilled: bytes that a thread spills to memory (stores).
        shared: bytes of shared memory of a program.
        matrix_instructions: number of matrix instructions in the code, by name.
    """

    kernel: str
    target: str
    dtype: str
    head_dim: int
    registers: int
    spilled: int
    shared: int
    matrix_instructions: dict[str, int]


class _Driver:
    """The part of a driver that Triton uses while it compiles."""

    def __init__(self, name: str) -> None:
        self.target, self.number = TARGETS[name], list(TARGETS).index(name)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return self.number  # kernels are cached by device, so each target is a separate device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@contextmanager
def compile_only(target: str) -> Iterator[list[tuple[str, Any]]]:
    """Make every launch compile, not run; yield a list of (kernel name, compiled kernel).

    Raises:
        ValueError: under TRITON_INTERPRET=1, which does not compile kernels.
    """
    if launch.INTERPRETED:
        raise ValueError(
            "TRITON_INTERPRET: got 1, wanted it unset: interpreted kernels are not compiled")
    compiled: list[tuple[str, Any]] = []
    run, check_device = JITFunction.run, launch.check_device

    def compile_launch(self: JITFunction, *args: Any, warmup: bool = False, **kwargs: Any) -> Any:
        kernel = run(self, *args, warmup=True, **kwargs)
        compiled.append((self.fn.__name__, kernel))
        return kernel

    driver.set_active(_Driver(target))
    JITFunction.run = compile_launch
    launch.check_device = lambda x: None
    try:
        yield compiled
    finally:
        JITFunction.run = run
        driver._active = None
        launch.check_device = check_device


def resources(target: str, dtype: torch.dtype, head_dim: int,
              launch: Callable[[torch.dtype, int], None]) -> list[Resources]:
    """Compile what is launched for a target; return the resources of each, in order of launches."""
    with compile_only(target) as compiled:
        launch(dtype, head_dim)
    name = str(dtype).removeprefix("torch.")
    return [Resources(kernel, target, name, head_dim, *_registers(code, target),
                      code.metadata.shared, _matrix(code)) for kernel, code in compiled]


def _registers(code: Any, target: str) -> tuple[int, int]:
    """Return the registers and spilled bytes of a thread, as the assembler reports them."""
    from triton.backends.nvidia.compiler import get_ptxas

    ptx = code.asm["ptx"]
    (architecture,) = re.findall(r"^\.target (\S+?),?\s", ptx, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [get_ptxas(TARGETS[target].arch).path, "-v", f"--gpu-name={architecture}",
                   str(source), "-o", str(source.with_suffix(".cubin"))]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return _number(r"Used (\d+) registers", log), _number(r"(\d+) bytes spill stores", log)


def _number(pattern: str, text: str) -> int:
    return int(re.findall(pattern, text)[0])


def _matrix(code: Any) -> dict[str, int]:
    found = re.findall(MATRIX_INSTRUCTIONS, code.asm["ptx"])
    return {name: found.count(name) for name in sorted(set(found))}
