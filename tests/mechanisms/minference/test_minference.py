"""MInference: masks and choices by brute force, the search, mutants."""

import json
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import full
from cca_lab.mechanisms.minference import (
    AShape,
    BlockSparse,
    MInference,
    VerticalSlash,
    choose_patterns,
    patterns,
    recalls,
)
from cca_lab.mechanisms.tokens import causal_mask
from cca_lab.models import attention_of, swap_attention
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.models.tiny import logits, text, tiny
from tests.mutants import minference as wrong

COLUMNS = {"vertical": 3, "slash": 2, "last": 4, "forced_vertical": 0, "forced_slash": 1,
           "block": 3}
BLOCKS = {"block": 3, "top_k": 2}
SHAPE = {"sinks": 2, "window": 3}
LEAK = "edits after token"


# ---------------------------------------------------------------- vertical-slash: mask and index

def brute_force_mask(columns: list[int], offsets: list[int], block: int,
                     length: int) -> torch.Tensor:
    """Row i reads t <= i on a chosen column, or on a chosen diagonal of some row of i's block."""
    visible = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        # the last ones may not exist
        rows_of_block = range(i // block * block, i // block * block + block)
        near = {row - o for row in rows_of_block for o in offsets}
        visible[i] = torch.tensor([t <= i and (t in columns or t in near) for t in range(length)])
    return visible


choices = st.integers(1, 24).flatmap(
    lambda length: st.tuples(st.just(length), st.sets(st.integers(0, length - 1)),
                             st.sets(st.integers(0, length - 1), min_size=1), st.integers(1, 7)))


@settings(max_examples=40)
@given(choices)
def test_mask_equals_brute_force(choice):
    length, columns, offsets, block = choice
    selection = patterns.Choice(*(torch.tensor(sorted(x), dtype=torch.int64).view(1, 1, -1)
                                        for x in (columns, offsets)))
    q = torch.zeros(1, 1, length, 2)
    got = VerticalSlash(block=block).represented(q, q, selection=selection)[0, 0]
    assert torch.equal(got, brute_force_mask(sorted(columns), sorted(offsets), block, length))


# ---------------------------------------------------------------- vertical-slash: the choice

def test_scores_are_sums_of_attention_along_columns_and_diagonals():
    q, k, _ = bench.inputs(9, heads=4, kv_heads=2)
    # the last four rows
    weights = full.effective(q, k).masked_fill(torch.arange(9)[:, None] < 5, 0)
    by_offset = torch.stack([weights.diagonal(-o, -2, -1).sum(-1) for o in range(9)], dim=-1)
    got = VerticalSlash(vertical=3, slash=4, last=4, forced_vertical=0, forced_slash=0).select(q, k)
    assert torch.equal(got.columns, weights.sum(-2).topk(3).indices.sort().values)
    by_offset[..., 0] = float("inf")  # always chosen
    assert torch.equal(got.offsets, by_offset.topk(4).indices.sort().values)


def test_forced_columns_and_diagonals_take_part_of_the_budget():
    q, k, _ = bench.inputs(12)
    got = VerticalSlash(vertical=3, slash=4, last=4, forced_vertical=2, forced_slash=3).select(q, k)
    assert (got.columns[..., :2] == torch.arange(2)).all() and (got.offsets[..., :3]
                                                                == torch.arange(3)).all()
    few = VerticalSlash(vertical=1, slash=1, last=4, forced_vertical=5, forced_slash=5).select(q, k)
    assert few.columns.max() < 5 and (few.offsets == 0).all()


def test_a_choice_serves_other_lengths():
    (q, k, v), mechanism = bench.inputs(14), VerticalSlash(**COLUMNS)
    chosen = mechanism.select(q, k)
    whole = mechanism.attention(q, k, v, selection=chosen)
    part = mechanism.attention(*(x[:, :, :9] for x in (q, k, v)), selection=chosen)
    bench.assert_close(part, whole[:, :, :9], "the first rows, given the choice of the whole")


# ---------------------------------------------------------------- block-sparse

@settings(max_examples=30)
@given(length=st.integers(1, 17), block=st.integers(1, 6), top_k=st.integers(1, 4),
       force=st.booleans())
def test_blocks_equal_brute_force(length, block, top_k, force):
    q, k, _ = bench.inputs(length, heads=4, kv_heads=2, seed=length)
    got = BlockSparse(block=block, top_k=top_k, force_diagonal=force).select(q, k)
    for h in range(4):
        for m in range(-(-length // block)):
            judge = torch.stack([q[0, h, i]
                                 for i in range(m * block, min(length, m * block + block))]).mean(0)
            means = [k[0, h // 2, n * block : n * block + block].mean(0) for n in range(m + 1)]
            order = sorted(range(m + 1), key=lambda n, means=means,
                           judge=judge: -float(means[n] @ judge))
            if force:
                order = [m] + [n for n in order if n != m]
            assert set(got[0, h, m].nonzero().flatten().tolist()) == set(order[:top_k])


def test_without_the_own_block_some_row_does_not_read_itself():
    q, k, _ = bench.inputs(12)
    own = {force: BlockSparse(block=2, top_k=1,
                              force_diagonal=force).represented(q, k).diagonal(dim1=-2, dim2=-1)
           for force in (True, False)}
    assert own[True].all() and not own[False].all()


def test_a_frozen_choice_of_too_few_blocks_is_refused():
    (q, k, v), mechanism = bench.inputs(12), BlockSparse(**BLOCKS)
    chosen = mechanism.select(q[:, :, :6], k[:, :, :6])
    with pytest.raises(ValueError, match="selection: .* M at least 4"):
        mechanism.attention(q, k, v, selection=chosen)


# ---------------------------------------------------------------- A-shape

@settings(max_examples=30)
@given(length=st.integers(1, 30), sinks=st.integers(0, 12), window=st.integers(1, 12))
def test_a_shape_reads_its_first_and_its_nearest_tokens(length, sinks, window):
    q = torch.zeros(1, 2, length, 2)
    got = AShape(sinks=sinks, window=window).represented(q, q)
    for i in range(length):
        wanted = set(range(min(sinks, i + 1))) | set(range(max(0, i + 1 - window), i + 1))
        assert set(got[0, 1, i].nonzero().flatten().tolist()) == wanted
        assert len(wanted) == min(i + 1, sinks + window)


# ---------------------------------------------------------------- a pattern per head

MIXED = [{"pattern": "a_shape", **SHAPE}, {"pattern": "vertical_slash", **COLUMNS},
         {"pattern": "block_sparse", **BLOCKS}, {"pattern": "a_shape", "sinks": 0, "window": 2}]


@pytest.mark.parametrize("method", ["loops", "attention"])
def test_each_head_attends_with_its_own_pattern(method):
    q, k, v = bench.inputs(11, batch=2, heads=4, kv_heads=2)
    got = getattr(MInference(patterns=MIXED), method)(q, k, v)
    for h, pattern in enumerate([AShape(**SHAPE), VerticalSlash(**COLUMNS), BlockSparse(**BLOCKS),
                                 AShape(sinks=0, window=2)]):
        own = [q[:, h : h + 1], k[:, h // 2 : h // 2 + 1], v[:, h // 2 : h // 2 + 1]]
        bench.assert_close(got[:, h : h + 1], pattern.loops(*own), f"head {h}")


def test_mixed_heads_pass_the_bench():
    mechanism, sizes = MInference(patterns=MIXED), {"heads": 4, "kv_heads": 2}
    bench.check_same(mechanism.attention, {}, mechanism.loops, **sizes)
    bench.check_effective(mechanism.attention, {}, mechanism.effective, **sizes)
    bench.check_partition_of_unity(mechanism.attention, {}, mechanism.represented, **sizes)
    bench.check_whole_prompt(mechanism.attention, {}, mechanism.select, **sizes)


@pytest.mark.parametrize(("patterns", "scope"),
                         [(MIXED, "whole prompt"), (MIXED[2:], "whole blocks"),
                          (MIXED[:1], "every row")])
def test_scope_is_that_of_the_widest_pattern(patterns, scope):
    assert scope in MInference(patterns=patterns).causal_scope


def planted(length: int = 48) -> tuple[torch.Tensor, torch.Tensor]:
    """q, k of three heads: one reads its neighbours, one columns and a diagonal, one blocks."""
    token = torch.arange(length, dtype=torch.float64)
    near = -0.5 * (token[:, None] - token).abs()
    columns = torch.zeros(length, length, dtype=torch.float64)
    columns[:, [13, 22]] = 8.0
    columns += 8.0 * (token[:, None] - token == 17)
    of = torch.arange(length) // 8
    blocks = 8.0 * ((of[:, None] - of) % 2 == 0)
    q = torch.stack([near, columns, blocks])[None]  # logits are q k^T = q
    return q, torch.eye(length, dtype=torch.float64).expand(1, 3, -1, -1)


def test_the_search_finds_the_planted_patterns():
    q, k = planted()
    candidates = [{"pattern": "a_shape", "sinks": 2, "window": 24},
                  {"pattern": "vertical_slash", "vertical": 4, "slash": 4, "last": 16,
                   "forced_vertical": 0, "forced_slash": 2, "block": 2},
                  {"pattern": "block_sparse", "block": 8, "top_k": 3}]
    chosen = choose_patterns(q, k, candidates, first_row=16, scale=1.0)
    assert [pattern["pattern"] for pattern in chosen] == ["a_shape", "vertical_slash",
                                                          "block_sparse"]
    assert json.loads(json.dumps(chosen)) == chosen
    recall, share = recalls(q, k, candidates, first_row=16, scale=1.0)
    weights, past = full.effective(q, k, scale=1.0), causal_mask(48)
    for c, candidate in enumerate(candidates):
        read = MInference(patterns=[candidate]).represented(q, k, scale=1.0)
        for h in range(3):
            rows = [float(weights[0, h, i][read[0, h, i]].sum()) for i in range(16, 48)]
            assert recall[h, c].item() == pytest.approx(sum(rows) / 32, abs=1e-12)
            assert share[h, c].item() == pytest.approx(int(read[0, h,
                                                                16:].sum()) / int(past[16:].sum()))


def test_the_search_keeps_to_its_budget():
    q, k = planted()
    all_of_it = {"pattern": "a_shape", "sinks": 0, "window": 48}
    some = {"pattern": "a_shape", "sinks": 0, "window": 4}
    assert choose_patterns(q, k, [some, all_of_it]) == [all_of_it] * 3
    assert choose_patterns(q, k, [some, all_of_it], most_read=0.5) == [some] * 3
    with pytest.raises(ValueError, match="most_read: got 0.01"):
        choose_patterns(q, k, [some], most_read=0.01)
    with pytest.raises(ValueError, match="first_row: got 48"):
        choose_patterns(q, k, [some], first_row=48)


def test_chosen_patterns_are_options_of_a_model():
    model, ids = tiny("llama"), text(20)
    before = logits(model, ids)
    swap_attention(model, "minference", patterns=MIXED)
    assert attention_of(model) == MInference(patterns=MIXED)
    assert (logits(model, ids) - before).abs().max() > 1e-3
    swap_attention(model, "minference",
                   patterns=[{"pattern": "block_sparse", "block": 4, "top_k": 5}])
    bench.assert_close(logits(model, ids), before, "every block is read", 1e-10)


def test_as_many_patterns_as_heads_are_wanted():
    with pytest.raises(ValueError, match="patterns: got 3 for 2 query heads"):
        MInference(patterns=MIXED[:3]).attention(*bench.inputs(5))


# ---------------------------------------------------------------- mutants

def frozen_causality(implementation, options, cls, **sizes):
    q, k, _ = bench.inputs(**sizes)
    bench.check_causality(partial(implementation, selection=cls(**options).select(q, k)), options,
                          **sizes)


def same_as_loops(implementation, options, cls, **sizes):
    bench.check_same(implementation, options, form(cls, "loops"),
                     **{"length": 14, "heads": 4, "kv_heads": 2, **sizes})


KILLED = [  # (mutant, mechanism, the check that kills it, options, what the check says)
    (wrong.columns_without_causal_test, VerticalSlash, frozen_causality, COLUMNS, LEAK),
    (wrong.bare_diagonals, VerticalSlash, same_as_loops, COLUMNS, "output"),
    (wrong.first_rows_choose, VerticalSlash, same_as_loops, COLUMNS, "output"),
    (wrong.blocks_without_row_test, BlockSparse, frozen_causality, BLOCKS, LEAK),
    (wrong.short_block_filled_with_zeros, BlockSparse, same_as_loops,
     {"block": 6, "top_k": 1, "force_diagonal": False}, "output"),
    (wrong.blocks_ranked_over_all, BlockSparse, same_as_loops, BLOCKS, "output"),
    (wrong.window_without_itself, AShape, same_as_loops, SHAPE, "output"),
]


@pytest.mark.parametrize(("mutant", "cls", "check", "options", "reason"), KILLED,
                         ids=[row[0].__name__ for row in KILLED])
def test_mutant_is_killed(mutant, cls, check, options, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, options, cls)
    check(form(cls, "attention"), options, cls)
