"""CCA Proposition 1 and its indices; reachability in floats, of every mechanism, by depth."""

import math

import pytest
import torch

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.cca import groups
from cca_lab.theory import ledger
from cca_lab.theory.cores import reads
from cca_lab.theory.forall import papers
from cca_lab.theory.reachability import depth as reachability_depth
from cca_lab.theory.reachability import floats as reachability_floats
from cca_lab.theory.reachability import indices as reachability
from tests.mutants import theory_cca as wrong

CLAIMS = {claim.id: claim for claim in ledger.collect()}


@pytest.mark.parametrize("name, subject", wrong.ALSO_BROKEN,
                         ids=lambda x: getattr(x, "__name__", x))
def test_more_wrong_subjects_are_refuted(name, subject):
    assert not CLAIMS[name].check(subject).holds


def test_the_doubled_token_by_hand():
    """g = 2, s = 1, i = 3: one core {1, 2}, and raw tokens from 2 as printed, from 3 repaired."""
    assert reachability.printed_cover(3, 2, 1) == (1, 2)
    assert reachability.exact_cover(3, 2, 1) == (1, 3)
    assert reachability.times_read(reachability.printed_cover, 3, 2, 1) == [1, 2, 1]
    assert reachability.times_read(reachability.exact_cover, 3, 2, 1) == [1, 1, 1]


@pytest.mark.parametrize(("prove", "right", "slip", "fits"), [
    (papers.read_once, reachability.exact_cover, wrong.core_one_row_early, (1,)),
    (papers.reached, reachability.printed_cover, wrong.window_mod_row, (1, 2))])
def test_the_solver_proves_what_is_right_and_finds_a_true_exception(prove, right, slip, fits):
    pytest.importorskip("z3")
    assert prove(right).holds
    case = {name: value for name, value in prove(slip).numbers.items() if name in "igst"}
    assert (reads(slip, **case) in fits) != (case["t"] <= case["i"])


def test_the_cover_is_the_one_of_the_package():
    for g, s in ((2, 1), (3, 5), (4, 2), (1, 3)):
        cores = groups.visible_cores(20, g, s).tolist()
        assert cores == [reachability.exact_cover(i, g, s)[0] for i in range(1, 21)]


def test_eq_6_as_printed_is_right_for_the_first_g_rows_only():
    right = [i for i in range(1, 21)
             if sorted(reachability.printed_terms(i, 20, 4, 4)) == list(range(1, i + 1))]
    assert right == [1, 2, 3, 4]


@pytest.mark.parametrize("name, zero, flushed, absorbed",
                         [("float16", 17.33, 9.70, 7.62), ("bfloat16", 92.88, 87.34, 5.54),
                          ("float32", 103.97, 87.34, 16.64)])
def test_gaps(name, zero, flushed, absorbed):
    """A cast from float64 may round twice on its way, which moves a bfloat16 gap by 2e-5 nats."""
    dtype = reachability_floats.DTYPES[name]
    gaps = reachability_floats.measured_gaps(dtype)
    assert gaps == pytest.approx({"zero": zero, "flushed": flushed, "absorbed": absorbed}, abs=6e-3)
    assert gaps == pytest.approx(reachability_floats.predicted_gaps(dtype), abs=1e-4)
    whole_last_place = -math.log(torch.finfo(dtype).eps)
    assert gaps["absorbed"] != pytest.approx(whole_last_place, abs=0.5)
    assert reachability_floats.POWERS[name] == pytest.approx(gaps["zero"] / math.log(2), abs=1e-3)


@pytest.mark.parametrize("name, power", reachability_floats.POWERS.items())
def test_the_boundary_is_a_power_of_two_exactly(name, power):
    dtype = reachability_floats.DTYPES[name]
    assert reachability_floats.lost("zero", 2.0**-power, dtype)
    assert not reachability_floats.lost("zero", 2.0**-power * (1 + 2.0**-8), dtype)
    assert math.isclose(reachability_floats.predicted_gaps(dtype)["zero"], power * math.log(2))


def test_two_factors_that_survive_can_have_a_product_that_does_not():
    assert reachability_floats.product_survives(9, 0, torch.float16)
    assert not reachability_floats.product_survives(9, 9, torch.float16)
    assert reachability_floats.product_survives(9, 9, torch.bfloat16)


@pytest.mark.parametrize("length, window, sinks, lost",
                         [(131072, 2000, 4, True), (65536, 2000, 4, True), (63974, 2000, 4, True),
                          (63973, 2000, 4, False), (32768, 2000, 4, False),
                          (32768, 1024, 16, True)])
def test_windows_of_the_paper_through_32_layers(length, window, sinks, lost):
    """The paper's own settings (Appendix B.2): StreamingLLM 4 + 2000, LM-Infinite 16 + 1024."""
    assert reachability_depth.loses_some(length, window, sinks, 32) == lost


def test_a_window_with_sinks_is_the_mechanism_s():
    """`recent` tokens and the row's own."""
    reach = reachability_depth.layer_reach(MECHANISMS["streaming_llm"](sinks=2, recent=3), 9)
    assert torch.equal(reach, reachability_depth.window_reach(9, 4, 2))


def test_full_and_cca_reach_everything_in_one_layer():
    for name, options in (("full", {}), ("cca", {"group": 3, "window": 2})):
        reach = reachability_depth.layer_reach(MECHANISMS[name](**options), 12)
        assert torch.equal(reach, torch.ones(12, 12, dtype=torch.bool).tril())


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_has_a_reach_that_depth_can_only_widen(name):
    reach = reachability_depth.layer_reach(MECHANISMS[name](), 12)
    assert reach.shape == (12, 12) and reach.diagonal().all()
    two = reachability_depth.through(reach, 2)
    assert (two | ~reach).all()
    assert torch.equal(reachability_depth.layers_needed(reach) == 1, reach)


def test_layers_needed_by_brute_force():
    """Chains of rows, by search from each token, over random reaches."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        drawn = torch.rand(7, 7, generator=generator) < 0.3
        reach = drawn.tril() | torch.eye(7, dtype=torch.bool)
        wanted = torch.zeros(7, 7, dtype=torch.int64)
        for t in range(7):
            reached, layers = {t}, 0
            while True:
                layers += 1
                more = {i for i in range(7) if any(bool(reach[i, m]) for m in reached)}
                for i in more:
                    wanted[i, t] = wanted[i, t] or layers
                if more == reached:
                    break
                reached = more
        assert torch.equal(reachability_depth.layers_needed(reach), wanted)
