"""DGA, read literally and repaired: groups, focal tokens, and what derivatives do not see."""

import pytest
import torch

from cca_lab.mechanisms import DGA, full
from cca_lab.theory.causality import dga, focal, masks
from cca_lab.theory.forall import papers

FOUR_READINGS = {"any, minus": ((dga.any_member, dga.minus), {"leak": 968, "negative": 968}),
                 "any, times": ((dga.any_member, dga.times), {"leak": 968, "double": 968}),
                 "all, minus": ((dga.all_members, dga.minus), {}),
                 "all, times": ((dga.all_members, dga.times), {"missing": 968, "double": 968})}


@pytest.mark.parametrize("mask, seen", FOUR_READINGS.values(), ids=FOUR_READINGS)
def test_four_readings_of_algorithm_2_by_cases_and_by_the_solver(mask, seen):
    numbers = dict(dga.check_mask(mask).numbers)
    assert numbers.pop("cases") == 968
    assert {name: count for name, count in numbers.items() if count} == seen
    pytest.importorskip("z3")
    finding = papers.members_read_once(dga.member_reads, mask)
    assert finding.holds == (seen == {})
    if mask == (dga.any_member, dga.minus):
        assert {"i": 0, "t": 1, "first": 0, "last": 1}.items() <= finding.numbers.items()


def test_the_smallest_leak_as_a_jacobian_and_as_an_edit():
    generator = torch.Generator().manual_seed(0)
    q, k, v, *new = torch.randn(6, 2, 1, generator=generator, dtype=torch.float64)
    for rule, leaks in ((dga.any_member, True), (dga.all_members, False)):
        def attend(q, k, v, rule=rule):
            return dga.effective(q, k, [], 2, (rule, dga.minus)) @ v
        assert (masks.jacobian_leak(attend, q, k, v, 1) > 0) == leaks
        assert (masks.edit_leak(attend, q, k, v, 1, new) > 0) == leaks


def test_all_focal_is_full_attention():
    q, k = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = full.effective(q[None, None], k[None, None])[0, 0]
    assert torch.allclose(dga.effective(q, k, range(6), 4), wanted, atol=1e-12)
    assert torch.allclose(dga.effective(q, k, [], 1), wanted, atol=1e-12)


def test_the_repaired_mask_is_the_mechanism_s_but_for_the_last_row_of_a_group():
    """There Algorithm 2 reads the pooled group, the mechanism its members; both read all once."""
    q, k = torch.randn(2, 11, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    chosen = torch.zeros(1, 1, 11, dtype=torch.bool)
    chosen[..., [0, 4, 5, 9, 10]] = True
    mechanism = DGA(group=3, gamma=0.0, floor=5)
    wanted = mechanism.effective(q[None, None], k[None, None], selection=chosen)[0, 0]
    got = dga.effective(q, k, [0, 4, 5, 9, 10], 3)
    differs = ((got - wanted).abs().amax(dim=1) > 1e-12).nonzero().flatten().tolist()
    assert differs == [members[-1] for members in dga.cut(11, [0, 4, 5, 9, 10], 3)[1]]


def test_the_jacobian_is_blind_to_a_choice_and_an_edit_is_not():
    numbers = focal.check_choice(focal.attend_prompt).numbers
    assert numbers["largest_derivative"] == 0
    assert numbers["moved"] > 60 and numbers["prefix_differs"] > 15
