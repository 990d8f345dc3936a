"""The tokens that DGA keeps raw: importance scores and focal tokens (Section 5.2, Eq. 16-17).

    s_t = sum_j A_jt / (number of rows j that can see token t)      the mean attention on token t

with A full causal attention, and j all rows (Eq. 16) or a sample of them (Eq. 17). Tokens and rows
count from 0, so the divisor of Eq. 16 is L - t. The highest scores make the focal tokens.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.arguments import check_tensors
from cca_lab.attention.dense import accumulation_dtype
from cca_lab.attention.received import attention_received
from cca_lab.mechanisms.indices import blocks_before, focal_count
from cca_lab.mechanisms.tokens import best, floor_of_share
from cca_lab.settings import check_flags, check_integers

CHOICES = ("prompt", "blocks")
ROWS_AT_ONCE = 256  # sampled rows of A in memory at a time


@dataclass(frozen=True, kw_only=True)
class FocalRule:
    """How DGA divides the tokens of a text: its options, see `DGA`, and what follows from them."""

    group: int = 16
    gamma: float = 0.1
    floor: int = 0
    choose: str = "prompt"
    block: int = 71
    recent: int = 0
    random: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_flags(self)
        check_integers(1, group=self.group, block=self.block)
        if not isinstance(self.gamma, int | float) or not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma: got {self.gamma!r}, wanted a share from 0 to 1; 0.1 keeps "
                             "every tenth token")
        check_integers(0, floor=self.floor, recent=self.recent, random=self.random, seed=self.seed)
        if self.choose not in CHOICES:
            raise ValueError(f"choose: got {self.choose!r}, wanted one of {', '.join(CHOICES)}; "
                             "the paper's is 'prompt'")

    def spans(self, length: int) -> tuple[int, int]:
        """Return number and size of the segments to divide: the text, or earlier blocks."""
        return (1, length) if self.choose == "prompt" else (blocks_before(length, self.block),
                                                            self.block)

    def focal_count(self, span: int) -> int:
        """Return max(floor(gamma L), floor), plus leftovers (Section 5.1), for a segment."""
        return focal_count(span, floor_of_share(self.gamma, span), self.floor, self.group)

    def rows(self, span: int) -> Tensor | None:
        """Return the rows that Eq. 17 samples from a segment, ascending; None for all (Eq. 16)."""
        if self.recent == self.random == 0:
            return None
        earlier = max(0, span - self.recent)
        drawn = torch.randperm(earlier, generator=torch.Generator().manual_seed(int(
            self.seed)))[:self.random]
        return torch.cat([drawn.sort().values, torch.arange(earlier, span, device="cpu")])


@torch.no_grad()
def importance(q: Tensor, k: Tensor, *, rows: Tensor | None = None,
               scale: float | None = None) -> Tensor:
    """Return the score of each token: the mean attention on it (Eq. 16; with `rows`, Eq. 17).

    Args:
        q, k: queries (B, H, L, D) and keys (B, Hk, L, D).
        rows: int64, ascending, the rows whose attention counts; None for all L.
        scale: factor on the dot products; None means D**-0.5.

    Returns:
        (B, H, L), in at least float32, without gradient. A token that no sampled row can see has
        the score inf: it was not measured, so it is kept.
    """
    batch, heads, length, head_dim = q.shape
    scale = head_dim**-0.5 if scale is None else scale
    token = torch.arange(length, device=q.device)
    if rows is None:
        return attention_received(q, k, scale=scale) / (length - token)
    rows, dtype = rows.to(q.device), accumulation_dtype(q.dtype)
    keys = k.to(dtype)[:, :, None]  # (B, Hk, 1, L, D)
    accumulated = torch.zeros(batch, heads, length, dtype=dtype, device=q.device)
    for some in rows.split(ROWS_AT_ONCE):
        past = int(some[-1]) + 1  # n, tokens these rows see
        queries = q[:, :, some].to(dtype).unflatten(1, (k.shape[1], -1))  # (B, Hk, H / Hk, rows, D)
        logits = (scale * queries @ keys[..., :past, :].mT).flatten(1, 2)  # (B, H, rows, n)
        weights = logits.masked_fill(token[:past] > some[:, None], float("-inf")).softmax(-1)
        accumulated[..., :past] += weights.sum(2)
    seen_by = len(rows) - torch.searchsorted(rows, token)  # (L,)  the divisor: rows from t on
    return (accumulated / seen_by).masked_fill(seen_by == 0, float("inf"))


@torch.no_grad()
def select(q: Tensor, k: Tensor, rule: FocalRule, *, scale: float | None = None) -> Tensor:
    """Return which tokens are focal: the highest scores of each segment, of equal ones the earlier.

    Args:
        q, k: queries (B, H, L, D) and keys (B, Hk, L, D).
        rule: the options.
        scale: factor on the dot products; None means D**-0.5.

    Returns:
        bool (B, Hk, L), True at focal tokens, equally many for each batch row and head. With
        choose="blocks", False in the last row's block, which is not divided.

    Differs from the paper, which does not discuss heads: scores are averaged over the query heads
    of a KV head. Leftover tokens become focal by score ("we will include more tokens", Section 5.1,
    does not say which).
    """
    batch, kv_heads, length, _ = k.shape
    count, span = rule.spans(length)
    if not count:  # no block is over: its size, which may be any, costs nothing
        return k.new_zeros(batch, kv_heads, length, dtype=torch.bool)
    q, k = (x[:, :, :count * span].unflatten(2, (count, span)).transpose(1, 2).flatten(0, 1)
            for x in (q, k))
    scores = importance(q, k, rows=rule.rows(span), scale=scale)  # (B * count, H, span)
    scores = scores.unflatten(1, (kv_heads, -1)).mean(2)  # (B * count, Hk, span)
    focal = highest(scores, rule.focal_count(span))
    focal = focal.unflatten(0, (batch, count)).transpose(1, 2).flatten(2)  # (B, Hk, count * span)
    return torch.nn.functional.pad(focal, (0, length - count * span))


def check_selection(selection: Any, k: Tensor, rule: FocalRule) -> None:
    """Raise ValueError unless `selection` is a choice that `select` could return for keys k."""
    check_tensors(selection=selection)
    if selection.dtype != torch.bool or selection.shape != k.shape[:3]:
        raise ValueError(f"selection: got {selection.dtype} {tuple(selection.shape)}, wanted bool "
                         f"(B, Hk, L) = {tuple(k.shape[:3])}; pass what `select` returns")
    count, span = rule.spans(k.shape[2])
    kept = selection[..., : count * span].unflatten(2, (count, span)).sum(-1)  # (B, Hk, count)
    if count and ((kept != kept[0, 0, 0]).any() or int(span - kept[0, 0, 0]) % rule.group):
        raise ValueError(f"selection: marks {kept.unique().tolist()} of {span} tokens, wanted the "
                         "same number for each row, head and block, and a multiple of group = "
                         f"{rule.group} left; see `select`")


def highest(scores: Tensor, count: int) -> Tensor:
    """Return a mask of the `count` highest scores of the last axis; of equal ones the earlier."""
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best(scores, count), True)


def importance_loops(queries: Tensor, keys: Tensor, rows: list[int], scale: float) -> list[float]:
    """Compute Eq. 16-17 token by token, for heads that choose together: the specification.

    Queries and keys (heads, L, D) -> L scores: the mean attention of `rows` on each token.
    """
    accumulated, seen_by = [0.0] * keys.shape[1], [0] * keys.shape[1]
    for j in rows:
        for query, own_keys in zip(queries[:, j], keys[:, : j + 1], strict=True):
            weights = torch.softmax(scale * (own_keys @ query), dim=0)  # row j of A, (j+1,)
            for t in range(j + 1):
                accumulated[t] += weights[t].item() / len(queries)
        for t in range(j + 1):
            seen_by[t] += 1
    return [total / rows if rows else math.inf
            for total, rows in zip(accumulated, seen_by, strict=True)]


@torch.no_grad()
def focal_loops(queries: Tensor, keys: Tensor, rule: FocalRule, scale: float) -> list[int]:
    """Return the focal tokens of heads that choose together; queries, keys (heads, L, D)."""
    count, span = rule.spans(keys.shape[1])
    if not count:
        return []
    sampled = rule.rows(span)
    rows = list(range(span)) if sampled is None else sampled.tolist()
    focal: list[int] = []
    for first in range(0, count * span, span):
        segment = slice(first, first + span)
        scores = importance_loops(queries[:, segment], keys[:, segment], rows, scale)
        ranked = sorted(range(span), key=lambda t: (-scores[t], t))
        focal += sorted(first + t for t in ranked[: rule.focal_count(span)])
    return focal
