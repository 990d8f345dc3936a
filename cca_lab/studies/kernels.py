"""`cca-lab kernels report`: the resources of each kernel on each target, compiled without a GPU."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from cca_lab.attention.fused import require_triton
from cca_lab.reporting import print_table, training_progress, write_json

if TYPE_CHECKING:
    from cca_lab.attention.kernels.offline import Resources

DTYPE = torch.bfloat16  # the usual dtype of models on a GPU


def report(out: Path | None = None, *, targets: Sequence[str] | None = None) -> dict:
    """Compile every kernel for every given target, print the table, and write it if requested.

    Args:
        out: a JSON file, which appears complete or not at all.
        targets: keys of `offline.TARGETS`; None for all.

    Returns:
        {"triton": version, "kernels": one entry per kernel, target and head dimension}.

    Raises:
        ValueError: without triton, or for an unknown target; or, after the table is printed, if a kernel exceeds its
            budget.
    """
    require_triton()
    from cca_lab.attention.kernels.offline import HEAD_DIMS, SHARED_LIMIT, TARGETS, over_budget, resources

    for target in targets or ():
        if target not in TARGETS:
            raise ValueError(f"target: got {target!r}, wanted one of {', '.join(TARGETS)}")
    found: list[Resources] = []
    jobs = [(target, head_dim) for target in targets or TARGETS for head_dim in HEAD_DIMS]
    with training_progress("compiling", len(jobs)) as progress:
        for done, (target, head_dim) in enumerate(jobs, start=1):
            found += resources(target, DTYPE, head_dim)
            progress(done, f"{target}, head dim {head_dim}")
    _print(found, SHARED_LIMIT)
    written = {"triton": version("triton"), "kernels": [asdict(resource) for resource in found]}
    if out is not None:
        write_json(out, written)
    problems = [problem for resource in found for problem in over_budget(resource)]
    if problems:
        raise ValueError("kernels: over budget: " + "; ".join(problems))
    return written


def _print(found: list["Resources"], limits: dict[str, int]) -> None:
    rows = [[row.kernel, row.target, row.head_dim, row.registers, row.spilled,
             f"{row.shared} of {limits[row.target]}",
             ", ".join(f"{count} {name}" for name, count in row.matrix_instructions.items()) or "none"]
            for row in found]
    print_table(f"{str(DTYPE).removeprefix('torch.')}, triton {version('triton')}",
                ["kernel", "target", "head dim", "registers", "spilled B", "shared B", "matrix instructions"], rows)
