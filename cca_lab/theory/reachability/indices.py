"""Which row reads which token in CCA-Attention: indices as printed, as corrected, and checks.

Rows, tokens and cores count from 1, as in the paper: row i reads cores 1 .. j, of g tokens each,
and the raw tokens k .. i. The functions also take the symbolic integers of `theory.forall`.
"""

import random
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product

from cca_lab.theory.base_two import softmax
from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.cores import Cover, core_count, reads
from cca_lab.theory.forall import papers

Count = Callable[[int, int, int], int]  # (i, g, s) -> number of raw tokens
SIZES = [(g, s) for g in range(1, 8) for s in range(1, 13)]
ROWS = range(1, 41)
RANGE = "g <= 7, s <= 12, i <= 40"


def printed_cover(i: int, g: int, s: int) -> tuple[int, int]:
    """Algorithm 1, lines 10 and 11, as printed: k = max(1, i - s - ((i - s) mod g))."""
    return core_count(i, g, s), max(1, i - s - (i - s) % g)


def exact_cover(i: int, g: int, s: int) -> tuple[int, int]:
    """The corrected index: the raw tokens begin after the last core, k = j g + 1."""
    j = core_count(i, g, s)
    return j, j * g + 1


def split_cover(i: int, g: int, s: int) -> tuple[int, int]:
    """The same cover with Section 3.2's case: only raw tokens where i < g + s."""
    return (0, 1) if i < g + s else exact_cover(i, g, s)


def times_read(cover: Cover, i: int, g: int, s: int) -> list[int]:
    """Count how often row i reads each of the tokens 1 .. max(i, j g)."""
    return [reads(cover, i, g, s, t) for t in range(1, max(i, cover(i, g, s)[0] * g) + 1)]


def check_cover(cover: Cover) -> Outcome:
    """Judge whether rows read each token of their past once: all g <= 7, s <= 12, i <= 40."""
    wrong = [(i, g, s) for g, s in SIZES for i in ROWS if times_read(cover, i, g, s) != [1] * i]
    cases = len(SIZES) * len(ROWS)
    numbers = {"cases": cases, "exact": cases - len(wrong)}
    if not wrong:
        return Outcome(True, f"exact in {cases} of {cases} cases ({RANGE})", numbers)
    # g > 1, so that a core is more than one token; the shortest row is the easiest to check by hand
    i, g, s = min(wrong, key=lambda case: (case[1] == 1, *case))
    j, k = cover(i, g, s)
    return Outcome(False, f"g={g}, s={s}, i={i}: cores hold tokens 1..{j * g}, raw tokens are "
                   f"{k}..{i}, so the tokens are read {times_read(cover, i, g, s)} times; exact in "
                   f"{cases - len(wrong)} of {cases} cases", numbers)


def clipped_window(i: int, g: int, s: int) -> int:
    """Section 3.3's window, s + ((i - s) mod g) raw tokens, clipped to i (k >= 1 in Eq. 4)."""
    return min(s + (i - s) % g, i)


def check_window(window: Count) -> Outcome:
    """Judge whether the raw tokens are what the cores leave, i - j g: g <= 7, s <= 12, i <= 40."""
    return _counted(window, lambda i, g, s, said: said == i - g * core_count(i, g, s),
                    lambda i, g, s: f"the cores leave over {i - g * core_count(i, g, s)}")


def check_least(window: Count) -> Outcome:
    """Judge whether rows read s raw tokens or more, or all i: all g <= 7, s <= 12, i <= 40."""
    return _counted(window, lambda i, g, s, said: min(s, i) <= said <= i,
                    lambda i, g, s: f"wanted {min(s, i)} or more")


def _counted(window: Count, right: Callable[[int, int, int, int], bool],
             wanted: Callable[[int, int, int], str]) -> Outcome:
    wrong = [(i, g, s) for g, s in SIZES for i in ROWS if not right(i, g, s, window(i, g, s))]
    cases = len(SIZES) * len(ROWS)
    if not wrong:
        return Outcome(True, f"right in all {cases} cases ({RANGE})", {"cases": cases, "wrong": 0})
    i, g, s = min(wrong, key=lambda case: (case[1] == 1, *case))
    return Outcome(False, f"g={g}, s={s}, i={i}: a window of {window(i, g, s)} tokens, "
                   f"{wanted(i, g, s)}; wrong in {len(wrong)} of {cases} cases",
                   {"cases": cases, "wrong": len(wrong)})


def no_cores_before(i: int, g: int, s: int) -> bool:
    """Section 3.2: cores are excluded from the attention of row i if i < g + s."""
    return i < g + s


