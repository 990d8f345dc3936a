"""Core Context Aware (CCA) attention: an older group becomes one core token, near tokens stay raw.

Chen et al., "Core Context Aware Transformers for Long Context Language Modeling", ICML 2025
(Sections 3.2-3.4, Eq. 2-5, Algorithm 1). Rows, tokens and groups count from 0; g is the group
size, s the local window. Group p holds the tokens [pg, pg + g), and the query of its last token
pools it:

    core_p = sum_t phi_t x_t,   phi = softmax(scale * q_{pg+g-1} K_group^T)                 (Eq. 2)
    n(i)   = max(0, floor((i + 1 - s) / g))        groups older than the s nearest tokens    (Eq. 3)
    out_i  = softmax(scale * q_i [core keys [0, n(i)) ; raw keys [g n(i), i]]^T)
             [same of values]                                                               (Eq. 5)

so each row reads every token of its past exactly once: raw, or inside one core.

With `sinks` S > 0 the first S tokens stay raw for every row, and groups begin behind them: row i
reads the raw tokens [0, min(i + 1, S)) and, for i >= S, what the above reads of the text [S, L):
groups of the tokens [S + pg, S + pg + g), n(i) = max(0, floor((i + 1 - S - s) / g)), and the raw
tokens [S + g n(i), i].

Differs from the paper:
  * It has no sinks; 0 is the default. Heads send the weight that they have no use for to the first
    tokens (the attention sinks of Xiao et al., "Efficient Streaming Language Models with Attention
    Sinks", ICLR 2024), and a core mixes these with g - 1 others.
  * The raw tokens start at g n(i). Eq. 4 and Algorithm 1 line 11 print k = i-s-((i-s) mod g), one
    token earlier, which would read that token twice. The text (Section 3.3, Appendix A) agrees with
    g n(i).
  * 1/sqrt(D) is inside the softmax, as in Eq. 5 (Algorithm 1 line 12 prints it outside).
  * phi pools keys and values instead of x: the result is the same because phi sums to 1.
  * With RoPE the paper places a core key "at the middle position" of its group (Appendix B.2). For
    even g that is ambiguous; we take pg + g//2. phi is computed from q and k as they arrive:
    rotated, as in the public code, which, however, pools rotated keys and has no middle position.
  * The paper does not discuss grouped-query attention. By default there is one core per KV head,
    with phi from the mean of its query heads' logits. `per_query_head=True`: one core per query
    head, as in the public code.
  * `proportional=True` adds ln g to the score of a core: a core is one column of the softmax in the
    place of g tokens, and where their scores are equal the core then has their g shares (Bolya et
    al., "Token Merging", ICLR 2023). The paper does not do this; False is the default.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor
from torch.nn.functional import pad

from cca_lab.attention import pooling_matrix
from cca_lab.attention.dense import expand_heads
from cca_lab.attention.pooling import pool_checked, pooling_backend
from cca_lab.attention.rotary import at, rotate, unrotate
from cca_lab.mechanisms.base import Call, Keywords, Mechanism
from cca_lab.mechanisms.cca.groups import intervals
from cca_lab.mechanisms.columns import Columns, behind
from cca_lab.mechanisms.indices import behind_sinks, cca_entries, cca_is_full, core_count
from cca_lab.settings import check_integers

POOLINGS = ("softmax", "mean", "max")


def paper_algorithm(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int) -> Tensor:
    """Compute CCA-Attention of one head (Algorithm 1), in its simplest form: read this first.

    Args:
        q, k, v: queries, keys and values, (L, D).
        group: g, tokens in a group.
        window: s, the local window: at least the s nearest tokens of a row stay raw.

    Returns:
        (L, D).
    """
    scale = k.shape[1] ** -0.5
    core_keys, core_values = [], []
    for p in range(len(k) // group):  # lines 1-7
        part = slice(p * group, (p + 1) * group)
        phi = torch.softmax(scale * (k[part] @ q[part][-1]), dim=0)  # Eq. 2: the last query
        core_keys.append(phi @ k[part])
        core_values.append(phi @ v[part])
    rows = []
    for i in range(len(q)):  # line 9
        n = max(0, (i + 1 - window) // group)  # line 10: cores row i sees
        first = group * n  # line 11: raw tokens from here to its own
        keys = torch.stack([*core_keys[:n], *k[first : i + 1]])
        values = torch.stack([*core_values[:n], *v[first : i + 1]])
        rows.append(torch.softmax(scale * (keys @ q[i]), dim=0) @ values)  # line 12
    return torch.stack(rows)


@dataclass(frozen=True, kw_only=True)
class Grouped(Mechanism):
    """A mechanism that keeps one entry for each group older than a local window.

    Options: see `CCA`.
    """

    group: int = 16
    window: int = 64
    sinks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(1, group=self.group, window=self.window)
        check_integers(0, sinks=self.sinks)

    def exact_when(self, length: int) -> bool:
        """Return True if no row has an older group (Section 3.2), or if a group is one token."""
        return cca_is_full(behind_sinks(length, self.sinks), self.group, self.window)

    def cache_entries(self, length: int) -> int:
        """Return the number of sinks, closed groups and raw tokens of the next row."""
        behind = behind_sinks(length, self.sinks)
        return length - behind + cca_entries(behind, self.group, self.window)

    @classmethod
    def sized(cls, entries: int, length: int) -> Self:
        """Return the mechanism with a local window of `entries` tokens."""
        return cls(window=entries)


@dataclass(frozen=True, kw_only=True)
class CCA(Grouped):
    """CCA-Attention: each row reads one core for each older group, and the nearest tokens raw.

    Attributes:
        group: g, the number of tokens that one core replaces.
        window: s, the local window: each row reads at least its s nearest tokens raw, its own
            included, and at most s + g - 1.
        sinks: S, the number of first tokens that every row reads raw; groups begin behind them.
            The paper has none; 4 help with trained models.
        per_query_head: make one core for each query head instead of one for each KV head.
        pooling: "softmax" (Eq. 2), or the ablations "mean" and "max" (elementwise, Table 7).
        proportional: add ln g to the score of each core. Differs from the paper, which does not.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    per_query_head: bool = False
    pooling: str = "softmax"
    proportional: bool = False

    name: ClassVar[str] = "cca"
    title: ClassVar[str] = "CCA-Attention"
    paper: ClassVar[str] = ("Chen et al., Core Context Aware Transformers for Long Context "
                            "Language Modeling, ICML 2025, Sections 3.2-3.4, Algorithm 1")
    sizes: ClassVar[tuple[str, ...]] = ("group", "window")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default (Tables 8 and 9)": {"group": 16, "window": 1024},
        "fastest of Figure 3": {"group": 16, "window": 4096},
        "most accurate of Figure 3": {"group": 2, "window": 1024},
    }
    needs_training: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling: got {self.pooling!r}, wanted one of {', '.join(POOLINGS)}; "
                             "the paper's is 'softmax'")

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute CCA-Attention line by line (Algorithm 1): the specification."""
        scale, rotation = call.scale, call.rotation
        g, s, first = self.group, self.window, self.sinks  # group 0 begins at token `first`
        batch, heads, length, head_dim = q.shape
        queries_per_key = heads // k.shape[1]
        out = q.new_zeros(q.shape)
        for b in range(batch):
            for h in range(heads):
                kv = h // queries_per_key  # the KV head that query head h reads
                keys, values = k[b, kv], v[b, kv]               # (L, D)
                judges = slice(h, h + 1) if self.per_query_head else \
                    slice(kv * queries_per_key, (kv + 1) * queries_per_key)
                tables = None if rotation is None else [
                    t.expand(batch, length, head_dim)[b, first:] for t in rotation]
                core_keys, core_values = cores(q[b, judges, first:], keys[first:], values[first:],
                                               g, scale, tables, self.pooling)  # lines 1-7
                for i in range(length):                         # line 9
                    j = max(0, (i + 1 - first - s) // g)        # line 10: how many cores row i sees
                    sinks = slice(min(i + 1, first))            # none in the paper
                    raw = slice(first + g * j, i + 1)  # line 11: the tokens after these groups
                    # (sinks + j + raw tokens, D)
                    row_keys = torch.cat([keys[sinks], core_keys[:j], keys[raw]])
                    row_values = torch.cat([values[sinks], core_values[:j], values[raw]])
                    scores = scale * (row_keys @ q[b, h, i])
                    scores[sinks.stop : sinks.stop + j] += self.bias  # 0 in the paper
                    out[b, h, i] = torch.softmax(scores, dim=0) @ row_values  # line 12
        return out

    @property
    def bias(self) -> float:
        """What is added to the score of a core: ln g or nothing."""
        return math.log(self.group) if self.proportional else 0.0

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: C cores that some row sees, then the L raw tokens, where they lie.

        With a bias they are two parts, the raw tokens first.
        """
        length, heads = q.shape[2], q.shape[1]
        count = core_count(behind_sinks(length, self.sinks), self.group, self.window)
        rotation = call.rotation and at(call.rotation, slice(self.sinks, None))
        backend = pooling_backend(self.backend, weights=self.pooling,
                                  per_query_head=self.per_query_head, count=count)
        queries, keys, values = (without_sinks(x, self.sinks) for x in (q, k, v))
        core_k, core_v, _ = pool_checked(queries, keys, values, self.group, count=count,
                                         weights=self.pooling, per_query_head=self.per_query_head,
                                         scale=call.scale, rotation=rotation, backend=backend)
        raw_k, raw_v = (expand_heads(x, heads) for x in (k, v)) if self.per_query_head else (k, v)
        visible = intervals(length, self.group, self.window, q.device, self.sinks)
        columns = Columns(q, behind(core_k, raw_k), behind(core_v, raw_v), visible,
                          partial(self.pooling_weights, q, k, call.scale),
                          reach=partial(self.pooling_weights, q, k, 0.0))
        return with_bias(columns, self.bias) if self.bias and count else [columns]

    def pooling_weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        """Return P, (B, Hk or H, C + L, L): phi of each core (1/g for "max"), then raw tokens."""
        length = q.shape[2]
        grouped = behind_sinks(length, self.sinks)
        queries, keys = (without_sinks(x, self.sinks) for x in (q, k))
        _, _, phi = pool_checked(
            queries, keys, keys, self.group, scale=scale, per_query_head=self.per_query_head,
            weights="mean" if self.pooling == "max" else self.pooling,
            count=core_count(grouped, self.group, self.window), return_phi=True, backend="torch")
        assert phi is not None  # only a maximum has no weights
        pooled = pad(pooling_matrix(phi, grouped), (length - grouped, 0))  # no core holds a sink
        raw = torch.eye(length, dtype=phi.dtype,
                        device=phi.device).expand(*phi.shape[:2], length, length)
        return torch.cat([pooled, raw], dim=2)

    def effective(self, q: Tensor, k: Tensor, v: Tensor | None = None,
                  **keywords: Unpack[Keywords]) -> Tensor:
        """Return E as `Mechanism.effective` (Eq. 8); ValueError for "max", which is not linear."""
        if self.pooling == "max":
            raise ValueError("pooling: got 'max', wanted 'softmax' or 'mean'; a maximum of values "
                             "is no weighted mean, so no effective matrix exists")
        return super().effective(q, k, v, **keywords)


