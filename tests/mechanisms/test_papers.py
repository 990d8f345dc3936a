"""The papers' algorithms, as they are read first, equal the specifications."""

import pytest
import torch

from cca_lab.mechanisms import CCA, DGA, LoCoCo
from cca_lab.mechanisms.cca import mechanism as cca
from cca_lab.mechanisms.dga import mechanism as dga
from cca_lab.mechanisms.lococo import Compressor
from cca_lab.mechanisms.lococo import mechanism as lococo
from tests.mechanisms import bench


def convolution(slots: int, head_dim: int) -> Compressor:
    """Positive weights without bias: over positive columns no slot divides 0 by 0 (Eq. 7)."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Compressor(head_dim, slots, kernel=5).double()
    module.conv.weight.data.abs_()
    return module


@pytest.mark.parametrize("length", [1, 2, 7, 12, 31])
@pytest.mark.parametrize(("group", "window"), [(1, 1), (2, 5), (3, 1), (4, 4), (5, 40)])
def test_cca(length, group, window):
    q, k, v = (x[0, 0] for x in bench.inputs(length, heads=1, head_dim=6))
    wanted = CCA(group=group, window=window).loops(q[None, None], k[None, None], v[None, None])[0,
                                                                                                0]
    bench.assert_close(cca.paper_algorithm(q, k, v, group=group, window=window), wanted, "CCA")


@pytest.mark.parametrize("length", [1, 2, 7, 12, 31])
@pytest.mark.parametrize(("group", "gamma"), [(1, 0.3), (2, 0.0), (3, 0.3), (5, 0.9), (4, 1.0)])
def test_dga(length, group, gamma):
    q, k, v = (x[0, 0] for x in bench.inputs(length, heads=1, head_dim=6))
    wanted = DGA(group=group, gamma=gamma).loops(q[None, None], k[None, None], v[None, None])[0, 0]
    bench.assert_close(dga.paper_algorithm(q, k, v, group=group, gamma=gamma), wanted, "DGA")


@pytest.mark.parametrize("length", [1, 2, 7, 12, 31])
@pytest.mark.parametrize(("slots", "segment"), [(1, 1), (3, 2), (3, 5), (4, 4), (40, 3)])
def test_lococo(length, slots, segment):
    q, k, v = (x[0, 0].abs() for x in bench.inputs(length, heads=1, head_dim=6))
    module = convolution(slots, 6)
    mechanism = LoCoCo(slots=slots, segment=segment, weights="relu", kernel=5)
    wanted = mechanism.loops(q[None, None], k[None, None], v[None, None], module=module)[0,
                                                                                         0].detach()
    got = lococo.paper_algorithm(q, k, v, module.conv.weight.detach(), segment=segment)
    bench.assert_close(got, wanted, "LoCoCo")
