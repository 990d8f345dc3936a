"""Which row reads which token in CCA-Attention: indices as printed, as corrected, and checks.

Rows, tokens and cores count from 1, as in the paper: row i reads cores 1 .. j, of g tokens each,
and the raw tokens k .. i. The functions also take the symbolic integers of `theory.forall`.
"""

import random
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product

from cca_lab.mechanisms.indices import core_count
from cca_lab.theory.base_two import softmax
from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.cores import Cover, reads, window_size
from cca_lab.theory.forall import papers

CASES = [(i, g, s) for i, g, s in product(range(1, 41), range(1, 8), range(1, 13))]


def printed_cover(i: int, g: int, s: int) -> tuple[int, int]:
    """Algorithm 1, lines 10 and 11, as printed: k = max(1, i - s - ((i - s) mod g))."""
    return core_count(i, g, s), max(1, i - s - (i - s) % g)


def exact_cover(i: int, g: int, s: int) -> tuple[int, int]:
    """The corrected index: the raw tokens begin after the last core, k = j g + 1."""
    j = core_count(i, g, s)
    return j, j * g + 1


def sized_cover(i: int, g: int, s: int) -> tuple[int, int]:
    """Section 3.3's words: the last s + ((i - s) mod g) tokens, or all i where there are fewer."""
    return core_count(i, g, s), max(1, i - window_size(i, g, s) + 1)


def times_read(cover: Cover, i: int, g: int, s: int) -> list[int]:
    """Count how often row i reads each of the tokens 1 .. max(i, j g)."""
    return [reads(cover, i, g, s, t) for t in range(1, max(i, cover(i, g, s)[0] * g) + 1)]


# what a choice of raw tokens promises: (cover, i, g, s) -> whether it is so
Promise = Callable[[Cover, int, int, int], bool]


def s_before(cover: Cover, i: int, g: int, s: int) -> bool:
    """Whether row i reads s raw tokens before itself, or all of them."""
    return i - cover(i, g, s)[1] >= min(s, i - 1)


def as_sized(cover: Cover, i: int, g: int, s: int) -> bool:
    """Whether the raw tokens are as many as Section 3.3 says."""
    return cover(i, g, s) == sized_cover(i, g, s)


def each_once(cover: Cover, i: int, g: int, s: int) -> bool:
    """Whether row i reads each token of its past once, and no other."""
    return times_read(cover, i, g, s) == [1] * i


def check_cover(subject: tuple[Cover, tuple[Promise, ...]]) -> Outcome:
    """Judge whether a cover keeps its promises: all i <= 40, g <= 7, s <= 12."""
    cover, promises = subject
    wrong = [case for case in CASES if not all(promise(cover, *case) for promise in promises)]
    if not wrong:
        return Outcome(True, f"right in all {len(CASES)} cases (i <= 40, g <= 7, s <= 12)")
    # g > 1, so that a core is more than one token; the shortest row is the easiest to check by hand
    i, g, s = min(wrong, key=lambda case: (case[1] == 1, case))
    j, k = cover(i, g, s)
    return Outcome(False, f"g={g}, s={s}, i={i}: cores hold tokens 1..{j * g}, raw tokens are "
                   f"{k}..{i}, so the tokens are read {times_read(cover, i, g, s)} times; wrong in "
                   f"{len(wrong)} of {len(CASES)} cases")


