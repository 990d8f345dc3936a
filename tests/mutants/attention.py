"""Wrong interval attentions and poolings, one trap each.

A mutant replaces one function of cca_lab.attention, which MUTANTS names; the rest is the real code.
"""

from dataclasses import replace

import torch
from torch import Tensor

from cca_lab.attention import blocked, dense, plan, pooling, tiles

_real_mask = plan.TileBatch.mask
_real_forward = tiles.FlashTile.forward
_real_backward = tiles.FlashTile.backward
_real_add_columns = blocked._add_columns
_real_problems = blocked._problems
_real_last_queries = pooling._last_queries
_real_pooled_keys = pooling._pooled_keys
_real_position_groups = pooling._position_groups
_real_turn = pooling._turn_to_middle


# ---------------------------------------------------------------- masks

def finite_mask(self, dtype, device):
    """-1e4 for -inf: hidden columns come back once the visible logits are lower than that."""
    mask = _real_mask(self, dtype, device)
    return None if mask is None else mask.clamp(min=-1e4)


def one_column_more(self, dtype, device):
    """Ends taken as inclusive."""
    edges = None if self.edges is None else self.edges + torch.tensor([0, 1])
    return _real_mask(replace(self, edges=edges), dtype, device)


def starts_ignored(self, dtype, device):
    """Only the ends of a block's edges hide anything."""
    edges = None if self.edges is None else self.edges * torch.tensor([0, 1])
    return _real_mask(replace(self, edges=edges), dtype, device)


def closed_intervals(table: Tensor, columns: int) -> Tensor:
    """The dense mask with inclusive ends."""
    column = torch.arange(columns)
    starts, ends = table.unsqueeze(-1).unbind(dim=-2)
    return ((column >= starts) & (column <= ends)).any(dim=-2)


# ---------------------------------------------------------------- merging

def outputs_added(out, lse, part_out, part_lse):
    """Partial outputs added up, without the weights that their log-sum-exps give them."""
    out.add_(part_out)
    lse.copy_(torch.logaddexp(lse, part_lse))


def later_part_not_rescaled(out, lse, part_out, part_lse):
    """The output so far is rescaled, the new part is taken at full weight."""
    total = torch.logaddexp(lse, part_lse)
    out.mul_((lse - total).exp().unsqueeze(-1)).add_(part_out)
    lse.copy_(total)


def lse_not_updated(out, lse, part_out, part_lse):
    """The log-sum-exp of the last part for that of the row."""
    weight = (part_lse - lse).sigmoid().masked_fill(part_lse == float("-inf"), 0.0)
    out.lerp_(part_out, weight.unsqueeze(-1))
    lse.copy_(torch.where(part_lse == float("-inf"), lse, part_lse))


def blind_rows_kept(self, device):
    """Rows that see none of a part keep the operator's lse = 0, the weight of a logit 0."""
    return None


# ---------------------------------------------------------------- backward and heads

def local_statistics(self, grad, q, k, v, out, lse, mask, causal, scale):
    """Each part's backward with its own output and log-sum-exp for those of the whole row."""
    out, lse = _real_forward(self, q, k, v, mask, causal, scale)
    return _real_backward(self, grad, q, k, v, out, lse, mask, causal, scale)


def local_output(self, grad, q, k, v, out, lse, mask, causal, scale):
    """The right log-sum-exp, but do . out of the part only."""
    out, _ = _real_forward(self, q, k, v, mask, causal, scale)
    return _real_backward(self, grad, q, k, v, out, lse, mask, causal, scale)


def one_query_head_counts(total, part, pieces):
    """dk and dv of the first query head of a KV head (or the first block) for the sum over all."""
    kept = torch.zeros_like(pieces)
    kept[:, :1] = pieces[:, :1]
    _real_add_columns(total, part, kept)


def overlaps_overwritten(total, part, pieces):
    """Sliding blocks write dk and dv where they should add."""
    for block in range(pieces.shape[1]):
        column = part.column + (block * part.step if part.count > 1 else 0)
        total[:, column : column + part.columns] = pieces[:, block]


