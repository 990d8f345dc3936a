"""DGA's Theorem 1 in rationals: why Equations 8, 19 and 20 fail, and what holds for any joint law.

The laws are finite (`sparsity.laws`), so both sides of every statement are exact.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import ceil

from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.sparsity.laws import ATTAINED, CASES, FiniteLaw, p_sparse, points

Bound = Callable[[FiniteLaw, Fraction], Fraction]
Objective = Callable[[FiniteLaw, Fraction, Fraction], Fraction]


def printed_at(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return 1 - [P_head P_tail]^L, the right side of Equation 8 at one x, with j = 1."""
    return 1 - head_times_tail(law, rho, x) ** law.length


def two_term_at(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return P(max X > x) - P(S > L rho x), the corrected right side at one x."""
    return (law.probability(lambda row: max(row) > x)
            - law.probability(lambda row: sum(row) > law.length * rho * x))


def largest_over_x(at: Objective, law: FiniteLaw, rho: Fraction) -> Fraction:
    """Return the supremum over x > 0 of what is constant between the law's breakpoints."""
    return max(at(law, rho, x) for x in points(law, rho))


printed_bound: Bound = partial(largest_over_x, printed_at)
two_term_bound: Bound = partial(largest_over_x, two_term_at)


def eq19(law: FiniteLaw, rho: Fraction) -> Fraction:
    """Return 1 - P(alpha_1 <= 1/(L rho))^L, Equation 19's lower bound as printed."""
    return 1 - law.probability(lambda row: law.length * rho * row[0] <= sum(row)) ** law.length


def counting_bound(law: FiniteLaw, rho: Fraction) -> Fraction:
    """Return sum_j P(alpha_j > 1/(L rho)) / (ceil(L rho) - 1), Equation 19 repaired."""
    return sum(chances_over(law, rho), Fraction(0)) / (ceil(law.length * rho) - 1)


def chances_over(law: FiniteLaw, rho: Fraction) -> list[Fraction]:
    """Return P(alpha_j > 1/(L rho)) for each j."""
    most = law.length * rho
    over = [[most * value > sum(row) for value in row] for _, row in law.outcomes]
    return [sum((chance for (chance, _), row in zip(law.outcomes, over, strict=True) if row[j]),
                Fraction(0)) for j in range(law.length)]


def eq20_lines(law: FiniteLaw, rho: Fraction, x: Fraction) -> tuple[Fraction, ...]:
    """Evaluate the seven lines of Equation 20, which the paper connects by five "=" and a "<=".

    A conditional probability given an event of probability 0 contributes 0 to the product.
    """
    most = law.length * rho
    alpha = law.probability(lambda row: row[0] / sum(row) <= 1 / most)
    moved = law.probability(lambda row: row[0] <= sum(row) / most)
    split = law.probability(lambda row: row[0] <= x <= sum(row) / most)
    both = law.probability(lambda row: row[0] <= x and x <= sum(row) / most)
    head = law.probability(lambda row: row[0] <= x)
    given = both / head if head else Fraction(0)
    tail = law.probability(lambda row: (most - 1) * x <= sum(row[1:]))
    return alpha, moved, split, both, head * given, head * given, head * tail


def wrong_steps(lines: Sequence[Fraction]) -> list[str]:
    """Return the steps of Equation 20 that fail on these numbers, in the form "2 -> 3: 1 = 0"."""
    relations = ["="] * (len(lines) - 2) + ["<="]
    wrong = []
    for number, (left, relation, right) in enumerate(zip(lines, relations, lines[1:], strict=False),
                                                     start=1):
        if (left != right) if relation == "=" else (left > right):
            wrong.append(f"{number} -> {number + 1}: {left} {relation} {right}")
    return wrong


def union_bound(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return P(X_1 <= x) + P(L rho x < S), Equation 20 repaired."""
    most = law.length * rho
    return (law.probability(lambda row: row[0] <= x)
            + law.probability(lambda row: most * x < sum(row)))


def check_lower_bound(bound: Bound) -> Outcome:
    """Judge a lower bound on P_sparse by exact evaluation on finite laws; some it must attain."""
    for law, rho in CASES:
        claimed, true = bound(law, rho), p_sparse(law, rho)
        if claimed > true:
            return Outcome(False, f"{law.name}, rho={rho}: claims at least {claimed} = "
                           f"{float(claimed):.3f}, P_sparse is {true} = {float(true):.3f}")
    for law, rho in ATTAINED:
        if (claimed := bound(law, rho)) != p_sparse(law, rho):
            return Outcome(False, f"{law.name}, rho={rho}: claims at least {claimed}, the best "
                           f"bound is {p_sparse(law, rho)}")
    return Outcome(True, f"never above P_sparse on {len(CASES)} laws, equal to it on "
                   f"{len(ATTAINED)} more")


def check_upper_bound(bound: Objective) -> Outcome:
    """Judge an upper bound on P(alpha_1 <= 1/(L rho)) at every x, exactly, on finite laws.

    On some laws it must be attained at the best x.
    """
    tried = 0
    for law, rho in CASES:
        true = 1 - chances_over(law, rho)[0]
        for x in points(law, rho):
            tried += 1
            if bound(law, rho, x) < true:
                claimed = bound(law, rho, x)
                steps = wrong_steps(eq20_lines(law, rho, x))
                return Outcome(False, f"{law.name}, rho={rho}, x={x}: claims at most {claimed}, it "
                               f"is {true}; steps of Eq. 20 that fail: {'; '.join(steps)}")
    for law, rho in ATTAINED:
        least = min(bound(law, rho, x) for x in points(law, rho))
        if least != 1 - chances_over(law, rho)[0]:
            return Outcome(False, f"{law.name}, rho={rho}: at the best x it claims at most "
                           f"{least}, and 1/2 is right")
    return Outcome(True, f"never below P(alpha_1 <= 1/(L rho)) at {tried} pairs of law and x, "
                   f"equal to it at the best x of {len(ATTAINED)} laws")


def head_times_tail(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return P_head P_tail at one x, j = 1: Equation 20's bound on P(alpha_1 <= 1/(L rho))."""
    head = law.probability(lambda row: row[0] <= x)
    return head * law.probability(lambda row: (law.length * rho - 1) * x <= sum(row[1:]))


SUBJECTS = {
    "T1": Subjects(check_lower_bound, printed_bound, corrected=two_term_bound),
    "T1.eq19": Subjects(check_lower_bound, eq19, corrected=counting_bound),
    "T1.eq20": Subjects(check_upper_bound, head_times_tail, corrected=union_bound),
}
