"""LoCoCo's segments: which tokens a query reads, and what a compression finds in the cache.

Cai et al., "LoCoCo: Dropping In Convolutions for Long Context Compression", ICML 2024, Sections
3.1-3.2. Tokens, segments and slots count from 1, as in the paper.
"""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

from cca_lab.theory.base_two import causal_attention, softmax
from cca_lab.theory.claim import Outcome

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
