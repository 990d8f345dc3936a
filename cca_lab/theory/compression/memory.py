"""LoCoCo's memory: which tokens it holds, and how many numbers a segment of it needs.

Cai et al., ICML 2024, Sections 3.1 to 3.3. Keys and values have one feature each; the paper's
orders leave d out.
"""

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cca_lab.theory.claim import Outcome, Subjects, chosen
from cca_lab.theory.compression.convolution import KERNEL, Rows

SIZES: list[tuple[int, int]] = [  # (M, B); the paper's stand last
    *product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16)), (512, 512), (128, 512), (128, 1)]
CONSTANT = 16  # an order O(..) is read as: at most 16 times what stands inside
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


def check_peak(bound: Callable[[int, int], int],
               within: Callable[[tuple[int, int]], bool] | None = None) -> Outcome:
    """Judge the order (M, B) -> numbers of Steps 3 to 5 of Algorithm 2, from both sides."""
    ratios = [(most_at_once(slots, block) / bound(slots, block), f"M={slots}, B={block}")
              for slots, block in chosen(SIZES, within)]
    least, most = min(ratios), max(ratios)
    return Outcome(most[0] <= CONSTANT and least[0] >= 1, f"{least[0]:.3g} ({least[1]}) to "
                   f"{most[0]:.3g} ({most[1]}) times what is claimed")


# ---------------------------------------------------------------- what is kept of a token

def led_to(weights: Weights) -> set[int]:
    """Return the tokens from which weights other than 0 lead to a slot at the end."""
    slots = [{slot} for slot in range(len(weights[0]))]
    for step, rows in enumerate(weights, start=len(slots)):
        entries = [*slots, {step}]
        slots = [set().union(*(tokens for tokens, w in zip(entries, row, strict=True) if w))
                 for row in rows]
    return set().union(*slots)


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


def even(slots: int, steps: int) -> Weights:
    """Return weights that prefer no entry."""
    return ([[Fraction(1, slots + 1)] * (slots + 1)] * slots,) * steps


def streams() -> Iterator[Weights]:
    """Return weights of 1 to 6 steps for 1 to 3 slots, the fewest first: even, random, with 0."""
    for steps, slots, least in product(range(1, 7), range(1, 4), (-3, -1, 1)):
        numbers = random.Random(100 * steps + 10 * slots + least)
        drawn = [[[max(0, numbers.randint(least, 3)) for _ in range(slots)] + [1]
                  for _ in range(slots)] for _ in range(steps)]
        yield tuple([[Fraction(w, sum(row)) for w in row] for row in rows] for rows in drawn)
        yield even(slots, steps)


def check_kept(kept: Callable[[Weights], set[int]],
               within: Callable[[Weights], bool] | None = None) -> Outcome:
    """Judge which tokens have weight in the memory: 1 to 3 slots, B = 1, up to 6 more tokens."""
    cases = chosen(streams(), within)
    for weights in cases:
        said, held = kept(weights), in_memory(weights)
        if said != held:
            last = "; ".join(", ".join(map(str, row)) for row in weights[-1])
            return Outcome(False, f"M={len(weights[0])}, {len(weights)} steps, the last weights "
                           f"are {last}: tokens {sorted(t + 1 for t in held)} have weight, "
                           f"claimed {sorted(t + 1 for t in said)}")
    return Outcome(True, f"right in {len(cases)} streams")


SUBJECTS = {
    "LC.memory": Subjects(check_kept, lambda weights: set(range(len(weights[0]) + len(weights))),
                          corrected=led_to,
                          within=lambda weights: min(w for rows in weights for row in rows
                                                     for w in row) > 0),
    "LC.peak": Subjects(check_peak, lambda slots, block: slots * block + slots,
                        corrected=lambda slots, block: max(slots, block) * (slots + block) + slots,
                        within=lambda size: max(size) <= 4 * min(size)),
}
