"""LoCoCo's equations and algorithms, as printed and repaired, and the checks that judge them.

Cai et al., "LoCoCo: Dropping In Convolutions for Long Context Compression", ICML 2024, Sections
3.1-3.2. Tokens, segments and slots count from 1, as in the paper.
"""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import product

from cca_lab.theory.base_two import causal_attention, softmax
from cca_lab.theory.causality.masks import check_masking, mask_before, mask_times
from cca_lab.theory.claim import Outcome, Subjects, chosen
from cca_lab.theory.forall import papers

Rows = Sequence[Sequence[Fraction]]
Row = tuple[int, ...]
Sizes = tuple[int, int]  # M slots, B tokens a block
Scores = Sequence[Sequence[int]]
Cache = tuple[list[Fraction], list[Fraction]]


def printed_update(weights: Rows, keys: Sequence[Fraction], queries: Sequence[Fraction],
                   values: Sequence[Fraction]) -> Cache:
    """Eq. 4 and 5 as printed: new keys from keys, new *queries* from queries; no new values."""
    _mix(weights, queries)  # Eq. 5 computes them; nothing reads them
    return _mix(weights, keys), list(values)


def value_update(weights: Rows, keys: Sequence[Fraction], queries: Sequence[Fraction],
                 values: Sequence[Fraction]) -> Cache:
    """Eq. 5 with v for q: keys and values are mixed with the same weights."""
    return _mix(weights, keys), _mix(weights, values)


def _mix(weights: Rows, entries: Sequence[Fraction]) -> list[Fraction]:
    return [sum((w * x for w, x in zip(row, entries, strict=True)), Fraction(0)) for row in weights]


def check_update(update: Callable[..., Cache]) -> Outcome:
    """Judge whether slot i holds the key and the value of the same mixture: M, B <= 3, exact."""
    for slots, block in product(range(1, 4), repeat=2):
        count = slots + block
        keys = [Fraction(t + 1) for t in range(count)]
        values = [10 * key for key in keys]
        queries = [Fraction(-3 * t) for t in range(count)]
        rows = [softmax([(i * t) % 3 for t in range(count)]) for i in range(slots)]
        new_keys, new_values = update(rows, keys, queries, values)
        if len(new_keys) != slots or new_values != [10 * key for key in new_keys]:
            shown = [", ".join(map(str, side)) for side in (new_keys, new_values)]
            return Outcome(False, f"M={slots}, B={block}, values 10 times the keys: "
                           f"{len(new_keys)} keys ({shown[0]}) but {len(new_values)} values "
                           f"({shown[1]})")
    return Outcome(True, "M slots hold key and value of the same mix for M, B <= 3")


def ratio(row: Sequence[int]) -> list[Fraction]:
    """Eq. 7 as printed: W_ij / sum_k W_ik. Raises ZeroDivisionError where the sum is 0."""
    return [Fraction(w, sum(row)) for w in row]


def check_normaliser(normalise: Callable[[Sequence[int]], Sequence[Fraction]],
                     within: Callable[[Row], bool] | None = None) -> Outcome:
    """Judge whether rows of M + B <= 4 integers, -2 .. 2, become weights that sum to 1, exactly."""
    undefined, other = [], []
    rows = chosen((row for length in range(1, 5)
                   for row in product((0, 1, -1, 2, -2), repeat=length)), within)
    for row in rows:
        try:
            weights = normalise(row)
        except ZeroDivisionError:
            undefined.append(row)
            continue
        if sum(weights) != 1:
            other.append((row, weights))
    numbers = {"cases": len(rows), "undefined": len(undefined), "other_sum": len(other)}
    if not undefined and not other:
        return Outcome(True, f"defined, and the sum is 1, in {len(rows)} of {len(rows)} rows",
                       numbers)
    told = []
    if undefined:
        told.append(f"row {list(undefined[0])} is 0/0 ({len(undefined)} of {len(rows)} rows)")
    if other:
        row, weights = other[0]
        shown = ", ".join(map(str, weights))
        told.append(f"row {list(row)} gives weights {shown} ({len(other)} rows)")
    return Outcome(False, "; ".join(told), numbers)


