"""H2O: a cache worked by hand, the paper's greedy step, what holds of any cache, mutants."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import H2O, full
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.mutants import h2o as wrong

loops, attention, represented = (form(H2O, method) for method in ("loops", "attention",
                                                                  "represented"))
# With D**-0.5 the oldest tokens nearly always win; larger logits make heavy hitters of others too.
SHARP = {"scale": 3.0}
OPTIONS = {"heavy": 3, "recent": 2, **SHARP}


# ---------------------------------------------------------------- by hand

def test_a_cache_worked_by_hand():
    """heavy = 1, recent = 1, and logits that are logarithms of small numbers, so that weights are
    fractions.

    row 0 reads 0: scores (1) row 1 reads 0 1 with weights 1/4 3/4: scores (5/4, 3/4), within the
    budget row 2 reads 0 1 2 with weights 1/8 6/8 1/8: scores (11/8, 12/8, 1/8); 2 is recent, 1
    heavier than 0: 0 goes row 3 reads 1 2 3
    """
    logits = torch.tensor([[1, 1, 1, 1], [1, 3, 1, 1], [1, 6, 1, 1], [1, 1, 1, 1]],
                          dtype=torch.float64).log()
    q, k = logits[None, None], torch.eye(4, dtype=torch.float64)[None, None]
    v = torch.tensor([[8.0, 0, 0, 0], [16, 0, 0, 0], [24, 0, 0, 0], [0, 0, 0, 0]],
                     dtype=torch.float64)[None, None]
    visible = H2O(heavy=1, recent=1).represented(q, k, scale=1.0)[0, 0]
    assert visible.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]
    out = loops(q, k, v, heavy=1, recent=1, scale=1.0)[0, 0, :, 0]
    wanted = torch.tensor([8, 8 / 4 + 16 * 3 / 4, (8 + 6 * 16 + 24) / 8, (16 + 24) / 3],
                          dtype=torch.float64)
    bench.assert_close(out, wanted, "by hand")


def test_each_step_is_the_greedy_choice_of_the_paper():
    """Algorithm 1: of R_i drop the u for which the scores of R_i \\ {u} add up to most."""
    q, k, _ = bench.inputs(14, heads=1)
    weights = H2O(heavy=4, recent=0).effective(q, k, **SHARP)[0, 0]
    kept, scores = [], torch.zeros(14, dtype=torch.float64)
    for i in range(14):
        kept.append(i)
        assert weights[i].nonzero().flatten().tolist() == kept
        scores += weights[i]
        if len(kept) > 4:
            left = {u: sum(scores[t].item() for t in kept if t != u) for u in kept}
            kept.remove(max(left, key=left.get))
            scores[[t for t in range(14) if t not in kept]] = 0


# ---------------------------------------------------------------- what must hold of any cache

@settings(max_examples=40, deadline=None, derandomize=True)
@given(length=st.integers(1, 16), heavy=st.integers(0, 6), recent=st.integers(0, 6),
       prompt=st.integers(1, 12), kv_heads=st.integers(1, 2), share=st.integers(1, 2))
def test_caches(length, heavy, recent, prompt, kv_heads, share):
    if heavy + recent == 0:
        heavy = 1
    options = {"heavy": heavy, "recent": recent, "prompt": prompt, **SHARP}
    q, k, v = bench.inputs(length, batch=2, heads=kv_heads * share, kv_heads=kv_heads, seed=length)
    visible = represented(q, k, **options)
    heads = visible.unflatten(1, (kv_heads, share))
    assert torch.equal(
        heads, heads[:, :, :1].expand_as(heads)), "heads that share keys read the same tokens"
    for i in range(length):
        read = visible[:, :, i]
        assert not read[..., i + 1 :].any() and read[..., i].all()
        dense = i < prompt
        assert (read.sum(-1) == (i + 1 if dense else min(i + 1, heavy + recent + 1))).all()
        assert read[..., max(0, i - recent) : i + 1].all(), "the last tokens are there"
        if i:
            assert not (read & ~visible[:, :, i - 1])[...,
                                                      :i].any(), "what is evicted never comes back"
    bench.assert_close(attention(q, k, v, **options), loops(q, k, v, **options), "output")


def test_a_prompt_is_read_in_full_and_then_evicted_to_the_budget():
    q, k, v = bench.inputs(12)
    m = H2O(heavy=2, recent=1, prompt=8)
    bench.assert_close(m.attention(q, k, v)[:, :, :8],
                       full.loops(*(x[:, :, :8] for x in (q, k, v))), "rows of the prompt")
    received = full.effective(q, k)[:, :, :8].sum(2).mean(1)[0]  # heads of the one KV head
    heaviest = received[:7].topk(2).indices.tolist()
    assert set(m.represented(q, k)[0, 0, 8].nonzero().flatten().tolist()) == {*heaviest, 7, 8}


@pytest.mark.parametrize(("heavy", "recent", "prompt", "wanted"), [
    (0.1, 0.1, 25, (2, 2)), (0.1, 0.25, 8, (1, 2)), (3, 0.5, 9, (3, 4)), (0.1, 0.1, 1, (1, 1)),
    (4, 0, 7, (4, 0)),
    (0.29, 0.57, 100, (29, 57)),  # int(0.29 * 100) is 28
])
def test_shares_of_the_prompt(heavy, recent, prompt, wanted):
    assert H2O(heavy=heavy, recent=recent, prompt=prompt).budget() == wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logits_that_half_precision_cannot_hold_choose_as_in_double(dtype):
    """q . k of about 1e5, beyond float16's 65504, before a small scale."""
    q, k, _ = ((60 * x).to(dtype) for x in bench.inputs(30, heads=4, kv_heads=2, head_dim=64))
    assert (q @ k.repeat_interleave(2, dim=1).mT).isinf().any() == (dtype == torch.float16)
    got, wanted = (H2O(heavy=4, recent=3).represented(*x, scale=1e-4)
                   for x in ((q, k), (q.double(), k.double())))
    assert torch.equal(got, wanted)


