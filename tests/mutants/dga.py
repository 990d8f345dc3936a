"""Wrong DGAs and scores: `rows(q, k, v, **options)` is right, a mutant changes one thing."""

import math
from collections.abc import Callable
from functools import partial, wraps

import torch
from torch import Tensor

from cca_lab.attention import sources
from cca_lab.mechanisms.dga import columns, importance
from tests.mutants import cca
from tests.mutants.cca import Form, Pooling


class Parts(Pooling):
    """The decisions that make up DGA; row i and the tokens G of a group count from 0."""

    blocks = False  # choose="blocks"

    def scores(self, q: Tensor, k: Tensor, first: int, span: int, scale: float) -> Tensor:
        """Scores (span,) of the tokens from `first` on, by queries and keys (heads, L, D)."""
        q, k = q[:, first : first + span], k[:, first : first + span]
        past = torch.ones(span, span, dtype=torch.bool).tril()
        weights = torch.softmax((scale * q @ k.mT).masked_fill(~past, float("-inf")), dim=-1)
        return weights.mean(0).sum(0) / torch.arange(span, 0, -1)

    def score_heads(self, heads: range) -> range:
        """The query heads of a KV head that score together."""
        return heads

    def focal(self, scores: Tensor, count: int) -> list[int]:
        """The focal tokens of a stretch."""
        return sorted(scores.argsort(descending=True, stable=True)[:count].tolist())

    def count(self, span: int, m: int, gamma: float, floor: int) -> int:
        """How many they are."""
        count = min(span, max(math.floor(gamma * span + 1e-9), floor))
        return count + (span - count) % m

    def group(self, others: list[int], m: int) -> list[list[int]]:
        """Groups of a stretch's other tokens."""
        return [others[z : z + m] for z in range(0, len(others) - m + 1, m)]

    def pooled(self, members: list[int]) -> list[int]:
        """The tokens that a group pools."""
        return members

    def sees_focal(self, i: int, rank: int, token: int, block: int) -> bool:
        """Whether row i sees the focal token that is `rank`-th in order."""
        return token < i // block * block if self.blocks else token <= i

    def sees_group(self, i: int, members: list[int], block: int) -> bool:
        """Whether row i sees a group as one."""
        return members[-1] < i // block * block if self.blocks else members[-1] < i

    def sees_raw(self, i: int, token: int, members: list[int] | None, block: int) -> bool:
        """Whether row i sees a token raw that is not seen as focal; `members` is its group."""
        if self.blocks:
            return i // block * block <= token <= i
        return members is not None and members[0] <= i <= members[-1] and token <= i


def rows(q: Tensor, k: Tensor, v: Tensor, *, group: int, gamma: float, floor: int = 0,
         choose: str = "prompt", block: int = 71, scale: float | None = None,
         rotation: tuple[Tensor, Tensor] | None = None, selection: Tensor | None = None,
         parts: Parts | None = None) -> Tensor:
    """DGA from `parts`, under a mask; no sampled rows, no shared choice."""
    parts = parts or Parts()
    parts.blocks = choose == "blocks"
    batch, heads, length, head_dim = q.shape
    share, scale = heads // k.shape[1], head_dim**-0.5 if scale is None else scale
    span = block if parts.blocks else length
    firsts = range(0, length - span, span) if parts.blocks else [0]
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    for b in range(batch):
        for kv in range(k.shape[1]):
            own, keys, values = range(kv * share, kv * share + share), k[b, kv], v[b, kv]
            focal, groups = [], []
            for first in firsts:
                if selection is None:
                    judges = list(parts.score_heads(own))
                    with torch.no_grad():
                        scores = parts.scores(q[b, judges], keys.expand(len(judges), -1, -1), first,
                                              span, scale)
                    here = [first + t
                            for t in parts.focal(scores, parts.count(span, group, gamma, floor))]
                else:
                    here = [t for t in range(first, first + span) if selection[b, kv, t]]
                focal += here
                groups += parts.group([t for t in range(first, first + span) if t not in here],
                                      group)
            pooled_keys, pooled_values = _pooled(parts, q[b, own], keys, values, groups, scale,
                                                 rotation, b)
            group_of = {t: members for members in groups for t in members}
            columns = torch.cat([keys[focal], *pooled_keys, keys])
            column_values = torch.cat([values[focal], *pooled_values, values])
            for h in own:
                for i in range(length):
                    visible = torch.tensor(
                        [parts.sees_focal(i, rank, t, block) for rank, t in enumerate(focal)]
                        + [parts.sees_group(i, members, block) for members in groups]
                        + [parts.sees_raw(i, t, group_of.get(t), block) for t in range(length)])
                    out[b, h, i] = parts.weigh(columns @ q[b, h, i], visible, scale) @ column_values
    return out


