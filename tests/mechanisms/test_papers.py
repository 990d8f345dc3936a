"""The papers' algorithms, as they are read first, equal the specifications."""

import pytest
import torch

from cca_lab.mechanisms import CCA, DGA, LoCoCo
from cca_lab.mechanisms.cca import mechanism as cca
from cca_lab.mechanisms.dga import mechanism as dga
from cca_lab.mechanisms.lococo import Compressor
from cca_lab.mechanisms.lococo import mechanism as lococo
from tests.mechanisms import bench

LENGTHS = (1, 2, 7, 31)


def convolution(slots: int, head_dim: int) -> Compressor:
    """Positive weights without bias: over positive columns no slot divides 0 by 0 (Eq. 7)."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Compressor(head_dim, slots, kernel=5).double()
    module.conv.weight.data.abs_()
    return module


@pytest.mark.parametrize(("group", "window"), [(1, 1), (2, 5), (3, 1), (4, 4), (5, 40)])
def test_cca(group, window):
    for length in LENGTHS:
        tensors = bench.inputs(length, heads=1, head_dim=6)
        got = cca.paper_algorithm(*(x[0, 0] for x in tensors), group=group, window=window)
        wanted = CCA(group=group, window=window).loops(*tensors)[0, 0]
        bench.assert_close(got, wanted, f"CCA, {length} tokens")


@pytest.mark.parametrize(("group", "gamma"), [(1, 0.3), (2, 0.0), (3, 0.3), (5, 0.9), (4, 1.0)])
def test_dga(group, gamma):
    for length in LENGTHS:
        tensors = bench.inputs(length, heads=1, head_dim=6)
        got = dga.paper_algorithm(*(x[0, 0] for x in tensors), group=group, gamma=gamma)
        wanted = DGA(group=group, gamma=gamma).loops(*tensors)[0, 0]
        bench.assert_close(got, wanted, f"DGA, {length} tokens")


@pytest.mark.parametrize(("slots", "segment"), [(1, 1), (3, 2), (3, 5), (4, 4), (40, 3)])
def test_lococo(slots, segment):
    module = convolution(slots, 6)
    mechanism = LoCoCo(slots=slots, segment=segment, weights="relu", kernel=5)
    for length in LENGTHS:
        tensors = [x.abs() for x in bench.inputs(length, heads=1, head_dim=6)]
        got = lococo.paper_algorithm(*(x[0, 0] for x in tensors), module.conv.weight.detach(),
                                     segment=segment)
        wanted = mechanism.loops(*tensors, module=module)[0, 0].detach()
        bench.assert_close(got, wanted, f"LoCoCo, {length} tokens")
