"""LoCoCo's compressor: which compressions it can express, and what it keeps of a token.

Cai et al., ICML 2024, Section 3.2. M slots and B new tokens become M slots, each a weighted mean of the
M + B entries (Eq. 3-4); the weights come from a convolution of width 21 over the entries (Eq. 6-7).
"""

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from itertools import product

from cca_lab.theory.base_two import softmax
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight

KERNEL = 21
KERNELS = 20  # number of random kernels that a check tries
Rows = list[list[Fraction]]
Channels = list[list[Fraction]]
Keys = Sequence[int]                                # names of the entries, the oldest first


def one_hot_rows(accumulated: Sequence[Fraction]) -> Rows:
    """Return eviction as the weights of Eq. 4: slot i copies the i-th kept entry; the lowest score is dropped.

    Args:
        accumulated: accumulated attention of each of the M + 1 entries; among ties the oldest is dropped.

    Returns:
        (M, M + 1), one 1 in each row.
    """
    dropped = min(range(len(accumulated)), key=lambda t: accumulated[t])
    kept = [t for t in range(len(accumulated)) if t != dropped]
    return [[Fraction(int(t == survivor)) for t in range(len(accumulated))] for survivor in kept]


def mix(weights: Rows, entries: Sequence[Fraction]) -> list[Fraction]:
    """Eq. 4: each slot becomes the weighted sum of the entries."""
    return [sum((w * x for w, x in zip(row, entries, strict=True)), Fraction(0)) for row in weights]