def lse_gradient_dropped(q, k, v, out, grad_out, grad_lse):
    """The gradient that arrives through lse is ignored."""
    return q, k, v, out, grad_out


def heads_interleaved(table, share, block):
    """Query head h reads KV head h % Hk, where it should read h // (H / Hk)."""
    problems = _real_problems(table, share, block)
    key_heads = max(1, table.shape[1] // share)
    wrong = (slice(p.heads.start % key_heads, p.heads.start % key_heads + 1)
             if p.heads.start is not None else p.key_heads for p in problems)
    return [replace(problem, key_heads=heads) for problem,
            heads in zip(problems, wrong, strict=True)]


# ---------------------------------------------------------------- planning

def joined_at_any_step(part, after):
    """Neighbouring blocks joined although their columns do not slide by a constant step."""
    if after.row != part.row_slice.stop or not plan._same(part.edges, after.edges):
        return None
    step = after.column - part.column if part.count == 1 else part.step
    return replace(part, count=part.count + 1, step=step)


def joined_whatever_the_edges(part, after):
    """Neighbouring blocks joined although their edges differ."""
    step = after.column - part.column - (part.count - 1) * part.step
    if after.row != part.row_slice.stop or (part.count > 1 and step != part.step):
        return None
    return replace(part, count=part.count + 1, step=step)


# ---------------------------------------------------------------- pooling

def first_query_judges(q, k, group, count):
    """phi from the first query of a group for its last."""
    return _real_last_queries(q.roll(group - 1, dims=2), k, group, count)


def weights_averaged(last, keys, weights, per_query_head, scale, rotation):
    """The mean over query heads taken of the weights, not of the logits."""
    both = _real_pooled_keys(last, keys, weights, True, scale, rotation)
    return both if per_query_head else tuple(x.mean(dim=3, keepdim=True) for x in both)


def scale_forgotten(last, keys, weights, per_query_head, scale, rotation):
    """phi without the factor on its logits (the paper prints DGA's so)."""
    return _real_pooled_keys(last, keys, weights, per_query_head, 1.0, rotation)


def turned_to_first(table, count, group):
    """Keys turned to the first position of their group, not to the middle."""
    table = _real_position_groups(table, count, group).clone()
    table[..., group // 2, :] = table[..., 0, :]
    return table


def keys_left_turned(keys, rotation):
    """Rotated keys pooled as they are (the public code)."""
    return keys


def conjugated(keys, rotation):
    """The turn without its norm: wrong by the square of the factor that some tables carry."""
    cos, sin = rotation
    norm = cos.square() + sin.square()
    return _real_turn(keys, (cos, sin)) * pooling._position_groups(norm,
                                                                   *keys.shape[2:4]).to(keys.dtype)


# ---------------------------------------------------------------- what each one replaces

# mutant -> (what holds the function, its name)
MUTANTS = {
    finite_mask: (plan.TileBatch, "mask"),
    one_column_more: (plan.TileBatch, "mask"),
    starts_ignored: (plan.TileBatch, "mask"),
    closed_intervals: (dense, "visible_mask"),
    outputs_added: (blocked, "_merge"),
    later_part_not_rescaled: (blocked, "_merge"),
    lse_not_updated: (blocked, "_merge"),
    blind_rows_kept: (plan.TileBatch, "blind_rows"),
    local_statistics: (tiles.FlashTile, "backward"),
    local_output: (tiles.FlashTile, "backward"),
    one_query_head_counts: (blocked, "_add_columns"),
    overlaps_overwritten: (blocked, "_add_columns"),
    lse_gradient_dropped: (blocked, "_append_lse_gradient"),
    heads_interleaved: (blocked, "_problems"),
    joined_at_any_step: (plan, "_join"),
    joined_whatever_the_edges: (plan, "_join"),
    first_query_judges: (pooling, "_last_queries"),
    weights_averaged: (pooling, "_pooled_keys"),
    scale_forgotten: (pooling, "_pooled_keys"),
    turned_to_first: (pooling, "_position_groups"),
    keys_left_turned: (pooling, "_turn_to_middle"),
    conjugated: (pooling, "_turn_to_middle"),
}
