"""MInference: a pattern for each head, chosen once on a sample, then masks that each prompt fills in.

Jiang et al., "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse
Attention", NeurIPS 2024 (Section 3, Algorithm 1). A head attends with one of three patterns, each a
mechanism of its own: `a_shape`, `vertical_slash` or `block_sparse`. `choose_patterns` is the offline
search: the candidate that keeps most of full attention on a sample,

    recall = mean over rows i of   sum of A_it over the tokens t that the candidate lets row i read

with A the full causal attention. Positions are the original ones. Meant for reading a prompt: the paper
decodes with full attention over an ordinary cache.

Differs from the paper and the public code:
  * The paper compares attention outputs; recall is what the public code measures (on rows from 2500 on, here
    from `first_row`). It then runs A-shape and block-sparse heads as vertical-slash; here they stay what they are.
  * The paper gives all candidates the same measured cost. Here `most_read` bounds the share of query-key pairs.
  * One list of patterns serves all layers of a model; the paper has one for each layer.
"""

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from cca_lab.mechanisms import full, masked
from cca_lab.mechanisms import minference_a_shape as a_shape
from cca_lab.mechanisms import minference_block_sparse as block_sparse
from cca_lab.mechanisms import minference_vertical_slash as vertical_slash
from cca_lab.mechanisms.inputs import check_qkv
from cca_lab.mechanisms.mechanism import EVERY_ROW, OWN_BLOCK, RUNTIME, WHOLE_PROMPT, Mechanism
from cca_lab.mechanisms.rotary import Rotation

Pattern = Mapping[str, Any]  # {"pattern": name, option: value, ...}

PATTERNS = {module.MECHANISM.name: module.MECHANISM for module in (a_shape, vertical_slash, block_sparse)}
CANDIDATES: tuple[dict[str, Any], ...] = (  # for about 512 tokens; the first and the last read a fifth
    {"pattern": "a_shape", "sinks": 8, "window": 56},
    {"pattern": "vertical_slash", "vertical": 32, "slash": 16, "last": 32, "forced_slash": 8, "block": 8},
    {"pattern": "vertical_slash", "vertical": 8, "slash": 32, "last": 32, "forced_slash": 8, "block": 8},
    {"pattern": "block_sparse", "block": 16, "top_k": 4},
)


def loops(q: Tensor, k: Tensor, v: Tensor, *, patterns: Sequence[Pattern], scale: float | None = None,
          rotation: Rotation | None = None, selection: list | None = None) -> Tensor:
    """Attend head by head, each with its pattern's loops. The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        patterns: {"pattern": name, **options} for each query head, or one for all heads. Options that are
            left out have the defaults of the pattern's mechanism.
        scale: factor on the dot products; None means D**-0.5.
        rotation: not used; keys keep the positions they were rotated to.
        selection: what `select` returned, to repeat that choice.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if a pattern, an option or a shape does not fit.
    """
    heads = head_patterns(q, k, v, patterns)
    parts = []
    for h, (mechanism, options) in enumerate(heads):
        if selection is not None and mechanism.select is not None:
            options = {**options, "selection": selection[h]}
        parts.append(mechanism.loops(*one_head(h, q, k, v), scale=scale, **options))
    return torch.cat(parts, dim=1)


def select(q: Tensor, k: Tensor, *, patterns: Sequence[Pattern], scale: float | None = None, **_: Any) -> list:
    """Return each head's own choice, for `selection`: a list of H, None for a head that chooses nothing."""
    heads = head_patterns(q, k, k, patterns)
    return [mechanism.select and mechanism.select(*one_head(h, q, k), scale=scale, **options)
            for h, (mechanism, options) in enumerate(heads)]


def represented(q: Tensor, k: Tensor, *, patterns: Sequence[Pattern], scale: float | None = None,
                selection: list | None = None, **_: Any) -> Tensor:
    """Return which tokens each row reads, bool (B, H, L, L)."""
    heads = head_patterns(q, k, k, patterns)
    chosen = selection or [None] * len(heads)
    return torch.cat([mechanism.represented(*one_head(h, q, k), scale=scale, selection=chosen[h], **options)
                      for h, (mechanism, options) in enumerate(heads)], dim=1)


def attention(q: Tensor, k: Tensor, v: Tensor, *, patterns: Sequence[Pattern], scale: float | None = None,
              rotation: Rotation | None = None, selection: list | None = None, backend: str = "auto") -> Tensor:
    """Attend under all heads' masks at once; arguments, result and errors of `loops`."""
    visible = represented(q, k, patterns=patterns, scale=scale, selection=selection)
    return masked.attend(q, k, v, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, scale: float | None = None, **options: Any) -> Tensor:
    """Return the attention matrix E, (B, H, L, L), with attention(q, k, v) = E v; options of `loops`."""
    return masked.matrix(q, k, represented(q, k, scale=scale, **options), scale=scale)


