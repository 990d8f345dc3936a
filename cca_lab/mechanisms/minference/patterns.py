"""The offline search of MInference: the best pattern for each head, measured on a sample (see `mechanism`)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.mechanisms import full, masked
from cca_lab.mechanisms.minference.mechanism import MInference, Pattern

CANDIDATES: tuple[dict[str, Any], ...] = (  # for about 512 tokens; the first and last read 1/5
    {"pattern": "a_shape", "sinks": 8, "window": 56},
    {"pattern": "vertical_slash", "vertical": 32, "slash": 16, "last": 32, "forced_slash": 8, "block": 8},
    {"pattern": "vertical_slash", "vertical": 8, "slash": 32, "last": 32, "forced_slash": 8, "block": 8},
    {"pattern": "block_sparse", "block": 16, "top_k": 4},
)


@torch.no_grad()
def recalls(q: Tensor, k: Tensor, candidates: Sequence[Pattern] = CANDIDATES, *, first_row: int = 0,
            scale: float | None = None) -> tuple[Tensor, Tensor]:
    """Measure on a sample how much of full attention each candidate keeps, and how many pairs it reads.

    Args:
        q, k: queries (B, H, L, D) and keys (B, Hk, L, D) of B samples.
        candidates: patterns with their options.
        first_row: earlier rows are left out, because they read nearly everything anyway.
        scale: None means D**-0.5.

    Returns:
        recall, (H, candidates): attention on the tokens that are read, mean over samples and rows.
        share, (H, candidates): query-key pairs that are read, as a share of all causal pairs in those rows.
    """
    if not 0 <= first_row < q.shape[2]:
        raise ValueError(f"first_row: got {first_row}, wanted 0 to {q.shape[2] - 1}, a row of the sample; take "
                         "longer samples or an earlier row")
    weights = full.effective(q, k, scale=scale)[:, :, first_row:]                       # (B, H, R, L)
    past = masked.causal_mask(q.shape[2], q.device)[first_row:].sum()
    recall, share = [], []
    for candidate in candidates:
        read = MInference(patterns=[candidate]).represented(q, k, scale=scale)[:, :, first_row:]  # (B, H, R, L)
        recall.append((weights * read).sum(-1).mean((0, 2)))
        share.append(read.sum((2, 3)).double().mean(0) / past)
    return torch.stack(recall, dim=-1), torch.stack(share, dim=-1)


def choose_patterns(q: Tensor, k: Tensor, candidates: Sequence[Pattern] = CANDIDATES, *, first_row: int = 0,
                    most_read: float = 1.0, scale: float | None = None) -> list[dict[str, Any]]:
    """Choose the pattern of each head on a sample (Algorithm 1): the best recall, the first among equals.

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
        raise ValueError(f"most_read: got {most_read}, below what every candidate reads in some head; wanted "
                         f"{least:.3f} or more, or smaller candidates")
    best = recall.masked_fill(share > most_read, -1.0).argmax(dim=-1)
    return [dict(candidates[index]) for index in best.tolist()]
