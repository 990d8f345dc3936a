"""Which tiles of the attention kernels are fastest on a GPU: a few of each, beside the table's.

A row is CCA's forward, or forward and backward together, with one kernel's tiles changed.
"""

from functools import partial
from itertools import product

import torch

from cca_lab.attention.kernels.configs import KERNELS, Blocks, blocks_for
from cca_lab.attention.kernels.interval import triton_attention
from cca_lab.attention.kernels.launch import backend_name
from cca_lab.attention.sources import halves, split_intervals
from cca_lab.mechanisms.cca import groups
from cca_lab.reporting import device
from cca_lab.studies.benchmarks.gpu.section import Section, Sizes, random_tensors, timed
from cca_lab.studies.benchmarks.gpu.speed import DTYPE, sources
from cca_lab.studies.benchmarks.timing import median_and_range

HEAD_DIMS = (128, 64)
SHAPES = ((64, 64, 4), (64, 64, 8), (128, 64, 4), (128, 64, 8), (64, 128, 8), (32, 128, 8),
          (128, 128, 8))
STAGES = (2, 3)


def run(sizes: Sizes, section: Section) -> None:
    """Time the tiles of every kernel; those that do not fit on the GPU are errors."""
    for kernel, head_dim in product(KERNELS, HEAD_DIMS if sizes.name == "real" else (16,)):
        section.attempt(f"{kernel}, head dim {head_dim}",
                        partial(measure, sizes, section, kernel, head_dim))


def measure(sizes: Sizes, section: Section, kernel: str, head_dim: int) -> None:
    """Time a kernel's candidates on CCA's columns at the first length, in rotating order."""
    length, (group, window) = sizes.lengths[0], sizes.settings[0]
    q, k, v = (x.requires_grad_() for x in random_tensors(
        *[(1, sizes.heads, length, head_dim)] * 3, dtype=DTYPE))
    leaves = sources(q, k, v, group, window)
    tables = split_intervals(groups.intervals(length, group, window).to(device()),
                             [x.shape[2] for x in halves(leaves[1:])[0]])
    table = {name: blocks_for(name, head_dim, DTYPE.itemsize, backend_name()) for name in KERNELS}

    def call(blocks: Blocks) -> None:
        out, _ = triton_attention(leaves[0], *halves(leaves[1:]), tables, head_dim**-0.5,
                                  blocks=list((table | {kernel: blocks}).values()))
        if kernel != "forward":
            torch.autograd.grad(out, leaves, torch.ones_like(out))

    tried = [Blocks(*shape, stages) for shape, stages in product(SHAPES, STAGES)]
    tried = tried if sizes.name == "real" else [Blocks(16, 32, 4, 1), Blocks(32, 16, 4, 1)]
    candidates = {str(tuple(blocks)): blocks for blocks in [table[kernel], *tried]}
    times, errors = timed({name: partial(call, blocks) for name, blocks in candidates.items()},
                          sizes.rounds, sizes.least)
    for name, blocks in candidates.items():
        row = {"kernel": kernel, "head_dim": head_dim, **blocks._asdict(),
               "of_table": blocks == table[kernel]}
        if name in errors:
            section.add(case=f"{kernel}, head dim {head_dim}, {name}", error=errors[name], **row)
        else:
            seconds, spread = median_and_range(times[name])
            section.add(**row, seconds=seconds, range=spread)
