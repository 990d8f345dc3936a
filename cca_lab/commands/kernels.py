"""`cca-lab kernels report`: what each kernel takes on each target, compiled here without a GPU."""

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from cca_lab.attention.fused import require_triton
from cca_lab.bench.report import print_table, write_json
from cca_lab.commands.progress import training_progress

if TYPE_CHECKING:
    from cca_lab.attention.kernels.offline import Resources

DTYPE = torch.bfloat16  # what models run in on a GPU


def report(out: Path | None = None) -> dict:
    """Compile every kernel for every target, print the table, and write it if asked.

    Args:
        out: a JSON file, which appears complete or not at all.

    Returns:
        {"triton": version, "kernels": one entry a kernel, target and head dimension}.

    Raises:
        ValueError: without triton; if a kernel takes more than its budget, after the table is printed.
    """
    require_triton()
    from cca_lab.attention.kernels.offline import HEAD_DIMS, SHARED_LIMIT, TARGETS, over_budget, resources

    found: list[Resources] = []
    jobs = [(target, head_dim) for target in TARGETS for head_dim in HEAD_DIMS]
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
