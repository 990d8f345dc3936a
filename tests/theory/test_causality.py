"""DGA and LoCoCo, read literally and repaired: masks, groups, the choice of focal tokens, segments."""

from fractions import Fraction

import pytest
import torch

from cca_lab.mechanisms import DGA, full
from cca_lab.theory import causality
from cca_lab.theory.causality import dga as causality_dga
from cca_lab.theory.causality import focal as causality_focal
from cca_lab.theory.causality import lococo as causality_lococo
from cca_lab.theory.claim import Verdict
from tests.mutants import theory_causality as wrong

CLAIMS = {claim.id: claim for module in (causality, causality_dga, causality_focal, causality_lococo)
          for claim in module.CLAIMS}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda claim: claim.id)
def test_the_check_agrees_with_the_verdict_and_can_tell_right_from_wrong(claim):
    assert claim.agrees(claim.check(claim.printed))
    assert claim.check(claim.corrected).holds and claim.verdict is not Verdict.HOLDS
    found = claim.check(wrong.BROKEN[claim.id])
    assert not found.holds and found.evidence


@pytest.mark.parametrize("name, subject", wrong.ALSO_BROKEN, ids=lambda x: getattr(x, "__name__", None))
def test_more_wrong_subjects_are_refuted(name, subject):
    assert not CLAIMS[name].check(subject).holds


# ---------------------------------------------------------------- the mask

def test_three_masks_by_hand():
    """Row 1 of 4 with zero scores: all of its weight is its own, 1/4 of it survives, 3/4 leaks."""
    scores, visible = [0] * 4, [True, False, False, False]
    assert causality.mask_before(scores, visible) == [1, 0, 0, 0]
    assert causality.mask_after(scores, visible) == [Fraction(1, 4), 0, 0, 0]
    assert sum(causality.mask_times(scores, visible)[1:]) == Fraction(3, 4) == causality_lococo.leaked_share([0], 3)


def test_the_leak_has_the_stated_size():
    for scores in ([2], [-1, 3], [0, 0, 1]):
        for hidden in range(4):
            weights = causality.mask_times([*scores, *[5] * hidden], [True] * len(scores) + [False] * hidden)
            assert sum(weights[len(scores):], Fraction(0)) == causality_lococo.leaked_share(scores, hidden)


def test_dividing_by_the_row_sum_repairs_eq_13():
    """softmax, mask, then normalise is the mask before the softmax."""
    scores, visible = [3, -1, 2, 5], [True, True, False, False]
    masked = causality.mask_after(scores, visible)
    assert [weight / sum(masked) for weight in masked] == causality.mask_before(scores, visible)


# ---------------------------------------------------------------- Algorithm 2

FOUR_READINGS = {
    "any, minus": ((causality_dga.any_member, causality_dga.minus), {"leak": 968, "negative": 968}),
    "any, times": ((causality_dga.any_member, causality_dga.times), {"leak": 968, "double": 968}),
    "all, minus": ((causality_dga.all_members, causality_dga.minus), {}),
    "all, times": ((causality_dga.all_members, causality_dga.times), {"missing": 968, "double": 968}),
}


@pytest.mark.parametrize("mask, seen", FOUR_READINGS.values(), ids=FOUR_READINGS)
def test_four_readings_of_algorithm_2(mask, seen):
    numbers = dict(causality_dga.check_mask(mask).numbers)
    assert numbers.pop("cases") == 968
    assert {name: count for name, count in numbers.items() if count} == seen


def test_the_smallest_leak_as_a_jacobian_and_as_an_edit():
    generator = torch.Generator().manual_seed(0)
    q, k, v, *new = torch.randn(6, 2, 1, generator=generator, dtype=torch.float64)
    for rule, leaks in ((causality_dga.any_member, True), (causality_dga.all_members, False)):
        def attend(q, k, v, rule=rule):
            return causality_dga.effective(q, k, [], 2, (rule, causality_dga.minus)) @ v
        assert (causality.jacobian_leak(attend, q, k, v, 1) > 0) == leaks
        assert (causality.edit_leak(attend, q, k, v, 1, new) > 0) == leaks


