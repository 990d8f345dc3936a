"""LoCoCo's memory: whose weight it holds, and how many numbers a segment of it needs.

Cai et al., ICML 2024, Sections 3.1 to 3.3. Keys and values have one feature each; the paper's
orders leave d out. An order O(...) with M and B is read as: at most 4 times what stands inside.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cca_lab.theory.claim import Outcome, Subjects, chosen
from cca_lab.theory.compression.convolution import KERNEL, Rows, mix, one_hot_rows, share_after

Count = Callable[[int, int], int]
FACTOR = 4
SIZES: list[tuple[int, int]] = [  # (M, B); the paper's stand last
    *product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16)), (512, 512), (128, 512), (128, 1)]
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


def everything(weights: Weights) -> set[int]:
    """Return the tokens that are said to be in the memory: all."""
    return set(range(len(weights[0]) + len(weights)))


def led_to(weights: Weights) -> set[int]:
    """Return the tokens from which positive weights lead to a slot at the end."""
    slots = [{slot} for slot in range(len(weights[0]))]
    for step, rows in enumerate(weights, start=len(slots)):
        entries = [*slots, {step}]
        slots = [set().union(*(tokens for tokens, w in zip(entries, row, strict=True) if w))
                 for row in rows]
    return set().union(*slots)


def in_memory(weights: Weights) -> set[int]:
    """Return the tokens that have a share of a slot, by Eq. 4 in fractions."""
    slots, tokens = len(weights[0]), len(weights[0]) + len(weights)
    shares = [[Fraction(int(slot == token)) for token in range(tokens)] for slot in range(slots)]
    for step, rows in enumerate(weights, start=slots):
        entries = [*shares, [Fraction(int(token == step)) for token in range(tokens)]]
        mixed = [mix(rows, column) for column in zip(*entries, strict=True)]
        shares = [list(slot) for slot in zip(*mixed, strict=True)]
    return {token for token in range(tokens) if any(slot[token] for slot in shares)}


def streams() -> Iterator[Weights]:
    """Return weights of 1 to 8 steps for 1 to 3 slots: equal, drawn with zeros, one-hot."""
    for slots, steps, seed in product(range(1, 4), range(1, 9), range(3)):
        numbers = random.Random(100 * steps + seed)
        for least in (-3, 1):
            drawn = [[[max(0, numbers.randint(least, 3)) for _ in range(slots)] + [1]
                      for _ in range(slots)] for _ in range(steps)]
            yield tuple([[Fraction(w, sum(row)) for w in row] for row in rows] for rows in drawn)
        yield tuple(one_hot_rows([Fraction(numbers.randint(0, 3)) for _ in range(slots + 1)])
                    for _ in range(steps))
        yield ([[Fraction(1, slots + 1)] * (slots + 1)] * slots,) * steps


def check_kept(kept: Callable[[Weights], set[int]],
               within: Callable[[Weights], bool] | None = None) -> Outcome:
    """Judge which tokens have weight in the memory: 1 to 3 slots, B = 1, up to 8 more tokens."""
    cases = chosen(streams(), within)
    for weights in cases:
        said, held = kept(weights), in_memory(weights)
        if said != held:
            last = "; ".join(", ".join(map(str, row)) for row in weights[-1])
            return Outcome(False, f"M={len(weights[0])}, {len(weights)} steps, the last weights "
                           f"are {last}: tokens {sorted(t + 1 for t in held)} have weight, "
                           f"claimed {sorted(t + 1 for t in said)}")
    half_life = next(n for n in range(10_000)
                     if 2 * share_after(n, 512) <= share_after(0, 512))  # 512 ln 2 = 354.9
    return Outcome(True, f"right in {len(cases)} streams; under equal weights a share of one of "
                   f"512 slots halves in {half_life} tokens",
                   {"streams": len(cases), "half_life_512": half_life})


def check_segments(bounds: tuple[Count, Count, Count]) -> Outcome:
    """Compare bounds with Algorithm 1, for B, N <= 8.

    The bounds: (B, r) -> scores of block r, (B, r) -> entries kept after it, (L, B) -> the most
    scores of all blocks.
    """
    scores_of, kept_of, peak_of = bounds
    for block, count in product(range(1, 9), repeat=2):
        blocks, peak = run(count, block, None), peak_of(block * count, block)
        for r, numbers in enumerate(blocks, start=1):
            if numbers.scores > min(scores_of(block, r), peak) or numbers.cache > kept_of(block, r):
                said = f"claimed {scores_of(block, r)} and {kept_of(block, r)}, at most {peak}"
                return Outcome(False, f"B={block}, N={count}, block {r}: {numbers.scores} scores, "
                               f"{numbers.cache} entries after it; {said}")
        if max(blocks).scores != blocks[-1].scores:
            return Outcome(False, f"B={block}, N={count}: the last block has not the most scores")
    return Outcome(True, "B^2 r scores in block r, B r entries after it, and L B scores in the "
                   "last block, the most, for B, N <= 8")


def check_peak(bound: Callable[[int, int], int],
               within: Callable[[tuple[int, int]], bool] | None = None) -> Outcome:
    """Compare a bound (M, B) -> numbers with Steps 3 to 5 of Algorithm 2, to a factor of 4."""
    ratios = []
    for slots, block in chosen(SIZES, within):
        _, numbers = segment(np.ones((2, slots)), block, slots)
        most, limit = max(numbers.scores, numbers.weights) + numbers.cache, bound(slots, block)
        ratios.append((most / limit, f"M={slots}, B={block}: {numbers.scores} scores, "
                       f"{numbers.weights} weights, {slots} slots, bound {limit}"))
    ratio, where = max(ratios)
    return Outcome(ratio <= FACTOR, f"{where}, {ratio:.3g} times", {"ratio": ratio})


def check_constant(runs: Callable[[int], Sequence[Numbers]]) -> Outcome:
    """Judge whether the largest segment takes the same for 8, 16 and 32 segments."""
    peaks = [max(map(sum, runs(segments))) for segments in (8, 16, 32)]
    return Outcome(len(set(peaks)) == 1, f"at most {', '.join(map(str, peaks))} numbers at once in "
                   f"8, 16, 32 segments", {"8": peaks[0], "32": peaks[-1]})


SUBJECTS = {
    "LC.memory": Subjects(check_kept, everything, corrected=led_to,
                          within=lambda weights: min(w for rows in weights for row in rows
                                                     for w in row) > 0),
    "LC.segment-cost": Subjects(check_segments,
                                (lambda block, r: block * block * r, lambda block, r: block * r,
                                 lambda length, block: length * block)),
    "LC.peak": Subjects(check_peak, lambda slots, block: slots * block + slots,
                        corrected=lambda slots, block: max(slots, block) * (slots + block) + slots,
                        within=lambda size: max(size) <= 3 * min(size)),
    "LC.constant": Subjects(check_constant, partial(run, block=2, slots=4)),
}