def printed_terms(i: int, length: int, g: int, s: int) -> list[int]:
    """Return the tokens whose values Eq. 6 adds up for row i: m = floor(L / g), split at i <= g.

    Charitably, a core that row i must not see has weight 0, and the window is clipped to i tokens.
    """
    if i <= g:
        return list(range(1, i + 1))
    seen = min(length // g, core_count(i, g, s))
    window = min(i, window_size(i, g, s))
    return [*range(1, g * seen + 1), *(g * (length // g) + t for t in range(1, window + 1))]


def exact_terms(i: int, length: int, g: int, s: int) -> list[int]:
    """Eq. 6 with j(i) for m, the split at i < g + s, and w = i - j g."""
    j, k = exact_cover(i, g, s)
    return [*range(1, g * j + 1), *range(k, i + 1)]


def check_terms(terms: Callable[[int, int, int, int], list[int]]) -> Outcome:
    """Judge whether Eq. 6 adds the values of tokens 1 .. i once: L <= 20, g <= 5, s <= 6."""
    cases = [(length, i, g, s) for length in range(1, 21) for i in range(1, length + 1)
             for g in range(1, 6) for s in range(1, 7)]
    wrong = [(length, i, g, s) for length, i, g, s in cases
             if sorted(terms(i, length, g, s)) != list(range(1, i + 1))]
    if not wrong:
        return Outcome(True, f"exact in all {len(cases)} cases (L <= 20, g <= 5, s <= 6)")
    length, i, g, s = min(wrong, key=lambda case: (case[2] == 1, case))
    return Outcome(False, f"L={length}, g={g}, s={s}, i={i}: adds tokens {terms(i, length, g, s)}; "
                   f"wrong in {len(wrong)} of {len(cases)} cases")


def effective_row(i: int, g: int, s: int, cover: Cover,
                  draw: Callable[[], int]) -> dict[int, Fraction]:
    """Return row i of E (Eq. 8), the weight of each token; `draw` gives integer scores.

    The softmax has base 2, so E is exact. The scores of the cores are drawn as well, so that the
    result holds for any pooled keys.
    """
    j, k = cover(i, g, s)
    raw = range(k, i + 1)
    weights = softmax([draw() for _ in range(j + len(raw))])
    row: dict[int, Fraction] = {}
    for p in range(1, j + 1):
        for q, phi in enumerate(softmax([draw() for _ in range(g)]), start=1):
            row[g * (p - 1) + q] = weights[p - 1] * phi
    for token, weight in zip(raw, weights[j:], strict=True):
        row[token] = row.get(token, Fraction(0)) + weight
    return row


def check_reachable(cover: Cover) -> Outcome:
    """Judge whether E is positive on the past, 0 on the future, its rows 1: scores -40 .. 40."""
    random_scores = random.Random(0)
    least = Fraction(1)
    for g, s, i in product(range(1, 6), range(1, 7), range(1, 21)):
        row = effective_row(i, g, s, cover, lambda: random_scores.randint(-40, 40))
        if row.keys() != set(range(1, i + 1)) or sum(row.values()) != 1:
            return Outcome(False, f"g={g}, s={s}, i={i}: the tokens {sorted(row)} have a weight, "
                           f"and the row sums to {sum(row.values())}")
        least = min(least, *row.values())
    return Outcome(True, "positive in all rows for g <= 5, s <= 6, i <= 20; smallest weight "
                   f"{float(least):.1g}, rows sum to exactly 1")


# ------------------------------------------- what a core keeps of its group (g = 2, s = 1, row 3)

Change = tuple[int, int]  # what is added to the values of tokens 1 and 2


def check_noticed(noticed: Callable[[Change, list[Fraction]], bool]) -> Outcome:
    """Judge which changes of values must move CCA's output, of the change and full attention's row.

    Scores are 0 or 1, of the group's last query, and of row 3's with all tokens, or with the core
    and itself. A change of which it is not said must leave the output alone for some of them.
    """
    for change in ((1, 0), (0, 1), (1, 1), (1, -1)):
        said, unseen = False, False
        for last, full, pooled in product(product((0, 1), repeat=2), product((0, 1), repeat=3),
                                          product((0, 1), repeat=2)):
            row = [softmax(pooled)[0] * phi for phi in softmax(last)]
            said, unseen = noticed(change, softmax(full)), unseen | (moved(change, row) == 0)
            if said and not moved(change, row):
                return Outcome(False, f"values changed by {change}: full attention's output moves "
                               f"by {moved(change, softmax(full))}, CCA's does not, with phi = "
                               f"{', '.join(map(str, softmax(last)))}")
        if not said and not unseen:
            return Outcome(False, f"values changed by {change} always move the output as well")
    return Outcome(True, "such changes, and no others, always move the output of row 3, for all "
                   "scores 0 or 1")


def moved(change: Change, row: list[Fraction]) -> Fraction:
    """Return how far an output moves if the values are changed so."""
    return row[0] * change[0] + row[1] * change[1]


SUBJECTS = {
    "P1": Subjects(check_reachable, printed_cover, machine=partial(papers.reached, printed_cover)),
    "P1.alg1": Subjects(check_cover, (printed_cover, (s_before, as_sized, each_once)),
                        corrected=(exact_cover, (as_sized, each_once)),
                        sides=((printed_cover, (s_before,)), (sized_cover, (as_sized, each_once))),
                        machine=partial(papers.read_once, exact_cover)),
    "P1.eq6": Subjects(check_terms, printed_terms, corrected=exact_terms,
                       machine=partial(papers.read_once, exact_cover)),
    "P1.overlooked": Subjects(check_noticed, lambda change, full: moved(change, full) != 0,
                              corrected=lambda change, full: min(change) >= 0),
}
