"""Wrong DGAs and scores: one change each in the loops, or in the dense mask."""

import math

import torch
from torch import Tensor

from cca_lab.attention import sources
from cca_lab.mechanisms import DGA
from cca_lab.mechanisms.dga import columns, importance
from tests.mechanisms.forms import form
from tests.mutants import cca
from tests.mutants.slips import slip

LOOPS, DENSE = form(DGA, "loops"), form(DGA, "attention", backend="dense")
ROWS, READS, FOCAL, CORES = (f"cca_lab.mechanisms.dga.mechanism.{name}" for name in (
    "DGA.row_by_row", "row_reads", "focal_loops", "cores"))
COUNT = "cca_lab.mechanisms.dga.selection.FocalRule.focal_count"

# ---------------------------------------------------------------- what a row sees

any_member_visible = slip("Algorithm 2 as printed: one member shows its group", LOOPS,
                          (READS, "if members[-1] < i]", "if members[0] <= i]"))
group_and_members = slip("a group and its members show in its last row", LOOPS,
                         (READS, "if members[-1] < i]", "if members[-1] <= i]"))
last_row_sees_neither = slip("the last row of a group sees neither it nor its members", LOOPS,
                             (READS, "<= i <= members[-1] for", "<= i < members[-1] for"))
focal_in_order_of_score = slip("the first n focal tokens are not those of the past", LOOPS, (
    FOCAL, "sorted(first + t for t in ranked[: rule.focal_count(span)])",
    "[first + t for t in ranked[: rule.focal_count(span)]]"),
    (READS, "[t for t in focal if t <= i]", "focal[: sum(t <= i for t in focal)]"))
mask_after_softmax = slip("Eq. 13 as printed: hidden columns go after they took their share", DENSE,
                          (cca.MASK, cca.HIDDEN, "scores"),
                          (cca.MASK, "lse.unsqueeze(-1)).exp()",
                           "lse.unsqueeze(-1)).exp() * visible"))
mask_multiplied = slip("a hidden column gets logit 0, not weight 0", DENSE, cca.MULTIPLIED)
own_block_divided = slip("a row reads its own block divided, by a choice with later tokens", LOOPS,
                         (READS, 'if rule.choose == "prompt":', "if True:"))

# ---------------------------------------------------------------- how the tokens are divided

NO_LEFTOVER = (COUNT, "focal_count(span, floor_of_share(self.gamma, span), self.floor, self.group)",
               "floor_of_share(self.gamma, span)")

leftover_dropped = slip("nobody reads leftover tokens", LOOPS, NO_LEFTOVER,
                        (ROWS, "range(0, len(others), m)", "range(0, len(others) - m + 1, m)"))
later_rows_choose = slip("the scores of a block count all later rows", LOOPS, (
    FOCAL, "importance_loops(queries[:, segment], keys[:, segment], rows, scale)",
    "importance_loops(queries, keys, range(keys.shape[1]), scale)[first : first + span]"))
first_head_scores = slip("the first query head of a KV head chooses for all", LOOPS,
                         (ROWS, "q[b, heads_kv],", "q[b, heads_kv][:1],"),
                         (ROWS, "[b, heads_kv], self", "[b, heads_kv][:1], self"))

# ---------------------------------------------------------------- how a group is pooled

first_query_judges = slip("the first token of a group weighs it", LOOPS, (CORES, *cca.JUDGE))
unscaled_phi = slip("Eq. 14 without its 1/sqrt(D)", LOOPS, (CORES, *cca.UNSCALED))
mean_of_softmaxes = slip("heads' weights are averaged, not their logits", LOOPS,
                         (CORES, *cca.SOFTMAXES))
detached_phi = slip("no gradient teaches what to keep in a group", LOOPS, (CORES, *cca.DETACHED))
rotated_keys_pooled = slip("keys pooled as they arrive", LOOPS, (CORES, *cca.ROTATED))
group_at_last_position = slip("a group stands where its judge stands", LOOPS,
                              (CORES, *cca.AT_LAST))


# ------------------------------------------------------------- scores: (q, k, rows) as `importance`

def scores_over_all_rows(q: Tensor, k: Tensor, *, rows: Tensor | None = None) -> Tensor:
    """The sum over L instead of over L - t: late tokens, which few rows see, come out too low."""
    length = q.shape[2]
    sampled = torch.arange(length) if rows is None else rows
    seen_by = (sampled[:, None] >= torch.arange(length)).sum(0)
    return importance(q, k, rows=rows) * seen_by / length


def sampled_over_later_rows(q: Tensor, k: Tensor, *, rows: Tensor | None = None) -> Tensor:
    """Eq. 17 with the divisor of Eq. 16, L - t: rows that were not sampled count as zeros."""
    length = q.shape[2]
    sampled = torch.arange(length) if rows is None else rows
    seen_by = (sampled[:, None] >= torch.arange(length)).sum(0)
    return importance(q, k, rows=rows) * seen_by / torch.arange(length, 0, -1)


def unseen_is_not_a_number(q: Tensor, k: Tensor, *, rows: Tensor | None = None) -> Tensor:
    """0 / 0 for tokens behind the last sampled row."""
    scores = importance(q, k, rows=rows)
    return scores.masked_fill(scores.isinf(), float("nan"))


# ---------------------------------------------------------------- the cache

def span_by_floating_point(group: int) -> int:
    """ceil(1.1 m) in floating point: 1.1 * 50 is 55.00000000000001, so 56."""
    return math.ceil(1.1 * group)


def span_rounded_down(group: int) -> int:
    """floor(1.1 m): no focal token for m < 10."""
    return max(1, 11 * group // 10)


def raw_tokens_stay(state) -> None:
    """DGAState._forget_raw that keeps the last raw token: it is read and stored twice."""
    for name in ("raw_key", "raw_value", "raw_query"):
        tensor = getattr(state, name, None)
        setattr(state, name, None if tensor is None else tensor[:, :, -1:].clone())
    state.chunk_tables = tuple((cos[:, -1:].clone(), sin[:, -1:].clone())
                         for cos, sin in state.chunk_tables[-1:])


def keep_a_view(state, query, key, value, focal, rule, scale, rotation) -> None:
    """DGAState._keep that stores slices, and with them the memory of all columns."""
    keys, values = map(sources.whole, columns(query, key, value, focal, rule, scale, rotation))
    focal_tokens = int(focal[0, 0].sum())
    kept = focal_tokens + (focal.shape[2] - focal_tokens) // rule.group
    for name, new in (("kept_key", keys), ("kept_value", values)):
        past = getattr(state, name)
        before = 0 if past is None else past.shape[2]
        whole = new if past is None else torch.cat([past, new], dim=2)
        setattr(state, name, whole[:, :, : before + kept])
