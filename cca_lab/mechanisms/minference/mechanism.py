"""MInference: a pattern for each head, chosen once on a sample; each prompt determines the masks.

Jiang et al., "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse
Attention", NeurIPS 2024 (Section 3, Algorithm 1). A head attends with one of three patterns, each a
mechanism of its own: `a_shape`, `vertical_slash` or `block_sparse`. `choose_patterns`, the offline
search, takes the candidate that keeps most of full attention A on a sample,

    recall = mean over rows i of   sum of A_it over the tokens t that the candidate lets row i read

Positions are the original ones. The mechanism is meant for reading a prompt: the paper decodes with
full attention over an ordinary cache.

Differs from the paper and the public code:
  * The paper compares attention outputs; recall is what the public code measures (on rows from 2500
    on, here from `first_row`). The code then runs A-shape and block-sparse heads as vertical-slash;
    here they stay.
  * The paper gives all candidates the same measured cost. Here `most_read` bounds the share of
    query-key pairs.
  * One list of patterns serves all layers of a model; the paper has one for each layer.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from cca_lab.mechanisms import full
from cca_lab.mechanisms.base import EVERY_ROW, OWN_BLOCK, WHOLE_PROMPT, Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.minference.patterns import PAPER, AShape, BlockSparse, VerticalSlash
from cca_lab.mechanisms.tokens import causal_mask

Pattern = Mapping[str, Any]  # {"pattern": name, option: value, ...}

PATTERNS: dict[str,
               type[Mechanism]] = {cls.name: cls for cls in (AShape, VerticalSlash, BlockSparse)}
A_PATTERN = '{"pattern": "a_shape", "sinks": 16, "window": 80}'  # an example for error messages


@dataclass(frozen=True, kw_only=True)
class MInference(Mechanism):
    """MInference: each head reads one of the patterns A-shape, vertical-slash and block-sparse.

    Attributes:
        patterns: {"pattern": name, **options} for each query head, or one for all heads. Options
            that are not given have the defaults of the pattern's mechanism.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    patterns: list[Pattern] = field(default_factory=lambda: [{"pattern": VerticalSlash.name,
                                                              **VerticalSlash().options()}])

    name: ClassVar[str] = "minference"
    title: ClassVar[str] = "MInference, a pattern per head"
    paper: ClassVar[str] = PAPER + ", Algorithm 1"
    sizes: ClassVar[tuple[str, ...]] = ("patterns",)
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        name: {"patterns": [{"pattern": VerticalSlash.name, **options}]}
        for name, options in VerticalSlash.paper_presets.items()}
    backends: ClassVar[tuple[str, ...]] = ("dense",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.patterns,
                          list | tuple) or not all(isinstance(x, dict) for x in self.patterns):
            raise ValueError(
                f"patterns: got {self.patterns!r}, wanted a list of them, such as [{A_PATTERN}]")
        # what the caller keeps may be changed later, without a check
        object.__setattr__(self, "patterns", copy.deepcopy(self.patterns))
        if not self.mechanisms:
            raise ValueError("patterns: got 0, wanted one for each query head, or one for all; "
                             "choose_patterns makes such a list")

    @cached_property
    def mechanisms(self) -> list[Mechanism]:
        """The mechanism of each pattern."""
        return [parse(pattern) for pattern in self.patterns]

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Attend head by head with the loops of each head's pattern: the specification."""
        return torch.cat([mechanism.row_by_row(*head)
                          for mechanism, head in self.heads(q, k, v, call)], dim=1)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the tokens, under the masks of all heads."""
        shape = (q.shape[0], 1, q.shape[2], q.shape[2])
        masks = [mechanism.columns(*head)[0].mask().expand(shape)
                 for mechanism, head in self.heads(q, k, v, call)]
        return [Columns(q, k, v, torch.cat(masks, dim=1))]

    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> list[Any]:
        """Return the choice of each head, for `selection`: a list of H, or None each."""
        heads = self.heads(q, k, k, self.call(q, k, k, scale=scale))
        return [mechanism.select(*head[:2], scale=scale) for mechanism, head in heads]

    def heads(self, q: Tensor, k: Tensor, v: Tensor,
              call: Call) -> list[tuple[Mechanism, tuple[Tensor, Tensor, Tensor, Call]]]:
        """Return each query head's mechanism with its q, k, v (B, 1, L, D) and call."""
        heads, length, count = *q.shape[1:3], len(self.mechanisms)
        if count not in (1, heads) and length > 1:  # one token reads itself under any pattern
            raise ValueError(f"patterns: got {count} for {heads} query heads, wanted one for each, "
                             "or one for all; choose_patterns makes such a list")
        chosen = call.selection or [None] * heads
        return [(mechanism, (*one_head(h, q, k, v), call._replace(selection=chosen[h])))
                for h, mechanism in enumerate((self.mechanisms * heads)[:heads])]

    def check_choice(self, selection: Any, q: Tensor, k: Tensor) -> None:
        """Raise ValueError unless a selection is a list with a choice, or None, per query head."""
        if not isinstance(selection, list) or len(selection) != q.shape[1]:
            raise ValueError(f"selection: got {type(selection).__name__}, wanted a list of "
                             f"{q.shape[1]}, one for each query head; pass what `select` returns")
        for h, (mechanism, chosen) in enumerate(zip((self.mechanisms * q.shape[1])[:q.shape[1]],
                                              selection, strict=True)):
            if chosen is not None:
                mechanism.check_choice(chosen, *one_head(h, q, k, k)[:2])

    @property
    def causal_scope(self) -> str:
        """The widest scope among the patterns."""
        scopes = {mechanism.causal_scope for mechanism in self.mechanisms}
        return next(scope for scope in (WHOLE_PROMPT, OWN_BLOCK, EVERY_ROW) if scope in scopes)

    def exact_when(self, length: int) -> bool:
        """Return True if every pattern reads all tokens."""
        return all(mechanism.exact_when(length) for mechanism in self.mechanisms)


