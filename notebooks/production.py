"""CCA's idea in production, for notebook 16: DeepSeek-V4's attention.

It cannot be swapped into another model: pooling, gates and the choice of entries are learnt from
the layer's hidden states, which q, k and v do not tell.

A sliding window stands beside pooled entries and a sink, in one softmax.
DeepSeek-AI, "DeepSeek-V4", 2026; read from transformers 5.23, `models/deepseek_v4`.

Columns. Row i sees the raw tokens (i - w, i] and the entries [0, floor((i + 1) / m)) of all closed
groups, its own included; in "compressed sparse" layers only those k of them with the highest index
scores. Window and groups are not cut to each other, unlike CCA's: with r = (i + 1) mod m and i >=
w, without a choice of entries

    max(0, w - r)   tokens of the window are read a second time, inside an entry
    max(0, r - w)   tokens are not read at all: older than the window, their group still open

and with overlap every token of a group but the last closed one is in one entry more.

Pooled entries. With values c_t and gates z_t of each token (learnt projections), a position bias b
and groups of m tokens, each feature of a group has its own softmax over the group's tokens:

    e_p = sum_t softmax_t(z_t + b_(t mod m)) * c_t          over the m tokens of group p

"Heavily compressed" layers pool like this. "Compressed sparse" layers overlap: each token has two
series of values and gates, a and b, and entry p is one softmax over series a of group p - 1 and
series b of group p, 2m tokens; the first entry has its own group only. CCA's core (Eq. 2) has one
weight for all features, from the query of the last token.

Attention.

    out_i = sum_j a_ij k_j,   a_i = softmax over [visible columns ; sink_h] of scale * q_i . k_j

Keys are values (one head for all query heads), and the sink is a learnt logit of each head with the
value 0, so that it only scales: out = sigmoid(lse - sink) * (attention without it).

Layer. Projections, norms and the tables of positions are those of transformers' own module.
Positions are rotary in the last features of each head, in neighbouring pairs. An entry stands at
the first position of its group (CCA's core: in the middle), and the output is turned back by its
row's position, because values have been turned along with the keys.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import interval_attention, visible_mask
from cca_lab.attention.arguments import scale_of
from cca_lab.attention.dense import accumulation_dtype, masked_matrix, weigh
from cca_lab.attention.intervals import memoised, table_of
from cca_lab.mechanisms.indices import closed_groups, entry_columns


@memoised
def intervals(length: int, window: int, group: int | None, first: int = 0, kept: int = 0) -> Tensor:
    """Return the columns of [raw tokens ; entries] that each row sees, see `indices.entry_columns`.

    There are kept + length raw tokens, kept = min(first, w - 1) of them from before the chunk.

    Returns:
        int64 (1, 1, rows, n, 2): n = 2 intervals, or 1 without entries (group None).
    """
    row = torch.arange(first, first + length)
    return table_of(row, *entry_columns(row, window, group, length, first, kept))[None, None]


def chosen_entries(scores: Tensor, group: int, count: int, first: int = 0) -> Tensor:
    """Return the `count` best entries of each row in a "compressed sparse" layer.

    Scores (B, rows, n) of n entries, those of open groups not read -> bool (B, rows, n). The first
    row is at position `first`. Of equal scores, as 0 behind `index_scores`' relu, any may be taken:
    a text that is read token by token may take another entry than one that is read at once.
    """
    entry = torch.arange(scores.shape[2], device=scores.device)
    row = torch.arange(first, first + scores.shape[1], device=scores.device)
    closed = entry < closed_groups(row, group)[:, None]                       # (rows, n)
    best = scores.masked_fill(~closed, float("-inf")).topk(min(count, scores.shape[2]),
                                                           dim=-1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & closed


def index_scores(queries: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """Return the score of each entry for each row: sum_h w_h relu(q_h . k), all sums in float32.

    Queries (B, rows, Hi, Di), keys (B, n, Di), weights (B, rows, Hi) -> (B, rows, n), times
    Di ** -0.5.
    """
    # (B, rows, Hi, n)
    scores = (queries.float() @ keys.float().mT.unsqueeze(1)).relu() * queries.shape[-1]**-0.5
    return (scores * weights.float().unsqueeze(-1)).sum(dim=2)


def times_read(length: int, window: int, group: int | None, *, overlap: bool = False) -> Tensor:
    """Count how many columns of each row contain each token, raw or pooled: int64 (L, L).

    Every closed entry is visible here: a choice of entries reads fewer.
    """
    counts = torch.zeros(length, length, dtype=torch.int64)
    for i in range(length):
        counts[i, max(0, i + 1 - window) : i + 1] += 1
        if group is not None:
            for p in range((i + 1) // group):
                counts[i, max(0, p - overlap) * group : (p + 1) * group] += 1
    return counts


def pool_by_loops(values: Tensor, gates: Tensor, bias: Tensor, group: int, *,
                  overlap: bool = False) -> Tensor:
    """Pool group by group, token by token: the specification of `pool`, with its arguments."""
    batch, length, width = values.shape
    dim = width // 2 if overlap else width
    entries = []
    for p in range(length // group):
        # series b, or the one
        members = [(t, slice(width - dim, width)) for t in range(p * group, p * group + group)]
        if overlap and p > 0:
            # series a
            members = [(t, slice(0, dim)) for t in range((p - 1) * group, p * group)] + members
        logits = torch.stack([gates[:, t, series] + bias[t % group, series]
                              for t, series in members])  # (tokens, B, D)
        weights = logits.to(accumulation_dtype(gates.dtype)).softmax(dim=0).to(values.dtype)
        entries.append(sum(weight * values[:, t, series]
                           for weight, (t, series) in zip(weights, members, strict=True)))
    return torch.stack(entries, dim=1) if entries else values.new_zeros(batch, 0, dim)


def pool(values: Tensor, gates: Tensor, bias: Tensor, group: int, *,
         overlap: bool = False) -> Tensor:
    """Pool all complete groups at once.

    Args:
        values, gates: (B, L, D), or (B, L, 2D) with `overlap`: series a, then series b.
        bias: (m, D) or (m, 2D), added to the gates by place in the group.
        group: m, tokens of a group; tokens after the last complete one are not pooled.
        overlap: pool each group with the one before it.

    Returns:
        (B, floor(L / m), D), in the dtype of the values; the softmax is taken in at least float32.
    """
    width, count = values.shape[2], values.shape[1] // group
    # (B, n, m, width)
    values, gates = (x[:, :count * group].unflatten(1, (count, group)) for x in (values, gates))
    gates = gates + bias
    if overlap:
        dim = width // 2
        values, gates = (
            torch.cat([_before(x[..., :dim], nothing), x[..., dim:]], dim=2)  # (B, n, 2m, D)
            for x, nothing in ((values, 0.0), (gates, float("-inf"))))
    weights = gates.to(accumulation_dtype(gates.dtype)).softmax(dim=2).to(values.dtype)
    return (weights * values).sum(dim=2)


def _before(x: Tensor, nothing: float) -> Tensor:
    """Each group's predecessor, (B, n, m, D); `nothing` before the first."""
    return torch.cat([torch.full_like(x[:, :1], nothing), x[:, :-1]], dim=1)


