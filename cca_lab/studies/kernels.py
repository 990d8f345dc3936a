"""The resources of each kernel on each target, compiled without a GPU: `cca-lab study kernels`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import torch

from cca_lab.attention.fused import require_triton
from cca_lab.reporting import print_table, training_progress
from cca_lab.settings import option
from cca_lab.studies.study import Study

DTYPE = torch.bfloat16  # the usual dtype of models on a GPU


@dataclass(frozen=True, kw_only=True)
class Kernels(Study):
    """Compile every kernel for each target, without a GPU, and show what it uses."""

    target: tuple[str, ...] = option((), "Target to compile for; repeatable.",
                                     shown="sm_80, sm_90, sm_100 and gfx942")

    def run(self) -> dict[str, Any]:
        """Compile, write and print; ValueError without triton or over a kernel's budget."""
        result = super().run()
        from cca_lab.attention.kernels.offline import Resources, over_budget

        problems = [problem for row in result["kernels"]
                    for problem in over_budget(Resources(**row))]
        if problems:
            raise ValueError("kernels: over budget: " + "; ".join(problems))
        return result

    def result(self) -> dict[str, Any]:
        """Compile every kernel for every target and head dimension."""
        require_triton()
        from cca_lab.attention.kernels.offline import HEAD_DIMS, TARGETS, resources

        for target in self.target:
            if target not in TARGETS:
                raise ValueError(f"target: got {target!r}, wanted one of {', '.join(TARGETS)}")
        kernels: list[dict[str, Any]] = []
        jobs = [(target, head_dim) for target in self.target or TARGETS for head_dim in HEAD_DIMS]
        with training_progress("compiling", len(jobs)) as progress:
            for done, (target, head_dim) in enumerate(jobs, start=1):
                kernels += [asdict(row) for row in resources(target, DTYPE, head_dim)]
                progress(done, f"{target}, head dim {head_dim}")
        return {"triton": version("triton"), "kernels": kernels}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print a row for each kernel, target and head dimension."""
        from cca_lab.attention.kernels.offline import SHARED_LIMIT

        rows = [[row["kernel"], row["target"], row["head_dim"], row["registers"], row["spilled"],
                 f"{row['shared']} of {SHARED_LIMIT[row['target']]}",
                 ", ".join(f"{count} {name}" for name, count in row["matrix_instructions"].items())
                 or "none"]
                for row in result["kernels"]]
        print_table(f"{str(DTYPE).removeprefix('torch.')}, triton {result['triton']}",
                    ["kernel", "target", "head dim", "registers", "spilled B", "shared B",
                     "matrix instructions"],
                    rows)
