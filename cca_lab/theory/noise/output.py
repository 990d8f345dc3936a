"""The effect of grouping on the output under noise (DGA Section 4.2; docs/claims/dga.md)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.noise.models import group_masses
from cca_lab.theory.noise.weight import Weights


@dataclass(frozen=True)
class GroupProblem:
    """A reading of Problem 2 with one number x_g per group of n tokens; both take (x_g, n)."""

    coefficient: Callable[[Any, int], Any]  # the factor of every V_j of the group in the objective
    mass: Callable[[Any, int], Any]  # the group's term in the sum that the constraint sets to 1


PRINTED = GroupProblem(lambda x, size: x / size, lambda x, size: x * size)  # Eq. 10
MEAN_WEIGHT = GroupProblem(lambda x, size: x, lambda x, size: x * size)  # reading A
GROUP_MASS = GroupProblem(lambda x, size: x / size, lambda x, size: x)  # reading B


def residual(problem: GroupProblem, shares: Sequence[Any], values: Sequence[Sequence[Any]],
             target: Any) -> Any:
    """Return |sum_g coefficient_g sum_{j in G_g} V_j - y|^2; values are a list for each group."""
    total = sum(problem.coefficient(x, len(group)) * sum(group)
                for x, group in zip(shares, values, strict=True))
    return (total - target) ** 2


def check_problem(problem: GroupProblem) -> Outcome:
    """Judge Problem 2: where the masses sum to 1 it must have the weights of Problem 1."""
    for size in (2, 3, 16):
        x = 1 / Fraction(problem.mass(Fraction(1), size))  # one group; both numbers are linear in x
        left = residual(problem, [x], [[1] * size], 1)
        if left:
            return Outcome(False, f"one group of {size}, every V_j = y with |y| = 1: Problem 1 "
                           f"reaches 0, this objective is {left} at the only feasible point",
                           {"residual": float(left)})
    return Outcome(True, "one group of 2, 3 or 16 equal values has no error, as in Problem 1")


Vector = Sequence[Any]
Matrix = list[list[Any]]
# Values, weights that are constant in groups, tokens a group.
Case = tuple[Sequence[Vector], Weights, int]


def full_covariance(values: Sequence[Vector], weights: Weights) -> Matrix:
    """Return the first-order covariance of o = sum alpha_j V_j, noise on every logit, sigma = 1."""
    output = _mean(values, weights)
    return _scatter([_minus(value, output, weight)
                     for value, weight in zip(values, weights, strict=True)])


def grouped_covariance(values: Sequence[Vector], weights: Weights, m: int,
                       noise: str = "mean") -> Matrix:
    """Return the same covariance for groups of m, in units of sigma^2.

    "mean": a group's logit is the mean of its tokens' noisy logits; "pooled": it has its own noise.
    The softmax of the clean logits of groups must be their masses, as for weights that are constant
    within groups.
    """
    masses, equal = group_masses(weights, m), [Fraction(1, m)] * m
    centres = [_mean(values[g * m:(g + 1) * m], equal) for g in range(len(masses))]
    output, sources = _mean(centres, masses), []
    for centre, mass in zip(centres, masses, strict=True):
        # in the mean, each token's noise moves the group's logit by 1/m
        share, times = (mass / m, m) if noise == "mean" else (mass, 1)
        sources += [_minus(centre, output, share)] * times
    return _scatter(sources)


def within_group_scatter(values: Sequence[Vector], weights: Weights, m: int) -> Matrix:
    """Return the covariance that grouping removes, sum_g (A_g / m)^2 sum_j (V_j - Vbar_g)(..)^T."""
    sources = []
    for g, mass in enumerate(group_masses(weights, m)):
        members = values[g * m:(g + 1) * m]
        centre = _mean(members, [Fraction(1, m)] * m)
        sources += [_minus(value, centre, mass / m) for value in members]
    return _scatter(sources)


def _mean(values: Sequence[Vector], weights: Weights) -> list[Any]:
    return [sum(w * v for w, v in zip(weights, column, strict=True))
            for column in zip(*values, strict=True)]


def _minus(value: Vector, centre: Vector, factor: Any) -> list[Any]:
    return [factor * (v - c) for v, c in zip(value, centre, strict=True)]


def _scatter(vectors: Sequence[Vector]) -> Matrix:
    size = range(len(vectors[0]))
    return [[sum(vector[a] * vector[b] for vector in vectors) for b in size] for a in size]


QUARTERS = (Fraction(1, 4),) * 4
EQUAL: Case = ([[1, 0], [1, 0], [0, 1], [0, 1]], QUARTERS, 2)  # equal values in each group
APART: tuple[Case, ...] = (  # another value for every token; equal means of the groups; mixed
    ([[int(i == j) for i in range(4)] for j in range(4)], QUARTERS, 2),
    ([[1, 0], [0, 1], [1, 0], [0, 1]], QUARTERS, 2),
    ([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], (Fraction(1, 8),) * 2 + (Fraction(3, 8),) * 2,
     2))
# Weights that differ within groups; both groups have half of them, in full and by mean logits.
UNEQUAL: Case = ([[0], [1], [0], [0]], tuple(Fraction(n, 100) for n in (49, 1, 49, 1)), 2)


@dataclass(frozen=True)
class Smoothing:
    """The claim that grouping removes this covariance from the output, or (None) some of it.

    The noise is added on every token ("mean"), or is as large on the group's logit ("pooled").
    """

    removed: Callable[[Sequence[Vector], Weights, int, str], Matrix] | None = None
    noise: tuple[str, ...] = ("mean", "pooled")
    cases: tuple[Case, ...] = (EQUAL, *APART)


def scatter_only(values: Sequence[Vector], weights: Weights, m: int, noise: str) -> Matrix:
    """The identity: the scatter within groups; for noise on groups, less m - 1 times the rest."""
    scatter = within_group_scatter(values, weights, m)
    if noise == "mean":
        return scatter
    return _difference(scatter, grouped_covariance(values, weights, m), m - 1)


def _difference(first: Matrix, second: Matrix, times: int = 1) -> Matrix:
    return [[a - times * b for a, b in zip(*rows, strict=True)]
            for rows in zip(first, second, strict=True)]


def check_smoothing(subject: Smoothing) -> Outcome:
    """Judge what grouping removes from the covariance of the output, in rationals."""
    for case in subject.cases:
        for noise in subject.noise:
            full, left = full_covariance(*case[:2]), grouped_covariance(*case, noise)
            removed = _difference(full, left)
            before, after = (sum(matrix[c][c] for c in range(len(matrix)))
                             for matrix in (full, left))
            right = after < before if subject.removed is None else (
                subject.removed(*case, noise) == removed)
            if not right:
                return Outcome(False, f"values {case[0]}, m = {case[2]}, noise "
                               f"{'on tokens' if noise == 'mean' else 'on groups'}: variance "
                               f"{before} sigma^2 in full, {after} sigma^2 grouped",
                               {"full": float(before), "grouped": float(after)})
    return Outcome(True, f"in rationals for {len(subject.cases)} cases; the last: variance "
                   f"{before} sigma^2 in full, {after} sigma^2 grouped")


SUBJECTS = {
    "T2.eq10": Subjects(check_problem, PRINTED, corrected=MEAN_WEIGHT,
                        sides=(MEAN_WEIGHT, GROUP_MASS)),
    "T2.output": Subjects(check_smoothing, Smoothing(), corrected=Smoothing(scatter_only),
                          models=(Smoothing(None, ("mean",), APART),
                                  Smoothing(None, ("mean",), (EQUAL,)),
                                  Smoothing(None, ("pooled",), (EQUAL,)),
                                  Smoothing(None, ("mean",), (UNEQUAL,)))),
}