def attend_by_loops(q: Tensor, columns: Tensor, visible: Tensor, sinks: Tensor, *,
                    scale: float | None = None) -> Tensor:
    """Attend row by row: the specification of `attend`, with a mask (b, h, L, N)."""
    scale, out = scale_of(scale, q.shape[-1]), torch.zeros_like(q)
    batch, heads, rows, _ = q.shape
    visible = visible.expand(batch, heads, rows, -1)
    for b in range(batch):
        for h in range(heads):
            for i in range(rows):
                seen = columns[b, 0][visible[b, h, i]]                     # (seen, D)
                logits = torch.cat([scale * (seen @ q[b, h, i]), sinks[h : h + 1]])
                out[b, h, i] = logits.softmax(dim=0)[:-1] @ seen
    return out


def attend(q: Tensor, columns: Tensor, visible: Tensor, sinks: Tensor, *,
           scale: float | None = None, backend: str = "auto") -> Tensor:
    """Attend with all rows at once.

    Args:
        q: queries, (B, H, L, D).
        columns: keys that are also the values, (B, 1, N, D).
        visible: intervals, int64 (b, h, L, n, 2), or a mask, bool (b, h, L, N); every row sees a
            column.
        sinks: a logit for each head, (H,).
        scale: factor on the dot products; D ** -0.5 by default.
        backend: of `interval_attention`; masks are dense.

    Returns:
        (B, H, L, D) in q's dtype.
    """
    if visible.dtype == torch.bool:
        weights, lse = masked_matrix(q, columns, visible, scale_of(scale, q.shape[-1]))
        out = weigh(weights, columns)
    else:
        out, lse = interval_attention(q, columns, columns, visible, scale=scale, backend=backend,
                                      return_lse=True)
    share = torch.sigmoid(lse - sinks[:, None])  # of the columns, beside the sink
    return (out * share.unsqueeze(-1)).to(q.dtype)


SPARSE = "compressed_sparse_attention"


@dataclass
class Series:
    """The state of one pooling: values and gates from the last closed group on, and entries."""

    values: Tensor | None = None
    gates: Tensor | None = None
    entries: Tensor | None = None


@dataclass
class State:
    """What a layer keeps of a text to go on with it."""

    tokens: int = 0
    raw: Tensor | None = None  # (B, 1, at most w - 1, D)
    compressor: Series = field(default_factory=Series)
    indexer: Series = field(default_factory=Series)


