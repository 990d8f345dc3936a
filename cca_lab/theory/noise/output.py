"""The effect of grouping on the output under noise (DGA Section 4.2, 1), and Figure 3b).

Full attention with independent noise on the logits of tokens; grouped attention with the same
noise, each group's logit the mean of its tokens'; weights constant in groups of m, A_g the mass of
group g. To first order in sigma (proof: claim T2.output),

    Cov_full(o) = Cov_grouped(o)
                  + sigma^2 sum_g (A_g / m)^2 sum_{j in G_g} (V_j - Vbar_g)(V_j - Vbar_g)^T

Noise of the same size on a group's own logit instead of the mean of m noises makes Cov_grouped(o) m
times as large.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
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


GROUPS = (((1,), (1,)), ((1, 1, 1), (1, 1, 1)), ((1, 2), (5, 3)), ((2, 7, 1), (4,)))
POINTS = ((1, 1), (1, 3))


def check_problem(problem: GroupProblem) -> Outcome:
    """Judge Problem 2: feasible points must be weights of Problem 1 that are equal in groups."""
    for groups in GROUPS:
        for point in POINTS:
            masses = [Fraction(x * len(group)) for x, group in zip(point, groups, strict=True)]
            weights = [Fraction(x) / sum(masses) for x in point]  # alpha_j of each group's tokens
            shares = [_solve(problem, weight * len(group), len(group))
                      for weight, group in zip(weights, groups, strict=True)]
            ones = [[1] * len(group) for group in groups]
            left = residual(problem, shares, ones, Fraction(1))
            wanted = sum(weight * sum(group) for weight, group in zip(weights, groups, strict=True))
            if left or residual(problem, shares, groups, wanted):
                sizes = [len(group) for group in groups]
                return Outcome(False, f"groups of {sizes}, every V_j = y with |y| = 1: Problem 1 "
                               f"reaches 0, this objective is {left} = {float(left):.3f} at a "
                               f"feasible point", {"residual": float(left)})
    return Outcome(True, f"equals Problem 1 at shared weights, for {len(GROUPS) * len(POINTS)} "
                   f"feasible points")


def _solve(problem: GroupProblem, mass: Fraction, size: int) -> Fraction:
    """Return the x_g at which the group's term in the constraint, linear in x_g, is `mass`."""
    return Fraction(mass / problem.mass(Fraction(1), size))


@dataclass(frozen=True)
class Passed:
    """The claim that noise eta on a group's number is eta `share(|G_g|)` on each weight in it."""

    problem: GroupProblem
    share: Callable[[int], Fraction]


def check_passed(subject: Passed) -> Outcome:
    """Judge the share of a group's noise on each weight, by objective and by constraint."""
    for size in (2, 3, 16):
        unit, claimed = Fraction(1), subject.share(size)
        by_objective = subject.problem.coefficient(unit, size)
        by_constraint = subject.problem.mass(unit, size) / size
        if not by_objective == by_constraint == claimed:
            return Outcome(False, f"m = {size}: {by_objective} by the objective and "
                           f"{by_constraint} by the constraint, claimed {claimed}")
    return Outcome(True, "equal by the objective and by the constraint, for groups of 2, 3 and 16")


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
    """
    output, sources = _mean(values, weights), []
    for g, mass in enumerate(group_masses(weights, m)):
        centre = _mean(values[g * m:(g + 1) * m], [Fraction(1, m)] * m)
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


def trace(covariance: Matrix, output: Vector) -> Any:
    """Return the mean squared change of the output."""
    return sum(row[c] for c, row in enumerate(covariance))


def divergence(covariance: Matrix, output: Vector) -> Any:
    """Return the mean KL divergence of an output that is a distribution: sum_c Cov_cc / (2 p_c)."""
    return sum(row[c] / (2 * output[c]) for c, row in enumerate(covariance))


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


@dataclass(frozen=True)
class Smoothing:
    """The claim that grouping leaves less noise in the output where, and only where, it `promises`.

    The noise is added on every token ("mean"), or is as large on the group's logit ("pooled").
    """

    promises: Callable[[Sequence[Vector], Weights, int, str], bool]
    noise: tuple[str, ...] = ("mean", "pooled")
    cases: tuple[Case, ...] = (EQUAL, *APART)


def always(values: Sequence[Vector], weights: Weights, m: int, noise: str) -> bool:
    """Section 4.2: grouping smooths noise out."""
    return True


def only_scatter(values: Sequence[Vector], weights: Weights, m: int, noise: str, *,
                 size: Callable[[Matrix, Vector], Any]) -> bool:
    """The identity: less by the scatter in groups, more by m - 1 times the rest if pooled."""
    output = _mean(values, weights)
    removed = size(within_group_scatter(values, weights, m), output)
    added = 0 if noise == "mean" else (m - 1) * size(grouped_covariance(values, weights, m), output)
    return bool(removed > added)


def check_smoothing(subject: Smoothing, size: Callable[[Matrix, Vector], Any] = trace) -> Outcome:
    """Judge where grouping leaves less noise in the output than full attention, in rationals."""
    def sizes(case: Case, noise: str) -> tuple[Any, Any]:
        values, weights, m = case
        output = _mean(values, weights)
        return (size(full_covariance(values, weights), output),
                size(grouped_covariance(values, weights, m, noise), output))

    for case in subject.cases:
        for noise in subject.noise:
            full, left = sizes(case, noise)
            if subject.promises(*case, noise) != (left < full):
                return Outcome(False, f"values {case[0]}, m = {case[2]}, noise "
                               f"{'on tokens' if noise == 'mean' else 'on groups'}: "
                               f"{size.__name__} {full} sigma^2 in full, {left} sigma^2 grouped",
                               {"full": float(full), "grouped": float(left)})
    full, left = sizes(APART[0], "mean")
    return Outcome(True, f"in rationals for {len(subject.cases)} sets of values; another value for "
                   f"every token: {size.__name__} {full} sigma^2 in full, {left} sigma^2 grouped")


MODELS = (Smoothing(always, ("mean",), APART), Smoothing(always, ("mean",), (EQUAL,)),
          Smoothing(always, ("pooled",), (EQUAL,)))


SUBJECTS = {
    "T2.eq10": Subjects(check_problem, PRINTED, corrected=MEAN_WEIGHT,
                        sides=(MEAN_WEIGHT, GROUP_MASS)),
    "T2.equivalent": Subjects(check_passed, Passed(PRINTED, lambda m: Fraction(1, m)),
                              corrected=Passed(MEAN_WEIGHT, lambda m: Fraction(1)),
                              models=(Passed(GROUP_MASS, lambda m: Fraction(1, m)),
                                      Passed(MEAN_WEIGHT, lambda m: Fraction(1, m)))),
    "T2.output": Subjects(check_smoothing, Smoothing(always),
                          corrected=Smoothing(partial(only_scatter, size=trace)), models=MODELS),
    "T2.kl": Subjects(partial(check_smoothing, size=divergence), Smoothing(always),
                      corrected=Smoothing(partial(only_scatter, size=divergence)), models=MODELS),
}
