"""The effect of grouping on the output under noise (DGA Section 4.2; docs/claims/dga.md)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

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
                           f"reaches 0, this objective is {left} at the only feasible point")
    return Outcome(True, "one group of 2, 3 or 16 equal values has no error, as in Problem 1")


Array = npt.NDArray[Any]
# Values (L, d), weights that are constant in groups, tokens a group.
Case = tuple[Sequence[Sequence[Any]], Weights, int]


def full_covariance(values: Sequence[Sequence[Any]], weights: Weights) -> Array:
    """Return the first-order covariance of o = sum alpha_j V_j, noise on every logit, sigma = 1.

    Like the other covariances it is (d, d), in Fractions or symbols if the weights are.
    """
    v, alpha = np.array(values, dtype=object), np.array(weights, dtype=object)
    moved = alpha[:, None] * (v - alpha @ v)  # (L, d), by the noise of each token
    return moved.T @ moved


def grouped_covariance(values: Sequence[Sequence[Any]], weights: Weights, m: int,
                       noise: str = "mean") -> Array:
    """Return the same covariance for groups of m, in units of sigma^2.

    "mean": a group's logit is the mean of its tokens' noisy logits; "pooled": it has its own noise.
    The softmax of the clean logits of groups must be their masses, as for weights that are constant
    within groups.
    """
    centres, _ = centred(values, m)
    covariance = full_covariance(centres.tolist(), group_masses(weights, m))
    return covariance * Fraction(1, m) if noise == "mean" else covariance


def within_group_scatter(values: Sequence[Sequence[Any]], weights: Weights, m: int) -> Array:
    """Return the covariance that grouping removes, sum_g (A_g / m)^2 sum_j (V_j - Vbar_g)(..)^T."""
    masses = np.repeat(np.array(group_masses(weights, m), dtype=object), m)
    moved = masses[:, None] * centred(values, m)[1] * Fraction(1, m)
    return moved.T @ moved


def centred(values: Sequence[Sequence[Any]], m: int) -> tuple[Array, Array]:
    """Return the mean of each group of m values, (k, d), and each value less its mean, (L, d)."""
    v = np.array(values, dtype=object)
    centres = v.reshape(-1, m, v.shape[1]).sum(axis=1) * Fraction(1, m)
    return centres, v - np.repeat(centres, m, axis=0)


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

    removed: Callable[..., Array] | None = None  # of a case and the noise
    noise: tuple[str, ...] = ("mean", "pooled")
    cases: tuple[Case, ...] = (EQUAL, *APART)


def scatter_only(values: Sequence[Sequence[Any]], weights: Weights, m: int, noise: str) -> Array:
    """The identity: the scatter within groups; for noise on groups, less m - 1 times the rest."""
    scatter = within_group_scatter(values, weights, m)
    if noise == "mean":
        return scatter
    return scatter - (m - 1) * grouped_covariance(values, weights, m)


def check_smoothing(subject: Smoothing) -> Outcome:
    """Judge what grouping removes from the covariance of the output, in rationals."""
    for case in subject.cases:
        for noise in subject.noise:
            full, left = full_covariance(*case[:2]), grouped_covariance(*case, noise)
            before, after = np.trace(full), np.trace(left)
            right = after < before if subject.removed is None else (
                np.array_equal(subject.removed(*case, noise), full - left))
            if not right:
                return Outcome(False, f"values {case[0]}, m = {case[2]}, noise "
                               f"{'on tokens' if noise == 'mean' else 'on groups'}: variance "
                               f"{before} sigma^2 in full, {after} sigma^2 grouped")
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
