"""DGA: its scores by definition, what it chooses, groups, refusals, mutants."""

import math
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cca_lab.mechanisms import DGA, dga, full
from cca_lab.mechanisms.dga import FocalRule, cache_tokens, decode_span, focal_loops
from tests.mechanisms import bench
from tests.mechanisms.forms import form as form_of
from tests.mutants import dga as wrong

LOOPS, DENSE = form_of(DGA, "loops"), form_of(DGA, "attention", backend="dense")
M2, M3 = {"group": 2, "gamma": 0.3}, {"group": 3, "gamma": 0.2}
B4, B5 = ({"group": m, "gamma": g, "choose": "blocks", "block": b} for m, g,
          b in ((2, 0.25, 4), (3, 0.0, 5)))
every_way = pytest.mark.parametrize("options", [M2, M3, B4, B5],
                                    ids=["prompt2", "prompt3", "blocks4", "blocks5"])


def focal_of(tokens: list[int], length: int) -> torch.Tensor:
    """A choice for one sequence and one head, (1, 1, L)."""
    return torch.zeros(1, 1, length,
                       dtype=torch.bool).index_fill(2, torch.tensor(tokens, dtype=torch.long), True)


# ---------------------------------------------------------------- importance scores

def mean_attention_received(q: torch.Tensor, k: torch.Tensor,
                            rows: torch.Tensor | None = None) -> torch.Tensor:
    """The definition, column by column: the mean of full attention over the rows that see it."""
    matrix = full.effective(q, k)
    rows = torch.arange(q.shape[2]) if rows is None else rows
    # of nothing: NaN
    means = [matrix[:, :, rows[rows >= t], t].mean(-1) for t in range(q.shape[2])]
    return torch.stack(means, dim=-1).nan_to_num(nan=math.inf)


SAMPLES = {"all": None, "last": [10], "three": [2, 6, 10], "not the last": [1, 7]}


def check_scores(importance) -> None:
    q, k, _ = bench.inputs(heads=4, kv_heads=2, batch=2)
    for rows in SAMPLES.values():
        rows = None if rows is None else torch.tensor(rows)
        got, wanted = importance(q, k, rows=rows), mean_attention_received(q, k, rows)
        assert torch.equal(got.isinf(), wanted.isinf()), "unseen tokens score inf"
        bench.assert_close(got.nan_to_num(posinf=0), wanted.nan_to_num(posinf=0), "scores")


def test_scores_are_the_mean_attention_received():
    check_scores(dga.importance)


@pytest.mark.parametrize(("mutant", "reason"), [
    (wrong.scores_over_all_rows, "scores: "), (wrong.sampled_over_later_rows, "scores: "),
    (wrong.unseen_is_not_a_number, "unseen tokens score inf")])
def test_wrong_scores_are_killed(mutant, reason):
    with pytest.raises(AssertionError, match=reason):
        check_scores(mutant)


def test_scores_in_pieces_of_rows(monkeypatch):
    """All rows as a sample, three at a time, against all rows at once."""
    q, k, _ = bench.inputs(heads=4, kv_heads=2)
    monkeypatch.setattr("cca_lab.mechanisms.dga.selection.ROWS_AT_ONCE", 3)
    every = torch.arange(q.shape[2])
    bench.assert_close(dga.importance(q, k, rows=every), dga.importance(q, k), "scores")


@pytest.mark.parametrize("sampled", [None, torch.arange(0, 2048, 2)], ids=["all", "sample"])
def test_the_memory_of_scores_grows_with_the_length_alone(sampled):
    """The mutant that compares all rows with all tokens makes rows x tokens of them."""
    class Largest(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, call, types, args=(), kwargs=None):
            out = call(*args, **(kwargs or {}))
            self.seen = max(self.seen, out.numel() if isinstance(out, torch.Tensor) else 0)
            return out

    q = torch.randn(1, 1, 2048, 4)
    with Largest() as largest:
        dga.importance(q, q, rows=sampled)
    assert largest.seen <= 256 * 2048  # ROWS_AT_ONCE rows of the attention


# ---------------------------------------------------------------- the choice

