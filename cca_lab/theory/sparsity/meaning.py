"""What rho-sparse misses: it compares the largest weight with a bar that falls like 1/L.

Other measures are k90, the keys that carry 90 % of a row, and effective numbers of tokens
(`cca_lab.attention.statistics`).
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import ceil, comb
from random import Random

from cca_lab.attention.statistics import keys_for_mass_loops
from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.sparsity.laws import rho_sparse

NINE_TENTHS = Fraction(9, 10)


def sink(length: int, weight: Fraction) -> list[Fraction]:
    """Return a row with the given weight on the first token, and equal weights on all others."""
    return [weight, *[(1 - weight) / (length - 1)] * (length - 1)]


def block(length: int, tokens: int) -> list[Fraction]:
    """Return a row in which the first `tokens` tokens have equal weights, the others 0."""
    return [Fraction(1, tokens)] * tokens + [Fraction(0)] * (length - tokens)


def k90(row: Sequence[Fraction]) -> int:
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


SINKS = [sink(length, weight) for length in (2, 4, 10, 100, 1000)
         for weight in (Fraction(2, 3), Fraction(101, 1000), Fraction(1, 4), Fraction(19, 20))
         if weight > Fraction(1, length)]


def random_rows(seed: int = 0) -> Iterator[list[Fraction]]:
    """Yield 200 rows of at most 60 weights."""
    generator = Random(seed)
    for _ in range(200):
        drawn = [generator.choice((0, 1, 1, 2, 9, 40)) for _ in range(generator.randint(2, 60))]
        drawn[0] += 1
        yield [Fraction(value, sum(drawn)) for value in drawn]


def check_few(most: Callable[[int, Fraction, Fraction], int]) -> Outcome:
    """Judge a bound on the tokens with 90 % of a rho-sparse row; rows of `SINKS` attain it."""
    judged = 0
    for row in (*SINKS, *random_rows()):
        for rho in (Fraction(1), Fraction(1, 2), Fraction(1, 10), Fraction(1, 100)):
            length = len(row)
            if rho * length <= 1 or not rho_sparse(row, rho):
                continue
            judged, claimed, needed = judged + 1, most(length, rho, max(row)), k90(row)
            if needed > claimed or (row in SINKS and needed != claimed):
                return Outcome(False, f"L={length}, largest weight {max(row)}, rho={rho}: "
                               f"rho-sparse, 90 % needs {needed} of {length} tokens, claimed "
                               f"{claimed}")
    return Outcome(True, f"never exceeded on {judged} pairs of row and rho, equal where the other "
                   "weights are alike")


def two_valued(length: int, rho: Fraction, large: int) -> Fraction:
    """Return P_sparse of independent X that are 1 or `large`, by fair coins, exactly."""
    return Fraction(sum(comb(length, n) for n in range(1, length + 1)
                        if large * length * rho > n * large + length - n), 2**length)


RATES = tuple(Fraction(n, 12) for n in range(1, 13))


def check_rises(change: Callable[[int, Fraction], tuple[int, Fraction]]) -> Outcome:
    """Judge whether P_sparse never falls, and can rise, under a change of L and rho."""
    cases = [(length, rho, large) for length in range(2, 30) for rho in RATES for large in (3, 20)
             if length * rho > 1]
    rises = 0
    for length, rho, large in sorted(cases, key=lambda case: (case[0], -case[1])):
        before, after = (two_valued(*setting, large)
                         for setting in ((length, rho), change(length, rho)))
        if after < before:
            return Outcome(False, f"X in {{1,{large}}}, a fair coin: from L={length}, rho={rho} to "
                           f"L={change(length, rho)[0]}, rho={change(length, rho)[1]} P_sparse "
                           f"goes from {before} to {after}")
        rises += after > before
    return Outcome(rises > 0, f"never falls in {len(cases)} cases, rises in {rises}")


SUBJECTS = {
    # "only a few" tokens: generously, half of them
    "T1.few": Subjects(check_few, lambda length, rho, largest: length // 2, corrected=most_tokens),
    # one token more at the same rate, "with context length"; a larger rate at the same length
    "T1.artefact": Subjects(check_rises, lambda length, rho: (length + 1, rho),
                            corrected=lambda length, rho: (length, min(rho + RATES[0], RATES[-1]))),
}
