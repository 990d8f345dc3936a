"""What rho-sparse misses: it compares the largest weight with a bar that falls like 1/L.

Other measures are k90, the keys that carry 90 % of a row, and effective numbers of tokens
(`cca_lab.attention.statistics`).
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from random import Random

from cca_lab.attention.statistics import keys_for_mass_loops
from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.sparsity.laws import rho_sparse

Row = Sequence[Fraction]
NINE_TENTHS = Fraction(9, 10)


def sink(length: int, weight: Fraction) -> list[Fraction]:
    """Return a row with the given weight on the first token, and equal weights on all others."""
    return [weight, *[(1 - weight) / (length - 1)] * (length - 1)]


def block(length: int, tokens: int) -> list[Fraction]:
    """Return a row in which the first `tokens` tokens have equal weights, the others 0."""
    return [Fraction(1, tokens)] * tokens + [Fraction(0)] * (length - tokens)


def k90(row: Row) -> int:
    """Count the keys, largest first, that carry 90 % of a row in rationals."""
    return keys_for_mass_loops(row, NINE_TENTHS)  # type: ignore[arg-type]  # rationals


def jump(weight: Fraction, rho: Fraction) -> int:
    """Return the least L > 1/(weight rho): there a row of this largest weight is rho-sparse."""
    return int(1 / (weight * rho)) + 1


def most_tokens(length: int, rho: Fraction, largest: Fraction) -> int:
    """Return the most keys that 90 % of a row can need, if only the largest weight w is known.

        1 + ceil((0.9 - w) (L - 1) / (1 - w))   for w < 0.9, else 1

    No smaller number is enough: `sink` attains it.
    """
    if largest >= NINE_TENTHS:
        return 1
    return 1 + ceil((NINE_TENTHS - largest) * (length - 1) / (1 - largest))


def rows_to_try(seed: int = 0) -> list[list[Fraction]]:
    """Return rows with a sink, the smallest first, and random rows, of at most 1000 tokens."""
    generator = Random(seed)
    rows = [sink(length, weight) for length in (4, 10, 100, 1000)
            for weight in (Fraction(101, 1000), Fraction(1, 4), Fraction(1, 2))
            if weight > Fraction(1, length)]
    for _ in range(200):
        drawn = [generator.choice((0, 1, 1, 2, 9, 40)) for _ in range(generator.randint(2, 60))]
        drawn[0] += 1
        rows.append([Fraction(value, sum(drawn)) for value in drawn])
    return rows


def check_few(most: Callable[[int, Fraction, Fraction], int]) -> Outcome:
    """Judge a bound on the tokens that carry 90 % of a rho-sparse row; tell the largest excess."""
    judged = attained = excess = 0
    worst = Outcome(True, "")
    for row in rows_to_try():
        for rho in (Fraction(1), Fraction(1, 2), Fraction(1, 10), Fraction(1, 100)):
            length = len(row)
            if rho * length <= 1 or not rho_sparse(row, rho):
                continue
            judged, claimed, needed = judged + 1, most(length, rho, max(row)), k90(row)
            if needed > claimed and needed - claimed >= excess:
                excess = needed - claimed
                worst = Outcome(False, f"L={length}, largest weight {max(row)}, rho={rho}: "
                                f"rho-sparse, 90 % needs {needed} of {length} tokens, claimed "
                                f"{claimed}", {"claimed": claimed, "k90": needed, "L": length})
            attained += needed == claimed
    if excess:
        return worst
    return Outcome(True, f"never exceeded on {judged} pairs of row and rho, attained on {attained}",
                   {"pairs": judged, "attained": attained})


def rho_sparse_index(row: Row) -> float:
    """Return 1 if a row is rho-sparse at rho = 0.02, else 0, which Figure 2(c) averages."""
    return float(rho_sparse(row, Fraction(1, 50)))


def k90_index(row: Row) -> float:
    """Return the share of tokens that 90 % of the row does not need, 1 - k90 / L."""
    return 1 - k90(row) / len(row)


def effective_index(row: Row) -> float:
    """Return the share of tokens beyond the effective number 1 / sum alpha^2."""
    return float(1 - 1 / (len(row) * sum(weight**2 for weight in row)))


# The largest weight at 100 and at 1000 tokens.
SINKS = ((Fraction(13, 100), Fraction(13, 100)), (Fraction(2, 5), Fraction(3, 50)))


def check_proves(measure: Callable[[Row], float]) -> Outcome:
    """Judge whether a measure of sparsity rises where P_sparse jumps from 0 to 1, rho = 0.02.

    All tokens but the first have equal weights; the first's stays in one case and falls in another.
    """
    for first, last in SINKS:
        short, long = sink(100, first), sink(1000, last)
        if (jumped := rho_sparse_index(long) - rho_sparse_index(short)) != 1:
            raise ValueError(f"SINKS: P_sparse rises by {jumped} from {first} to {last}; it must "
                             "jump from 0 to 1")
        rose = measure(long) - measure(short)
        evidence = (f"largest weight {float(first)} of L=100 and {float(last)} of L=1000, an even "
                    f"rest: P_sparse rises by {jumped:.0f}, the measure by {rose:.3f}")
        numbers = {"P_sparse": jumped, "measure": rose}
        if rose <= 0:
            return Outcome(False, evidence, numbers)
    return Outcome(True, evidence, numbers)


SUBJECTS = {
    # "only a few" tokens: generously, half of them
    "T1.few": Subjects(check_few, lambda length, rho, largest: length // 2, corrected=most_tokens),
    "T1.artefact": Subjects(check_proves, k90_index, corrected=rho_sparse_index,
                            models=(rho_sparse_index, k90_index, effective_index)),
}