def check_short(excluded: Callable[[int, int, int], bool]) -> Outcome:
    """Judge whether cores are excluded exactly where j = 0: all g <= 7, s <= 12, i <= 40."""
    for (g, s), i in product(SIZES, ROWS):
        if excluded(i, g, s) != (core_count(i, g, s) == 0):
            return Outcome(False, f"g={g}, s={s}, i={i}: {core_count(i, g, s)} cores, said to be "
                           f"{'none' if excluded(i, g, s) else 'some'}")
    return Outcome(True, f"j = 0 exactly in these rows in all {len(SIZES) * len(ROWS)} cases "
                   f"({RANGE})")


def printed_terms(i: int, length: int, g: int, s: int) -> list[int]:
    """Return the tokens whose values Eq. 6 adds up for row i: m = floor(L / g), split at i <= g.

    Charitably, a core that row i must not see has weight 0, and the window is clipped to i tokens.
    """
    if i <= g:
        return list(range(1, i + 1))
    seen = min(length // g, core_count(i, g, s))
    return [*range(1, g * seen + 1),
            *(g * (length // g) + t for t in range(1, clipped_window(i, g, s) + 1))]


def exact_terms(i: int, length: int, g: int, s: int) -> list[int]:
    """Eq. 6 with j(i) for m, the split at i < g + s, and w = i - j g."""
    j, k = split_cover(i, g, s)
    return [*range(1, g * j + 1), *range(k, i + 1)]


def check_terms(terms: Callable[[int, int, int, int], list[int]]) -> Outcome:
    """Judge whether Eq. 6 adds the values of tokens 1 .. i once: L <= 20, g <= 5, s <= 6."""
    cases = [(i, length, g, s) for length in range(1, 21) for g in range(1, 6) for s in range(1, 7)
             for i in range(1, length + 1)]
    wrong = [case for case in cases if sorted(terms(*case)) != list(range(1, case[0] + 1))]
    ahead = [i for i in range(1, 21) if max(terms(i, 20, 4, 4)) > i]
    numbers = {"cases": len(cases), "wrong": len(wrong), "rows_ahead": len(ahead)}
    if not wrong:
        return Outcome(True, f"exact in all {len(cases)} cases (L <= 20, g <= 5, s <= 6)", numbers)
    i, length, g, s = min(wrong, key=lambda case: (case[2] == 1, case[1], case))
    return Outcome(False, f"L={length}, g={g}, s={s}, i={i}: adds tokens {terms(i, length, g, s)}; "
                   f"with L=20, g=s=4, {len(ahead)} of 20 rows read tokens after i", numbers)


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
        missing = [t for t in range(1, i + 1) if not row.get(t)]
        ahead = [t for t in row if t > i]
        if missing or ahead or sum(row.values()) != 1:
            return Outcome(False, f"g={g}, s={s}, i={i}: tokens {missing} have no weight, tokens "
                           f"{ahead} lie ahead, the row sums to {sum(row.values())}")
        least = min(least, *row.values())
    exponent = least.numerator.bit_length() - least.denominator.bit_length()
    return Outcome(True, "positive in all rows for g <= 5, s <= 6, i <= 20; smallest weight "
                   f"2^{exponent}, rows sum to exactly 1", {"smallest_weight_log2": exponent})


def check_scaling(weigh: Callable[[list[int], int], list[Fraction]]) -> Outcome:
    """Judge whether rows sum to 1 and are the softmax of scores over sqrt(d): d = 1, 4, 16, 64."""
    for root in (2, 4, 8, 1):
        for a in (0, 1, -1, 2, -2):
            got, wanted = weigh([0, a * root], root), softmax([0, a])
            if sum(got) != 1 or got != wanted:
                shown = ", ".join(str(weight) for weight in got)
                return Outcome(False, f"d={root * root}, scores 0 and {a * root}: weights {shown}, "
                               f"which sum to {sum(got)}", {"row_sum": float(sum(got))})
    return Outcome(True, "rows sum to 1 and equal Eq. 5 for d = 1, 4, 16, 64")


SUBJECTS = {
    "P1": Subjects(check_reachable, printed_cover, machine=partial(papers.reached, printed_cover)),
    "P1.alg1": Subjects(check_cover, printed_cover, corrected=exact_cover,
                        machine=partial(papers.read_once, exact_cover)),
    "P1.window": Subjects(check_window, clipped_window,
                          machine=partial(papers.window_left_over, clipped_window)),
    "P1.least": Subjects(check_least, clipped_window,
                         machine=partial(papers.window_long_enough, clipped_window)),
    "P1.short": Subjects(check_short, no_cores_before,
                         machine=partial(papers.no_cores, no_cores_before)),
    "P1.eq6": Subjects(check_terms, printed_terms, corrected=exact_terms,
                       machine=partial(papers.read_once, split_cover)),
    # softmax(q K^T) / sqrt(d) as printed, and Eq. 5; root is sqrt(d), and divides the scores
    "P1.line12": Subjects(check_scaling, lambda scores, root: [w / root for w in softmax(scores)],
                          corrected=lambda scores, root: softmax([x // root for x in scores])),
}