def test_effective_matrix_counts_what_the_mask_says():
    """With zero scores a raw token weighs as much as the row itself, and a pooled one 1/m of it."""
    zero = torch.zeros(9, 2, dtype=torch.float64)
    matrix = causality_dga.effective(zero, zero, [2, 5, 6], 3)
    assert torch.equal(matrix > 0, torch.ones(9, 9, dtype=torch.bool).tril())
    assert torch.allclose(matrix.sum(dim=1), torch.ones(9, dtype=torch.float64))
    held = matrix / matrix.diagonal()[:, None]
    assert torch.allclose(held[7], torch.tensor([1 / 3, 1 / 3, 1, 1 / 3, 1, 1, 1, 1, 0], dtype=torch.float64))


def test_all_focal_is_full_attention():
    q, k = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = full.effective(q[None, None], k[None, None])[0, 0]
    assert torch.allclose(causality_dga.effective(q, k, range(6), 4), wanted, atol=1e-12)
    assert torch.allclose(causality_dga.effective(q, k, [], 1), wanted, atol=1e-12)


def test_the_repaired_mask_is_the_mechanism_s_but_for_the_last_row_of_a_group():
    """There Algorithm 2 reads the pooled group, and the mechanism its members, as Eq. 15 says: both read all once."""
    q, k = torch.randn(2, 11, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    focal = torch.zeros(1, 1, 11, dtype=torch.bool)
    focal[..., [0, 4, 5, 9, 10]] = True
    wanted = DGA(group=3, gamma=0.0, floor=5).effective(q[None, None], k[None, None], selection=focal)[0, 0]
    got = causality_dga.effective(q, k, [0, 4, 5, 9, 10], 3)
    differs = ((got - wanted).abs().amax(dim=1) > 1e-12).nonzero().flatten().tolist()
    assert differs == [members[-1] for members in causality_dga.cut(11, [0, 4, 5, 9, 10], 3)[1]]


def test_leftover_tokens_become_focal():
    assert causality_dga.cut(8, [2], 3) == ([2, 7], [(0, 1, 3), (4, 5, 6)])


# ---------------------------------------------------------------- Eq. 16

def test_the_jacobian_is_blind_to_a_choice_and_an_edit_is_not():
    numbers = causality_focal.check_choice(causality_focal.attend_prompt).numbers
    assert numbers["largest_derivative"] == 0 and numbers["moved"] > 60 and numbers["prefix_differs"] > 15


def test_a_frozen_choice_is_causal():
    focal = [1, 5, 6, 20]
    finding = causality_focal.check_choice(
        lambda q, k, v: causality_dga.effective(q, k, [t for t in focal if t < len(q)], 4) @ v)
    assert finding.numbers["moved"] == 0 == finding.numbers["largest_derivative"]


def test_uniform_attention_scores_by_hand():
    """L = 3: columns 1 + 1/2 + 1/3, 1/2 + 1/3, 1/3 over 3, 2, 1 rows."""
    weights = causality_focal.uniform_attention(3)
    assert causality_focal.exact_mean(weights) == [Fraction(11, 18), Fraction(5, 12), Fraction(1, 3)]
    assert causality_focal.rescaled_mean(weights) == [1, 1, 1]


def test_eq_16_takes_the_first_tokens_where_no_token_is_special():
    assert causality_focal.focal_thirds(rescale=False)[0] > 0.99
    first, _, last = causality_focal.focal_thirds(rescale=True)
    assert last > first > 0


# ---------------------------------------------------------------- LoCoCo

def test_a_row_of_fair_signs_dies_with_probability_two_to_the_minus_count():
    from itertools import product
    for count in (1, 2, 3, 5):
        dead = 0
        for signs in product((-1, 1), repeat=count):
            try:
                causality_lococo.relu_ratio(signs)
            except ZeroDivisionError:
                dead += 1
        assert Fraction(dead, 2**count) == Fraction(1, 2**count)


def test_eq_7_by_hand():
    assert causality_lococo.ratio([2, -1]) == [2, -1]
    with pytest.raises(ZeroDivisionError):
        causality_lococo.ratio([1, -1])


def test_segments_as_printed_are_right_for_blocks_of_one_only():
    for block in range(1, 5):
        right = [t for n in (1, 2) for t in causality_lococo.printed_segment(n, block)] == list(range(1, 2 * block + 1))
        assert right == (block == 1)
