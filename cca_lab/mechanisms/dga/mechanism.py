"""Dynamic Group Attention (DGA): important tokens stay raw, groups of the others are pooled.

Zhang et al., "Curse of High Dimensionality Issue in Transformer for Long-context Modeling", ICML
2025 (Sections 5.1-5.2, Eq. 12-17, Algorithms 1 and 2). Rows and tokens count from 0; m is the group
size. The tokens with the highest importance scores are *focal*; the others, in order, form groups
G_z of m:

    P_z   = softmax(scale * q_{max G_z} K_{G_z}^T),  k_z = P_z K_{G_z},  v_z = P_z V_{G_z}  (Eq. 14)
    out_i = softmax(scale * q_i [focal keys up to i ; k_z, max G_z < i ; open group up to i])
            [same of values], the open group with min G_z <= i <= max G_z                (Eq. 12-15)

so each row reads every token of its past exactly once: raw, or inside one group.

Differs from the paper, or decides what it leaves open:
  * In Algorithm 2 as printed a row sees a group as soon as it sees any member, which includes the
    future. Here a row sees a group once all of it is past, as in the text's example on Figure 1;
    row max G_z itself still reads the members, as Eq. 15 says.
  * Eq. 13 masks after the softmax, where hidden keys still count in the sum. Here the softmax runs
    over the columns that a row sees.
  * Eq. 14 has no 1/sqrt(D), and K from min G_z to max G_z, which has more than m rows if focal
    tokens lie in between. Here `scale` applies, and P_z runs over the members of G_z.
  * The scores use all later rows: choose="prompt", as in the paper, is causal only for given focal
    tokens. choose="blocks" is the lab's causal form: the text is cut into blocks of B tokens, each
    divided once by its own queries and keys. A row reads its own block raw and the earlier blocks
    divided, and reading token by token gives the same as reading at once.
  * RoPE is not mentioned. Scores and P use q and k as they arrive (rotated). A pooled key is placed
    at its group's middle member, the m//2-th, as for CCA-Attention: keys pooled at far apart angles
    would cancel in part.
  * Heads are not mentioned. Focal tokens and P are chosen for each KV head, from the mean over its
    query heads (of attention weights for the first, of logits for the second).
  * For the number of focal tokens, rounding, leftovers, ties and sampled rows see `FocalRule` and
    `select`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from cca_lab.attention.arguments import check_qkv, scale_of
from cca_lab.attention.dense import expand_heads
from cca_lab.attention.intervals import table_of
from cca_lab.attention.pooling import pool_checked, pooling_backend
from cca_lab.attention.rotary import Rotation
from cca_lab.attention.sources import Source
from cca_lab.mechanisms.base import EVERY_ROW, WHOLE_PROMPT, Call, Mechanism
from cca_lab.mechanisms.cca.mechanism import cores
from cca_lab.mechanisms.columns import Columns, behind
from cca_lab.mechanisms.dga.selection import FocalRule, check_selection, focal_loops, select
from cca_lab.mechanisms.indices import (
    blocks_columns,
    decode_focal,
    decode_span,
    dga_entries,
    divided_tokens,
    prompt_columns,
)


def paper_algorithm(queries: Tensor, keys: Tensor, values: Tensor, *, group: int,
                    gamma: float) -> Tensor:
    """Compute causal DGA of one head (Algorithms 1 and 2), in its simplest form: read this first.

    A row attends to focal tokens, closed groups and the raw tokens of the open group.

    Args:
        queries, keys, values: (L, D).
        group: m, tokens in a group.
        gamma: the share of tokens that are focal, rounded down.

    Returns:
        (L, D).
    """
    length, scale = len(keys), keys.shape[1] ** -0.5
    past = torch.ones(length, length, dtype=torch.bool).tril()
    attention = torch.softmax((scale * queries @ keys.T).masked_fill(~past, float("-inf")), dim=1)
    score = attention.sum(0) / past.sum(0)                                               # Eq. 16
    count = int(gamma * length)
    count += (length - count) % group  # no group is incomplete
    focal = sorted(sorted(range(length), key=lambda t: -score[t].item())[:count])  # lines 1 and 2
    others = [t for t in range(length) if t not in focal]
    groups = [others[first : first + group] for first in range(0, len(others), group)]   # line 3
    pooled_keys, pooled_values, out = [], [], []
    for members in groups:                                                               # line 4
        weights = torch.softmax(scale * (keys[members] @ queries[members[-1]]), dim=0)   # Eq. 14
        pooled_keys.append(weights @ keys[members])
        pooled_values.append(weights @ values[members])
    for i in range(length):                                                              # line 6
        closed = [z for z, members in enumerate(groups) if members[-1] < i]
        raw = [t for t in focal if t <= i]
        raw += [t for members in groups if members[0] <= i <= members[-1]
                for t in members if t <= i]  # Eq. 15
        row_keys = torch.stack([*(pooled_keys[z] for z in closed), *keys[raw]])  # line 5, Eq. 12
        row_values = torch.stack([*(pooled_values[z] for z in closed), *values[raw]])
        out.append(torch.softmax(scale * (row_keys @ queries[i]), dim=0) @ row_values)   # line 8
    return torch.stack(out)


@dataclass(frozen=True, kw_only=True)
class DGA(FocalRule, Mechanism):
    """Dynamic Group Attention: each row reads focal tokens raw, and pooled groups of the others.

    Focal tokens are those that receive most attention. Choosing them takes O(L^2) time with all
    rows, or O(L) for each sampled row, and memory linear in L.

    Attributes:
        group: m, the number of non-focal tokens in a group.
        gamma: the share of the tokens that are focal, rounded down.
        floor: the smallest number of focal tokens; 1K in Appendix C.2, all of a short text.
        choose: "prompt" chooses focal tokens once, among all tokens, as the paper does; "blocks"
            chooses them in each block separately, so that no later token can change them.
        block: B, the number of tokens in a block. It has no effect for "prompt".
        recent, random: how many of the last rows, and how many of the others at random, Eq. 17
            samples; all rows (Eq. 16) if both are 0. The paper gives no numbers.
        seed: the seed of the random rows, which are the same for all heads.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    name: ClassVar[str] = "dga"
    title: ClassVar[str] = "Dynamic Group Attention"
    paper: ClassVar[str] = ("Zhang et al., Curse of High Dimensionality Issue in Transformer for "
                            "Long-context Modeling, ICML 2025, Sections 5.1-5.2, Algorithms 1 and "
                            "2")
    sizes: ClassVar[tuple[str, ...]] = ("group", "gamma")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"group": 16, "gamma": 0.1, "floor": 1024}}  # Appendix C.2; 1K read as 1024
    needs_training: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        FocalRule.__post_init__(self)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute DGA line by line (Algorithm 1): the specification."""
        scale, rotation, selection, m = call.scale, call.rotation, call.selection, self.group
        batch, heads, length, head_dim = q.shape
        queries_per_key = heads // k.shape[1]
        count, span = self.spans(length)
        out = q.new_zeros(q.shape)
        for b in range(batch):
            for kv in range(k.shape[1]):
                keys, values = k[b, kv], v[b, kv]                            # (L, D)
                # the query heads of this KV head
                heads_kv = slice(kv * queries_per_key, (kv + 1) * queries_per_key)
                if selection is None:                                        # lines 1 and 2
                    focal = focal_loops(q[b, heads_kv],
                                        expand_heads(k, heads)[b, heads_kv], self, scale)
                else:
                    focal = selection[b, kv].nonzero().flatten().tolist()
                # line 3, tokens in place
                others = [t for t in range(count * span) if t not in focal]
                groups = [others[first : first + m] for first in range(0, len(others), m)]
                tables = None if rotation is None else [t.expand(batch, length, head_dim)[b, others]
                                                        for t in rotation]
                pooled_keys, pooled_values = cores(q[b, heads_kv][:, others], keys[others],
                                                   values[others], m, scale, tables,
                                                   "softmax")  # line 4: Eq. 14, (K, D) each
                for h in range(heads_kv.start, heads_kv.stop):
                    for i in range(length):                                  # line 6
                        seen, closed, raw = row_reads(i, focal, groups, self)  # line 5
                        row_keys = torch.cat([keys[seen], pooled_keys[closed], keys[raw]])  # Eq. 12
                        row_values = torch.cat([values[seen], pooled_values[closed], values[raw]])
                        weights = torch.softmax(scale * (row_keys @ q[b, h, i]), dim=0)
                        out[b, h, i] = weights @ row_values                  # line 8
        return out

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: [focal ; pooled ; raw], (B, Hk, columns, D), of each an interval."""
        focal = select(q, k, self, scale=call.scale) if call.selection is None else call.selection
        keys, values = columns(q, k, v, focal, self, call.scale, call.rotation,
                               backend=self.backend)
        visible = intervals(focal, self)
        visible = visible if visible.shape[1] == 1 else expand_heads(visible, q.shape[1])
        return [Columns(q, keys, values, visible,
                        partial(pooling_matrix, q, k, focal, self, call.scale),
                        reach=partial(pooling_matrix, q, k, focal, self, 0.0))]

    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
        """Return which tokens are focal, bool (B, Hk, L), see `cca_lab.mechanisms.dga.select`."""
        check_qkv(q, k, k)
        return select(q, k, self, scale=scale)

    def check_choice(self, selection: Any, q: Tensor, k: Tensor) -> None:
        """Raise ValueError unless a selection is a choice of focal tokens."""
        check_selection(selection, k, self)

    @property
    def causal_scope(self) -> str:
        """WHOLE_PROMPT for "prompt"; EVERY_ROW for "blocks", which are divided once past."""
        return WHOLE_PROMPT if self.choose == "prompt" else EVERY_ROW

    def exact_when(self, length: int) -> bool:
        """Return True if all divided tokens are focal, none is divided, or groups are one token."""
        count, span = self.spans(length)
        return self.group == 1 or count == 0 or self.focal_count(span) == span

    def cache_entries(self, length: int) -> int:
        """Return the focal tokens, groups and raw tokens after a prompt, see `cache_tokens`."""
        return sum(cache_tokens(length, self))

    @classmethod
    def sized(cls, entries: int, length: int) -> Self:
        """Return DGA with `entries` focal tokens (before leftovers) in a text of `length`."""
        return cls(gamma=entries / length)