def layer_output(module: Any, hidden: Tensor, rotation: tuple[Tensor, Tensor],
                 state: State | None = None, *, backend: str = "auto") -> Tensor:
    """Compute one attention layer for a text, or for the next tokens of one.

    Args:
        module: a `DeepseekV4Attention` of transformers, of any layer type.
        hidden: (B, T, width).
        rotation: cos and sin of this layer's kind at the tokens' positions, (B, T, rotary features
            / 2) each.
        state: what earlier tokens left; it is changed. None for a whole text.
        backend: of `interval_attention`.

    Returns:
        (B, T, width), what the module returns first.
    """
    state = State() if state is None else state
    rows, first = hidden.shape[1], state.tokens
    latent = module.q_a_norm(module.q_a_proj(hidden))
    q = module.q_b_norm(
        module.q_b_proj(latent).unflatten(-1, (-1, module.head_dim)).transpose(1, 2))
    q = turned(q, *rotation)                                                          # (B, H, T, D)
    raw = turned(module.kv_norm(module.kv_proj(hidden)).unsqueeze(1), *rotation)      # (B, 1, T, D)
    raw = raw if state.raw is None else torch.cat([state.raw, raw], dim=2)
    compressor = module.compressor
    group = None if compressor is None else compressor.compress_rate
    columns, kept = raw, raw.shape[2] - rows
    visible = intervals(rows, module.sliding_window, group, first, kept)
    if compressor is not None:
        sparse = module.layer_type == SPARSE
        entries = _entries(compressor, hidden, state.compressor, first, overlap=sparse)
        columns = torch.cat([raw, entries.unsqueeze(1)], dim=2)
        if sparse:
            chosen = _choice(compressor.indexer, hidden, latent, state.indexer, first)
            window = visible_mask(visible[..., :1, :], raw.shape[2]).to(hidden.device)
            visible = torch.cat([window.expand(len(hidden), 1, -1, -1),
                                 chosen.unsqueeze(1)], dim=-1)
    out = attend(q, columns, visible, module.sinks, scale=module.scaling, backend=backend)
    out = turned(out, rotation[0], -rotation[1]).transpose(1, 2)                      # (B, T, H, D)
    keep = min(module.sliding_window - 1, raw.shape[2])
    state.tokens, state.raw = first + rows, raw[:, :, raw.shape[2] - keep :]
    grouped = module.o_a_proj(out.reshape(*hidden.shape[:2], module.config.o_groups, -1))
    return module.o_b_proj(grouped.flatten(2))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the last features of x (B, H, T, D), neighbouring pairs, by tables (B, T, pairs)."""
    features = 2 * cos.shape[-1]
    still, pairs = x.split([x.shape[-1] - features, features], dim=-1)
    cos, sin, pairs = cos.unsqueeze(1).float(), sin.unsqueeze(1).float(), pairs.float()
    even, odd = pairs[..., 0::2], pairs[..., 1::2]
    moved = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([still, moved.to(x.dtype)], dim=-1)


def _entries(compressor: Any, hidden: Tensor, series: Series, first: int, *,
             overlap: bool) -> Tensor:
    """Return all entries up to these tokens, (B, n, D), and keep what the next tokens need."""
    group, before = compressor.compress_rate, 0
    values, gates = compressor.kv_proj(hidden), compressor.gate_proj(hidden)
    if series.values is not None and series.gates is not None:
        before = series.values.shape[1]  # tokens kept: of an open group, and one more
        values = torch.cat([series.values, values], dim=1)
        gates = torch.cat([series.gates, gates], dim=1)
    # a closed group, kept for the next one
    known, begin = before // group if overlap else 0, first - before
    fresh = pool(values, gates, compressor.position_bias, group, overlap=overlap)[:, known:]
    fresh = compressor.kv_norm(fresh)
    places = (begin + group * torch.arange(known, known + fresh.shape[1],
                                           device=hidden.device)).expand(len(hidden), -1)
    cos, sin = compressor.rotary_emb(fresh, position_ids=places,
                                     layer_type=compressor.rope_layer_type)
    fresh = turned(fresh.unsqueeze(1), cos, sin).squeeze(1)
    series.entries = fresh if series.entries is None else torch.cat([series.entries, fresh], dim=1)
    closed = values.shape[1] // group
    start = group * max(0, closed - overlap)
    series.values, series.gates = values[:, start:], gates[:, start:]
    return series.entries


def _choice(indexer: Any, hidden: Tensor, latent: Tensor, series: Series, first: int) -> Tensor:
    """Return which entries each row sees, bool (B, T, n)."""
    keys = _entries(indexer, hidden, series, first, overlap=True)
    places = torch.arange(first, first + hidden.shape[1],
                          device=hidden.device).expand(len(hidden), -1)
    cos, sin = indexer.rotary_emb(hidden, position_ids=places, layer_type=indexer.rope_layer_type)
    queries = indexer.q_b_proj(latent).unflatten(-1, (-1, indexer.head_dim)).transpose(1, 2)
    queries = turned(queries, cos, sin).transpose(1, 2)  # (B, T, Hi, Di)
    weights = indexer.scorer.weights_proj(hidden).float() * indexer.scorer.weights_scaling
    return chosen_entries(index_scores(queries, keys, weights), indexer.compress_rate,
                          indexer.index_topk, first)
