"""LoCoCo's segments: which tokens a query reads, and what a compression finds in the cache.

Cai et al., "LoCoCo: Dropping In Convolutions for Long Context Compression", ICML 2024, Sections
3.1-3.2. Tokens, segments and slots count from 1, as in the paper.
"""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

from cca_lab.theory.base_two import causal_attention, softmax
from cca_lab.theory.causality.masks import check_masking, mask_before, mask_times
from cca_lab.theory.claim import Outcome, Subjects, chosen

Sizes = tuple[int, int]  # M slots, B tokens a block
Scores = Sequence[Sequence[int]]


def segment_attention(scores: Scores, block: int) -> list[list[Fraction]]:
    """Algorithm 1: the weights of each query, on the cache and on its own block up to itself."""
    length = len(scores)
    seen = [block * (i // block) + i % block + 1 for i in range(length)]
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
    return Outcome(True, f"the weights of causal attention for {len(cases)} sizes, L <= 12")


def first_columns(slots: int, block: int) -> int:
    """Return the columns of the first compression: B floor(M/B) cached entries and B new ones."""
    return block * (slots // block) + block


def check_columns(columns: Callable[[int, int], int],
                  within: Callable[[Sizes], bool] | None = None) -> Outcome:
    """Judge the columns of the first compression by running Algorithm 2: M, B <= 12, small first.

    The paper's sizes stand last.
    """
    sizes: list[Sizes] = sorted(product(range(1, 13), range(1, 13)), key=sum)
    for slots, block in chosen([*sizes, (128, 512), (256, 512), (512, 512), (128, 1)], within):
        cached = 0
        while cached + block <= slots:
            cached += block
        if columns(slots, block) != cached + block:
            return Outcome(False, f"M={slots}, B={block}: the first compression finds {cached} "
                           f"cached and {block} new entries, claimed {columns(slots, block)}")
    return Outcome(True, "right for M, B <= 12 and the paper's sizes")


SUBJECTS = {
    "LC.eq1": Subjects(check_masking, mask_times, corrected=mask_before),
    "LC.segments": Subjects(check_segment_attention, segment_attention),
    "LC.first": Subjects(check_columns, lambda slots, block: slots + block, corrected=first_columns,
                         within=lambda size: size[0] % size[1] == 0),
}
