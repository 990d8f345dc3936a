"""Counts of DGA's attention for the checks of its costs: training sequences, caches, and decoding (Sections 5, 5.1)."""

from functools import cache
from itertools import combinations
from math import ceil
from typing import NamedTuple

from cca_lab.theory.cost.pairs import dga_pairs_listed, older_pairs


class Training(NamedTuple):
    """One sequence of a training step.

    Attributes:
        length: L.
        focal: r, with the tokens that would not fill a group.
        group: m.
        queries: how many rows score the importance of the tokens (Algorithm 1, line 1); all of them in Eq. 16.
        attention: pairs of the attention itself (line 8), counted.
    """

    length: int
    focal: int
    group: int
    queries: int
    attention: int

    @property
    def pairs(self) -> int:
        """The pairs of line 8, and those of line 1 with the last rows."""
        return self.attention + self.queries * self.length - self.queries * (self.queries - 1) // 2


class Decoding(NamedTuple):
    """A cache of DGA: L tokens, r of them focal, the others in groups of m."""

    length: int
    focal: int
    group: int

    @property
    def keys(self) -> int:
        """What a generated token reads at most: focal tokens, groups, and a group that is not complete."""
        return self.focal + (self.length - self.focal) // self.group + self.group


@cache
def trainings() -> tuple[Training, ...]:
    """Return every set of focal tokens of up to 7 tokens, and some of 256."""
    small = [(length, focal, group, {0, 1, length}) for length in range(2, 8) for group in (2, 3, 5)
             for size in range(length + 1) for focal in combinations(range(length), size)]
    large = [(256, tuple(range(0, 256, 256 // r)), group, {0, 8, 16, 256}) for r in (4, 16) for group in (8, 16)]
    cases = []
    for length, focal, group, queries in [*small, *large]:
        pairs, r = dga_pairs_listed(length, focal, group)
        cases += [Training(length, r, group, n, pairs) for n in sorted(queries)]
    return tuple(cases)


def decodings() -> list[Decoding]:
    """Return all caches of up to 40 tokens whose non-focal tokens fill their groups of two or more."""
    return [Decoding(length, focal, group) for length in range(2, 41) for focal in range(length)
            for group in range(2, length - focal + 1) if (length - focal) % group == 0]


def pairs_in_front(length: int, focal: int, group: int) -> int:
    """Return DGA's pairs in closed form if the first r tokens are focal and the others fill groups of m."""
    others = length - focal
    return focal * (focal + 1) // 2 + others * focal + older_pairs(others - 1, group) + others


def cache_sizes(length: int, focal: int, group: int, generated: int) -> list[tuple[int, int, int]]:
    """Return (tokens, focal tokens, entries of the cache) after each generated token (Section 5.1, group inference).

    Once m' = 1.1 m tokens are generated, m of them become one group and the others focal.
    """
    groups, open_tokens, sizes = (length - focal) // group, 0, []
    waiting = ceil(1.1 * group)
    for step in range(1, generated + 1):
        open_tokens += 1
        if open_tokens == waiting:
            groups, focal, open_tokens = groups + 1, focal + waiting - group, 0
        sizes.append((length + step, focal, focal + groups + open_tokens))
    return sizes
