"""Slips in the online softmax, and the drawn geometry of what is read.

With a NaN in feature c of column c's value, feature c becomes NaN in every row whose program reads
that column, even with weight 0.
"""

import pytest
import torch

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.attention.kernels import pooling
from cca_lab.attention.kernels.configs import Blocks
from cca_lab.attention.kernels.interval import triton_attention
from cca_lab.attention.kernels.programs import Read, pooling_reads
from tests.attention.kernels import bench
from tests.mutants import lessons as lesson_mutants


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(bench.DEVICE, dtype)


def check_interval() -> None:
    """The interval kernel on a causal text, against dense in float64."""
    x = [random(1, 1, 40, 16, seed=seed) for seed in range(3)]
    out, lse = triton_attention(*x, causal_intervals(40).to(bench.DEVICE), 0.4,
                                blocks=[Blocks(16, 16, 4, 1)] * 3)
    wanted = interval_attention(*(y.cpu().double() for y in x), causal_intervals(40), scale=0.4,
                                backend="dense", return_lse=True)
    bench.assert_close(out, wanted[0], "out", torch.float32)
    bench.assert_close(lse, wanted[1], "lse", torch.float32)


@pytest.mark.skipif(torch.cuda.is_available(),
                    reason="a compiled kernel keeps the functions that it was made of")
@pytest.mark.parametrize("mutant", lesson_mutants.ONLINE, ids=lambda mutant: mutant.__name__)
def test_mutants_are_caught(monkeypatch, mutant):
    check_interval()
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check_interval()


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
