"""What rho-sparse says and what it misses: it compares only the largest weight with a threshold that falls like 1/L.

Other measures are k90, the keys that carry 90 % of a row, and effective numbers of tokens (`cca_lab.analysis`).
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, exp
from random import Random

from scipy.stats import norm

from cca_lab.analysis import keys_for_mass_loops
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.sparsity.laws import rho_sparse

Row = Sequence[Fraction]
NINE_TENTHS = Fraction(9, 10)


def sink(length: int, weight: Fraction) -> list[Fraction]:
    """Return a row with the given weight on the first token, and equal weights on all others."""
    return [weight, *[(1 - weight) / (length - 1)] * (length - 1)]


def block(length: int, tokens: int) -> list[Fraction]:
    """Return a row in which the first `tokens` tokens have equal weights and the others have weight 0."""
    return [Fraction(1, tokens)] * tokens + [Fraction(0)] * (length - tokens)


def k90(row: Row) -> int:
    """Count the keys, largest first, that carry 90 % of a row in rationals."""
    return keys_for_mass_loops(row, NINE_TENTHS)


def jump(weight: Fraction, rho: Fraction) -> int:
    """Return the length from which a row with this largest weight is rho-sparse: the least L > 1/(weight rho)."""
    return int(1 / (weight * rho)) + 1


def gaussian_share(tau: float, mass: float = 0.9) -> float:
    """Return the share of tokens that carry `mass` of a long row of N(0, tau^2) logits: Q(tau - q), q = Phi^-1(mass).

    Weighted by X = e^xi, the law of xi is N(tau^2, tau^2), so the tokens above tau^2 - q tau carry the mass.
    """
    return float(norm.sf(tau - norm.ppf(mass)))


def gaussian_effective_share(tau: float, order: int = 1) -> float:
    """Return the effective number of tokens over L, for a long row of N(0, tau^2) logits.

    Args:
        tau: standard deviation of the logits.
        order: 1 for exp(entropy), e^{-tau^2 / 2}; 2 for 1 / sum alpha^2, e^{-tau^2}.

    Raises:
        ValueError: for another order.
    """
    if order not in (1, 2):
        raise ValueError(f"order: got {order}, wanted 1 (exp of the entropy) or 2 (1 / sum of squares)")
    return exp(-order * tau**2 / 2)


def half_of_them(length: int, rho: Fraction, largest: Fraction) -> int:
    """Return a generous limit for "only a few" tokens of a row: half of them."""
    return length // 2


def most_tokens(length: int, rho: Fraction, largest: Fraction) -> int:
    """Return the most keys that 90 % of a row can need, if only the largest weight w is known.

        1 + ceil((0.9 - w) (L - 1) / (1 - w))   for w < 0.9, else 1

    No smaller number is enough: `sink` attains it.
    """
    if largest >= NINE_TENTHS:
        return 1
    return 1 + ceil((NINE_TENTHS - largest) * (length - 1) / (1 - largest))


def rows_to_try(seed: int = 0) -> list[list[Fraction]]:
    """Return rows with a sink, the smallest first, and rows of random small integers; at most 1000 tokens each."""
    generator = Random(seed)
    rows = [sink(length, weight) for length in (4, 10, 100, 1000)
            for weight in (Fraction(101, 1000), Fraction(1, 4), Fraction(1, 2)) if weight > Fraction(1, length)]
    for _ in range(200):
        drawn = [generator.choice((0, 1, 1, 2, 9, 40)) for _ in range(generator.randint(2, 60))]
        drawn[0] += 1
        rows.append([Fraction(value, sum(drawn)) for value in drawn])
    return rows


def check_few(most: Callable[[int, Fraction, Fraction], int]) -> Finding:
    """Judge a bound on the tokens that carry 90 % of a rho-sparse row, in rationals; report the largest excess."""
    judged = attained = excess = 0
    worst = Finding(True, "")
    for row in rows_to_try():
        for rho in (Fraction(1), Fraction(1, 2), Fraction(1, 10), Fraction(1, 100)):
            length = len(row)
            if rho * length <= 1 or not rho_sparse(row, rho):
                continue
            judged, claimed, needed = judged + 1, most(length, rho, max(row)), k90(row)
            if needed > claimed and needed - claimed >= excess:
                excess = needed - claimed
                worst = Finding(False, f"L={length}, largest weight {max(row)}, rho={rho}: rho-sparse, 90 % needs "
                                       f"{needed} of {length} tokens, claimed {claimed}",
                                {"claimed": claimed, "k90": needed, "L": length})
            attained += needed == claimed
    if excess:
        return worst
    return Finding(True, f"never exceeded on {judged} pairs of row and rho, attained on {attained}",
                   {"pairs": judged, "attained": attained})


def rho_sparse_index(row: Row) -> float:
    """Return 1 if a row is rho-sparse at rho = 0.02, else 0: the quantity that Figure 2(c) averages."""
    return float(rho_sparse(row, Fraction(1, 50)))


def k90_index(row: Row) -> float:
    """Return the share of tokens that 90 % of the row does not need, 1 - k90 / L."""
    return 1 - k90(row) / len(row)


def check_index(index: Callable[[Row], float]) -> Finding:
    """Judge whether an index rises when attention becomes sparser, and only then.

    Two kinds of rows, from 100 to 1000 tokens: a sink of 0.13 with equal weights on the rest, which does not become
    sparser, and 50 tokens with equal weights at every length, which are a shrinking share of the tokens.
    """
    lengths = range(100, 1001, 50)
    same = [index(sink(length, Fraction(13, 100))) for length in lengths]
    fewer = [index(block(length, 50)) for length in lengths]
    moved, rose = max(same) - min(same), fewer[-1] - fewer[0]
    words = (f"from L=100 to 1000 it moves by {moved:.3f} on a sink of 0.13 over an even rest, and rises by "
             f"{rose:.3f} where 50 tokens share the row")
    return Finding(moved <= 0.02 and rose >= 0.2, words,
                   {"sink": moved, "fifty_tokens": rose, "jump_at": jump(Fraction(13, 100), Fraction(1, 50))})


def check_range(cases: Sequence[tuple[int, Fraction]]) -> Finding:
    """Judge whether every (L, rho) lies in the definition's range, 1/L < rho <= 1."""
    outside = [(length, rho) for length, rho in cases if not Fraction(1, length) < rho <= 1]
    if outside:
        length, rho = outside[0]
        return Finding(False, f"L={length}, rho={rho}: the bar 1/(L rho) is {1 / (length * rho)}, which no weight "
                       "exceeds, so P_sparse is 0 for every model", {"L": length, "outside": len(outside)})
    return Finding(True, f"all {len(cases)} pairs are inside", {"pairs": len(cases)})


