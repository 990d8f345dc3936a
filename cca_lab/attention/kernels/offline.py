"""Compiling the kernels for GPUs that this machine need not have, exactly as their launchers would.

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
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from cca_lab.attention.kernels import decode, eviction, interval, launch, pooling, vertical_slash

TARGETS = {"sm_80": GPUTarget("cuda", 80, 32), "sm_90": GPUTarget("cuda", 90, 32),
           "sm_100": GPUTarget("cuda", 100, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}
# bytes a program
SHARED_LIMIT = {"sm_80": 166_912, "sm_90": 232_448, "sm_100": 232_448, "gfx942": 65_536}
MATRIX_INSTRUCTIONS = r"wgmma\.mma_async|tcgen05\.mma|mma\.sync|v_mfma_"
HEAD_DIMS = (64, 128)
# Allowed spills, in bytes of a thread, 0 elsewhere: the column kernel holds two accumulators and
# four operands.
SPILLS = {("interval_backward_columns", "sm_80", 64): 136,
          ("interval_backward_columns", "sm_90", 128): 484,
          ("interval_backward_columns", "sm_100", 128): 152}


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


def launch_everything(dtype: torch.dtype, head_dim: int) -> None:
    """Launch every kernel once, with cores and raw tokens as CCA has, and grouped queries."""
    def tensor(heads: int, length: int) -> Tensor:
        return torch.zeros(1, heads, length, head_dim, dtype=dtype, requires_grad=True)

    intervals = torch.zeros(1, 1, 1024, 1, 2, dtype=torch.int64)
    q, k, v, cores = tensor(8, 1024), tensor(2, 1024), tensor(2, 1024), tensor(2, 64)
    out, _ = interval.triton_attention(q, (cores, k), (cores, v), (intervals, intervals), 0.125)
    torch.autograd.grad(out.sum(), q)
    turn = (torch.zeros(1, 1024, head_dim), torch.zeros(1, 1024, head_dim))
    core, _ = pooling.triton_pool_groups(q, k, v, 16, 64, 0.125, turn)
    torch.autograd.grad(core.sum(), q)
    with torch.no_grad():
        decode.triton_decode(tensor(8, 1), tensor(2, 1088), tensor(2, 1088), 0.125)
        columns, offsets = (torch.arange(64).expand(1, 8, -1) for _ in range(2))
        vertical_slash.triton_vertical_slash(tensor(8, 1024), tensor(2, 1024), tensor(2, 1024),
                                             columns, offsets, 64, 0.125)
        eviction.triton_evicting_rows(torch.zeros(1, 2, 4, 64, 1024), torch.zeros(1, 2, 511),
                                      torch.zeros(1, 2, 511), 960, 255)


def resources(target: str, dtype: torch.dtype, head_dim: int,
              launch: Callable[[torch.dtype, int], None] = launch_everything) -> list[Resources]:
    """Compile every kernel for a target; return the resources of each, in order of launches."""
    with compile_only(target) as compiled:
        launch(dtype, head_dim)
    name = str(dtype).removeprefix("torch.")
    return [Resources(kernel, target, name, head_dim, *_registers(code, target),
                      code.metadata.shared, _matrix(code)) for kernel, code in compiled]


def _registers(code: Any, target: str) -> tuple[int, int]:
    """Return the registers and spilled bytes of a thread, as the assembler reports them."""
    if "amdgcn" in code.asm:
        text = code.asm["amdgcn"]
        return _number(r"\.vgpr_count:\s+(\d+)",
                       text), 4 * _number(r"\.vgpr_spill_count:\s+(\d+)", text)
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
    found = re.findall(MATRIX_INSTRUCTIONS, code.asm.get("ptx") or code.asm["amdgcn"])
    return {name: found.count(name) for name in sorted(set(found))}


def over_budget(found: Resources) -> list[str]:
    """Return one line for each excess of a kernel over the shared memory or the allowed spills."""
    limit, spills = SHARED_LIMIT[found.target], SPILLS.get((found.kernel, found.target,
                                                            found.head_dim), 0)
    where = f"{found.kernel} on {found.target}, head dim {found.head_dim}"
    problems = [f"{where}: {found.shared} bytes of shared memory, the target has {limit}"
                ] * (found.shared > limit)
    return problems + [f"{where}: spills {found.spilled} bytes, {spills} are allowed"
                       ] * (found.spilled > spills)
