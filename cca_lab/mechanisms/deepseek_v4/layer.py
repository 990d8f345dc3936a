"""A whole attention layer of DeepSeek-V4 on the lab's primitive, with the weights of transformers' own module.

Projections, norms and the tables of positions are the module's; pooling, the choice of entries, what rows see and the
attention are the lab's. Positions are rotary in the last features of each head, in neighbouring pairs. An entry stands
at the first position of its group (CCA's core: in the middle), and the output is turned back by its row's position,
because values have been turned along with the keys.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import visible_mask
from cca_lab.mechanisms.deepseek_v4.attention import attend
from cca_lab.mechanisms.deepseek_v4.pooling import pool
from cca_lab.mechanisms.deepseek_v4.reading import chosen_entries, index_scores, intervals

SPARSE = "compressed_sparse_attention"


@dataclass
class Series:
    """The state of one pooling: values and gates from the last closed group on (if groups overlap), and entries."""

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


def layer_output(module: Any, hidden: Tensor, rotation: tuple[Tensor, Tensor], state: State | None = None, *,
                 backend: str = "auto") -> Tensor:
    """Compute one attention layer for a text, or for the next tokens of one.

    Args:
        module: a `DeepseekV4Attention` of transformers, of any layer type.
        hidden: (B, T, width).
        rotation: cos and sin of this layer's kind at the tokens' positions, (B, T, rotary features / 2) each.
        state: what earlier tokens left; it is changed. None for a whole text.
        backend: of `interval_attention`.

    Returns:
        (B, T, width), what the module returns first.
    """
    state = State() if state is None else state
    rows, first = hidden.shape[1], state.tokens
    latent = module.q_a_norm(module.q_a_proj(hidden))
    q = module.q_b_norm(module.q_b_proj(latent).unflatten(-1, (-1, module.head_dim)).transpose(1, 2))
    q = turned(q, *rotation)                                                          # (B, H, T, D)
    raw = turned(module.kv_norm(module.kv_proj(hidden)).unsqueeze(1), *rotation)      # (B, 1, T, D)
    raw = raw if state.raw is None else torch.cat([state.raw, raw], dim=2)
    compressor, group = module.compressor, None if module.compressor is None else module.compressor.compress_rate
    columns, kept = raw, raw.shape[2] - rows
    visible = intervals(rows, module.sliding_window, group, first, kept)
    if compressor is not None:
        sparse = module.layer_type == SPARSE
        entries = _entries(compressor, hidden, state.compressor, first, overlap=sparse)
        columns = torch.cat([raw, entries.unsqueeze(1)], dim=2)
        if sparse:
            chosen = _choice(compressor.indexer, hidden, latent, state.indexer, first)
            window = visible_mask(visible[..., :1, :], raw.shape[2]).to(hidden.device)
            visible = torch.cat([window.expand(len(hidden), 1, -1, -1), chosen.unsqueeze(1)], dim=-1)
    out = attend(q, columns, visible, module.sinks, scale=module.scaling, backend=backend)
    out = turned(out, rotation[0], -rotation[1]).transpose(1, 2)                      # (B, T, H, D)
    keep = min(module.sliding_window - 1, raw.shape[2])
    state.tokens, state.raw = first + rows, raw[:, :, raw.shape[2] - keep :]
    grouped = module.o_a_proj(out.reshape(*hidden.shape[:2], module.config.o_groups, -1))
    return module.o_b_proj(grouped.flatten(2))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the last features of x (B, H, T, D), in neighbouring pairs, by tables (B, T, pairs); others stay."""
    still, pairs = x[..., : x.shape[-1] - 2 * cos.shape[-1]], x[..., x.shape[-1] - 2 * cos.shape[-1] :].float()
    cos, sin = cos.unsqueeze(1).float(), sin.unsqueeze(1).float()
    even, odd = pairs[..., 0::2], pairs[..., 1::2]
    moved = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([still, moved.to(x.dtype)], dim=-1)


def _entries(compressor: Any, hidden: Tensor, series: Series, first: int, *, overlap: bool) -> Tensor:
    """Return all entries up to these tokens, (B, n, D), and keep what the next tokens need."""
    group, values, gates = compressor.compress_rate, compressor.kv_proj(hidden), compressor.gate_proj(hidden)
    before = 0 if series.values is None else series.values.shape[1]     # tokens kept: of an open group, and one more
    if series.values is not None and series.gates is not None:
        values, gates = torch.cat([series.values, values], dim=1), torch.cat([series.gates, gates], dim=1)
    known, begin = before // group if overlap else 0, first - before     # a closed group, kept for the next one
    fresh = pool(values, gates, compressor.position_bias, group, overlap=overlap)[:, known:]
    fresh = compressor.kv_norm(fresh)
    places = (begin + group * torch.arange(known, known + fresh.shape[1], device=hidden.device)).expand(len(hidden), -1)
    cos, sin = compressor.rotary_emb(fresh, position_ids=places, layer_type=compressor.rope_layer_type)
    fresh = turned(fresh.unsqueeze(1), cos, sin).squeeze(1)
    series.entries = fresh if series.entries is None else torch.cat([series.entries, fresh], dim=1)
    closed = values.shape[1] // group
    start = group * max(0, closed - overlap)
    series.values, series.gates = values[:, start:], gates[:, start:]
    return series.entries


def _choice(indexer: Any, hidden: Tensor, latent: Tensor, series: Series, first: int) -> Tensor:
    """Return which entries each row sees, bool (B, T, n)."""
    keys = _entries(indexer, hidden, series, first, overlap=True)
    places = torch.arange(first, first + hidden.shape[1], device=hidden.device).expand(len(hidden), -1)
    cos, sin = indexer.rotary_emb(hidden, position_ids=places, layer_type=indexer.rope_layer_type)
    queries = indexer.q_b_proj(latent).unflatten(-1, (-1, indexer.head_dim)).transpose(1, 2)
    queries = turned(queries, cos, sin).transpose(1, 2)                                # (B, T, Hi, Di)
    weights = indexer.scorer.weights_proj(hidden).float() * indexer.scorer.weights_scaling
    return chosen_entries(index_scores(queries, keys, weights), indexer.compress_rate, indexer.index_topk, first)
