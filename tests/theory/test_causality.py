"""DGA, read literally and repaired: masks, groups, focal tokens."""

from fractions import Fraction

import pytest
import torch

from cca_lab.mechanisms import DGA, full
from cca_lab.theory.causality import dga, focal
from cca_lab.theory.causality import masks as causality
from cca_lab.theory.forall import papers

# ---------------------------------------------------------------- the mask

def test_three_masks_by_hand():
    """Row 1 of 4 with zero scores: all of its weight is its own, 1/4 of it survives, 3/4 leaks."""
    scores, visible = [0] * 4, [True, False, False, False]
    assert causality.mask_before(scores, visible) == [1, 0, 0, 0]
    assert causality.mask_after(scores, visible) == [Fraction(1, 4), 0, 0, 0]
    assert sum(causality.mask_times(scores, visible)[1:]) == Fraction(3, 4)


def test_dividing_by_the_row_sum_repairs_eq_13():
    """softmax, mask, then normalise is the mask before the softmax."""
    scores, visible = [3, -1, 2, 5], [True, True, False, False]
    masked = causality.mask_after(scores, visible)
    assert [weight / sum(masked) for weight in masked] == causality.mask_before(scores, visible)


# ---------------------------------------------------------------- Algorithm 2

FOUR_READINGS = {"any, minus": ((dga.any_member, dga.minus), {"leak": 968, "negative": 968}),
                 "any, times": ((dga.any_member, dga.times), {"leak": 968, "double": 968}),
                 "all, minus": ((dga.all_members, dga.minus), {}),
                 "all, times": ((dga.all_members, dga.times), {"missing": 968, "double": 968})}


@pytest.mark.parametrize("mask, seen", FOUR_READINGS.values(), ids=FOUR_READINGS)
def test_four_readings_of_algorithm_2(mask, seen):
    numbers = dict(dga.check_mask(mask).numbers)
    assert numbers.pop("cases") == 968
    assert {name: count for name, count in numbers.items() if count} == seen


def test_the_smallest_leak_as_a_jacobian_and_as_an_edit():
    generator = torch.Generator().manual_seed(0)
    q, k, v, *new = torch.randn(6, 2, 1, generator=generator, dtype=torch.float64)
    for rule, leaks in ((dga.any_member, True), (dga.all_members, False)):
        def attend(q, k, v, rule=rule):
            return dga.effective(q, k, [], 2, (rule, dga.minus)) @ v
        assert (causality.jacobian_leak(attend, q, k, v, 1) > 0) == leaks
        assert (causality.edit_leak(attend, q, k, v, 1, new) > 0) == leaks


def test_effective_matrix_counts_what_the_mask_says():
    """With zero scores a raw token weighs as much as the row itself, and a pooled one 1/m of it."""
    zero = torch.zeros(9, 2, dtype=torch.float64)
    matrix = dga.effective(zero, zero, [2, 5, 6], 3)
    assert torch.equal(matrix > 0, torch.ones(9, 9, dtype=torch.bool).tril())
    assert torch.allclose(matrix.sum(dim=1), torch.ones(9, dtype=torch.float64))
    wanted = torch.tensor([1 / 3, 1 / 3, 1, 1 / 3, 1, 1, 1, 1, 0], dtype=torch.float64)
    assert torch.allclose(matrix[7] / matrix[7, 7], wanted)


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


def test_leftover_tokens_become_focal():
    assert dga.cut(8, [2], 3) == ([2, 7], [(0, 1, 3), (4, 5, 6)])


# ---------------------------------------------------------------- Eq. 16

def test_the_jacobian_is_blind_to_a_choice_and_an_edit_is_not():
    numbers = focal.check_choice(focal.attend_prompt).numbers
    assert numbers["largest_derivative"] == 0
    assert numbers["moved"] > 60 and numbers["prefix_differs"] > 15


def test_a_frozen_choice_is_causal():
    chosen = [1, 5, 6, 20]
    finding = focal.check_choice(
        lambda q, k, v: dga.effective(q, k, [t for t in chosen if t < len(q)], 4) @ v)
    assert finding.numbers["moved"] == 0 == finding.numbers["largest_derivative"]


def test_uniform_attention_scores_by_hand():
    """L = 3: columns 1 + 1/2 + 1/3, 1/2 + 1/3, 1/3 over 3, 2, 1 rows."""
    weights = focal.uniform_attention(3)
    assert focal.exact_mean(weights) == [Fraction(11, 18), Fraction(5, 12), Fraction(1, 3)]
    assert focal.rescaled_mean(weights) == [1, 1, 1]


# ---------------------------------------------------------------- for all integers

@pytest.mark.parametrize("prove, right, slip, smallest", [
    (lambda mask: papers.members_read_once(dga.member_reads, mask), (dga.all_members, dga.minus),
     (dga.any_member, dga.minus), {"i": 0, "t": 1, "first": 0, "last": 1}),
    (papers.one_open_group, dga.columns_of_group, lambda z, m: (z * m, z * m + m),
     {"z": 0, "other": 1, "m": 1}),
])
def test_the_solver_proves_what_is_right_and_finds_the_smallest_exception(
        prove, right, slip, smallest):
    pytest.importorskip("z3")
    assert prove(right).holds
    finding = prove(slip)
    assert not finding.holds and smallest.items() <= finding.numbers.items()


def test_the_solver_refuses_the_other_three_readings_of_algorithm_2():
    pytest.importorskip("z3")
    for name, (mask, seen) in FOUR_READINGS.items():
        assert papers.members_read_once(dga.member_reads, mask).holds == (seen == {}), name
