"""LoCoCo's compressor: which compressions it can express, and how fast it forgets.

Cai et al., ICML 2024, Section 3.2. M slots and B new tokens become M slots, each a weighted mean of the
M + B entries (Eq. 3-4); the weights come from a convolution of width 21 over the entries (Eq. 6-7).
"""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

from cca_lab.theory.base_two import softmax
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

KERNEL = 21
KERNELS = 20  # number of random kernels that a check tries
Rows = list[list[Fraction]]
Channels = list[list[Fraction]]


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


def check_eviction(weights: Callable[[Sequence[Fraction]], Rows]) -> Finding:
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


def keys_and_values(keys: Sequence[int], values: Sequence[int], accumulated: Sequence[Fraction]) -> Channels:
    """Return the input channels of the convolution in Eq. 6: keys and values, but no attention score."""
    return [[Fraction(x) for x in keys], [Fraction(x) for x in values]]


def keys_values_scores(keys: Sequence[int], values: Sequence[int], accumulated: Sequence[Fraction]) -> Channels:
    """Return the same channels, and the accumulated attention score as one more channel."""
    return [*keys_and_values(keys, values, accumulated), list(accumulated)]


def relu_convolution(channels: Channels, kernel: Sequence[Sequence[int]]) -> list[Fraction]:
    """Return one output channel of Eq. 6, a convolution with zero padding and a ReLU: (C, N), (C, 21) -> (N,)."""
    count, half = len(channels[0]), KERNEL // 2
    padded = [[Fraction(0)] * half + channel + [Fraction(0)] * half for channel in channels]
    return [max(Fraction(0), sum(weight * channel[t + tap] for channel, taps in zip(padded, kernel, strict=True)
                                 for tap, weight in enumerate(taps))) for t in range(count)]


def check_convolution(inputs: Callable[..., Channels]) -> Finding:
    """Judge whether some kernel separates a token that eviction keeps from one that it drops: 20 kernels, exact.

    44 equal tokens under uniform attention: the accumulated scores fall with the position, so eviction to 22
    slots keeps the first 22 and drops the others. Tokens 22 and 23 have the same 21-token window.
    """
    count, kept, dropped = 44, 21, 22
    accumulated = [sum((Fraction(1, row + 1) for row in range(t, count)), Fraction(0)) for t in range(count)]
    channels = inputs([1] * count, [1] * count, accumulated)
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
                         "a threshold on the score drops one of them exactly", found)


def share_after(steps: int, slots: int) -> Fraction:
    """Return a token's mean share of a slot n `steps` later, B = 1, exchangeable weights: (M/(M+1))^n / (M+1)."""
    return Fraction(slots, slots + 1) ** steps / (slots + 1)


def check_share(share: Callable[[int, int], Fraction]) -> Finding:
    """Judge whether the shares in a slot sum to at most 1 and follow the mean of S_t = A_t S_(t-1) + b_t k_t.

    Exact, M = 1 .. 6, 60 tokens. Weights are exchangeable, so every entry of [b, A] has the mean 1/(M+1).
    """
    for slots in range(1, 7):
        for tokens in range(1, 61):
            if (total := sum((share(steps, slots) for steps in range(tokens)), Fraction(0))) > 1:
                return Finding(False, f"M={slots}: the shares of the last {tokens} tokens in one slot add up to "
                                      f"{total}, but a slot is a weighted mean")
        mean = Fraction(1, slots + 1)
        slot_shares = [mean] * slots
        for steps in range(60):
            if share(steps, slots) != slot_shares[0]:
                return Finding(False, f"M={slots}, {steps} steps: claimed {share(steps, slots)}, the recurrence gives "
                                      f"{slot_shares[0]}")
            slot_shares = [sum(slot_shares, Fraction(0)) * mean] * slots
    half_life = next(n for n in range(10_000) if 2 * share(n, 512) <= share(0, 512))   # 512 ln 2 = 354.9
    return Finding(True, f"exact for M <= 6 over 60 tokens; with M = 512 a token's share halves in {half_life} tokens",
                   {"half_life_512": half_life})


CLAIMS = (
    Claim(
        id="LC.evict", paper="LoCoCo", place="Section 3.2.3; Eq. 3-4", check=check_eviction, printed=one_hot_rows,
        statement="keeping the tokens with the top accumulated scores is an instance of Eq. 3", corrected=one_hot_rows,
        verdict=Verdict.HOLDS, strength=Strength.SPOT, repair="",
        proof="Eq. 4 allows any weights. With one-hot rows slot i is a copy of the i-th survivor, so the "
              "cache is the evicted one, entry by entry, and stays it by induction over the steps."),
    Claim(
        id="LC.conv", paper="LoCoCo", place="Section 3.2.3; Eqs. 3-7", check=check_convolution,
        statement="eviction by accumulated scores is less expressive than the learnable framework",
        printed=keys_and_values, corrected=keys_values_scores, verdict=Verdict.DEPENDS, strength=Strength.SPOT,
        repair="true of Eqs. 3-5 with free weights; Eqs. 6-7 do not contain eviction, so neither contains the other; "
               "with the accumulated score as one more input channel and a threshold, a dropped token can get weight "
               "exactly 0",
        proof="Free weights include one-hot rows (LC.evict). A convolution of width 21 gives two positions with "
              "equal 21-token windows equal weights in every row, whatever its kernel. Accumulated scores are not "
              "among its inputs, and they may differ there, so eviction may keep one and drop the other; conversely "
              "one-hot rows never blend. The example takes keys as cached before their rotation: rotated keys of "
              "equal tokens differ, and equal windows then need other tokens."),
    Claim(
        id="LC.memory", paper="LoCoCo", place="Section 3.2", check=check_share,
        statement="M slots stand for all prior tokens, however many (a token keeps the share it was given, if weights "
                  "are exchangeable)",
        printed=lambda steps, slots: Fraction(1, slots + 1), corrected=share_after, verdict=Verdict.DEPENDS,
        repair="the shares in a slot sum to 1, so T tokens have 1/T on average; with exchangeable weights a "
               "token has (M/(M+1))^n / (M+1) after n steps and halves in about M ln 2",
        strength=Strength.EXACT,
        proof="The check assumes exchangeable weights: no entry is preferred. With B = 1, S_t = A_t S_(t-1) + b_t k_t "
              "and rows of [b, A] sum to 1, so each slot is a weighted mean of all tokens. Entries with the mean "
              "1/(M+1) multiply the summed share by M/(M+1) a step. Slower decay costs writing strength: b small keeps "
              "the old and does not take up the new."),
)
