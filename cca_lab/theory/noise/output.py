"""The effect of grouping on the output under noise (DGA Section 4.2; docs/claims/dga.md)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

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
Array = npt.NDArray[Any]


def residual(problem: GroupProblem, shares: Sequence[Any], values: Sequence[Sequence[Any]],
             target: Any) -> Any:
    """Return |sum_g coefficient_g sum_{j in G_g} V_j - y|^2; values are a list for each group."""
    total = sum(problem.coefficient(x, len(group)) * sum(group)
                for x, group in zip(shares, values, strict=True))
    return (total - target) ** 2


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
