"""One kernel compiled for a GPU, in its own process: this one may interpret its kernels.

`python -m cca_lab.attention.kernels.compiled KERNEL TARGET` is that process; it prints JSON. With a
file of source in the place of a kernel's name, it reads from standard input what to launch.
"""

import ast
import importlib.util
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    return _in_a_process(kernel, target)


def compiled_launch(launcher: Callable[..., Any], *inputs: Any, target: str = "sm_90") -> Compiled:
    """Compile the kernel that a reader's launcher starts, for an NVIDIA target.

    Args:
        launcher: starts one kernel; both stand in one cell or file.
        inputs: what it is called with, tensors and numbers; only their shapes and types matter.
        target: such as "sm_90", an H100.

    Raises:
        NotImplementedError: if the kernel is not written yet.
        RuntimeError: with the end of the compiler's error output, if it fails.
    """
    import torch

    written = ast.parse("".join(linecache.getlines(launcher.__code__.co_filename)))
    written.body = [node for node in written.body if isinstance(node, (
        ast.FunctionDef, ast.Import, ast.ImportFrom))]
    if any(isinstance(node, ast.Raise) and getattr(node.exc, "id", "") == "NotImplementedError"
           for node in ast.walk(written)):
        raise NotImplementedError(launcher.__name__)
    described = [{"shape": list(x.shape), "dtype": str(x.dtype).removeprefix("torch.")}
                 if isinstance(x, torch.Tensor) else x for x in inputs]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "launch.py"
        source.write_text("import math\n\nimport torch\n\n"
                          "from cca_lab.attention.kernels.language import tl, triton\n\n\n"
                          f"{ast.unparse(written)}\n", encoding="utf-8")
        return _in_a_process(str(source), target,
                             json.dumps({"launcher": launcher.__name__, "inputs": described}))


def _in_a_process(kernel: str, target: str, described: str = "") -> Compiled:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    with tempfile.TemporaryDirectory() as cache:
        run = subprocess.run([sys.executable, "-m", __name__, kernel, target], capture_output=True,
                             text=True, env=environment | {"TRITON_CACHE_DIR": cache}, check=False,
                             input=described)
    if run.returncode:
        name = json.loads(described)["launcher"] if described else kernel
        raise RuntimeError(f"{name} did not compile for {target}: {run.stderr[-500:]}")
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

    def launch(dtype: torch.dtype, head_dim: int) -> None:
        _launch(kernel, dtype, head_dim) if kernel in DTYPES else written(*inputs)

    if kernel not in DTYPES:
        described = json.load(sys.stdin)
        spec = importlib.util.spec_from_file_location("launch", kernel)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        written = getattr(module, described["launcher"])
        inputs = [torch.zeros(x["shape"], dtype=getattr(torch, x["dtype"]))
                  if isinstance(x, dict) else x for x in described["inputs"]]
    dtype = getattr(torch, DTYPES.get(kernel, "float32"))
    taken = resources(target, dtype, HEAD_DIM, launch)[-1]
    with compile_only(target) as again:  # from the cache
        launch(dtype, HEAD_DIM)
    return Compiled(taken.kernel if kernel not in DTYPES else kernel, target, taken.dtype,
                    taken.registers, taken.spilled, taken.shared, taken.matrix_instructions,
                    tuple(instructions_of(again[-1][1].asm["ptx"])))


if __name__ == "__main__":
    print(json.dumps(asdict(_compile(*sys.argv[1:]))))