RATES = (Fraction(1, 20), Fraction(1, 50), Fraction(1, 100))

CLAIMS = (
    Claim(
        id="T1.few", paper="DGA", place="Section 4.1, after Remark 3",
        statement="the sparsity of alpha implies that only a few tokens contribute meaningfully (for rho-sparse rows: "
                  "half of them hold 90 %)",
        printed=half_of_them, check=check_few, verdict=Verdict.FALSE, corrected=most_tokens,
        repair="with largest weight w < 0.9, 90 % of the row needs at most 1 + ceil((0.9 - w)(L - 1)/(1 - w)) tokens, "
               "and may need that many: 889 of 1000 at w = 0.101, rho = 0.01",
        strength=Strength.EXACT,
        proof="rho-sparse bounds one weight. The k - 1 heaviest of the others hold at least the share (k-1)/(L-1) of "
              "what is left, 1 - w; solve w + (1-w)(k-1)/(L-1) >= 0.9 for k. Equality where the others are alike."),
    Claim(
        id="T1.artefact", paper="DGA", place="Section 6.2, Figure 2(c)",
        statement="P_sparse -> 1 at L = 400 proves that sparsity strengthens with context length",
        printed=rho_sparse_index, check=check_index, verdict=Verdict.FALSE, corrected=k90_index,
        repair="a constant largest weight w makes P_sparse jump from 0 to 1 at L = 1/(w rho) with no change in "
               "attention; report k90(L)/L or the entropy beside it",
        strength=Strength.EXACT,
        proof="The bar 1/(L rho) falls with L while w stays: w = 0.13, rho = 0.02 jump at 385, and w = 1/8 just after "
              "400. Conversely 50 tokens that share a row of 1000 are 5 % of it, and no weight is over 1/20."),
    Claim(
        id="T1.range", paper="DGA", place="Appendix C.4, Figures 2(b) and 7",
        statement="P_sparse(L, rho) is measured for L in [100, 1000] and rho in {0.05, 0.02, 0.01}",
        printed=[(length, rho) for length in range(100, 1001) for rho in RATES], check=check_range,
        verdict=Verdict.FALSE, corrected=[(length, rho) for length in range(101, 1001) for rho in RATES],
        repair="Theorem 1 asks for rho > 1/L: start at L = 101",
        strength=Strength.EXACT,
        proof="At L = 100 and rho = 0.01 the bar is 1/(L rho) = 1. The rise from 0 there is the definition's."),
)
