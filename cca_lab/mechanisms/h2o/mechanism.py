"""H2O: a cache of fixed size that keeps the last tokens and those with the most attention.

Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language
Models", NeurIPS 2023 (Section 4, Algorithm 1). Rows and tokens count from 0. S_i are the tokens
kept after row i:

    row i reads R_i = S_{i-1} + {i}, with weights A_it = softmax(scale * q_i K_R^T)
    score_t += A_it            for each t in R_i: attention accumulated while it was kept
    S_i = the last `recent` tokens of R_i, and of the others the `heavy` with the highest scores

so a row first attends, to at most heavy + recent + 1 tokens, and then evicts. An evicted token and
its score never come back. Later tokens have no influence on what a row reads. A prompt is read
densely: its rows see all of their past, and the first eviction comes after it. `prompt` is its
length; the default, 1, means token by token from the first one on.

Differs from the paper or the public code, or decides what they leave open:
  * Scores are sums, not means, as in both. That favours old tokens.
  * Grouped queries: one score for each KV head, the mean over its query heads. In the code each
    query head has its own score and KV head. Sequences of a batch have separate scores; the code
    adds scores over the batch and requires a batch of one.
  * Among equal scores the older token is evicted first.
  * Budgets are tokens (int) or shares of the prompt (float, 0.1 and 0.1 in the code), rounded down,
    at least 1.
  * Positions are the original ones; the code also has a variant with positions in the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype, expand_heads, product
from cca_lab.attention.fused import fused, require_triton
from cca_lab.mechanisms.base import Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.tokens import floor_of_share
from cca_lab.settings import check_integers

# rows whose logits are there at once
ROWS_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class H2O(Mechanism):
    """H2O: each row reads the last tokens, and those with the highest accumulated attention.

    Attributes:
        heavy: how many tokens are kept for their scores; a float is a share of the prompt.
        recent: how many of the last tokens are kept; a float is a share of the prompt.
        prompt: how many tokens are read before the first eviction, 1 or more.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    heavy: int | float = 48
    recent: int | float = 48
    prompt: int = 1

    name: ClassVar[str] = "h2o"
    title: ClassVar[str] = "H2O"
    paper: ClassVar[str] = ("Zhang et al., H2O: Heavy-Hitter Oracle for Efficient Generative "
                            "Inference of Large Language Models, NeurIPS 2023, Section 4, "
                            "Algorithm 1")
    sizes: ClassVar[tuple[str, ...]] = ("heavy", "recent")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "a fifth of a prompt of 2048 tokens": {"heavy": 0.1, "recent": 0.1, "prompt": 2048},
        "summarization in the public code": {"heavy": 1024, "recent": 1024},
    }
    backends: ClassVar[tuple[str, ...]] = ("dense", "triton")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.budget()

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute H2O token by token with an explicit cache (Algorithm 1): the specification."""
        scale = call.scale
        heavy, recent = self.budget()
        batch, heads, length, _ = q.shape
        queries_per_key = heads // k.shape[1]
        out = q.new_zeros(q.shape)
        for b in range(batch):
            for kv in range(k.shape[1]):
                scores: dict[int, float] = {}  # of the tokens that are kept, in time order
                for i in range(length):
                    scores[i] = 0.0
                    tokens = list(scores)                          # R_i
                    for h in range(kv * queries_per_key, (kv + 1) * queries_per_key):
                        weights = torch.softmax(scale * (k[b, kv, tokens] @ q[b, h, i]), dim=0)
                        out[b, h, i] = weights @ v[b, kv, tokens]
                        for token, weight in zip(tokens, weights.tolist(), strict=True):
                            scores[token] += weight / queries_per_key
                    if i + 1 >= self.prompt:
                        evict_loops(scores, heavy, recent)
        return out

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the tokens, masked to each row's cache."""
        return [Columns(q, k, v, self.kept(q, k, call.scale))]

    @torch.no_grad()
    def kept(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        """Return which tokens each row reads, bool (B, H, L, L): the cache of all heads at once.

        Rows before the first eviction see all of their past, and are scored at once; the others
        one after the other, each with the entries of its cache alone.
        """
        heavy, recent = self.budget()
        batch, heads, length, _ = q.shape
        dtype, kv_heads = accumulation_dtype(q.dtype), k.shape[1]
        expanded = expand_heads(k, heads).to(dtype)

        def logits(first: int, stop: int) -> Tensor:  # (B, Hk, H/Hk, stop - first, stop)
            rows = scale * q[:, :, first:stop].to(dtype)
            return product(rows, expanded[:, :, :stop].mT).unflatten(1, (kv_heads, -1))

        past = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
        visible = past.repeat(batch, kv_heads, 1, 1)                        # (B, Hk, L, L)
        dense = max(self.prompt, heavy + recent)
        if length <= dense:
            return visible.repeat_interleave(heads // kv_heads, dim=1)
        scores = logits(0, dense).masked_fill(~past[:dense, :dense], float("-inf")).softmax(
            -1).sum(-2).mean(2)                                             # (B, Hk, dense)
        stay = survivors(scores, heavy, recent)
        tokens, scores = stay, scores.gather(2, stay)                       # (B, Hk, n)
        of_rows = self._evicting_rows(q)
        for first in range(dense, length, ROWS_AT_ONCE):
            stop = min(first + ROWS_AT_ONCE, length)
            read, tokens, scores = of_rows(logits(first, stop), tokens, scores, first, recent)
            visible[:, :, first:stop] = False
            visible[:, :, first:stop].scatter_(3, read, True)
        return visible.repeat_interleave(heads // kv_heads, dim=1)

    def _evicting_rows(self, q: Tensor) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        if self.backend == "dense" or (self.backend == "auto" and not fused(q)):
            return evicting_rows
        require_triton()
        # triton exists for Linux only
        from cca_lab.attention.kernels.eviction import triton_evicting_rows
        from cca_lab.attention.kernels.launch import check_tensor

        check_tensor("q", q)
        return triton_evicting_rows

    def budget(self, prompt: int | None = None) -> tuple[int, int]:
        """Return how many heavy and recent tokens are kept for a prompt of that length."""
        return tokens_kept(self.heavy, self.recent, self.prompt if prompt is None else prompt)

    def exact_when(self, length: int) -> bool:
        """Return True if no token has been evicted when the last row attends."""
        return length <= max(self.prompt, sum(self.budget()) + 1)

    def cache_entries(self, length: int) -> int:
        """Return all tokens while the prompt is read, and then at most the budget."""
        return length if length < self.prompt else min(length, sum(self.budget()))

    @classmethod
    def sized(cls, entries: int, length: int) -> Self:
        """Return H2O with half of the entries for heavy tokens and half for recent ones."""
        return cls(heavy=entries // 2, recent=entries - entries // 2)


def evict_loops(scores: dict[int, float], heavy: int, recent: int) -> None:
    """Delete the tokens with the lowest scores until the recent and `heavy` others are left."""
    older = list(scores)[: max(0, len(scores) - recent)]
    for token in sorted(older, key=lambda t: scores[t])[: max(0, len(older) - heavy)]:
        del scores[token]


def evicting_rows(logits: Tensor, tokens: Tensor, scores: Tensor, first: int,
                  recent: int) -> tuple[Tensor, Tensor, Tensor]:
    """Let rows attend and evict one after the other, each with the entries of its cache alone.

    Args:
        logits: (B, Hk, H/Hk, R, N), of R rows with the tokens up to the last of them.
        tokens: those that are kept before the first row, (B, Hk, n), in the order of time.
        scores: theirs, (B, Hk, n).
        first: number of the first row.
        recent: last tokens that stay.

    Returns:
        Tokens that each row reads, (B, Hk, R, n + 1); then tokens and scores after the last row.
    """
    entries, read = tokens.shape[2], []
    for row, of_row in enumerate(logits.unbind(3), first):
        tokens = F.pad(tokens, (0, 1), value=row)
        seen = tokens[:, :, None].expand(-1, -1, of_row.shape[2], -1)
        weights = of_row.gather(3, seen).softmax(-1).mean(2)                # (B, Hk, n + 1)
        scores = F.pad(scores, (0, 1)) + weights
        read.append(tokens)
        stay = survivors(scores, entries - recent, recent)
        tokens, scores = tokens.gather(2, stay), scores.gather(2, stay)
    return torch.stack(read, dim=2), tokens, scores


def survivors(scores: Tensor, heavy: int, recent: int) -> Tensor:
    """Return which entries stay, in the order of time: the last, and others with high scores.

    Of equal scores the older entry goes.

    Args:
        scores: (B, Hk, n), of entries in the order of time.
        heavy, recent: entries that stay.

    Returns:
        (B, Hk, min(n, heavy + recent)), int64.
    """
    extra = scores.shape[2] - heavy - recent
    index = torch.arange(scores.shape[2], device=scores.device).expand(*scores.shape[:2], -1)
    if extra <= 0:
        return index
    older = scores[..., : scores.shape[2] - recent]
    if extra == 1:  # argmin returns the first of equal ones
        return index[..., :-1] + (index[..., :-1] >= older.argmin(dim=-1, keepdim=True))
    heaviest = older.argsort(dim=-1, stable=True)[..., extra:].sort(dim=-1).values
    return torch.cat([heaviest, index[..., older.shape[2]:]], dim=-1)


def tokens_kept(heavy: int | float, recent: int | float, prompt: int) -> tuple[int, int]:
    """Return how many heavy and recent tokens are kept.

    Args:
        heavy, recent: tokens (int), or shares of the prompt (float), rounded down but at least 1.
        prompt: tokens of the prompt.

    Raises:
        ValueError: for negative numbers, shares over 1, or nothing to keep.
    """
    check_integers(1, prompt=prompt)
    for name, value in {"heavy": heavy, "recent": recent}.items():
        if not isinstance(value, float):
            check_integers(0, **{name: value})
        elif not 0 < value <= 1:
            raise ValueError(f"{name}: got {value}, wanted an integer number of tokens, or a share "
                             "of the prompt over 0 and at most 1, such as 0.1")
    heavy, recent = (max(1, floor_of_share(x, prompt)) if isinstance(x, float) else x
                     for x in (heavy, recent))
    if heavy + recent == 0:
        raise ValueError(
            "heavy and recent: got 0 and 0, wanted a token to keep; give one of them 1 or more")
    return heavy, recent