def _pooled(parts, q, keys, values, groups, scale, rotation, b) -> tuple[list[Tensor],
                                                                         list[Tensor]]:
    pooled_keys, pooled_values = [], []
    for members in groups:
        tokens = parts.pooled(members)
        phi = parts.phi(q[:, parts.judge(members)] @ keys[tokens].T, scale)
        key = phi @ keys[tokens]
        if rotation is not None:
            cos, sin = (t.expand(b + 1, -1, -1)[b, tokens] if t.dim() == 2 or len(t) == 1
                        else t[b, tokens] for t in rotation)
            key = parts.rotate_pooled(phi @ parts.unrotate(keys[tokens], cos, sin), cos, sin)
        pooled_keys.append(key[None])
        pooled_values.append((phi @ values[tokens])[None])
    return pooled_keys, pooled_values


def in_dga(mutant: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A mutant of CCA's pooling or weighing, in DGA."""
    return wraps(mutant)(partial(mutant, form=Form(rows, Parts)))


mask_multiplied = in_dga(cca.mask_multiplied)
first_query_judges = in_dga(cca.first_query_judges)
unscaled_phi = in_dga(cca.unscaled_phi)
mean_of_softmaxes = in_dga(cca.mean_of_softmaxes)
detached_phi = in_dga(cca.detached_phi)
rotated_keys_pooled = in_dga(cca.rotated_keys_pooled)
group_at_last_position = in_dga(cca.core_at_last_position)


# ---------------------------------------------------------------- what a row sees

def any_member_visible(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Algorithm 2 as printed: a group shows as soon as one member does."""
    class Wrong(Parts):
        def sees_group(self, i, members, block):
            return members[0] <= i
    return rows(q, k, v, parts=Wrong(), **options)


def group_and_members(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The group shows from its last row on, and so do its members (Eq. 15): both are there."""
    class Wrong(Parts):
        def sees_group(self, i, members, block):
            return members[-1] <= i
    return rows(q, k, v, parts=Wrong(), **options)


def last_row_sees_neither(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The group shows after its last row, the members before it: that row loses all."""
    class Wrong(Parts):
        def sees_raw(self, i, token, members, block):
            return super().sees_raw(i, token, members, block) and i < members[-1]
    return rows(q, k, v, parts=Wrong(), **options)


def focal_in_order_of_score(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Focal tokens in order of rank: 'the first n' are then not those of the past."""
    class Wrong(Parts):
        def focal(self, scores, count):
            self.ranked = scores.argsort(descending=True, stable=True)[:count].tolist()
            return sorted(self.ranked)

        def sees_focal(self, i, rank, token, block):
            past = sum(t <= i for t in self.ranked)
            return self.ranked.index(token) < past
    return rows(q, k, v, parts=Wrong(), **options)


def mask_after_softmax(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Eq. 13 as printed: hidden columns are removed after they took their share."""
    class Wrong(Parts):
        def weigh(self, logits, visible, scale):
            return torch.softmax(scale * logits, dim=-1) * visible
    return rows(q, k, v, parts=Wrong(), **options)


def own_block_divided(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Blocks: a row reads its own block divided, by a choice with its later tokens."""
    class Wrong(Parts):
        def sees_focal(self, i, rank, token, block):
            return token <= i

        def sees_group(self, i, members, block):
            return members[-1] < i

        def sees_raw(self, i, token, members, block):
            return members is not None and members[0] <= i <= members[-1] and token <= i
    return rows(q, k, v, parts=Wrong(), **options)


# ---------------------------------------------------------------- how the tokens are divided

def leftover_pooled(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Leftover tokens form a group of fewer than m instead of becoming focal."""
    class Wrong(Parts):
        def count(self, span, m, gamma, floor):
            return math.floor(gamma * span)

        def group(self, others, m):
            return [others[z : z + m] for z in range(0, len(others), m)]
    return rows(q, k, v, parts=Wrong(), **options)


def leftover_dropped(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Leftover tokens are in no group and not focal: nobody reads them."""
    class Wrong(Parts):
        def count(self, span, m, gamma, floor):
            return math.floor(gamma * span)
    return rows(q, k, v, parts=Wrong(), **options)


def later_rows_choose(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Blocks: the scores count the attention of all later rows, those behind the block too."""
    class Wrong(Parts):
        def scores(self, q, k, first, span, scale):
            return super().scores(q, k, 0, q.shape[1], scale)[first : first + span]
    return rows(q, k, v, parts=Wrong(), **options)


def first_head_scores(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Grouped queries: the first query head of a KV head chooses for all of them."""
    class Wrong(Parts):
        def score_heads(self, heads):
            return heads[:1]
    return rows(q, k, v, parts=Wrong(), **options)


def hidden_floor(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The paper's floor of 1K whatever is asked for: a short text is all focal."""
    return rows(q, k, v, **{**options, "floor": 1024})


# ---------------------------------------------------------------- how a group is pooled

def slice_pooled(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Eq. 14 as printed, K from min G to max G: focal tokens between are read twice."""
    class Wrong(Parts):
        def pooled(self, members):
            return list(range(members[0], members[-1] + 1))
    return rows(q, k, v, parts=Wrong(), **options)


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