def keeps_what_eviction_keeps(weights: Callable[[Sequence[Fraction]], Rows]) -> Finding:
    """Judge whether Eq. 3-4 with these weights keep what greedy eviction keeps: 60 streams, M = 1 .. 4, exact."""
    steps = 0
    for seed, slots in product(range(15), range(1, 5)):
        numbers = random.Random(100 * slots + seed)
        kept: list[tuple[int, Fraction]] = []                         # entries of eviction: (token, score)
        keys: list[Fraction] = []                                     # entries of Eq. 4
        scores: list[Fraction] = []
        for token in range(20):
            attention = softmax([numbers.randint(-3, 3) for _ in range(len(kept) + 1)])
            kept = [(t, score + a) for (t, score), a in zip([*kept, (token, Fraction(0))], attention, strict=True)]
            keys = [*keys, Fraction(token)]
            scores = [score + a for score, a in zip([*scores, Fraction(0)], attention, strict=True)]
            if len(kept) > slots:
                kept.remove(min(kept, key=lambda entry: entry[1]))    # the first of the lowest
                rows = weights(scores)
                keys, scores = mix(rows, keys), mix(rows, scores)
                steps += 1
            if keys != [t for t, _ in kept]:
                return Finding(False, f"M={slots}, token {token}: eviction keeps {[t for t, _ in kept]}, Eq. 4 holds "
                                      f"{', '.join(map(str, keys))}")
    return Finding(True, f"mismatch 0 in {steps} evictions", {"evictions": steps})


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
    """Return the attention of the M + 1 rows up to the first eviction, for all scores 0 or 2, with base 2 for e."""
    count = slots + 1
    for scores in product((0, 2), repeat=count * (count + 1) // 2):
        yield [softmax(scores[row * (row + 1) // 2:(row + 1) * (row + 2) // 2]) for row in range(count)]


def check_operator(reads: Callable[[Keys, Sequence[Sequence[Fraction]]], Hashable]) -> Finding:
    """Judge whether what C reads tells which entry eviction drops: all histories of 1 or 2 slots, B = 1, exact."""
    cases = 0
    for slots in (1, 2):
        seen: dict[Hashable, tuple[int, list[Fraction]]] = {}
        for attention in histories(slots):
            keys, scores = range(1, slots + 2), accumulated(attention)
            dropped, cases = min(keys, key=lambda key: scores[key - 1]), cases + 1
            before, others = seen.setdefault(reads(keys, attention), (dropped, scores))
            if before != dropped:
                return Finding(False, f"M={slots}, B=1: entries {list(keys)} in both, eviction drops {before} with the "
                                      f"scores {', '.join(map(str, others))}, and {dropped} with "
                                      f"{', '.join(map(str, scores))}; C reads the same")
    same = keeps_what_eviction_keeps(one_hot_rows)
    return Finding(same.holds, f"what C reads decides in {cases} histories; one-hot rows of Eq. 4 then keep what "
                               f"eviction keeps: {same.evidence}", same.numbers)


def keys_and_values(keys: Keys, values: Keys, scores: Sequence[Fraction]) -> Channels:
    """Return the input channels of the convolution in Eq. 6: keys and values, but no attention score."""
    return [[Fraction(x) for x in keys], [Fraction(x) for x in values]]


def keys_values_scores(keys: Keys, values: Keys, scores: Sequence[Fraction]) -> Channels:
    """Return the same channels, and the accumulated attention score as one more channel."""
    return [*keys_and_values(keys, values, scores), list(scores)]


def free_weights(keys: Keys, values: Keys, scores: Sequence[Fraction]) -> Channels:
    """Return the weights that Eq. 4 alone would allow, as a channel: 1 for the upper half of the scores, else 0."""
    least = sorted(scores)[len(scores) // 2]
    return [[Fraction(int(score >= least)) for score in scores]]


def relu_convolution(channels: Channels, kernel: Sequence[Sequence[int]]) -> list[Fraction]:
    """Return one output channel of Eq. 6, a convolution with zero padding and a ReLU: (C, N), (C, 21) -> (N,)."""
    count, half = len(channels[0]), KERNEL // 2
    padded = [[Fraction(0)] * half + channel + [Fraction(0)] * half for channel in channels]
    return [max(Fraction(0), sum((weight * channel[t + tap] for channel, taps in zip(padded, kernel, strict=True)
                                  for tap, weight in enumerate(taps)), Fraction(0))) for t in range(count)]


def check_convolution(inputs: Callable[..., Channels]) -> Finding:
    """Judge whether some kernel separates a token that eviction keeps from one that it drops: 20 kernels, exact.

    44 equal tokens under uniform attention: the accumulated scores fall with the position, so eviction to 22
    slots keeps the first 22 and drops the others. Tokens 22 and 23 have the same 21-token window.
    """
    count, kept, dropped = 44, 21, 22
    scores = [sum((Fraction(1, row + 1) for row in range(t, count)), Fraction(0)) for t in range(count)]
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
    found = {"kernels": KERNELS, "different": apart}
    if not apart or not separated:
        return Finding(False, f"44 equal tokens, 22 slots: eviction keeps token {kept + 1} and drops token "
                              f"{dropped + 1}, whose 21-token windows are equal; their weights differ under {apart} of "
                              f"{KERNELS} kernels", found)
    return Finding(True, f"weights of tokens {kept + 1} and {dropped + 1} differ under {apart} of {KERNELS} kernels; "
                         "a threshold drops one of them exactly", found)


def share_after(steps: int, slots: int) -> Fraction:
    """Return a token's mean share of a slot n `steps` later, B = 1, exchangeable weights: (M/(M+1))^n / (M+1)."""
    return Fraction(slots, slots + 1) ** steps / (slots + 1)


CLAIMS = (
    Claim(
        id="LC.evict", paper="LoCoCo", place="Section 3.2.3", check=check_operator, verdict=Verdict.DEPENDS,
        quote="That can be viewed as a special instance of operator",
        reading="Keeping the tokens with the highest accumulated attention is an instance of C in Eq. 3: what C reads "
                "decides what is kept, and Eq. 4 has weights that keep it.",
        printed=keys_alone, corrected=keys_and_scores, strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF,
        models={"C reads [K, K_n], as Eq. 3 prints": (keys_alone, False),
                "C may read the accumulated scores": (keys_and_scores, True)}, weight=Weight.SLIP,
        repair="It is an instance if C may read the accumulated attention scores.",
        proof="Eq. 4 allows any weights. With one-hot rows slot i is a copy of the i-th survivor, so the cache is the "
              "evicted one, entry by entry, and stays it by induction over the steps. Which rows these are depends on "
              "the scores, and so on past queries, which are no function of [K, K_n]. With one slot the first token "
              "always stays, for its own row gave it the weight 1; from two slots on the queries decide.",
        example="""
def dropped(rows):       # rows[i][t]: the attention of row i to token t; two slots, three tokens
    score = [sum(row[t] for row in rows[t:]) for t in range(3)]
    return score.index(min(score))

looks_at_itself, looks_back = [[1], [0.2, 0.8], [0.4, 0.2, 0.4]], [[1], [0.8, 0.2], [0.4, 0.1, 0.5]]
print(dropped(looks_at_itself), dropped(looks_back))                    # the keys may be the same
assert dropped(looks_at_itself) != dropped(looks_back)
"""),
    Claim(
        id="LC.conv", paper="LoCoCo", place="Section 3.2.3", check=check_convolution, verdict=Verdict.DEPENDS,
        quote="the heuristic-based method is less expressive compared to our learnable framework",
        reading="Whatever eviction by accumulated scores keeps and drops, learnable weights can keep and drop as well.",
        printed=keys_and_values, corrected=keys_values_scores, strength=Strength.COUNTEREXAMPLE,
        repaired=Strength.PROOF, weight=Weight.SUBSTANCE,
        models={"Eqs. 4 and 5, any weights": (free_weights, True),
                "Eqs. 6 and 7, weights from a convolution of keys and values": (keys_and_values, False),
                "a convolution that also gets the scores": (keys_values_scores, True)},
        repair="True of Eqs. 4 and 5 with any weights. Eqs. 6 and 7 do not contain eviction, so neither contains the "
               "other; with the accumulated score as one more input channel and a threshold, a dropped token can get "
               "weight exactly 0.",
        proof="Any weights include one-hot rows (LC.evict). A convolution of width 21 gives two positions with "
              "equal 21-token windows equal weights in every row, whatever its kernel. Accumulated scores are not "
              "among its inputs, and they may differ there, so eviction may keep one and drop the other; conversely "
              "one-hot rows never blend. The example takes keys as cached before their rotation: rotated keys of "
              "equal tokens differ, and equal windows then need other tokens.",
        example="""
import numpy as np

tokens, kernel = np.ones(44), np.random.default_rng(0).normal(size=21)  # equal tokens, any kernel
weights = np.convolve(np.pad(tokens, 10), kernel, "valid")
scores = [sum(1 / (row + 1) for row in range(t, 44)) for t in range(44)]        # uniform attention
print(weights[21], weights[22], scores[21], scores[22])
assert np.isclose(weights[21], weights[22]) and scores[21] > scores[22]         # eviction to 22 keeps the first only
"""),
)
