"""LoCoCo's compressor: what its weights depend on, which compressions it expresses, its cost.

Cai et al., ICML 2024, Section 3.2. M slots and B new tokens become M slots, each a weighted mean of
the M + B entries (Eq. 3-4); the weights come from a convolution of width 21 (Eq. 6-7).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import log2

from cca_lab.theory.base_two import softmax
from cca_lab.theory.claim import Outcome
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape

KERNEL = 21
KERNELS = 20  # number of random kernels that a check tries
Rows = list[list[Fraction]]
Channels = Sequence[Sequence[Fraction | int]]
Attention = Sequence[Sequence[Fraction]]  # row i has i + 1 entries


def convolution(channels: Channels, kernel: Sequence[Sequence[int]]) -> list[Fraction]:
    """Return a row of W in Eq. 6, of channels (C, N) and an odd kernel (C, w), zeros outside."""
    half = len(kernel[0]) // 2
    padded = [[0] * half + list(channel) + [0] * half for channel in channels]
    return [sum((Fraction(weight * channel[t + tap])
                 for channel, taps in zip(padded, kernel, strict=True)
                 for tap, weight in enumerate(taps)), Fraction(0)) for t in range(len(channels[0]))]


# ---------------------------------------------------------------- eviction

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


def keys_and_values(keys: Sequence[int], scores: Sequence[Fraction]) -> Channels:
    """Return the input channels of Eq. 6's convolution: keys and values, no attention score."""
    return [keys, keys]


def keys_values_scores(keys: Sequence[int], scores: Sequence[Fraction]) -> Channels:
    """Return the same channels, and the accumulated attention score as one more channel."""
    return [keys, keys, scores]


def check_convolution(inputs: Callable[..., Channels], count: int = KERNEL + 1) -> Outcome:
    """Judge whether some kernel of 20 separates a token that eviction keeps from one it drops.

    `count` equal tokens under uniform attention: the accumulated scores fall with the position, so
    eviction keeps the first half. From 22 tokens on the two in the middle have the same window.
    """
    kept, out = count // 2 - 1, count // 2
    channels = inputs([1] * count, accumulated([softmax([0] * row) for row in range(1, count + 1)]))
    numbers = random.Random(0)
    kernels = [[[numbers.randint(-3, 3) for _ in range(KERNEL)] for _ in channels]
               for _ in range(KERNELS)]
    apart = sum(row[kept] != row[out]
                for row in (convolution(channels, kernel) for kernel in kernels))
    # With a bias between the two, a kernel that reads the last channel at the token itself.
    ordered = channels[-1][kept] > channels[-1][out]
    return Outcome(bool(apart) and ordered, f"{count} equal tokens, {count // 2} slots: eviction "
                   f"keeps token {kept + 1} and drops token {out + 1}; their weights differ under "
                   f"{apart} of {KERNELS} kernels", {"different": apart})


# ---------------------------------------------------------------- cost

HEAD_DIM = 128


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
