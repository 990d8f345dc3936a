"""LoCoCo's compressor: which compressions it can express, and what it keeps of a token.

Cai et al., ICML 2024, Section 3.2. M slots and B new tokens become M slots, each a weighted mean of
the M + B entries (Eq. 3-4); the weights come from a convolution of width 21 (Eq. 6-7).
"""

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import log2
from typing import NamedTuple

from cca_lab.theory.base_two import softmax
from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.cost.prefill import LLAMA2_7B, Shape

KERNEL = 21
KERNELS = 20  # number of random kernels that a check tries
Rows = list[list[Fraction]]
Channels = list[list[Fraction]]
Keys = Sequence[int]  # names of the entries, the oldest first


def one_hot_rows(accumulated: Sequence[Fraction]) -> Rows:
    """Return eviction as weights of Eq. 4: slot i copies the i-th of all but the lowest score.

    From the accumulated attention of M + 1 entries to (M, M + 1), one 1 in each row; among ties the
    oldest is dropped.
    """
    dropped = min(range(len(accumulated)), key=lambda t: accumulated[t])
    kept = [t for t in range(len(accumulated)) if t != dropped]
    return [[Fraction(int(t == survivor)) for t in range(len(accumulated))] for survivor in kept]


def mix(weights: Rows, entries: Sequence[Fraction]) -> list[Fraction]:
    """Eq. 4: each slot becomes the weighted sum of the entries."""
    return [sum((w * x for w, x in zip(row, entries, strict=True)), Fraction(0)) for row in weights]


def keeps_what_eviction_keeps(weights: Callable[[Sequence[Fraction]], Rows]) -> Outcome:
    """Judge whether Eq. 3-4 with these weights keep what greedy eviction keeps: 60 streams."""
    steps = 0
    for seed, slots in product(range(15), range(1, 5)):
        numbers = random.Random(100 * slots + seed)
        kept: list[tuple[int, Fraction]] = []  # entries of eviction: (token, score)
        keys: list[Fraction] = []  # entries of Eq. 4
        scores: list[Fraction] = []
        for token in range(20):
            attention = softmax([numbers.randint(-3, 3) for _ in range(len(kept) + 1)])
            kept = [(t, score + a)
                    for (t, score), a in zip([*kept, (token, Fraction(0))], attention, strict=True)]
            keys = [*keys, Fraction(token)]
            scores = [score + a for score, a in zip([*scores, Fraction(0)], attention, strict=True)]
            if len(kept) > slots:
                kept.remove(min(kept, key=lambda entry: entry[1]))  # the first of the lowest
                rows = weights(scores)
                keys, scores = mix(rows, keys), mix(rows, scores)
                steps += 1
            if keys != [t for t, _ in kept]:
                return Outcome(False, f"M={slots}, token {token}: eviction keeps "
                               f"{[t for t, _ in kept]}, Eq. 4 holds {', '.join(map(str, keys))}")
    return Outcome(True, f"mismatch 0 in {steps} evictions", {"evictions": steps})


def keys_alone(keys: Keys, attention: Sequence[Sequence[Fraction]]) -> Hashable:
    """Return what C of Eq. 3 is given: the entries [K, K_n]."""
    return tuple(keys)


def keys_and_scores(keys: Keys, attention: Sequence[Sequence[Fraction]]) -> Hashable:
    """Return the entries with the attention that each has received so far."""
    return tuple(keys), tuple(accumulated(attention))


def accumulated(attention: Sequence[Sequence[Fraction]]) -> list[Fraction]:
    """Return the attention that each entry has received from all rows; row i has i + 1 entries."""
    return [sum((row[t] for row in attention[t:]), Fraction(0)) for t in range(len(attention))]


