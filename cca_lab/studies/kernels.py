"""The resources of each kernel on each target, compiled without a GPU: `cca-lab study kernels`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch

from cca_lab.attention.fused import require_triton
from cca_lab.reporting import training_progress
from cca_lab.studies.benchmarks.results import chosen
from cca_lab.studies.study import markdown, result_file

DTYPE = torch.bfloat16  # the usual dtype of models on a GPU


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Compile every kernel for each target, without a GPU, and show what it uses."""

    target: tuple[str, ...] = ()
    """Targets to compile for; without the option sm_80, sm_90, sm_100 and gfx942."""
    out: Path | None = None
    """JSON file to write."""

    def run(self) -> None:
        """Compile, write and print; ValueError without triton or over a kernel's budget."""
        require_triton()
        from cca_lab.attention.kernels.offline import HEAD_DIMS, TARGETS, over_budget, resources

        jobs = list(product(chosen("target", self.target, TARGETS), HEAD_DIMS))
        found = []
        with result_file(self.out) as result, training_progress("compiling", len(jobs)) as progress:
            for done, (target, head_dim) in enumerate(jobs, start=1):
                found += resources(target, DTYPE, head_dim)
                progress(done, f"{target}, head dim {head_dim}")
            result |= {"triton": version("triton"), "kernels": list(map(asdict, found))}
        print(table(result))
        if problems := [problem for kernel in found for problem in over_budget(kernel)]:
            raise ValueError("kernels: over budget: " + "; ".join(problems))


def table(result: Mapping[str, Any]) -> str:
    """Return the table with a row for each kernel, target and head dimension."""
    from cca_lab.attention.kernels.offline import SHARED_LIMIT

    return markdown(
        ["kernel", "target", "head dim", "registers", "spilled B", "shared B",
         "matrix instructions"],
        [[row["kernel"], row["target"], str(row["head_dim"]), str(row["registers"]),
          str(row["spilled"]), f"{row['shared']} of {SHARED_LIMIT[row['target']]}",
          ", ".join(f"{count} {name}" for name, count in row["matrix_instructions"].items())
          or "none"] for row in result["kernels"]],
        f"{str(DTYPE).removeprefix('torch.')}, triton {result['triton']}.")