def one_head(h: int, q: Tensor, *keys_and_values: Tensor) -> list[Tensor]:
    """Return query head h and the KV head it reads: (B, 1, L, D) each."""
    share = q.shape[1] // keys_and_values[0].shape[1]
    return [q[:, h : h + 1], *(x[:, h // share : h // share + 1] for x in keys_and_values)]


# ---------------------------------------------------------------- which pattern for which head

@torch.no_grad()
def recalls(q: Tensor, k: Tensor, candidates: Sequence[Pattern] = CANDIDATES, *, first_row: int = 0,
            scale: float | None = None) -> tuple[Tensor, Tensor]:
    """Measure on a sample what each candidate keeps of full attention, and what it reads for that.

    Args:
        q, k: queries (B, H, L, D) and keys (B, Hk, L, D) of B samples.
        candidates: patterns with their options.
        first_row: rows before it are left out; early rows read nearly everything anyway.
        scale: None means D**-0.5.

    Returns:
        recall, (H, candidates): mean attention on the tokens that are read, over samples and rows.
        share, (H, candidates): query-key pairs that are read, as a share of all past ones in those rows.
    """
    if not 0 <= first_row < q.shape[2]:
        raise ValueError(f"first_row: got {first_row}, wanted 0 to {q.shape[2] - 1}, a row of the sample; take "
                         "longer samples or an earlier row")
    weights = full.effective(q, k, scale=scale)[:, :, first_row:]                       # (B, H, R, L)
    past = masked.causal_mask(q.shape[2], q.device)[first_row:].sum()
    recall, share = [], []
    for candidate in candidates:
        read = represented(q, k, patterns=[candidate], scale=scale)[:, :, first_row:]   # (B, H, R, L)
        recall.append((weights * read).sum(-1).mean((0, 2)))
        share.append(read.sum((2, 3)).double().mean(0) / past)
    return torch.stack(recall, dim=-1), torch.stack(share, dim=-1)


def choose_patterns(q: Tensor, k: Tensor, candidates: Sequence[Pattern] = CANDIDATES, *, first_row: int = 0,
                    most_read: float = 1.0, scale: float | None = None) -> list[dict[str, Any]]:
    """Choose the pattern of each head on a sample (Algorithm 1): best recall, the first one if equal.

    Args:
        q, k, candidates, first_row, scale: as in `recalls`.
        most_read: largest share of the query-key pairs that a candidate may read in a head.

    Returns:
        A pattern for each query head: JSON values, the option `patterns`.

    Raises:
        ValueError: if every candidate reads more than `most_read` in some head.
    """
    recall, share = recalls(q, k, candidates, first_row=first_row, scale=scale)
    if not (share <= most_read).any(dim=-1).all():
        least = share.min(dim=-1).values.max().item()
        raise ValueError(f"most_read: got {most_read}, below what every candidate reads in some head; wanted "
                         f"{least:.3f} or more, or smaller candidates")
    best = recall.masked_fill(share > most_read, -1.0).argmax(dim=-1)
    return [dict(candidates[index]) for index in best.tolist()]


# ---------------------------------------------------------------- options

def head_patterns(q: Tensor, k: Tensor, v: Tensor,
                  patterns: Sequence[Pattern]) -> list[tuple[Mechanism, dict[str, Any]]]:
    """Return mechanism and options of each query head, or raise ValueError naming what does not fit."""
    check_qkv(q, k, v)
    heads, length = q.shape[1:3]
    if not isinstance(patterns, list | tuple) or not all(isinstance(pattern, dict) for pattern in patterns):
        raise ValueError(f"patterns: got {patterns!r}, wanted a list of them, such as "
                         '[{"pattern": "a_shape", "sinks": 16, "window": 80}]')
    parsed = [parse(pattern) for pattern in patterns]
    if len(parsed) == 1:
        return parsed * heads
    if not parsed or (len(parsed) != heads and length > 1):  # one token reads itself, whatever its pattern
        raise ValueError(f"patterns: got {len(parsed)} for {heads} query heads, wanted one for each, or one for "
                         "all; choose_patterns makes such a list")
    return (parsed * heads)[:heads]


def parse(pattern: Pattern) -> tuple[Mechanism, dict[str, Any]]:
    """Return the mechanism that {"pattern": name, **options} names, and all of its options."""
    options = dict(pattern)
    name = options.pop("pattern", None)
    if not isinstance(name, str) or name not in PATTERNS:
        raise ValueError(f"patterns: got the pattern {name!r}, wanted one of {', '.join(PATTERNS)}, as in "
                         '{"pattern": "a_shape", "sinks": 16, "window": 80}')
    mechanism = PATTERNS[name]
    valid = [parameter.name for parameter in signature(mechanism.attention).parameters.values()
             if parameter.kind is Parameter.KEYWORD_ONLY and parameter.name not in (*RUNTIME, "backend")]
    unknown = [option for option in options if option not in valid]
    if unknown:
        raise ValueError(f"patterns: {unknown[0]} is no option of {name}, wanted {', '.join(valid)}")
    return mechanism, {**mechanism.defaults, **options}


def causal_scope(*, patterns: Sequence[Pattern], **_: Any) -> str:
    """The widest scope among the patterns."""
    scopes = {mechanism.causal_scope(**options) for mechanism, options in map(parse, patterns)}
    return next(scope for scope in (WHOLE_PROMPT, OWN_BLOCK, EVERY_ROW) if scope in scopes)


def exact_when(length: int, *, patterns: Sequence[Pattern], **_: Any) -> bool:
    """Every pattern reads everything."""
    return all(mechanism.exact_when(length, **options) for mechanism, options in map(parse, patterns))


MECHANISM = Mechanism(
    name="minference",
    title="MInference, a pattern per head",
    paper="Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse "
          "Attention, NeurIPS 2024, Section 3, Algorithm 1",
    loops=loops,
    attention=attention,
    effective=effective,
    represented=represented,
    select=select,
    defaults={"patterns": [{"pattern": "vertical_slash", **vertical_slash.MECHANISM.defaults}]},
    paper_presets={name: {"patterns": [{"pattern": "vertical_slash", **options}]}
                   for name, options in vertical_slash.MECHANISM.paper_presets.items()},
    causal_scope=causal_scope,
    needs_training=False,
    exact_when=exact_when,
    rungs=("dense",),
)