@pytest.mark.parametrize("options", [
    M2, M3, B4, B5, {**M2, "recent": 2}, {**M2, "random": 3, "seed": 2},
    {**B4, "recent": 1, "random": 2},
    {**M3, "floor": 4}], ids=str)
def test_select_marks_the_best_of_each_stretch(options):
    q, k, _ = bench.inputs(13, heads=4, kv_heads=2, batch=2)
    rule = FocalRule(**options)
    focal = DGA(**options).select(q, k)
    count, span = rule.spans(13)
    assert focal.dtype == torch.bool and not focal[..., count * span :].any()
    per_span = focal[..., : count * span].unflatten(2, (count, span)).sum(-1)
    assert (per_span
            == rule.focal_count(span)).all() and (span - rule.focal_count(span)) % rule.group == 0
    for b in range(2):
        for kv in range(2):
            judges = range(2 * kv, 2 * kv + 2)
            keys = k.repeat_interleave(2, dim=1)[b, judges]
            assert focal[b, kv].nonzero().flatten().tolist() == focal_loops(q[b, judges], keys,
                                                                            rule, 0.5)


def test_equal_scores_go_to_the_earlier_token():
    assert FocalRule(group=2, gamma=0.0).rows(9) is None
    q = torch.zeros(1, 1, 4, 2, dtype=torch.float64)
    assert DGA(group=2, gamma=0.5, recent=1).select(q, q).tolist() == [[[True, True, False, False]]]


@pytest.mark.parametrize(("length", "options", "wanted"), [
    (100, {"group": 1, "gamma": 0.29}, 29),             # 0.29 * 100 is 28.999999999999996
    (100, {"group": 16, "gamma": 0.1}, 10 + 90 % 16),
    (1000, {"group": 16, "gamma": 0.1, "floor": 1024}, 1000),
    (8192, {"group": 16, "gamma": 0.1, "floor": 1024}, 1024),
    (20000, {"group": 16, "gamma": 0.1, "floor": 1024}, 2000),
    (71, {"group": 16, "gamma": 0.1}, 7),  # the default block: 7 focal tokens and 4 groups
    (5, {"group": 6, "gamma": 0.0}, 5), (9, {"group": 2, "gamma": 1.0}, 9),
])
def test_how_many_tokens_are_focal(length, options, wanted):
    assert FocalRule(**options).focal_count(length) == wanted


def test_sampled_rows():
    rule = FocalRule(group=2, gamma=0.1, recent=3, random=4)
    rows = rule.rows(20)
    assert rows.tolist() == sorted(set(rows.tolist())) and len(rows) == 7
    assert rows[-3:].tolist() == [17, 18, 19]
    assert torch.equal(rows, rule.rows(20))
    assert rule.rows(2).tolist() == [0, 1] and len(rule.rows(5)) == 5
    others = [FocalRule(group=2, gamma=0.1, recent=3, random=4,
                        seed=seed).rows(20).tolist() for seed in range(5)]
    assert len(set(map(tuple, others))) > 1


# ---------------------------------------------------------------- which columns a row reads


def test_the_picture_of_an_example():
    """Focal {2}, m = 3, L = 8 with one leftover, which is focal too: token 7."""
    rule = FocalRule(group=3, gamma=0.0)
    groups = [[0, 1, 3], [4, 5, 6]]
    reads = [dga.row_reads(i, [2, 7], groups, rule) for i in range(8)]
    assert reads == [([], [], [0]), ([], [], [0, 1]), ([2], [], [0, 1]), ([2], [], [0, 1, 3]),
                     ([2], [0], [4]), ([2], [0], [4, 5]), ([2], [0], [4, 5, 6]),
                     ([2, 7], [0, 1], [])]


