"""LoCoCo's memory: which tokens it holds, and how many numbers a segment of it needs.

Cai et al., ICML 2024, Sections 3.1 to 3.3. Keys and values have one feature each; the paper's
orders leave d out.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cca_lab.theory.compression.convolution import KERNEL, Rows

Weights = tuple[Rows, ...]  # [A, b] of each step, (M, M + 1); B = 1


class Numbers(NamedTuple):
    """How many numbers one segment needs."""

    scores: int  # of its queries with all entries (Step 3)
    weights: int  # W of Eq. 6 (Step 4); none as long as the cache is filled
    cache: int  # entries that are kept after it


def segment(cache: NDArray[np.float64], block: int,
            slots: int | None) -> tuple[NDArray[np.float64], Numbers]:
    """Run one segment of B tokens: return the new cache, and the counts.

    The cache is (2, entries): keys and values. `slots` is M of Algorithm 2, None for Algorithm 1,
    which keeps everything.
    """
    entries = np.concatenate([cache, np.ones((2, block))], axis=1)
    scores = np.outer(entries[0], np.ones(block))
    if slots is None or entries.shape[1] <= slots:
        return entries, Numbers(scores.size, 0, entries.shape[1])
    padded = np.pad(entries, ((0, 0), (KERNEL // 2,) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, KERNEL, axis=1)
    weights = np.tensordot(np.ones((slots, 2, KERNEL)), windows, axes=((1, 2), (0, 2)))
    kept = entries @ (weights / weights.sum(axis=1, keepdims=True)).T
    return kept, Numbers(scores.size, weights.size, kept.shape[1])


def run(segments: int, block: int, slots: int | None) -> list[Numbers]:
    """Return the counts of each segment, from an empty cache on."""
    cache, counts = np.ones((2, 0)), []
    for _ in range(segments):
        cache, numbers = segment(cache, block, slots)
        counts.append(numbers)
    return counts


def most_at_once(slots: int, block: int) -> int:
    """Return the most numbers at once of a segment with a full cache."""
    _, numbers = segment(np.ones((2, slots)), block, slots)
    return max(numbers.scores, numbers.weights) + numbers.cache


# ---------------------------------------------------------------- what is kept of a token

def shares(weights: Weights) -> Rows:
    """Return the share of each token in each slot after all steps, by Eq. 4: (M, tokens)."""
    slots = len(weights[0])
    held = [[Fraction(int(slot == token)) for token in range(slots)] for slot in range(slots)]
    for rows in weights:
        held = [[*(sum((w * slot[token] for w, slot in zip(row, held, strict=False)), Fraction(0))
                   for token in range(len(held[0]))), row[-1]] for row in rows]
    return held


def in_memory(weights: Weights) -> set[int]:
    """Return the tokens that have a share of a slot."""
    return {token for token, column in enumerate(zip(*shares(weights), strict=True)) if any(column)}


def share_after(steps: int, slots: int) -> Fraction:
    """Return a token's mean share of a slot n `steps` later, for B = 1: (M/(M+1))^n / (M+1)."""
    return Fraction(slots, slots + 1) ** steps / (slots + 1)
