"""The effect of grouping on the output: Eq. 10 and its constraint, and the noise that it removes (DGA Section 4.2).

Problem 1 (Eq. 9) writes a target y as sum alpha_j V_j with sum alpha_j = 1. In Problem 2 (Eq. 10) the |G_g| tokens of
each group share one weight. There are two consistent forms:

    A: alphabar_g the mean weight of the group   sum_g alphabar_g sum_{j in G_g} V_j,   sum_g |G_g| alphabar_g = 1
    B: beta_g the mass of the group              sum_g beta_g Vbar_g,                   sum_g beta_g = 1

Output identity. Full attention with independent noise on the logits of tokens; grouped attention with the same
noise, each group's logit the mean of its tokens'; weights constant in groups of m, A_g the mass of group g.
To first order in sigma,

    Cov_full(o) = Cov_grouped(o) + sigma^2 sum_g (A_g / m)^2 sum_{j in G_g} (V_j - Vbar_g)(V_j - Vbar_g)^T

Proof: d o = sum_j alpha_j eta_j (V_j - o). Split V_j - o = (V_j - Vbar_g) + (Vbar_g - o). The second part, summed
over a group with alpha_j = A_g / m, is the grouped noise; the cross terms sum_j (V_j - Vbar_g) vanish.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.noise.models import group_masses

Vector = Sequence
Matrix = list[list]


@dataclass(frozen=True)
class GroupProblem:
    """A reading of Problem 2 with one number x_g per group.

    Attributes:
        coefficient: (x_g, |G_g|) -> the factor of every V_j of the group in the objective.
        mass: (x_g, |G_g|) -> the group's term in the sum that the constraint sets to 1.
    """

    coefficient: Callable[[Fraction, int], Fraction]
    mass: Callable[[Fraction, int], Fraction]


PRINTED = GroupProblem(coefficient=lambda x, size: x / size, mass=lambda x, size: x * size)  # Eq. 10
MEAN_WEIGHT = GroupProblem(coefficient=lambda x, size: x, mass=lambda x, size: x * size)     # A
GROUP_MASS = GroupProblem(coefficient=lambda x, size: x / size, mass=lambda x, size: x)      # B


def residual(problem: GroupProblem, shares: Sequence, values: Sequence[Sequence], target: Fraction) -> Fraction:
    """Return |sum_g coefficient_g sum_{j in G_g} V_j - y|^2 for one-dimensional values, a list for each group."""
    total = sum(problem.coefficient(x, len(group)) * sum(group) for x, group in zip(shares, values, strict=True))
    return (total - target) ** 2


# ---------------------------------------------------------------- the output under noise

def full_covariance(values: Sequence[Vector], weights: Sequence) -> Matrix:
    """Return the first-order covariance of o = sum alpha_j V_j, independent noise on every logit, sigma = 1."""
    output = _mean(values, weights)
    return _scatter([_minus(value, output, weight) for value, weight in zip(values, weights, strict=True)])


def grouped_covariance(values: Sequence[Vector], weights: Sequence, m: int) -> Matrix:
    """Return the same covariance for groups of m whose logit is the mean of their tokens' noisy logits."""
    masses, output = group_masses(weights, m), _mean(values, weights)
    sources = []
    for g, mass in enumerate(masses):
        centre = _mean(values[g * m:(g + 1) * m], [Fraction(1, m)] * m)
        sources += [_minus(centre, output, mass / m)] * m  # each token's noise moves the group's logit by 1/m
    return _scatter(sources)


def within_group_scatter(values: Sequence[Vector], weights: Sequence, m: int) -> Matrix:
    """Return sum_g (A_g / m)^2 sum_{j in G_g} (V_j - Vbar_g)(V_j - Vbar_g)^T: the covariance that grouping removes."""
    sources = []
    for g, mass in enumerate(group_masses(weights, m)):
        members = values[g * m:(g + 1) * m]
        centre = _mean(members, [Fraction(1, m)] * m)
        sources += [_minus(value, centre, mass / m) for value in members]
    return _scatter(sources)


def removed_printed(values: Sequence[Vector], weights: Sequence, m: int) -> Matrix:
    """Theorem 2's factor applied to the output: 1 - 1/m^2 of the noise is removed, for any values."""
    return [[x * (1 - Fraction(1, m * m)) for x in row] for row in full_covariance(values, weights)]


def _mean(values: Sequence[Vector], weights: Sequence) -> list:
    return [sum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*values, strict=True)]


def _minus(value: Vector, centre: Vector, factor) -> list:
    return [factor * (v - c) for v, c in zip(value, centre, strict=True)]


def _scatter(vectors: Sequence[Vector]) -> Matrix:
    size = range(len(vectors[0]))
    return [[sum(vector[a] * vector[b] for vector in vectors) for b in size] for a in size]


# ---------------------------------------------------------------- checks

GROUPS = (((1,), (1,)), ((1, 1, 1), (1, 1, 1)), ((1, 2), (5, 3)), ((2, 7, 1), (4,)))
POINTS = ((1, 1), (1, 3))
VALUES = (  # (values, weights constant in groups, m)
    ([[1, 0], [1, 0], [0, 1], [0, 1]], (1, 1, 1, 1), 2),                    # equal values in each group
    ([[1, 0], [-1, 0], [0, 1], [2, 3]], (1, 1, 3, 3), 2),
    ([[3], [1], [4], [1], [5], [9]], (2, 2, 2, 1, 1, 1), 3),
)


