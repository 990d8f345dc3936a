"""Which row reads which token in CCA-Attention: the printed indices, and Proposition 1 with corrected indices.

Chen et al., ICML 2025, Sections 3.2-3.3, Algorithm 1 and Appendix A. Rows, tokens and cores count from 1
in this module, as in the paper: row i reads cores 1 .. j, of g tokens each, and the raw tokens k .. i.
"""

import random
from collections.abc import Callable, Iterator
from fractions import Fraction

from cca_lab.theory.base_two import softmax
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

Cover = Callable[[int, int, int], tuple[int, int]]  # (i, g, s) -> (j cores, first raw token k)
SIZES = [(g, s) for g in range(1, 8) for s in range(1, 13)]
ROWS = range(1, 41)


def core_count(i: int, g: int, s: int) -> int:
    """Return the number of cores that row i reads (below Eq. 3): j = max(0, floor((i - s) / g))."""
    return max(0, (i - s) // g)


def printed_cover(i: int, g: int, s: int) -> tuple[int, int]:
    """Algorithm 1, lines 10 and 11, as printed: k = max(1, i - s - ((i - s) mod g))."""
    return core_count(i, g, s), max(1, i - s - (i - s) % g)


def exact_cover(i: int, g: int, s: int) -> tuple[int, int]:
    """The corrected index: the raw tokens begin after the last core, k = j g + 1."""
    j = core_count(i, g, s)
    return j, j * g + 1


def times_read(cover: Cover, i: int, g: int, s: int) -> list[int]:
    """Count how often row i reads each of the tokens 1 .. max(i, j g), inside a core or raw."""
    j, k = cover(i, g, s)
    return [(t <= j * g) + (k <= t <= i) for t in range(1, max(i, j * g) + 1)]


def check_cover(cover: Cover) -> Finding:
    """Judge whether each row reads each token of its past exactly once: all g <= 7, s <= 12, i <= 40."""
    wrong = [(i, g, s) for g, s in SIZES for i in ROWS if times_read(cover, i, g, s) != [1] * i]
    cases = len(SIZES) * len(ROWS)
    numbers = {"cases": cases, "exact": cases - len(wrong)}
    if not wrong:
        return Finding(True, f"exact in {cases} of {cases} cases (g <= 7, s <= 12, i <= 40)", numbers)
    # g > 1, so that a core is more than one token; the shortest row is the easiest to check by hand
    i, g, s = min(wrong, key=lambda case: (case[1] == 1, *case))
    j, k = cover(i, g, s)
    return Finding(False, f"g={g}, s={s}, i={i}: cores hold tokens 1..{j * g}, raw tokens are {k}..{i}, so the "
                          f"tokens are read {times_read(cover, i, g, s)} times; exact in {cases - len(wrong)} of "
                          f"{cases} cases", numbers)


def printed_window(i: int, g: int, s: int) -> int:
    """Section 3.3 and Appendix A: s + ((i - s) mod g) raw tokens."""
    return s + (i - s) % g


def check_window(window: Callable[[int, int, int], int]) -> Finding:
    """Judge whether the number of raw tokens is what the cores leave, i - j g: all g <= 7, s <= 12, i <= 40."""
    wrong = [(i, g, s) for g, s in SIZES for i in ROWS if window(i, g, s) != i - g * core_count(i, g, s)]
    if not wrong:
        return Finding(True, f"right in all {len(SIZES) * len(ROWS)} cases (g <= 7, s <= 12, i <= 40)")
    late = sum(i >= s for i, _, s in wrong)
    i, g, s = min(wrong, key=lambda case: (case[0] >= case[2], case[1] != 2, case[2] != 4, *case))
    return Finding(False, f"g={g}, s={s}, i={i}: a window of {window(i, g, s)} tokens, but the cores leave over "
                          f"{i - g * core_count(i, g, s)}; wrong in {len(wrong) - late} cases with i < s and {late} "
                          "with i >= s",
                   {"wrong": len(wrong), "wrong_from_s_on": late})


def printed_terms(i: int, length: int, g: int, s: int) -> list[int]:
    """Return the tokens whose values Eq. 6 adds up for row i, as printed: m = floor(L / g), split at i <= g."""
    if i <= g:
        return list(range(1, i + 1))
    m, w = length // g, printed_window(i, g, s)
    return [g * (p - 1) + q for p in range(1, m + 1) for q in range(1, g + 1)] + [m * g + t for t in range(1, w + 1)]


def exact_terms(i: int, length: int, g: int, s: int) -> list[int]:
    """Eq. 6 with j(i) for m, the split at i < g + s, and w = i - j g."""
    if i < g + s:
        return list(range(1, i + 1))
    j = core_count(i, g, s)
    return [g * (p - 1) + q for p in range(1, j + 1) for q in range(1, g + 1)] + [
        j * g + t for t in range(1, i - j * g + 1)]


def check_terms(terms: Callable[[int, int, int, int], list[int]]) -> Finding:
    """Judge whether Eq. 6 adds the values of the tokens 1 .. i, each once: L <= 20, g <= 5, s <= 6."""
    cases = [(i, length, g, s) for length in range(1, 21) for g in range(1, 6) for s in range(1, 7)
             for i in range(1, length + 1)]
    wrong = [case for case in cases if sorted(terms(*case)) != list(range(1, case[0] + 1))]
    ahead = [i for i in range(1, 21) if max(terms(i, 20, 4, 4)) > i]
    numbers = {"cases": len(cases), "wrong": len(wrong), "rows_ahead": len(ahead)}
    if not wrong:
        return Finding(True, f"exact in all {len(cases)} cases (L <= 20, g <= 5, s <= 6)", numbers)
    i, length, g, s = min(wrong, key=lambda case: (case[2] == 1, case[1], case))
    return Finding(False, f"L={length}, g={g}, s={s}, i={i}: adds tokens {terms(i, length, g, s)}; with L=20, g=s=4, "
                          f"{len(ahead)} of 20 rows read tokens after i", numbers)


def effective_row(i: int, g: int, s: int, cover: Cover, draw: Callable[[], int]) -> dict[int, Fraction]:
    """Return row i of E (Eq. 8), the weight of each token: A^G phi inside a core, A^L raw; `draw` gives the scores.

    The scores are integers and the softmax has base 2, so E is exact. The scores of the cores are drawn at
    random as well, so that the result holds for any pooled keys.
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


def check_reachable(cover: Cover) -> Finding:
    """Judge whether E is positive on the past, 0 on the future, and its rows sum to 1: exact, scores in -40 .. 40."""
    random_scores = random.Random(0)
    least = Fraction(1)
    for g, s, i in _small_cases():
        row = effective_row(i, g, s, cover, lambda: random_scores.randint(-40, 40))
        missing = [t for t in range(1, i + 1) if not row.get(t)]
        ahead = [t for t in row if t > i]
        if missing or ahead or sum(row.values()) != 1:
            return Finding(False, f"g={g}, s={s}, i={i}: tokens {missing} have no weight, tokens {ahead} lie ahead, "
                                  f"the row sums to {sum(row.values())}")
        least = min(least, *row.values())
    exponent = least.numerator.bit_length() - least.denominator.bit_length()
    return Finding(True, f"positive in all rows for g <= 5, s <= 6, i <= 20; smallest weight 2^{exponent}, rows sum "
                         "to exactly 1", {"smallest_weight_log2": exponent})


def _small_cases() -> Iterator[tuple[int, int, int]]:
    return ((g, s, i) for g in range(1, 6) for s in range(1, 7) for i in range(1, 21))


def scaled_outside(scores: list[int], root: int) -> list[Fraction]:
    """Algorithm 1, line 12, as printed: softmax(q K^T) / sqrt(d), with root = sqrt(d)."""
    return [weight / root for weight in softmax(scores)]


def scaled_inside(scores: list[int], root: int) -> list[Fraction]:
    """Eq. 5: softmax(q K^T / sqrt(d)); the scores are multiples of root."""
    return softmax([score // root for score in scores])


def check_scaling(weigh: Callable[[list[int], int], list[Fraction]]) -> Finding:
    """Judge whether a row of weights sums to 1 and is the softmax of the scores over sqrt(d): d = 1, 4, 16, 64."""
    for root in (2, 4, 8, 1):
        for a in (0, 1, -1, 2, -2):
            got, wanted = weigh([0, a * root], root), softmax([0, a])
            if sum(got) != 1 or got != wanted:
                shown = ", ".join(str(weight) for weight in got)
                return Finding(False, f"d={root * root}, scores 0 and {a * root}: weights {shown}, which sum to "
                                      f"{sum(got)}", {"row_sum": float(sum(got))})
    return Finding(True, "rows sum to 1 and equal Eq. 5 for d = 1, 4, 16, 64")


CLAIMS = (
    Claim(
        id="P1", paper="CCA", place="Proposition 1", check=check_reachable, printed=printed_cover,
        corrected=exact_cover,
        statement="every token reaches every later one, with a positive weight, in each layer",
        verdict=Verdict.HOLDS, strength=Strength.EXACT,
        repair="in real numbers; E_it = A^G_ip phi_pt inside a core, A^L_it raw, with k = j g + 1",
        proof="C W^V = Phi X W^V, so Out = E V with E >= 0. Every core p <= j has p g <= i - s <= i, so no "
              "token after i is read; softmaxes are positive and sum to 1; tokens 1..jg are in cores, "
              "jg+1..i are raw. With the printed k token jg has two positive terms: it still reaches row i, "
              "twice."),
    Claim(
        id="P1.alg1", paper="CCA", place="Algorithm 1, line 11; Eq. 4", check=check_cover, printed=printed_cover,
        statement="raw tokens k..i with k = max(1, i-s-((i-s) mod g)): each key token takes part",
        verdict=Verdict.FALSE, corrected=exact_cover, repair="k = j g + 1, with j = max(0, floor((i-s)/g))",
        strength=Strength.EXACT,
        proof="Write i - s = j g + r. The printed k is j g, the last token of core j, which is read a second "
              "time in every row i >= s + g (and only it). j g + 1 makes the cores and the raw tokens a "
              "partition of 1..i."),
    Claim(
        id="P1.window", paper="CCA", place="Section 3.3; Appendix A, below Eq. 7", check=check_window,
        statement="the local window has w = s + ((i-s) mod g) tokens", printed=printed_window,
        corrected=lambda i, g, s: i - g * core_count(i, g, s), verdict=Verdict.HOLDS_IF, strength=Strength.EXACT,
        repair="holds for i >= s; before that w = i. In one formula, w = i - g max(0, floor((i-s)/g))",
        proof="For i >= s, i - s = j g + r gives i - j g = s + r. For i < s no core exists and the row has i "
              "tokens, but s + ((i-s) mod g) >= s > i."),
    Claim(
        id="P1.eq6", paper="CCA", place="Proposition 1, Eq. 6", check=check_terms, printed=printed_terms,
        statement="o_i adds the cores 1..m, m = floor(L/g), and the raw tokens mg+1..mg+w; only raw ones if i <= g",
        verdict=Verdict.FALSE, corrected=exact_terms, strength=Strength.EXACT,
        repair="m becomes j(i) = max(0, floor((i-s)/g)), the split i < g + s, and w = i - j g",
        proof="floor(L/g) groups are all groups of the sequence, most of them in the future of row i, and m "
              "g + t > i. Section 3.2 has the split at i < g + s. (The captions of Eq. 9 and 10 are also "
              "exchanged.)"),
    Claim(
        id="P1.line12", paper="CCA", place="Algorithm 1, line 12", check=check_scaling, printed=scaled_outside,
        statement="Att_i = softmax(Q_i [K]^T) / sqrt(d) [V]", verdict=Verdict.FALSE, corrected=scaled_inside,
        repair="Att_i = softmax(Q_i [K]^T / sqrt(d)) [V], as in Eq. 5", strength=Strength.EXACT,
        proof="A softmax sums to 1, so dividing it by sqrt(d) makes every row sum to 1/sqrt(d): no weighted "
              "mean of the values, and reachability then compares weights of rows that are too small by "
              "sqrt(d)."),
)