def divide(focal: Tensor, rule: FocalRule) -> tuple[Tensor, Tensor]:
    """Return the indices of focal, (B, Hk, F), and grouped tokens, (B, Hk, K m), ascending."""
    count, span = rule.spans(focal.shape[-1])
    divided = focal[..., : count * span]
    # focal tokens first, both kinds in order
    order = divided.int().argsort(dim=-1, descending=True, stable=True)
    focal_tokens = int(divided[0, 0].sum())
    return order[..., :focal_tokens], order[..., focal_tokens:]


def kept_columns(q: Tensor, k: Tensor, v: Tensor, focal: Tensor, rule: FocalRule,
                 scale: float | None, rotation: Rotation | None, *,
                 backend: str = "auto") -> tuple[Tensor, Tensor]:
    """Return keys and values of the focal tokens (bool (B, Hk, L)), then of the pooled groups.

    Each is (B, Hk, F + K, D); F and K may be 0.
    """
    kept, others = divide(focal, rule)
    pooled = pool(q, k, v, others, rule.group, scale, rotation, backend=backend)
    keys, values = (torch.cat([take(x, kept), groups], dim=2)
                    for x, groups in zip((k, v), pooled, strict=True))
    return keys, values


def columns(q: Tensor, k: Tensor, v: Tensor, focal: Tensor, rule: FocalRule, scale: float | None,
            rotation: Rotation | None, *, backend: str = "auto") -> tuple[Source, Source]:
    """Return keys and values of `kept_columns`, and of the raw tokens where they lie.

    Raw are the K m grouped tokens for choose="prompt", else all L.
    """
    kept = kept_columns(q, k, v, focal, rule, scale, rotation, backend=backend)
    if rule.choose == "prompt":
        others = divide(focal, rule)[1]
        k, v = take(k, others), take(v, others)
    keys, values = (made if not raw.shape[2] else behind(made, raw)
                    for made, raw in zip(kept, (k, v), strict=True))
    return keys, values


