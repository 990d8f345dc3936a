"""The drawn geometry of what is read.

With a NaN in feature c of column c's value, feature c becomes NaN in every row whose program reads
that column, even with weight 0.
"""

import torch

from cca_lab.attention.kernels import pooling
from cca_lab.attention.kernels.programs import Read, pooling_reads
from tests.attention.kernels import bench


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(bench.DEVICE, dtype)


def poisoned(columns: int) -> torch.Tensor:
    """Values (N, N) that show who reads them."""
    return torch.ones(columns, columns, device=bench.DEVICE).fill_diagonal_(float("nan"))


def said(reads: list[Read], rows: int, columns: int) -> torch.Tensor:
    """bool (rows, columns): what the geometry says that each row's program reads."""
    found = torch.zeros(rows, columns, dtype=torch.bool)
    for read in reads:
        found[slice(*read.rows), slice(*read.columns)] = True
    return found


def test_pooling_reads_are_those_of_the_kernel():
    """Without their padding, which the mask takes off."""
    x = (y[None, None] for y in (random(14, 14), random(14, 14), poisoned(14)))
    core_values = pooling.triton_pool_groups(*x, 3, 4, 0.1)[1][0, 0]
    clipped = [Read(x.program, x.rows, (x.columns[0], x.columns[0] + 3),
                    x.masked) for x in pooling_reads(4, 3)]
    assert torch.equal(said(clipped, 4, 14), core_values.isnan().cpu())
