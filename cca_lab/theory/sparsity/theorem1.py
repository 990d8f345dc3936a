"""DGA's Theorem 1 in rationals: why Equations 8, 19 and 20 fail, and what holds for any joint law.

The laws are finite (`sparsity.laws`), so both sides of every statement are exact; `sparsity.bounds` has the
corrected bounds for continuous logits.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from math import ceil

from cca_lab.theory.claim import Claim, Finding, Hypothesis, Strength, Verdict, Weight, chosen
from cca_lab.theory.sparsity.laws import CASES, IID_CASES, FiniteLaw, p_sparse, points

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
    return sum(chances_over(law, rho), Fraction(0)) / (ceil(law.length * rho) - 1)


def chances_over(law: FiniteLaw, rho: Fraction) -> list[Fraction]:
    """Return P(alpha_j > 1/(L rho)) for each j."""
    most = law.length * rho
    over = [[most * value > sum(row) for value in row] for _, row in law.outcomes]
    return [sum((chance for (chance, _), row in zip(law.outcomes, over, strict=True) if row[j]), Fraction(0))
            for j in range(law.length)]


def repaired_eq19(law: FiniteLaw, rho: Fraction) -> Fraction:
    """Return the larger of the two bounds that Eq. 19 becomes: `counting_bound`, and Eq. 19 where it holds."""
    holds = law.length * rho <= 2 and len(set(chances_over(law, rho))) == 1
    return max(counting_bound(law, rho), eq19(law, rho) if holds else Fraction(0))


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
    gaps: list[Fraction] = []
    for law, rho in cases:
        claimed, true = bound(law, rho), p_sparse(law, rho)
        if claimed > true:
            return Finding(False, f"{law.name}, rho={rho}: claims at least {claimed} = {float(claimed):.3f}, "
                           f"P_sparse is {true} = {float(true):.3f}",
                           {"claimed": float(claimed), "p_sparse": float(true), "L": law.length, "rho": float(rho)})
        gaps.append(true - claimed)
    equal = gaps.count(Fraction(0))
    return Finding(True, f"never above P_sparse on {len(gaps)} laws, {equal} times equal to it",
                   {"laws": len(gaps), "equal": equal, "largest_gap": float(max(gaps))})


def check_upper_bound(bound: Objective) -> Finding:
    """Judge an upper bound on P(alpha_1 <= 1/(L rho)) at every x, by exact evaluation on finite laws."""
    tried = 0
    for law, rho in CASES:
        true = 1 - chances_over(law, rho)[0]
        for x in points(law, rho):
            tried += 1
            if bound(law, rho, x) < true:
                claimed = bound(law, rho, x)
                steps = wrong_steps(eq20_lines(law, rho, x))
                return Finding(False, f"{law.name}, rho={rho}, x={x}: claims at most {claimed}, it is {true}; "
                               f"steps of Eq. 20 that fail: {'; '.join(steps)}",
                               {"claimed": float(claimed), "probability": float(true), "x": float(x)})
    return Finding(True, f"never below P(alpha_1 <= 1/(L rho)) at {tried} pairs of law and x", {"pairs": tried})


def head_times_tail(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return P_head P_tail at one x, with j = 1."""
    head = law.probability(lambda row: row[0] <= x)
    return head * law.probability(lambda row: (law.length * rho - 1) * x <= sum(row[1:]))


def below_the_largest(law: FiniteLaw, rho: Fraction, x: Fraction) -> bool:
    """Whether x lies below the largest value that X_1 takes, so that P_head < 1."""
    return x < max(row[0] for _, row in law.outcomes)


def where_it_is_said(law: FiniteLaw, rho: Fraction, x: Fraction) -> Fraction:
    """Return P_head P_tail where x lies below the largest value, and 0, that is nothing, elsewhere."""
    return head_times_tail(law, rho, x) if below_the_largest(law, rho, x) else Fraction(0)


def check_bounded(product: Objective, within: Callable[..., bool] | None = None) -> Finding:
    """Judge whether a product of two probabilities stays below 1 at every x, on laws of independent logits."""
    cases = chosen([(law, rho, x) for law, rho in IID_CASES for x in points(law, rho)],
                   within and (lambda case: within(*case)))
    for law, rho, x in cases:
        if (value := product(law, rho, x)) >= 1:
            return Finding(False, f"{law.name}, rho={rho}, x={x}: the product is {value}", {"x": float(x)})
    most = max(product(*case) for case in cases)
    return Finding(True, f"at most {float(most):.3f} at {len(cases)} pairs of law and x", {"most": float(most)})


