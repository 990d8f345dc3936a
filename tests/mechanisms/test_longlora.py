"""Shifted sparse attention: blocks by brute force, the leak of the rolled form, mutants."""


import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import LongLoRA, full
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.mutants import longlora as wrong

FORMS = [form(LongLoRA, "loops"), form(LongLoRA, "attention")]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(length=st.integers(1, 20), group=st.integers(1, 12), heads=st.integers(1, 4))
def test_a_row_reads_its_block_up_to_itself(length, group, heads):
    """Two tokens share a block if no border lies between them."""
    got = LongLoRA(group=group).represented(torch.zeros(1, heads, length, 2),
                                            torch.zeros(1, 1, length, 2))[0].tolist()
    for h in range(heads):
        shift = group // 2 if h >= heads / 2 else 0
        borders = [shift + n * group for n in range(-1, length)]
        for i in range(length):
            for t in range(length):
                wanted = t <= i and not any(t < border <= i for border in borders)
                assert got[h][i][t] == wanted, (h, i, t)


def test_the_second_half_of_the_heads_has_half_a_block_at_either_end():
    """G = 4, L = 8: lengths of what rows read, by hand."""
    q = torch.zeros(1, 4, 8, 2)
    read = LongLoRA(group=4).represented(q, q)[0].sum(-1)
    assert read[:2].tolist() == [[1, 2, 3, 4, 1, 2, 3, 4]] * 2
    assert read[2:].tolist() == [[1, 2, 1, 2, 3, 4, 1, 2]] * 2


def test_one_block_is_full_attention_in_the_unshifted_heads_only():
    q, k, v = bench.inputs(9, heads=4, kv_heads=2)
    got, wanted = LongLoRA(group=9).attention(q, k, v), full.loops(q, k, v)
    bench.assert_close(got[:, :2], wanted[:, :2], "unshifted heads")
    assert (got[:, 2:] - wanted[:, 2:]).abs().max() > 1e-3


# int(0.58 * 50) is 28
@pytest.mark.parametrize(("share", "length", "group"),
                         [(0.25, 16, 4), (0.25, 18, 4), (0.25, 3, 1), (1.0, 7, 7), (0.58, 50, 29)])
def test_a_share_of_the_length_is_rounded_down(share, length, group):
    q, k, v = bench.inputs(length)
    for rung in FORMS:
        bench.assert_close(rung(q, k, v, group=share), rung(q, k, v, group=group), f"share {share}")


def test_it_is_for_training_only():
    assert LongLoRA.training_only and LongLoRA.needs_training


# ---------------------------------------------------------------- mutants

def same_as_loops(rung, options):
    bench.check_same(rung, options, FORMS[0], length=12)


def test_the_rolled_form_differs_only_where_it_wraps_around():
    """What it leaks is the whole difference: the first G/2 rows of the shifted heads."""
    q, k, v = bench.inputs(12, heads=4, kv_heads=2)
    apart = (wrong.rolled(q, k, v, group=4) - LongLoRA(group=4).loops(q, k,
                                                                      v)).abs().amax((0, 3)) > 1e-9
    assert apart.nonzero().tolist() == [[h, i] for h in (2, 3) for i in (0, 1)]


KILLED = [  # (mutant, the check that kills it, options, what the check says)
    (wrong.rolled, lambda rung, options: bench.check_causality(rung, options, length=12),
     {"group": 4}, "edits after token"),
    (wrong.nothing_shifted, same_as_loops, {"group": 4}, "output"),
    (wrong.not_causal_inside, bench.check_causality, {"group": 4}, "edits after token"),
    (wrong.one_head_for_its_group, same_as_loops, {"group": 4}, "output"),
]


@pytest.mark.parametrize(("mutant", "check", "options", "reason"), KILLED,
                         ids=[row[0].__name__ for row in KILLED])
def test_mutant_is_killed(mutant, check, options, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, options)
    for rung in FORMS:
        check(rung, options)
