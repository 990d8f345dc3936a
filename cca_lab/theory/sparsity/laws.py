"""Joint laws of logits with finitely many outcomes, in rationals: every probability is exact.

A row of attention is alpha_j = X_j / S with X_j = e^{xi_j} and S = sum_j X_j, so a law lists the
X_j directly.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil, prod

Outcome = tuple[Fraction, ...]


@dataclass(frozen=True)
class FiniteLaw:
    """A joint law of X_1 .. X_L, the exponentials of the logits, with finitely many outcomes."""

    name: str
    outcomes: tuple[tuple[Fraction, Outcome], ...]  # (probability, (X_1, .., X_L)), all positive

    def __post_init__(self) -> None:
        total = sum(probability for probability, _ in self.outcomes)
        lengths = {len(row) for _, row in self.outcomes}
        if total != 1 or any(min(row) <= 0 for _, row in self.outcomes) or len(lengths) != 1:
            raise ValueError(f"outcomes of {self.name!r}: probabilities sum to {total}, lengths "
                             f"{lengths}; wanted sum 1, one length, and X_j = e^xi_j > 0")

    @property
    def length(self) -> int:
        """L, the number of tokens in a row."""
        return len(self.outcomes[0][1])

    def probability(self, event: Callable[[Outcome], bool]) -> Fraction:
        """Return the probability of an event, exactly."""
        return sum((probability for probability, row in self.outcomes if event(row)), Fraction(0))


def iid(name: str, values: Mapping[Fraction | int, Fraction], length: int) -> FiniteLaw:
    """Return the law of `length` independent X_j that take each value with its probability."""
    drawn = product(values.items(), repeat=length)
    return FiniteLaw(name, tuple((prod((p for _, p in row), start=Fraction(1)),
                                  tuple(Fraction(x) for x, _ in row)) for row in drawn))


def rho_sparse(weights: Sequence[Fraction], rho: Fraction) -> bool:
    """Return whether some alpha_j = X_j / S exceeds 1 / (L rho); any multiple of alpha will do."""
    return max(weights) * len(weights) * rho > sum(weights)


def p_sparse(law: FiniteLaw, rho: Fraction) -> Fraction:
    """Return P_sparse(L, rho), the probability that a row is rho-sparse, exactly."""
    return law.probability(lambda row: rho_sparse(row, rho))


def points(law: FiniteLaw, rho: Fraction) -> list[Fraction]:
    """Return the x at which to evaluate what is constant between the law's breakpoints.

    The breakpoints are the values of X_j, of S / (L rho) and of (S - X_1) / (L rho - 1). One more x
    lies between any two neighbours, and one outside on each side.
    """
    most = law.length * rho
    breaks = sorted({value for _, row in law.outcomes
                     for value in (*row, sum(row) / most, sum(row[1:]) / (most - 1))})
    between = [(low + high) / 2 for low, high in zip(breaks, breaks[1:], strict=False)]
    return sorted({breaks[0] / 2, *breaks, *between, 2 * breaks[-1]})


def random_laws(count: int, seed: int = 0) -> list[tuple[FiniteLaw, Fraction]]:
    """Return joint laws with small integer values, any dependence, and a rate in (1/L, 1]."""
    generator = random.Random(seed)
    cases = []
    for number in range(count):
        length, size = generator.randint(2, 5), generator.randint(1, 6)
        chances = [generator.randint(1, 9) for _ in range(size)]
        outcomes = tuple((Fraction(chance, sum(chances)),
                          tuple(Fraction(generator.choice((1, 1, 2, 3, 5, 20)))
                                for _ in range(length))) for chance in chances)
        rho = Fraction(1, length) + Fraction(generator.randint(1, 8), 8) * (1 - Fraction(1, length))
        cases.append((FiniteLaw(f"random joint law {number}, L={length}", outcomes), rho))
    return cases


def crowded(length: int, rho: Fraction) -> FiniteLaw:
    """Return a law that attains Theorem 1's repairs: half the rows even, half as full as possible.

    A full row has ceil(L rho) - 1 weights just over 1 / (L rho), the most there is room for.
    """
    most = length * rho
    count = ceil(most) - 1
    large = Fraction(101, 100) * (length - count) / (most - count)
    full = (large,) * count + (Fraction(1),) * (length - count)
    return FiniteLaw(f"L={length}, half the rows with {count} weights over 1/{most}",
                     ((HALF, full), (HALF, (Fraction(1),) * length)))


HALF = Fraction(1, 2)
EVEN_PAIR = FiniteLaw("L=2, xi=(0,0)", ((Fraction(1), (Fraction(1), Fraction(1))),))
TWO_POINT = {q: iid(f"L=3 iid, X in {{1,3}}, P(3)={q}", {1: 1 - q, 3: q}, 3)
             for q in (HALF, Fraction(4, 5))}
NEARLY_EVEN = iid("L=2 iid, X in {9/10, 11/10}", {Fraction(9, 10): HALF, Fraction(11, 10): HALF}, 2)
OPPOSED = FiniteLaw("L=2, X=(1,3) or (3,1)",
                    ((HALF, (Fraction(1), Fraction(3))), (HALF, (Fraction(3), Fraction(1)))))
UNLIKE = FiniteLaw("L=2, X=(9,1) or (1,1)",
                   ((HALF, (Fraction(9), Fraction(1))), (HALF, (Fraction(1), Fraction(1)))))
RARE = iid("L=4 iid, X in {1,20}, P(20)=1/4", {1: Fraction(3, 4), 20: Fraction(1, 4)}, 4)
# The smallest first, because the evidence against a bound is the first case on which it fails.
CASES = [(EVEN_PAIR, Fraction(1)), (NEARLY_EVEN, Fraction(9, 10)), (TWO_POINT[HALF], Fraction(1)),
         (TWO_POINT[Fraction(4, 5)], Fraction(1)), (RARE, Fraction(1, 2)), (RARE, Fraction(3, 4)),
         (OPPOSED, Fraction(1)), (UNLIKE, Fraction(1)), *random_laws(200)]
# Here the best bound is the probability itself: L rho an integer, and between two integers.
ATTAINED = [(crowded(length, Fraction(halves, 2 * length)), Fraction(halves, 2 * length))
            for length in range(2, 6) for halves in range(3, 2 * length + 1)]