CLAIMS = (
    Claim(
        id="T1", paper="DGA", place="Theorem 1, Eq. 8", formula=True,
        quote=r"P_{sparse}(L,\rho) \ge \max_{x>0} 1 - [P_{head}P_{tail}]^L",
        reading="For every law of the logits, P_sparse(L, rho) is at least 1 - [P_head P_tail]^L at the best x > 0.",
        printed=printed_bound, check=partial(check_lower_bound, cases=CASES), verdict=Verdict.FALSE,
        strength=Strength.COUNTEREXAMPLE, weight=Weight.SUBSTANCE, corrected=two_term_bound, repaired=Strength.PROOF,
        repair="P_sparse >= sup over x > 0 of P(max X > x) - P(S > L rho x), for any law",
        proof="The printed right side is 1 for every law: P_head -> 0 as x -> 0, and P_tail -> 0 as x grows. "
              "Repair: where max X > x and S <= L rho x, the largest weight max X / S is greater than 1 / (L rho). "
              "So P_sparse >= P(max X > x, S <= L rho x) >= P(max X > x) - P(S > L rho x). The folder proofs/ has "
              "this for Coq.",
        example="""
from fractions import Fraction

X, L, rho, x = (1, 1), 2, 1, Fraction(1, 2)      # two equal logits: both weights are 1/2, not more than 1/(L rho)
head = X[0] <= x
tail = (L * rho - 1) * x <= X[1]
claimed, true = 1 - (head * tail) ** L, max(X) * L * rho > sum(X)
print(f"claimed at least {claimed}, P_sparse is {int(true)}")
assert claimed == 1 and not true
"""),
    Claim(
        id="T1.eq19", paper="DGA", place="Appendix A.1, Eq. 19", formula=True,
        quote=(r"\ge 1 - P^L\{\alpha_j \le 1/(L\rho)\}", "the inequation is due to the dependence of each"),
        reading="P(all alpha_j <= c) <= P(alpha_1 <= c)^L with c = 1/(L rho) [for identically distributed logits, "
                "where it does not matter which j is meant].",
        printed=eq19, check=partial(check_lower_bound, cases=CASES), verdict=Verdict.FALSE,
        strength=Strength.COUNTEREXAMPLE, weight=Weight.SUBSTANCE, corrected=repaired_eq19, repaired=Strength.PROOF,
        repair="P_sparse >= sum_j P(alpha_j > c) / (ceil(L rho) - 1), for any law; Eq. 19 itself where L rho <= 2 and "
               "the weights are identically distributed",
        proof="Eq. 19 needs negative dependence of the weights, and iid logits with two values have none. Smallest: "
              "L = 3, rho = 1, P(large) = q: P(none > 1/3) = q^3 + (1-q)^3, P(alpha_1 > 1/3) = q (1-q^2). Repair: the "
              "weights over 1/(L rho) sum to at most 1, so their number N is less than L rho, hence at most "
              "ceil(L rho) - 1, and P(N >= 1) >= E N / (ceil(L rho) - 1). If L rho <= 2, then N <= 1 and P_sparse = "
              "E N = L p >= 1 - (1 - p)^L where all weights have one law; else not: X = (9, 1) or (1, 1), L = 2.",
        example="""
from fractions import Fraction
from itertools import product

q, L = Fraction(4, 5), 3                          # iid X in {1, 3}, P(3) = 4/5; rho = 1, so the bar is 1/3
rows = [(row, (q if row[0] == 3 else 1 - q) * (q if row[1] == 3 else 1 - q) * (q if row[2] == 3 else 1 - q))
        for row in product((1, 3), repeat=L)]
first = sum(p for row, p in rows if L * row[0] <= sum(row))
every = sum(p for row, p in rows if L * max(row) <= sum(row))
print(every, "is claimed to be at most", first**L)
assert every > first**L
"""),
    Claim(
        id="T1.eq20", paper="DGA", place="Appendix A.1, Eq. 20", formula=True,
        quote=r"= P\{\exp(\xi_{j}) \leq x \leq 1/(L\rho)\langle \exp(\xi), \mathbf{1}_{n} \rangle\}",
        reading="P(alpha_j <= 1/(L rho)) <= P(X_j <= x) P((L rho - 1) x <= sum of the other X_k), for any x.",
        printed=eq20, check=check_upper_bound, verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE,
        weight=Weight.SUBSTANCE, root="T1", corrected=union_bound, repaired=Strength.PROOF,
        repair="P(alpha_j <= 1/(L rho)) <= P(X_j <= x) + P(L rho x < S)",
        proof="Line 2 -> 3 replaces {X_j <= S/(L rho)} by {X_j <= x <= S/(L rho)}, a smaller event, where an upper "
              "bound is needed. The last line moreover needs X_j independent of the others. Repair: if "
              "X_j <= S/(L rho), then for every x either X_j <= x or x < S/(L rho).",
        example="""
X, L, rho, x = (1, 1), 2, 1, 0.5
line2 = X[0] <= sum(X) / (L * rho)
line3 = X[0] <= x <= sum(X) / (L * rho)
print("line 2:", line2, "line 3:", line3)          # said to be equal
assert line2 and not line3
"""),
    Claim(
        id="T1.bounded", paper="DGA", place="Appendix A.1",
        quote="ensuring that their product remains bounded by a value less than 1",
        reading="P_head P_tail is less than 1 at every x > 0 [for independent logits].",
        printed=head_times_tail, check=check_bounded, verdict=Verdict.HOLDS_IF, strength=Strength.PROOF,
        weight=Weight.SLIP, root="T1", corrected=where_it_is_said, repaired=Strength.PROOF,
        hypothesis=Hypothesis("x lies below the largest value of X_j", below_the_largest),
        repair="It is below 1 where x lies below the largest value of X_j; beyond, P_head is 1 and P_tail can be 1.",
        proof="P_head P_tail <= P_head = P(X_j <= x), which is less than 1 exactly below the largest value. For X = 1, "
              "L = 2, rho = 1 and x = 1 both are 1. At the best x of Eq. 8, which no balance decides, the product is "
              "0.",
        example="""
X, L, rho, x = (1, 1), 2, 1, 1                    # the law has one value, so each probability is 0 or 1
head, tail = X[0] <= x, (L * rho - 1) * x <= X[1]
print("P_head P_tail =", head * tail)
assert head * tail == 1
"""),
)