def parse(pattern: Pattern) -> Mechanism:
    """Return the mechanism of {"pattern": name, **options}; ValueError if something is wrong."""
    options = dict(pattern)
    name = options.pop("pattern", None)
    if not isinstance(name, str) or name not in PATTERNS:
        raise ValueError(f"patterns: got the pattern {name!r}, wanted one of "
                         f"{', '.join(PATTERNS)}, as in {A_PATTERN}")
    valid = [option for option in PATTERNS[name].option_names() if option != "backend"]
    unknown = [option for option in options if option not in valid]
    if unknown:
        raise ValueError(
            f"patterns: {unknown[0]} is no option of {name}, wanted {', '.join(valid)}")
    return PATTERNS[name](**options)


def one_head(h: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return query head h and the KV head it reads: (B, 1, L, D) each."""
    kv = h // (q.shape[1] // k.shape[1])
    return q[:, h : h + 1], k[:, kv : kv + 1], v[:, kv : kv + 1]


CANDIDATES: tuple[dict[str, Any], ...] = (  # for about 512 tokens; the first and last read 1/5
    {"pattern": "a_shape", "sinks": 8, "window": 56}, {
        "pattern": "vertical_slash", "vertical": 32, "slash": 16, "last": 32, "forced_slash": 8,
        "block": 8
    }, {
        "pattern": "vertical_slash", "vertical": 8, "slash": 32, "last": 32, "forced_slash": 8,
        "block": 8
    }, {"pattern": "block_sparse", "block": 16, "top_k": 4},
)


@torch.no_grad()
def recalls(q: Tensor, k: Tensor, candidates: Sequence[Pattern] = CANDIDATES, *, first_row: int = 0,
            scale: float | None = None) -> tuple[Tensor, Tensor]:
    """Measure how much of full attention each candidate keeps, and how many pairs it reads.

    Args:
        q, k: queries (B, H, L, D) and keys (B, Hk, L, D) of B samples.
        candidates: patterns with their options.
        first_row: earlier rows are left out, because they read nearly everything anyway.
        scale: None means D**-0.5.

    Returns:
        recall and share, (H, candidates): attention on the tokens that are read, mean over samples
        and rows; and read query-key pairs as a share of all causal pairs in those rows.
    """
    if not 0 <= first_row < q.shape[2]:
        raise ValueError(f"first_row: got {first_row}, wanted 0 to {q.shape[2] - 1}, a row of the "
                         "sample; take longer samples or an earlier row")
    weights = full.effective(q, k, scale=scale)[:, :, first_row:]  # (B, H, R, L)
    past = causal_mask(q.shape[2], q.device)[first_row:].sum()
    recall, share = [], []
    for candidate in candidates:
        # (B, H, R, L)
        read = MInference(patterns=[candidate]).represented(q, k, scale=scale)[:, :, first_row:]
        recall.append((weights * read).sum(-1).mean((0, 2)))
        share.append(read.sum((2, 3)).double().mean(0) / past)
    return torch.stack(recall, dim=-1), torch.stack(share, dim=-1)


def choose_patterns(q: Tensor, k: Tensor, candidates: Sequence[Pattern] = CANDIDATES, *,
                    first_row: int = 0, most_read: float = 1.0,
                    scale: float | None = None) -> list[dict[str, Any]]:
    """Choose the pattern of each head on a sample (Algorithm 1): the best recall.

    Args:
        q, k, candidates, first_row, scale: as in `recalls`.
        most_read: largest share of the query-key pairs that a candidate may read in a head.

    Returns:
        A pattern for each query head: JSON values for the option `patterns`.

    Raises:
        ValueError: if every candidate reads more than `most_read` in some head.
    """
    recall, share = recalls(q, k, candidates, first_row=first_row, scale=scale)
    if not (share <= most_read).any(dim=-1).all():
        least = share.min(dim=-1).values.max().item()
        raise ValueError(f"most_read: got {most_read}, below what every candidate reads in some "
                         f"head; wanted {least:.3f} or more, or smaller candidates")
    best = recall.masked_fill(share > most_read, -1.0).argmax(dim=-1)
    return [dict(candidates[index]) for index in best.tolist()]