def columns_seen(i: int, block: int) -> int:
    """Return how many columns of [K~, K_n] query i, from 0, reads: cache and block to itself."""
    return block * (i // block) + i % block + 1


def segment_attention(scores: Scores, block: int) -> list[list[Fraction]]:
    """Algorithm 1: the weights of each query, from those on the cache and on its own block."""
    length = len(scores)
    seen = [columns_seen(i, block) for i in range(length)]
    return [softmax(scores[i][:count]) + [Fraction(0)] * (length - count)
            for i, count in enumerate(seen)]


def check_segment_attention(attend: Callable[[Scores, int], list[list[Fraction]]]) -> Outcome:
    """Judge whether attention by segments is causal attention: L <= 12, random scores, exact."""
    cases = [(block, count) for block, count in product(range(1, 7), repeat=2)
             if block * count <= 12]
    numbers = random.Random(0)
    for block, count in cases:
        length = block * count
        scores = [[numbers.randint(-5, 5) for _ in range(length)] for _ in range(length)]
        rows = zip(attend(scores, block), causal_attention(scores), strict=True)
        for i, (got, wanted) in enumerate(rows, start=1):
            if got != wanted:
                shown = [t for t, weight in enumerate(got, start=1) if weight]
                return Outcome(False, f"B={block}, N={count}: row {i} reads the tokens {shown}, or "
                               "weighs them otherwise")
    return Outcome(True, f"the weights of causal attention for {len(cases)} sizes, L <= 12",
                   {"cases": len(cases)})


def printed_segment(n: int, block: int) -> tuple[int, int]:
    """Algorithms 1 and 2, step 1, as printed: segment n from 1 has tokens nB to (n+1)B - 1."""
    return n * block, (n + 1) * block - 1


def exact_segment(n: int, block: int) -> tuple[int, int]:
    """The segments that do cut x_1 .. x_L, L = N B: tokens (n-1)B + 1 to nB."""
    return (n - 1) * block + 1, n * block


def check_segments(segment: Callable[[int, int], tuple[int, int]]) -> Outcome:
    """Judge whether the N segments of B tokens are x_1 .. x_NB, each token once: B, N <= 6."""
    for block, count in product(range(1, 7), repeat=2):
        segments = [[*range(first, last + 1)]
                    for first, last in (segment(n, block) for n in range(1, count + 1))]
        if [t for tokens in segments for t in tokens] != [*range(1, block * count + 1)]:
            return Outcome(False, f"B={block}, N={count}, L={block * count}: the segments are "
                           f"{segments}")
    return Outcome(True, "a partition of x_1 .. x_NB for B, N <= 6")


def all_slots(slots: int, block: int, cached: int) -> int:
    """Eq. 6 as printed: M + B columns, whatever the cache holds."""
    return slots + block


def check_columns(columns: Callable[[int, int, int], int],
                  within: Callable[[Sizes], bool] | None = None) -> Outcome:
    """Judge the columns of Eq. 6 when Algorithm 2 compresses: M, B <= 12, and the paper's sizes."""
    sizes: list[Sizes] = [*product((128, 256, 512), (512, 1)), *product(range(1, 13), range(1, 13))]
    cases = chosen(sizes, within)
    for slots, block in cases:
        cached = 0
        for n in range(1, slots // block + 4):
            if cached + block <= slots:
                cached += block
                continue
            tokens = [*range(cached), *range(block)]  # the columns [K~, K_n] of this round
            if columns(slots, block, cached) != len(tokens):
                return Outcome(False, f"M={slots}, B={block}: block {n} compresses {cached} cached "
                               f"and {block} new entries, {len(tokens)} columns, claimed "
                               f"{columns(slots, block, cached)}",
                               {"columns": len(tokens), "claimed": columns(slots, block, cached)})
            cached = slots
    return Outcome(True, f"right in every round for {len(cases)} sizes", {"cases": len(cases)})


SUBJECTS = {
    "LC.eq1": Subjects(check_masking, mask_times, corrected=mask_before),
    "LC.eq5": Subjects(check_update, printed_update, corrected=value_update),
    "LC.eq7": Subjects(check_normaliser, ratio, corrected=softmax,
                       within=lambda row: sum(row) != 0),
    "LC.segments": Subjects(check_segment_attention, segment_attention),
    "LC.alg1": Subjects(check_segments, printed_segment, corrected=exact_segment,
                        machine=partial(papers.segments_cut, exact_segment)),
    "LC.first": Subjects(check_columns, all_slots,
                         corrected=lambda slots, block, cached: cached + block),
}
