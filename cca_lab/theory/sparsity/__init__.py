"""DGA's Theorem 1 in rationals: why Equations 8, 19 and 20 fail, and what holds for any joint law.

The laws are finite (`sparsity.laws`), so both sides of every statement are exact; `sparsity.bounds` has the
corrected bounds for continuous logits.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from math import ceil

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.sparsity.laws import CASES, RARE, FiniteLaw, p_sparse, points

Bound = Callable[[FiniteLaw, Fraction], Fraction]
Objective = Callable[[FiniteLaw, Fraction, Fraction], Fraction]


def printed_at(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return 1 - [P_head P_tail]^L, the right side of Equation 8 at one x, with j = 1."""
    head = law.probability(lambda row: row[0] <= x)
    tail = law.probability(lambda row: (law.length * rho - 1) * x <= sum(row[1:]))
    return 1 - (head * tail) ** law.length


def two_term_at(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return P(max X > x) - P(S > L rho x), the corrected right side at one x."""
    return law.probability(lambda row: max(row) > x) - law.probability(lambda row: sum(row) > law.length * rho * x)


def largest_over_x(at: Objective, law: FiniteLaw, rho: Fraction) -> Fraction:
    """Return the supremum over x > 0 of an objective that is constant between the law's breakpoints."""
    return max(at(law, rho, x) for x in points(law, rho))


printed_bound: Bound = partial(largest_over_x, printed_at)
two_term_bound: Bound = partial(largest_over_x, two_term_at)


def eq19(law: FiniteLaw, rho: Fraction) -> Fraction:
    """Return 1 - P(alpha_1 <= 1/(L rho))^L, Equation 19's lower bound as printed."""
    return 1 - law.probability(lambda row: law.length * rho * row[0] <= sum(row)) ** law.length


def counting_bound(law: FiniteLaw, rho: Fraction) -> Fraction:
    """Return sum_j P(alpha_j > 1/(L rho)) / (ceil(L rho) - 1), Equation 19 repaired, for any joint law."""
    most = law.length * rho
    expected = sum(law.probability(lambda row, j=j: most * row[j] > sum(row)) for j in range(law.length))
    return expected / (ceil(most) - 1)


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
    for number, (left, relation, right) in enumerate(zip(lines, relations, lines[1:], strict=False), start=1):
        if (left != right) if relation == "=" else (left > right):
            wrong.append(f"{number} -> {number + 1}: {left} {relation} {right}")
    return wrong


def eq20(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return P_head P_tail, Equation 20's upper bound on P(alpha_1 <= 1/(L rho)) as printed."""
    return eq20_lines(law, rho, x)[-1]


def union_bound(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return P(X_1 <= x) + P(L rho x < S), Equation 20 repaired."""
    most = law.length * rho
    return law.probability(lambda row: row[0] <= x) + law.probability(lambda row: most * x < sum(row))


def check_lower_bound(bound: Bound, cases: Iterable[tuple[FiniteLaw, Fraction]]) -> Finding:
    """Judge a lower bound on P_sparse by exact evaluation on finite laws."""
    cases, gaps = list(cases), []
    for law, rho in cases:
        claimed, true = bound(law, rho), p_sparse(law, rho)
        if claimed > true:
            return Finding(False, f"{law.name}, rho={rho}: claims at least {claimed} = {float(claimed):.3f}, "
                           f"P_sparse is {true} = {float(true):.3f}",
                           {"claimed": float(claimed), "p_sparse": float(true), "L": law.length, "rho": float(rho)})
        gaps.append(true - claimed)
    return Finding(True, f"never above P_sparse on {len(cases)} laws, {gaps.count(0)} times equal to it",
                   {"laws": len(cases), "equal": gaps.count(0), "largest_gap": float(max(gaps))})


def check_upper_bound(bound: Objective) -> Finding:
    """Judge an upper bound on P(alpha_1 <= 1/(L rho)) at every x, by exact evaluation on finite laws."""
    tried = 0
    for law, rho in CASES:
        true = law.probability(lambda row, most=law.length * rho: most * row[0] <= sum(row))
        for x in points(law, rho):
            tried += 1
            if bound(law, rho, x) < true:
                claimed = bound(law, rho, x)
                steps = wrong_steps(eq20_lines(law, rho, x))
                return Finding(False, f"{law.name}, rho={rho}, x={x}: claims at most {claimed}, it is {true}; "
                               f"steps of Eq. 20 that fail: {'; '.join(steps)}",
                               {"claimed": float(claimed), "probability": float(true), "x": float(x)})
    return Finding(True, f"never below P(alpha_1 <= 1/(L rho)) at {tried} pairs of law and x", {"pairs": tried})


def check_balance(at: Objective) -> Finding:
    """Judge whether the best x of an objective is interior: at x -> 0 and x -> infinity the bound must be trivial."""
    inside = []
    for law, rho in ((RARE, Fraction(1, 2)), (RARE, Fraction(3, 4))):
        first, *middle, last = (at(law, rho, x) for x in points(law, rho))
        if max(first, last) >= max(middle) or max(first, last) > 0:
            return Finding(False, f"{law.name}, rho={rho}: {first} as x -> 0 and {last} as x -> infinity, against "
                           f"{float(max(middle)):.3f} at best between; P_sparse is {float(p_sparse(law, rho)):.3f}",
                           {"at_zero": float(first), "at_infinity": float(last), "best_between": float(max(middle))})
        inside.append(float(max(middle)))
    return Finding(True, f"0 at both ends, {inside[0]:.3f} and {inside[1]:.3f} at best between",
                   {"best_between": min(inside)})


CLAIMS = (
    Claim(
        id="T1", paper="DGA", place="Theorem 1, Eqs. 8 and 18",
        statement="P_sparse(L, rho) >= max over x > 0 of 1 - [P_head P_tail]^L, for any law of the logits",
        printed=printed_bound, check=partial(check_lower_bound, cases=CASES), verdict=Verdict.FALSE,
        corrected=two_term_bound, repair="P_sparse >= sup over x > 0 of P(max X > x) - P(S > L rho x), for any law",
        strength=Strength.EXACT,
        proof="The printed right side is 1 for every law: P_head -> 0 as x -> 0, and P_tail -> 0 as x grows. "
              "Repair: where max X > x and S <= L rho x, the largest weight max X / S is greater than 1 / (L rho). "
              "So P_sparse >= P(max X > x, S <= L rho x) >= P(max X > x) - P(S > L rho x)."),
    Claim(
        id="T1.eq19", paper="DGA", place="Appendix A.1, Eq. 19",
        statement="P(all alpha_j <= c) <= P(alpha_1 <= c)^L, so P_sparse >= 1 - P(alpha_1 <= c)^L, c = 1/(L rho)",
        printed=eq19, check=partial(check_lower_bound, cases=CASES), verdict=Verdict.FALSE,
        corrected=counting_bound,
        repair="P_sparse >= sum_j P(alpha_j > c) / (ceil(L rho) - 1), for any law; Eq. 19 holds where L rho <= 2",
        strength=Strength.EXACT,
        proof="Eq. 19 needs negative dependence of the weights, and iid logits with two values have none. Smallest: "
              "L = 3, rho = 1, P(large) = q: P(none > 1/3) = q^3 + (1-q)^3, P(alpha_1 > 1/3) = q (1-q^2). Repair: the "
              "weights over 1/(L rho) sum to at most 1, so their number N is less than L rho, hence at most "
              "ceil(L rho) - 1, and P(N >= 1) >= E N / (ceil(L rho) - 1). If L rho <= 2, then N <= 1 and "
              "P_sparse = E N, which is at least what Eq. 19 says for identically distributed weights."),
    Claim(
        id="T1.eq20", paper="DGA", place="Appendix A.1, Eq. 20",
        statement="P(alpha_j <= 1/(L rho)) <= P(X_j <= x) P((L rho - 1) x <= sum of the other X_k), for any x",
        printed=eq20, check=check_upper_bound, verdict=Verdict.FALSE,
        corrected=union_bound, repair="P(alpha_j <= 1/(L rho)) <= P(X_j <= x) + P(L rho x < S)",
        strength=Strength.EXACT,
        proof="Line 2 -> 3 replaces {X_j <= S/(L rho)} by {X_j <= x <= S/(L rho)}, a smaller event, where an upper "
              "bound is needed. The last line moreover needs X_j independent of the others. Repair: if "
              "X_j <= S/(L rho), then for every x either X_j <= x or x < S/(L rho)."),
    Claim(
        id="T1.balance", paper="DGA", place="Remark 2",
        statement="A larger x raises P_head and lowers P_tail, so the best x of Eq. 8 is a balance between the two",
        printed=printed_at, check=check_balance, verdict=Verdict.FALSE,
        corrected=two_term_at, repair="P(max X > x) - P(S > L rho x) is 0 at both ends and has its best x inside",
        strength=Strength.EXACT,
        proof="1 - [P_head P_tail]^L is largest where the product is smallest, and the product goes to 0 at both "
              "ends: the best x is no x at all. The corrected difference goes to 1 - 1 = 0 as x -> 0 and to 0 - 0 = 0 "
              "as x grows."),
)
