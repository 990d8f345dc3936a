"""One kernel compiled for a GPU, in its own process: this one may interpret its kernels.

`python -m cca_lab.attention.kernels.compiled KERNEL TARGET` is that process; it prints JSON.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Shapes of a typical model: 8 query heads on 2 KV heads of 64 features, in the dtype the kernel is
# used with.
DTYPES = {"causal_softmax": "float32", "pooling_forward": "bfloat16",
          "interval_forward": "bfloat16"}
HEAD_DIM = 64
INSTRUCTION = re.compile(r"\s*((?:@!?%p\d+\s+)?[a-z][\w.:]*(?:\s.*)?;)")


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one target, see `offline.Resources`.

    Attributes:
        instructions: the lines of its PTX, in order; long lists of registers are shortened.
    """

    kernel: str
    target: str
    dtype: str
    registers: int
    spilled: int
    shared: int
    matrix_instructions: dict[str, int]
    instructions: tuple[str, ...]

    def __str__(self) -> str:
        matrix = ", ".join(f"{count} x {name}"
                           for name, count in self.matrix_instructions.items()) or "none"
        return (f"{self.kernel} on {self.target}, {self.dtype}: {self.registers} registers a "
                f"thread, {self.spilled} bytes spilled, {self.shared} bytes of shared memory, "
                f"matrix instructions: {matrix}")

    def excerpt(self, name: str, before: int = 0, after: int = 0) -> str:
        """Return the first instruction that starts with `name`, and neighbours; "" without one."""
        for index, line in enumerate(self.instructions):
            if line.split()[line.startswith("@")].startswith(name):
                return "\n".join(self.instructions[max(0, index - before) : index + after + 1])
        return ""


def compiled(kernel: str, target: str = "sm_90") -> Compiled:
    """Compile a kernel of `DTYPES` for an NVIDIA target; this machine need not have it.

    Raises:
        ValueError: for a kernel that is not in `DTYPES`.
        RuntimeError: with the end of the compiler's error output, if it fails.
    """
    if kernel not in DTYPES:
        raise ValueError(f"kernel: got {kernel!r}, wanted one of {', '.join(DTYPES)}")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    with tempfile.TemporaryDirectory() as cache:
        run = subprocess.run([sys.executable, "-m", __name__, kernel, target], capture_output=True,
                             text=True, env=environment | {"TRITON_CACHE_DIR": cache}, check=False)
    if run.returncode:
        raise RuntimeError(f"{kernel} did not compile for {target}: {run.stderr[-500:]}")
    printed = json.loads(run.stdout)
    return Compiled(**{**printed, "instructions": tuple(printed["instructions"])})


def instructions_of(ptx: str) -> list[str]:
    """Return the instructions of a PTX text, without directives, labels and debug information."""
    lines = [match[1] for match in map(INSTRUCTION.match, ptx.splitlines()) if match]
    lines = [re.sub(r"(%\w+)(?:,\s*%\w+){5,},\s*(%\w+)", r"\1, ..., \2", line) for line in lines]
    return [re.sub(r"\s+", " ", line) for line in lines]


def _launch(kernel: str, dtype: "torch.dtype", head_dim: int) -> None:
    """Launch one kernel as its wrapper does."""
    import torch

    from cca_lab.attention.kernels import interval, lessons, pooling

    def tensor(*heads: int, length: int = 1024) -> "torch.Tensor":
        return torch.zeros(*heads, length, head_dim, dtype=dtype)

    if kernel == "causal_softmax":
        lessons.causal_weights(torch.zeros(1024, 1024))
    elif kernel == "pooling_forward":
        pooling.triton_pool_groups(tensor(1, 8), tensor(1, 2), tensor(1, 2), 16, 64, 0.125)
    else:
        intervals = torch.zeros(1, 1, 1024, 2, 2, dtype=torch.int64)
        key = tensor(1, 2, length=1088)
        interval.triton_attention(tensor(1, 8), key, key, intervals, 0.125)


def _compile(kernel: str, target: str) -> Compiled:
    import torch

    from cca_lab.attention.kernels.offline import compile_only, resources

    dtype = getattr(torch, DTYPES[kernel])

    def launch(dtype: torch.dtype, head_dim: int) -> None:
        _launch(kernel, dtype, head_dim)

    (taken,) = resources(target, dtype, HEAD_DIM, launch)
    with compile_only(target) as again:  # from the cache
        launch(dtype, HEAD_DIM)
    ((_, code),) = again
    return Compiled(kernel, target, taken.dtype, taken.registers, taken.spilled, taken.shared,
                    taken.matrix_instructions, tuple(instructions_of(code.asm["ptx"])))


if __name__ == "__main__":
    print(json.dumps(asdict(_compile(*sys.argv[1:]))))
