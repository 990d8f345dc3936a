"""What rho-sparse says and what it misses: it compares only the largest weight with a threshold that falls like 1/L.

Other measures are k90, the keys that carry 90 % of a row, and effective numbers of tokens
(`cca_lab.attention.statistics`).
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, exp
from random import Random

from scipy.stats import norm

from cca_lab.attention.statistics import keys_for_mass_loops
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight
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
    return keys_for_mass_loops(row, NINE_TENTHS)  # type: ignore[arg-type]  # rationals, as well as floats


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


def effective_index(row: Row) -> float:
    """Return the share of tokens beyond the effective number 1 / sum alpha^2."""
    return float(1 - 1 / (len(row) * sum(weight**2 for weight in row)))


SINKS = ((Fraction(13, 100), Fraction(13, 100)), (Fraction(2, 5), Fraction(3, 50)))  # at 100 and at 1000 tokens


def check_proves(measure: Callable[[Row], float]) -> Finding:
    """Judge whether a measure of sparsity rises where P_sparse jumps from 0 to 1, rho = 0.02, L = 100 to 1000.

    The rows have equal weights on all tokens but the first, whose weight stays in one case and falls in the other.
    """
    found = []
    for first, last in SINKS:
        short, long = sink(100, first), sink(1000, last)
        if (jumped := rho_sparse_index(long) - rho_sparse_index(short)) != 1:
            raise ValueError(f"SINKS: P_sparse rises by {jumped} from {first} to {last}; it must jump from 0 to 1")
        rose = measure(long) - measure(short)
        evidence = (f"largest weight {float(first)} of L=100 and {float(last)} of L=1000, an even rest: P_sparse rises "
                    f"by {jumped:.0f}, the measure by {rose:.3f}")
        numbers = {"P_sparse": jumped, "measure": rose}
        if rose <= 0:
            return Finding(False, evidence, numbers)
        found.append(evidence)
    return Finding(True, found[-1], numbers)


CLAIMS = (
    Claim(
        id="T1.few", paper="DGA", place="Section 4.1",
        quote="implies that only a few tokens in the context contribute meaningfully to the target representation",
        reading="In a rho-sparse row few tokens [generously: half of them] hold [90 % of] the weight.",
        printed=half_of_them, check=check_few, verdict=Verdict.FALSE, corrected=most_tokens, weight=Weight.SUBSTANCE,
        repair="with largest weight w < 0.9, 90 % of the row needs at most 1 + ceil((0.9 - w)(L - 1)/(1 - w)) tokens, "
               "and may need that many: 889 of 1000 at w = 0.101, rho = 0.01",
        strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF,
        proof="rho-sparse bounds one weight. The k - 1 heaviest of the others hold at least the share (k-1)/(L-1) of "
              "what is left, 1 - w; solve w + (1-w)(k-1)/(L-1) >= 0.9 for k. Equality where the others are alike.",
        example="""
from fractions import Fraction

L, rho, w = 1000, Fraction(1, 100), Fraction(101, 1000)
row = [w] + [(1 - w) / (L - 1)] * (L - 1)                    # one heavy token, the rest alike
needed = next(k for k in range(1, L + 1) if sum(row[:k]) >= Fraction(9, 10))
print(max(row) > 1 / (L * rho), needed)
assert max(row) > 1 / (L * rho) and needed == 889
"""),
    Claim(
        id="T1.artefact", paper="DGA", place="Section 6.2",
        quote="proving sparsity strengthens with context length universally",
        reading="Where P_sparse rises to 1 with L, attention becomes sparser [by whatever \"sparsity\" names].",
        printed=k90_index, check=check_proves, verdict=Verdict.DEPENDS, corrected=rho_sparse_index,
        models={"sparsity is P_sparse itself": (rho_sparse_index, True),
                "sparsity is the share of tokens that 90 % of a row does without": (k90_index, False),
                "sparsity is the share of tokens beyond an effective number, 1/sum alpha^2": (effective_index, False)},
        repair="P_sparse rises, which is all that follows: a largest weight w that stays makes it jump from 0 to 1 at "
               "L = 1/(w rho), and so does one that falls from 0.4 to 0.06; report k90(L)/L or the entropy beside it",
        strength=Strength.COUNTEREXAMPLE, repaired=Strength.COUNTEREXAMPLE, weight=Weight.SUBSTANCE,
        proof="The bar 1/(L rho) falls with L, faster than w may: at rho = 0.02 it is 0.5 at L = 100 and 0.05 at 1000, "
              "so a row of weight 0.4 on one token is not sparse, and one of weight 0.06 is. w = 0.13 jumps at 385. "
              "Conversely 50 tokens that share a row of 1000 are 5 % of it, and no weight is over 1/20.",
        example="""
from math import ceil

rho, seen = 0.02, []
for L, w in ((100, 0.4), (1000, 0.06)):                      # one heavy token, the others share the rest
    needed = 1 + ceil((0.9 - w) * (L - 1) / (1 - w))         # tokens that hold 90 %
    seen.append((w > 1 / (L * rho), needed / L))
print(seen)                                                  # (rho-sparse, share of tokens)
assert seen == [(False, 0.84), (True, 0.894)]
"""),
)