def with_bias(columns: Columns, bias: float) -> list[Columns]:
    """Return the raw tokens and the cores of columns [cores ; raw] as two sets, these with a bias.

    A bias that is the same for all columns of a set changes their log-sum-exp alone, so that every
    backend can have one.
    """
    (core_k, raw_k), (core_v, raw_v) = columns.keys, columns.values
    seen, count = columns.visible, core_k.shape[2]
    first = int((seen[0, 0, :, 0, 1] == 0).sum())  # the rows before it see no core
    pooling, reach = (function and partial(_of_cores, function, count)
                      for function in (columns.pooling, columns.reach))
    return [replace(columns, keys=raw_k, values=raw_v, visible=seen[..., 1:, :] - count,
                    pooling=None, reach=None),
            Columns(columns.q[:, :, first:], core_k, core_v, seen[..., first:, :1, :], pooling,
                    first, reach, bias)]


def _of_cores(pooling: Callable[[], Tensor], count: int) -> Tensor:
    return pooling()[:, :, :count]


def without_sinks(x: Tensor, sinks: int) -> Tensor:
    """Return the tokens of x (B, H, L, D) behind the sinks, all of them if there are none."""
    return x[:, :, sinks:] if sinks else x


def cores(queries: Tensor, keys: Tensor, values: Tensor, g: int, scale: float,
          tables: list[Tensor] | None, pooling: str) -> tuple[Tensor, Tensor]:
    """Pool each complete group of one KV head into a core key and a core value (Alg. 1, lines 1-7).

    Args:
        queries: of the heads whose logits are averaged, (heads, L, D).
        keys, values: (L, D).
        g: group size.
        scale: factor on the dot products.
        tables: cos and sin of each position (RoPE), (L, D) each, or None.
        pooling: "softmax", "mean" or "max".

    Returns:
        core keys and core values, (m, D) each, m = floor(L / g).
    """
    m = len(keys) // g  # line 1; an incomplete last group stays raw
    core_keys, core_values = keys.new_zeros(m, keys.shape[1]), values.new_zeros(m, values.shape[1])
    for p in range(m):                                      # line 2
        members = slice(p * g, p * g + g)                   # line 3
        last = p * g + g - 1
        group_keys = keys[members]                          # (g, D)
        logits = sum(scale * (group_keys @ query[last]) for query in queries) / len(queries)  # (g,)
        if tables is not None:
            # the keys move to the middle of their group
            (cos, sin), middle = tables, p * g + g // 2
            group_keys = rotate(unrotate(group_keys, cos[members], sin[members]), cos[middle],
                                sin[middle])
        if pooling == "max":
            core_keys[p], core_values[p] = group_keys.amax(0), values[members].amax(0)
        else:
            phi = torch.softmax(logits, dim=0) if pooling == "softmax" else torch.full_like(logits,
                                                                                            1 / g)
            core_keys[p] = phi @ group_keys                 # lines 4 and 7
            core_values[p] = phi @ values[members]
    return core_keys, core_values