def pool(q: Tensor, k: Tensor, v: Tensor, others: Tensor, group: int, scale: float | None,
         rotation: Rotation | None, *, backend: str = "auto") -> list[Tensor]:
    """Pool each m successive tokens of `others` with the query of the last one (Eq. 14).

    Others: int64 (B, Hk, K m), ascending. Returns pooled keys and values, (B, Hk, K, D).
    """
    kv_heads = k.shape[1]
    if rotation is not None:
        tables = (t.expand(len(others), kv_heads, *t.shape[-2:]) if t.dim() == 2 else
                  t[:, None].expand(len(others), kv_heads, -1, -1) for t in rotation)
        cos, sin = (take(t, others).flatten(0, 1) for t in tables)  # (B Hk, K m, D)
        rotation = cos, sin
    core_k, core_v, _ = pool_checked(
        *as_rows(q, k, v, others), group, scale=scale_of(scale, q.shape[-1]), rotation=rotation,
        backend=pooling_backend(backend, count=others.shape[-1] // group))
    return [x[:, 0].unflatten(0, (-1, kv_heads)) for x in (core_k, core_v)]


def as_rows(q: Tensor, k: Tensor, v: Tensor, others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Make tokens of KV heads batch rows: (B Hk, H / Hk, K m, D), twice (B Hk, 1, K m, D)."""
    queries = take(q.unflatten(1, (k.shape[1], -1)), others[:, :, None])
    return queries.flatten(0, 1), take(k, others).flatten(0, 1)[:, None], take(v, others).flatten(
        0, 1)[:, None]


def group_weights(q: Tensor, k: Tensor, focal: Tensor, rule: FocalRule,
                  scale: float | None) -> Tensor:
    """Return the weights P_z of the members of each group (Eq. 14), (B, Hk, K, m)."""
    rows = as_rows(q, k, k, divide(focal, rule)[1])
    _, _, phi = pool_checked(*rows, rule.group, scale=scale_of(scale, q.shape[-1]),
                             return_phi=True, backend="torch")
    assert phi is not None  # only a maximum has no weights
    return phi[:, 0].unflatten(0, (-1, k.shape[1]))


def pooling_matrix(q: Tensor, k: Tensor, focal: Tensor, rule: FocalRule,
                   scale: float | None) -> Tensor:
    """Return P, (B, Hk, F + K + R, L): the weight of each token in each of the `columns`."""
    length, phi = k.shape[2], group_weights(q, k, focal, rule, scale)
    # (B, Hk, F or K m, L)
    kept, others = (one_hot(index, length).to(phi) for index in divide(focal, rule))
    pooled = (phi[..., None, :] @ others.unflatten(2, phi.shape[2:]))[..., 0, :]  # (B, Hk, K, L)
    raw = others if rule.choose == "prompt" else torch.eye(length).to(phi).expand(*k.shape[:2], -1,
                                                                                  -1)
    return torch.cat([kept, pooled, raw], dim=2)


def take(x: Tensor, tokens: Tensor) -> Tensor:
    """Take tokens by index: x (..., L, D), tokens int64 (..., n) -> (..., n, D)."""
    return x.take_along_dim(tokens[..., None].to(x.device), dim=-2)


def row_reads(i: int, focal: list[int], groups: list[list[int]],
              rule: FocalRule) -> tuple[list[int], list[int], list[int]]:
    """Return what row i reads (Algorithm 2, causal): focal tokens, groups by number, raw tokens."""
    if rule.choose == "prompt":
        closed = [z for z, members in enumerate(groups) if members[-1] < i]
        raw = [t for members in groups if members[0] <= i <= members[-1] for t in members if t <= i]
        return [t for t in focal if t <= i], closed, raw
    first = i // rule.block * rule.block                                 # first token of its block
    closed = [z for z, members in enumerate(groups) if members[-1] < first]
    return [t for t in focal if t < first], closed, list(range(first, i + 1))


def intervals(focal: Tensor, rule: FocalRule) -> Tensor:
    """Return the columns of [focal ; pooled ; raw] that each row sees, see `indices`.

    Args:
        focal: bool (B, Hk, L), as `select` returns it.
        rule: the options.

    Returns:
        int64 (B, Hk, L, 3, 2); (1, 1, L, 3, 2) for "blocks", where they are the same for all heads.
    """
    length = focal.shape[-1]
    row = torch.arange(length, device=focal.device)[None, None]
    total = int(focal[0, 0].sum())                                     # F
    if rule.choose == "prompt":                                        # focal.cumsum: up to row i
        seen = prompt_columns(row, focal.cumsum(-1), focal.long(), length, total, rule.group)
    else:
        seen = blocks_columns(row, length, total, rule.group, rule.block)
    return table_of(row, *seen)


def cache_tokens(length: int, rule: FocalRule, *, prompt: int | None = None) -> tuple[int, int]:
    """Return the entries (a key and a value each) that a KV head keeps after L tokens.

    Args:
        length: tokens read, L.
        rule: the options.
        prompt: how many of them were the prompt; all by default. No effect for choose="blocks".

    Returns:
        The number of focal tokens and groups, and of raw tokens that are not divided yet. With r
        focal tokens the first is r + (P - r)/m for a prompt of P (Appendix E) plus m' - m + 1
        for each m' generated tokens; or r_b + (B - r_b)/m for each complete block.
    """
    def divided(span: int) -> int:
        return divided_tokens(span, rule.focal_count(span), rule.group)

    if rule.choose == "blocks":
        return dga_entries(length, rule.block, divided(rule.block))
    prompt = length if prompt is None else prompt
    span = decode_span(rule.group)
    later, raw = dga_entries(length - prompt, span,
                             divided_tokens(span, decode_focal(rule.group), rule.group))
    return divided(prompt) + later, raw