def test_a_row_worked_by_hand():
    """m = 2, focal {1}: row 4 reads token 1, the group {0, 2} judged by 2, and 3 and 4 raw."""
    q = torch.tensor([0.0, 0.0, 2.0, 0.0, 3.0], dtype=torch.float64).view(1, 1, 5, 1)
    k = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0], dtype=torch.float64).view(1, 1, 5, 1)
    v = torch.tensor([1.0, 7.0, 0.0, -2.0, 5.0], dtype=torch.float64).view(1, 1, 5, 1)
    # token 0 in its group: logits 2 * 1 and 2 * 0, so key = value = phi
    phi = 1 / (1 + math.exp(-2))
    logits, values = [3.0, 3 * phi, 0.0, 3.0], [7.0, phi, -2.0, 5.0]
    powers = [math.exp(logit) for logit in logits]
    wanted = sum(power * value for power, value in zip(powers, values, strict=True)) / sum(powers)
    got = LOOPS(q, k, v, group=2, gamma=0.2, selection=focal_of([1], 5))[0, 0, 4, 0].item()
    assert got == pytest.approx(wanted, abs=1e-12)


# ---------------------------------------------------------------- groups: weights and positions

def closed_groups(focal: torch.Tensor, options: dict):
    """Yield (batch, kv head, row, members) for each group that the definition shows to a row."""
    rule = FocalRule(**options)
    count, span = rule.spans(focal.shape[2])
    for b in range(focal.shape[0]):
        for kv in range(focal.shape[1]):
            others = [t for t in range(count * span) if not focal[b, kv, t]]
            groups = [others[z : z + rule.group] for z in range(0, len(others), rule.group)]
            for i in range(focal.shape[2]):
                for z in dga.row_reads(i, [], groups, rule)[1]:
                    yield b, kv, i, groups[z]


def check_group_weights(form, options: dict) -> None:
    """The weights inside a group are Eq. 14: softmax of its last token's logits, mean of heads."""
    q, k, _ = bench.inputs(13, heads=4, kv_heads=2)
    focal = DGA(**options).select(q, k)
    matrix = bench.read_matrix(form, q, k, {**options, "selection": focal})
    seen = list(closed_groups(focal, options))
    assert seen
    for b, kv, i, members in seen:
        for h in (2 * kv, 2 * kv + 1):
            weights = matrix[b, h, i, members]
            logits = (q[b, 2 * kv : 2 * kv + 2, members[-1]] @ k[b, kv, members].T).mean(0) / 2
            bench.assert_close(weights / weights.sum(), logits.softmax(0),
                               f"weights of group {members}", 1e-10)


