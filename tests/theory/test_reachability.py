"""Reachability in floats, of every mechanism, and by depth."""

import pytest
import torch

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.cca import groups
from cca_lab.theory.reachability import depth, floats
from cca_lab.theory.reachability.indices import exact_cover


def test_the_cover_is_the_one_of_the_package():
    for g, s in ((2, 1), (3, 5), (4, 2), (1, 3)):
        cores = groups.visible_cores(20, g, s).tolist()
        assert cores == [exact_cover(i, g, s)[0] for i in range(1, 21)]


@pytest.mark.parametrize("name, zero, flushed, absorbed",
                         [("float16", 17.33, 9.70, 7.62), ("bfloat16", 92.88, 87.34, 5.54),
                          ("float32", 103.97, 87.34, 16.64)])
def test_gaps(name, zero, flushed, absorbed):
    """A cast from float64 may round twice on its way, which moves a bfloat16 gap by 2e-5 nats."""
    gaps = floats.measured_gaps(floats.DTYPES[name])
    assert gaps == pytest.approx({"zero": zero, "flushed": flushed, "absorbed": absorbed}, abs=6e-3)
    assert gaps == pytest.approx(floats.predicted_gaps(floats.DTYPES[name]), abs=1e-4)
    assert floats.product_survives(9, 9, floats.DTYPES[name]) == (18 < gaps["zero"])


def test_a_window_with_sinks_is_the_mechanism_s():
    """`recent` tokens and the row's own."""
    reach = depth.layer_reach(MECHANISMS["streaming_llm"](sinks=2, recent=3), 9)
    assert torch.equal(reach, depth.window_reach(9, 4, 2))


def test_full_and_cca_reach_everything_in_one_layer():
    for name, options in (("full", {}), ("cca", {"group": 3, "window": 2})):
        reach = depth.layer_reach(MECHANISMS[name](**options), 12)
        assert torch.equal(reach, torch.ones(12, 12, dtype=torch.bool).tril())


def test_layers_needed_by_brute_force():
    """Chains of rows, by search from each token, over random reaches."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        drawn = torch.rand(7, 7, generator=generator) < 0.3
        reach = drawn.tril() | torch.eye(7, dtype=torch.bool)
        wanted = torch.zeros(7, 7, dtype=torch.int64)
        for t in range(7):
            reached = {t}
            for layers in range(1, 8):
                reached = {i for i in range(7) if any(bool(reach[i, m]) for m in reached)}
                for i in reached:
                    wanted[i, t] = wanted[i, t] or layers
        assert torch.equal(depth.layers_needed(reach), wanted)