def histories(slots: int) -> Iterator[list[list[Fraction]]]:
    """Return the attention of the rows up to the first eviction, for scores 0 or 2, base 2."""
    count = slots + 1
    for scores in product((0, 2), repeat=count * (count + 1) // 2):
        yield [softmax(scores[row * (row + 1) // 2:(row + 1) * (row + 2) // 2])
               for row in range(count)]


def check_operator(reads: Callable[[Keys, Sequence[Sequence[Fraction]]], Hashable]) -> Outcome:
    """Judge whether what C reads tells which entry eviction drops: 1 or 2 slots, B = 1, exact."""
    cases = 0
    for slots in (1, 2):
        seen: dict[Hashable, tuple[int, list[Fraction]]] = {}
        for attention in histories(slots):
            keys, scores = range(1, slots + 2), accumulated(attention)
            dropped, cases = min(keys, key=lambda key: scores[key - 1]), cases + 1
            before, others = seen.setdefault(reads(keys, attention), (dropped, scores))
            if before != dropped:
                return Outcome(False, f"M={slots}, B=1: entries {list(keys)} in both, eviction "
                               f"drops {before} with the scores {', '.join(map(str, others))}, and "
                               f"{dropped} with {', '.join(map(str, scores))}; C reads the same")
    same = keeps_what_eviction_keeps(one_hot_rows)
    return Outcome(same.holds, f"what C reads decides in {cases} histories; one-hot rows of Eq. 4 "
                   f"then keep what eviction keeps: {same.evidence}", same.numbers)


def keys_and_values(keys: Keys, values: Keys, scores: Sequence[Fraction]) -> Channels:
    """Return the input channels of Eq. 6's convolution: keys and values, no attention score."""
    return [[Fraction(x) for x in keys], [Fraction(x) for x in values]]


def keys_values_scores(keys: Keys, values: Keys, scores: Sequence[Fraction]) -> Channels:
    """Return the same channels, and the accumulated attention score as one more channel."""
    return [*keys_and_values(keys, values, scores), list(scores)]


def free_weights(keys: Keys, values: Keys, scores: Sequence[Fraction]) -> Channels:
    """Return weights that Eq. 4 alone would allow: 1 for the upper half of the scores, else 0."""
    least = sorted(scores)[len(scores) // 2]
    return [[Fraction(int(score >= least)) for score in scores]]


def relu_convolution(channels: Channels, kernel: Sequence[Sequence[int]]) -> list[Fraction]:
    """Return a channel of Eq. 6: zero padding, convolution, ReLU; (C, N), (C, 21) -> (N,)."""
    count, half = len(channels[0]), KERNEL // 2
    padded = [[Fraction(0)] * half + channel + [Fraction(0)] * half for channel in channels]
    return [max(Fraction(0),
                sum((weight * channel[t + tap] for channel, taps in zip(padded, kernel, strict=True)
                     for tap, weight in enumerate(taps)), Fraction(0))) for t in range(count)]


def check_convolution(inputs: Callable[..., Channels]) -> Outcome:
    """Judge whether some kernel of 20 separates a token that eviction keeps from one it drops.

    44 equal tokens under uniform attention: the accumulated scores fall with the position, so
    eviction to 22 slots keeps the first 22 and drops the others. Tokens 22 and 23 have the same
    21-token window.
    """
    count, kept, dropped = 44, 21, 22
    scores = [sum((Fraction(1, row + 1) for row in range(t, count)), Fraction(0))
              for t in range(count)]
    channels = inputs([1] * count, [1] * count, scores)
    numbers = random.Random(0)
    apart = 0
    for _ in range(KERNELS):
        kernel = [[numbers.randint(-3, 3) for _ in range(KERNEL)] for _ in channels]
        weights = relu_convolution(channels, kernel)
        apart += weights[kept] != weights[dropped]
    # A kernel that reads the last channel at the token itself, with a bias between the two tokens.
    threshold = (channels[-1][kept] + channels[-1][dropped]) / 2
    separated = channels[-1][kept] - threshold > 0 >= channels[-1][dropped] - threshold
    counts = {"kernels": KERNELS, "different": apart}
    if not apart or not separated:
        return Outcome(False, f"44 equal tokens, 22 slots: eviction keeps token {kept + 1} and "
                       f"drops token {dropped + 1}, whose 21-token windows are equal; their "
                       f"weights differ under {apart} of {KERNELS} kernels", counts)
    return Outcome(True, f"weights of tokens {kept + 1} and {dropped + 1} differ under {apart} of "
                   f"{KERNELS} kernels; a threshold drops one of them exactly", counts)


def share_after(steps: int, slots: int) -> Fraction:
    """Return a token's mean share of a slot n `steps` later, for B = 1: (M/(M+1))^n / (M+1)."""
    return Fraction(slots, slots + 1) ** steps / (slots + 1)


HEAD_DIM = 128
NEGLIGIBLE = 0.1  # of a layer: our limit, not the paper's
# (M, B) of Section 4.1; B = 1 in generation (Section 3.3).
SIZES = ((128, 512), (512, 512), (128, 1))


def attention_multiplications(slots: int, block: int, head_dim: int) -> int:
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


def share_of_layer(convolution: Callable[[int, int], float], slots: int, block: int,
                   shape: Shape = LLAMA2_7B) -> float:
    """Return the convolution's multiplications in all heads over those of a layer."""
    heads = shape.width // HEAD_DIM
    attention = heads * attention_multiplications(slots, block, HEAD_DIM)
    layer = block * shape.weights() // shape.layers + attention
    return heads * convolution(slots, block) / layer


class Setting(NamedTuple):
    """How the convolution is computed, `direct` or `by_fourier`, and M slots and B tokens."""

    way: Callable[[int, int], float]
    slots: int
    block: int


def check_overhead(setting: Setting) -> Outcome:
    """Judge whether the convolution takes at most a tenth of a LLaMA2-7B layer's products."""
    way, slots, block = setting
    share = share_of_layer(way, slots, block)
    to_attention = way(slots, block) / attention_multiplications(slots, block, HEAD_DIM)
    return Outcome(share <= NEGLIGIBLE, f"M={slots}, B={block}: {100 * share:.3g} % of the "
                   f"multiplications of a layer without it, and {to_attention:.3g} times those of "
                   f"its attention", {"percent": 100 * share, "to attention": to_attention})


def check_inputs(new_key: Callable[[int, int], Fraction | int]) -> Outcome:
    """Judge "the new key depends on keys alone" (Eq. 3), with other values beside the same keys."""
    seen = {new_key(1, value) for value in range(1, 4)}
    return Outcome(len(seen) == 1, f"from the key 1 and the values 1, 2, 3 come the new keys "
                                   f"{', '.join(map(str, sorted(seen)))}")


def by_eq6(key: int, value: int) -> Fraction:
    """The new key from two entries, weights of Eq. 6 and 7 with a kernel of one tap that adds."""
    weights = (Fraction(key + value), Fraction(1))  # the other entry has the key 0 and the value 1
    return weights[0] * key / sum(weights)


def check_informed(width: int) -> Outcome:
    """Judge "globally informed": the first entry's W of Eq. 6 depends on all 128 + 512 entries."""
    entries = 128 + 512
    unseen = max(0, entries - 1 - width // 2)
    return Outcome(not unseen, f"width {width}: the first entry's weights, before the sum of Eq. "
                               f"7, do not depend on {unseen} of {entries} entries",
                   {"unseen": unseen})


SUBJECTS = {
    "LC.eq3": Subjects(check_inputs, by_eq6, corrected=lambda key, value: by_eq6(key, 0)),
    "LC.global": Subjects(check_informed, KERNEL, corrected=2 * (128 + 512) - 1),
    "LC.evict": Subjects(check_operator, keys_alone, corrected=keys_and_scores,
                         models=(keys_alone, keys_and_scores)),
    "LC.conv": Subjects(check_convolution, keys_and_values, corrected=keys_values_scores,
                        models=(free_weights, keys_and_values, keys_values_scores)),
    "LC.overhead": Subjects(check_overhead, Setting(direct, 512, 512),
                            corrected=Setting(by_fourier, 128, 512),
                            models=(Setting(direct, 128, 512), Setting(direct, 512, 512),
                                    Setting(by_fourier, 128, 512), Setting(by_fourier, 512, 512),
                                    Setting(by_fourier, 128, 1))),
}