def check_group_position(form, options: dict) -> None:
    """A pooled key is the pooled un-rotated keys, rotated at its middle member's position."""
    q0, k0, _ = bench.inputs(13)
    cos, sin = bench.rope_tables(13, 4)
    q, k = bench.rotate(q0, cos, sin), bench.rotate(k0, cos, sin)
    focal = DGA(**options).select(q, k)
    matrix = bench.read_matrix(form, q, k, {**options, "selection": focal, "rotation": (cos, sin)})
    for b, kv, i, members in closed_groups(focal, options):
        for h in (0, 1):
            weights = matrix[b, h, i, members]
            pooled, middle = weights / weights.sum() @ k0[b, kv,
                                                          members], members[len(members) // 2]
            key = bench.rotate(pooled, cos[middle], sin[middle])
            got = (weights.sum() / matrix[b, h, i, i]).log()
            bench.assert_close(got, q[b, h, i] @ (key - k[b, kv, i]) / 2,
                               f"logit of group {members}", 1e-10)


@every_way
def test_groups(options):
    check_group_weights(DENSE, options)
    check_group_position(DENSE, options)


# ---------------------------------------------------------------- scopes and limits

def check_each_token_once(form, options: dict) -> None:
    """As the bench's partition of unity, with focal tokens between the members of groups."""
    bench.check_partition_of_unity(partial(form, selection=focal_of([2, 5], 11)), options)


def check_frozen_causality(form, options: dict) -> None:
    q, k, _ = bench.inputs(10)
    bench.check_causality(partial(form, selection=DGA(**options).select(q, k)), options, length=10)


def test_the_paper_s_floor_makes_short_texts_exact():
    paper = DGA(**DGA.paper_presets["paper"])
    assert paper.exact_when(1024) and not paper.exact_when(1040)
    assert not DGA().exact_when(64)


# ---------------------------------------------------------------- what a decoder keeps

def check_decode_span(span) -> None:
    """m' = ceil(1.1 m): 18 tokens for groups of 16, two of them focal."""
    assert [span(m) for m in (1, 2, 4, 10, 16, 50)] == [2, 3, 5, 11, 18, 55], "decode span"


def test_decode_span():
    check_decode_span(decode_span)
    for mutant in (wrong.span_by_floating_point, wrong.span_rounded_down):
        with pytest.raises(AssertionError, match="decode span"):
            check_decode_span(mutant)


def test_cache_tokens():
    rule = DGA(group=16, gamma=0.1, floor=1024)
    # Appendix E: r + (L - r) / m
    assert cache_tokens(8192, rule) == (1024 + (8192 - 1024) // 16, 0)
    assert cache_tokens(8192 + 40, rule, prompt=8192) == (1024 + 448 + 2 * 3, 4)
    blocks = DGA(group=16, gamma=0.1, choose="blocks")
    assert cache_tokens(71 * 3 + 5, blocks) == (3 * (7 + 4), 5)
    assert rule.cache_entries(8192) == 1024 + 448 and blocks.cache_entries(71 * 3 + 5) == 38


# ---------------------------------------------------------------- refusals

@pytest.mark.parametrize(("bad", "named"), [
    ({"gamma": 1.5}, "gamma"), ({"choose": "all"}, "choose"),
    ({"rotation": bench.rope_tables(10, 4)}, "rotation"),
    ({"selection": torch.ones(1, 1, 11)}, "selection"),
    ({"selection": focal_of([0, 1, 2], 10)}, "selection"),
    ({"selection": focal_of([0, 1, 2], 11)}, "selection"),  # 8 others, no multiple of 3
])
def test_what_does_not_fit_is_refused(bad, named):
    with pytest.raises(ValueError, match=named):
        DENSE(*bench.inputs(), **{**M3, **bad})


def test_a_choice_with_unequal_heads_is_refused():
    q, k, v = bench.inputs(heads=2, kv_heads=2)
    unequal = torch.cat([focal_of([0, 1], 11), focal_of([0, 1, 2, 3, 4], 11)], dim=1)
    with pytest.raises(ValueError, match="selection: marks .2, 5. of 11"):
        DGA(**M3).attention(q, k, v, selection=unequal)


# ---------------------------------------------------------------- mutants

HELD, LEAK = "times a token is held", "edits after token"
FROZEN_GRADIENT = partial(bench.check_same_gradients, reference=LOOPS)
MUTANTS = [  # (mutant, the check that kills it, options, what the check says)
    (wrong.any_member_visible, check_frozen_causality, M3, LEAK),
    (wrong.group_and_members, check_each_token_once, M3, HELD),
    (wrong.last_row_sees_neither, bench.check_partition_of_unity, M2, "no weight|not finite"),
    (wrong.focal_in_order_of_score, bench.check_partition_of_unity, {"group": 2, "gamma": 0.5},
     "future|no weight"),
    (wrong.mask_after_softmax, check_frozen_causality, M3, LEAK),
    (wrong.mask_multiplied, check_frozen_causality, M3, LEAK),
    (wrong.own_block_divided, bench.check_causality, {**B4, "block": 8}, LEAK),
    (wrong.later_rows_choose, bench.check_causality, B4, LEAK),
    (wrong.leftover_dropped, bench.check_partition_of_unity, B5, "a past token has no weight"),
    (wrong.first_head_scores, bench.check_heads_interchangeable, M3, "permuted query heads"),
    (wrong.first_query_judges, check_group_weights, M3, "weights of group"),
    (wrong.unscaled_phi, check_group_weights, M3, "weights of group"),
    (wrong.mean_of_softmaxes, check_group_weights, M3, "weights of group"),
    (wrong.detached_phi, FROZEN_GRADIENT, M3, "gradient of q"),
    (wrong.rotated_keys_pooled, check_group_position, M3, "logit of group"),
    (wrong.group_at_last_position, check_group_position, M3, "logit of group"),
]

def label(value) -> str | None:
    function = value.func if isinstance(value, partial) else value
    return getattr(function, "__name__", "").removeprefix("check_") or None


@pytest.mark.parametrize(("mutant", "check", "options", "reason"), MUTANTS, ids=label)
def test_mutant_is_killed(mutant, check, options, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, options)
    check(DENSE, options)