def test_autocast_changes_neither_the_choice_nor_the_dtype():
    """A forward in bfloat16 elsewhere; products of float32 stay float32 here, with no gradient."""
    q, k, v = (8 * x.float() for x in bench.inputs(40, heads=4, kv_heads=2, head_dim=16))
    m = H2O(heavy=4, recent=3)
    wanted = m.represented(q, k), m.attention(q, k, v)
    with torch.autocast("cpu", torch.bfloat16):
        got = m.represented(q, k), m.attention(q, k, v)
    assert torch.equal(got[0], wanted[0]) and torch.equal(got[1], wanted[1])


# ---------------------------------------------------------------- mutants

def same_as_loops(rung, options, **sizes):
    bench.check_same(rung, options, loops, **{"length": 14, **sizes})


PROMPT = {"heavy": 2, "recent": 2, "prompt": 7, **SHARP}
NO_RECENT = {"heavy": 3, "recent": 0, **SHARP}
KILLED = [  # (mutant, the check that kills it, options, what the check says)
    (wrong.evicts_before_attending, same_as_loops, OPTIONS, "output"),
    (wrong.forgets_scores, same_as_loops, OPTIONS, "output"),
    (wrong.keeps_the_lightest, same_as_loops, OPTIONS, "output"),
    (wrong.recent_of_nothing, same_as_loops, NO_RECENT, "output"),
    (wrong.scores_of_full_attention, partial(same_as_loops, heads=4, kv_heads=2), PROMPT, "output"),
    (wrong.scores_of_the_batch, partial(bench.check_batch, length=14), OPTIONS,
     "batch against single"),
    (wrong.first_head_scores, partial(bench.check_heads_interchangeable, length=14), OPTIONS,
     "permuted query heads"),
    (wrong.evicts_during_the_prompt, same_as_loops, PROMPT, "output"),
    (wrong.scores_of_the_whole_text, partial(bench.check_causality, length=14), OPTIONS,
     "edits after token"),
]


@pytest.mark.parametrize(("mutant", "check", "options", "reason"), KILLED,
                         ids=[row[0].__name__ for row in KILLED])
def test_mutant_is_killed(mutant, check, options, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, options)
    for rung in (loops, attention):
        check(rung, options)
