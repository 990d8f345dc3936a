"""A reader's kernel compiled for a GPU, in its own process: this one may interpret its kernels.

`python -m cca_lab.attention.kernels.compiled SOURCE TARGET` is that process. It reads from standard
input what to launch, and prints JSON.
"""

import ast
import importlib.util
import json
import linecache
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cca_lab.attention.kernels.offline import Resources


def compiled_launch(launcher: Callable[..., Any], *inputs: Any,
                    target: str = "sm_90") -> "Resources":
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

    from cca_lab.attention.kernels.offline import Resources

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
        environment = {name: value for name, value in os.environ.items()
                       if name != "TRITON_INTERPRET"}
        run = subprocess.run([sys.executable, "-m", __name__, str(source), target],
                             capture_output=True, text=True, check=False,
                             env=environment | {"TRITON_CACHE_DIR": folder},
                             input=json.dumps({"launcher": launcher.__name__, "inputs": described}))
    if run.returncode:
        raise RuntimeError(f"{launcher.__name__} did not compile for {target}: {run.stderr[-500:]}")
    return Resources(**json.loads(run.stdout))


def _compile(source: str, target: str) -> "Resources":
    import torch

    from cca_lab.attention.kernels.offline import resources

    described = json.load(sys.stdin)
    spec = importlib.util.spec_from_file_location("launch", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs = [torch.zeros(x["shape"], dtype=getattr(torch, x["dtype"]))
              if isinstance(x, dict) else x for x in described["inputs"]]
    return resources(target, torch.float32, 0,
                     lambda *_: getattr(module, described["launcher"])(*inputs))[-1]


if __name__ == "__main__":
    print(json.dumps(asdict(_compile(*sys.argv[1:]))))
