"""LoCoCo's memory: what its convolution depends on, what eviction drops, what is kept, the cost.

Cai et al., ICML 2024, Section 3. M slots and B new tokens become M slots, each a weighted mean of
the M + B entries (Eq. 3-4); the weights come from a convolution of width 21 (Eq. 6-7).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import log2

import torch

from cca_lab.theory.base_two import softmax
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape

KERNEL = 21
Rows = list[list[Fraction]]
Weights = tuple[Rows, ...]  # [A, b] of each step, (M, M + 1); B = 1
Channels = Sequence[Sequence[Fraction | int]]
Attention = Sequence[Sequence[Fraction]]  # row i has i + 1 entries


def convolution(channels: Channels, kernel: Sequence[Sequence[int]]) -> list[Fraction]:
    """Return a row of W in Eq. 6, of channels (C, N) and an odd kernel (C, w), zeros outside."""
    half = len(kernel[0]) // 2
    padded = [[0] * half + list(channel) + [0] * half for channel in channels]
    return [sum((Fraction(weight * channel[t + tap])
                 for channel, taps in zip(padded, kernel, strict=True)
                 for tap, weight in enumerate(taps)), Fraction(0)) for t in range(len(channels[0]))]


def accumulated(attention: Attention) -> tuple[Fraction, ...]:
    """Return the attention that each entry has received from all rows."""
    return tuple(sum((row[t] for row in attention[t:]), Fraction(0))
                 for t in range(len(attention)))


def dropped(attention: Attention) -> int:
    """Return the entry, from 0, that eviction drops: the one with the lowest sum, the oldest."""
    scores = accumulated(attention)
    return scores.index(min(scores))


def histories(slots: int) -> Iterator[Attention]:
    """Return the attention of the rows up to the first eviction, for scores 0 or 2, base 2."""
    count = slots + 1
    for scores in product((0, 2), repeat=count * (count + 1) // 2):
        yield [softmax(scores[row * (row + 1) // 2:(row + 1) * (row + 2) // 2])
               for row in range(count)]


def separating(count: int, *, scores: bool = False, kernels: int = 20) -> int:
    """Return how many random kernels weigh the last token that eviction keeps unlike the next one.

    `count` equal tokens under uniform attention: the accumulated scores fall with the position, so
    eviction keeps the first half. The channels are keys and values, and the `scores` if wanted.
    """
    channels: list[Sequence[Fraction | int]] = [[1] * count, [1] * count]
    if scores:
        channels.append(accumulated([softmax([0] * row) for row in range(1, count + 1)]))
    numbers, apart = random.Random(0), 0
    for _ in range(kernels):
        kernel = [[numbers.randint(-3, 3) for _ in range(KERNEL)] for _ in channels]
        row = convolution(channels, kernel)
        apart += row[count // 2 - 1] != row[count // 2]
    return apart


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


# ---------------------------------------------------------------- cost

HEAD_DIM = 128


def most_at_once(slots: int, block: int) -> int:
    """Count the numbers of Algorithm 2's arrays for a full cache, one feature: the most at once."""
    entries = torch.ones(1, slots + block)
    scores = torch.ones(block, 1) @ entries  # Step 3: a query reads the cache and its block
    weights = torch.conv1d(entries, torch.ones(slots, 1, KERNEL), padding=KERNEL // 2)  # Step 4
    cache = weights @ entries.T  # Step 5
    return max(scores.numel(), weights.numel()) + cache.numel()


def attention_multiplications(slots: int, block: int, head_dim: int = HEAD_DIM) -> int:
    """Return the multiplications of a head's attention: B queries, M + B entries."""
    return 2 * head_dim * block * (slots + block)


def direct(slots: int, block: int, kernel: int = KERNEL, head_dim: int = HEAD_DIM) -> int:
    """Return the multiplications of one head's convolution, tap by tap."""
    return kernel * 2 * head_dim * slots * (slots + block)


def by_fourier(slots: int, block: int, kernel: int = KERNEL, head_dim: int = HEAD_DIM) -> float:
    """Return the multiplications of a head's convolution by Fourier transform, spectra stored.

    With n = M + B + kernel - 1 padded entries: 2 d M products of spectra of n/2 + 1 complex
    numbers, 4 real multiplications each, and 2 d + M real transforms of about n log2 n.
    """
    padded = slots + block + kernel - 1
    products = 4 * 2 * head_dim * slots * (padded // 2 + 1)
    return products + (2 * head_dim + slots) * padded * log2(padded)


def share_of_layer(way: Callable[[int, int], float], slots: int, block: int,
                   shape: Shape = LLAMA2_7B) -> float:
    """Return the convolution's multiplications in all heads over those of a layer."""
    heads = shape.width // HEAD_DIM
    layer = (block * shape.weights() // shape.layers
             + heads * attention_multiplications(slots, block))
    return heads * way(slots, block) / layer