def check_problem(problem: GroupProblem) -> Finding:
    """Judge a reading of Problem 2: feasible points must be weights of Problem 1 that are equal within groups."""
    for groups in GROUPS:
        for point in POINTS:
            masses = [Fraction(x * len(group)) for x, group in zip(point, groups, strict=True)]
            weights = [Fraction(x) / sum(masses) for x in point]            # alpha_j of each group's tokens
            shares = [_solve(problem, weight * len(group), len(group))
                      for weight, group in zip(weights, groups, strict=True)]
            ones = [[1] * len(group) for group in groups]
            left = residual(problem, shares, ones, Fraction(1))
            wanted = sum(weight * sum(group) for weight, group in zip(weights, groups, strict=True))
            if left or residual(problem, shares, groups, wanted):
                sizes = [len(group) for group in groups]
                return Finding(False, f"groups of {sizes}, every V_j = y with |y| = 1: Problem 1 reaches 0, this "
                                      f"objective is {left} = {float(left):.3f} at a feasible point",
                               {"residual": float(left)})
    return Finding(True, f"equals Problem 1 at shared weights, for {len(GROUPS) * len(POINTS)} feasible points")


def _solve(problem: GroupProblem, mass: Fraction, size: int) -> Fraction:
    """Return the x_g at which the group's term in the constraint is `mass` (the term is linear in x_g)."""
    return mass / problem.mass(Fraction(1), size)


def check_feasible(feasible: Callable[[Sequence[Fraction]], bool]) -> Finding:
    """Judge a feasible set: V = (0, 1), y = 0 must have a minimiser in it, and only weights may be in it."""
    best, half = (Fraction(1), Fraction(0)), (Fraction(1, 2), Fraction(1, 2))
    for wrong in ((Fraction(1), Fraction(1)), (Fraction(2), Fraction(-1))):
        if feasible(wrong):
            return Finding(False, f"admits {tuple(map(str, wrong))}, which is no attention")
    if not feasible(half):
        return Finding(False, "excludes (1/2, 1/2)")
    if not feasible(best):
        tail = [Fraction(1, 10**n) for n in (1, 3, 6)]
        return Finding(False, "V = (0, 1), y = 0: the objective alpha_2^2 is over 0 wherever alpha_2 > 0 and comes "
                              "as near as one likes: " + ", ".join(f"{float(x * x):.0e}" for x in tail))
    return Finding(True, "V = (0, 1), y = 0 has the minimiser (1, 0); the set is the closed simplex")


def check_removed(subject: Callable[[Sequence[Vector], Sequence, int], Matrix]) -> Finding:
    """Judge the part of the output's covariance that grouping removes: full - grouped, in rationals."""
    for values, parts, m in VALUES:
        weights = [Fraction(part, sum(parts)) for part in parts]
        full, grouped = full_covariance(values, weights), grouped_covariance(values, weights, m)
        wanted = [[x - y for x, y in zip(*rows, strict=True)] for rows in zip(full, grouped, strict=True)]
        got = subject(values, weights, m)
        if got != wanted:
            return Finding(False, f"values {values}, m = {m}: {_trace(wanted)} of the noise {_trace(full)} sigma^2 "
                                  f"is removed, not {_trace(got)} (traces)",
                           {"removed": float(_trace(wanted)), "claimed": float(_trace(got))})
    return Finding(True, f"full - grouped in rationals for {len(VALUES)} sets of values; 0 for equal values in groups")


def _trace(matrix: Matrix) -> Fraction:
    return sum((row[a] for a, row in enumerate(matrix)), start=Fraction(0))


CLAIMS = (
    Claim(id="T2.eq10", paper="DGA", place="Problem 2, Eq. 10",
          statement="the objective alphabar_g / |G_g| sum V_j with sum alphabar_g |G_g| = 1 is Problem 1, grouped",
          printed=PRINTED, check=check_problem, verdict=Verdict.FALSE, corrected=MEAN_WEIGHT,
          repair="either alphabar_g sum V_j with sum |G_g| alphabar_g = 1, or beta_g Vbar_g with sum beta_g = 1",
          strength=Strength.EXACT,
          proof="With alpha_j = alphabar_g the definition alphabar_g = mean and the constraint agree; the objective "
                "then is (1/m) sum alpha_j V_j. If every V_j = y it equals (1 - 1/m)^2 |y|^2 wherever one stands: "
                "4/9 for m = 3."),
    Claim(id="T2.open", paper="DGA", place="Problems 1 and 2, alpha_j > 0",
          statement="the minimum over alpha > 0, sum alpha = 1 exists",
          printed=lambda weights: sum(weights) == 1 and all(w > 0 for w in weights), check=check_feasible,
          verdict=Verdict.FALSE, corrected=lambda weights: sum(weights) == 1 and all(w >= 0 for w in weights),
          repair="take alpha >= 0: the closed simplex is compact; over alpha > 0 there may be an infimum only",
          strength=Strength.EXACT,
          proof="V = (0, 1), y = 0: the objective is alpha_2^2, whose infimum 0 needs alpha_2 = 0."),
    Claim(id="T2.output", paper="DGA", place="Section 4.2, 1)",
          statement="grouping smooths noise out by averaging over the tokens of a group: 1/m^2 remains",
          printed=removed_printed, check=check_removed, verdict=Verdict.DEPENDS, corrected=within_group_scatter,
          repair="Cov_full - Cov_grouped = sigma^2 sum_g (A_g/m)^2 sum_{j in g} (V_j - Vbar_g)(V_j - Vbar_g)^T: only "
                 "the scatter within groups is removed (first order, equal logits in groups, group logit the mean)",
          strength=Strength.EXACT,
          proof="d o = sum alpha_j eta_j (V_j - o). Split V_j - o = (V_j - Vbar_g) + (Vbar_g - o); with alpha_j = "
                "A_g / m the second part is the grouped noise and the cross terms vanish. Full attention already "
                "averages independent noise: a group's mass has the same variance with and without grouping."),
)
