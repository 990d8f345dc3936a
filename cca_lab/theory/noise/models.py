"""Models of "noise under group coding", and how each changes a token's variance (Theorem 2).

    shared    every token of group g gets the same noise eta_g / m, as in Theorem 2's proof
    mean      every token gets its own noise, as in Theorem 2; a group has the mean logit
    weights   every token gets its own noise; a group has the mean weight
    pooled    the logit of a group gets noise

The article docs/claims/dga.md has the statements and their proofs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.noise.weight import Weights, gradient, lemma2

Array = npt.NDArray[Any]
Z_999 = 3.29  # half-width of a two-sided 99.9 % interval, in standard errors
STANDS_OUT = 2.4  # by how much the logit of one token exceeds the others of its group


def pooled_logit_factor(logits: Sequence[float]) -> float:
    """Return F, the variance of a group's logit over a token's, keys pooled by softmax (Eq. 14)."""
    a = np.array(logits)
    pool = softmax(a)
    return float(((pool * (1 + a - pool @ a)) ** 2).sum())


MODELS = {"shared": "one noise a group, divided by m", "mean": "one noise a token, averaged",
          "pooled": "one noise a group, on its pooled logit"}
POWERS = {"shared": 2, "mean": 1, "weights": 1, "pooled": 0}


def constant(m: int) -> Fraction:
    """Return 2 m / (m + 1), the least upper bound of U_g(A) / U_j(alpha) for all masses A."""
    return Fraction(2 * m, m + 1)


def group_masses(weights: Weights, m: int) -> list[Any]:
    """Return A_g, the sum of the weights in each group of m neighbouring tokens."""
    return [sum(weights[start:start + m]) for start in range(0, len(weights), m)]


def factor(model: str, weights: Weights, m: int, j: int) -> Any:
    """Return Var(grouped) / Var(full) of token j's weight, first order; weights equal in groups."""
    return lemma2(group_masses(weights, m), j // m) / (lemma2(weights, j) * m**POWERS[model])


def exact_variance(model: str, weights: Weights, m: int, j: int) -> Any:
    """Return the first-order variance of token j's grouped weight, with the model taken literally.

    Each noise moves some logits; the gradient gives the resulting change of the weight.
    """
    group = j // m
    shares = np.repeat(np.eye(len(weights) // m, dtype=int), m, axis=0) * Fraction(1, m)  # (L, k)
    if model == "shared":  # eta_g / m on every token of the group; the softmax is over tokens
        moved = gradient(weights, j) @ shares
    elif model == "weights":  # the tokens' noisy weights are averaged in the group
        moved = sum(gradient(weights, i) for i in range(group * m, group * m + m)) / m
    else:  # the softmax is over groups; a token has 1/m of its group's weight
        moved = gradient(group_masses(weights, m), group) / m
        if model == "mean":
            moved = shares @ moved
    return (moved**2).sum()


def full_variance(weights: Weights, j: int) -> Any:
    """Return the first-order variance of token j's weight in full attention."""
    return (gradient(weights, j) ** 2).sum()


CASES = tuple((tuple(Fraction(share, m * sum(shares)) for share in shares for _ in range(m)), m)
              for shares, m in (((1, 1), 2), ((1, 3), 2), ((1,) * 8, 8), ((1, 1, 1), 2),
                                ((1, 9), 4), ((1, 999), 2), ((1, 999), 3), ((1, 999), 4)))
# One token of each group.
PLACES = tuple((case, m, j) for case, m in CASES for j in range(0, len(case), m))


@dataclass(frozen=True)
class Reduction:
    """The claim that grouping leaves at most `constant(m) / m**power` of a weight's variance.

    For weights that are constant within groups; no smaller constant will do.
    """

    powers: Mapping[str, int]  # by model
    constant: Callable[[int], Any] = constant


def check_reduction(subject: Reduction) -> Outcome:
    """Judge a reduction by exact derivatives: never exceeded, reached to 1 % for m = 2, 3, 4."""
    wrong = []
    for model, power in subject.powers.items():
        closest: dict[int, Any] = {}
        for weights, m, j in PLACES:
            left = exact_variance(model, weights, m, j) / full_variance(weights, j)
            claimed = subject.constant(m) / m**power
            if left > claimed:
                wrong.append(f"{model}: {left} of the variance is left, claimed at most {claimed}, "
                             f"at L = {len(weights)}, m = {m}, weights {weights[0]} and "
                             f"{weights[-1]}")
                break
            closest[m] = max(closest.get(m, 0), left / claimed)
        else:
            wrong += [f"{model}: never over {float(closest[m]):.3f} of what is claimed, m = {m}"
                      for m in (2, 3, 4) if closest[m] < Fraction(99, 100)][:1]
    return Outcome(not wrong, "; ".join(wrong) or f"{', '.join(subject.powers)}: never exceeded in "
                   f"{len(CASES)} groupings, in rationals, and reached to 1 %")


class Measured(NamedTuple):
    """A Monte Carlo value with the half-width of its 99.9 % interval."""

    value: float
    error: float

    def agrees(self, wanted: float) -> bool:
        """Whether the interval contains `wanted`."""
        return abs(self.value - wanted) <= self.error


def simulate(model: str, logits: Sequence[float], m: int, sigma: float, draws: int,
             seed: int = 0) -> Array:
    """Draw the noisy weight of each token, (draws, L): "full", one of MODELS, or "softmax".

    The pooled logit of a group is the mean of its m tokens'; for "softmax", that of Eq. 14. The
    noise on a logit has the standard deviation sigma.
    """
    generator = np.random.default_rng(seed)
    clean = np.asarray(logits, dtype=float)
    groups = (draws, len(clean) // m)
    if model in ("full", "shared"):
        noise = generator.normal(size=(draws, len(clean)) if model == "full" else groups)
        noise = noise if model == "full" else np.repeat(noise / m, m, axis=1)
        return softmax(clean + sigma * noise)
    if model == "pooled":
        group_logits = clean.reshape(-1, m).mean(1) + sigma * generator.normal(size=groups)
    else:
        tokens = (clean + sigma * generator.normal(size=(draws, len(clean)))).reshape(*groups, m)
        pool = softmax(tokens) if model == "softmax" else np.full(m, 1 / m)
        group_logits = (pool * tokens).sum(-1)  # (draws, k)
    return np.repeat(softmax(group_logits) / m, m, axis=1)


def softmax(logits: Array) -> Array:
    """Return the softmax along the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def measured_variance(samples: Array) -> Measured:
    """Return the sample variance with its 99.9 % interval, from the fourth moment."""
    centred = samples - samples.mean()
    variance = float((centred**2).mean())
    spread = float((centred**4).mean()) - variance**2
    return Measured(variance, Z_999 * math.sqrt(max(spread, 0.0) / len(samples)))


def measured_factor(model: str, logits: Sequence[float], m: int, *, sigma: float = 0.1,
                    draws: int = 20_000, j: int = 0, seed: int = 0) -> Measured:
    """Return Var(grouped) / Var(full) of token j, relative to squared means, with its interval."""
    relative = []
    for offset, name in enumerate((model, "full")):
        samples = simulate(name, logits, m, sigma, draws, seed + offset)[:, j]
        relative.append(measured_variance(samples / samples.mean()))
    grouped, full = relative
    ratio = grouped.value / full.value
    return Measured(ratio,
                    ratio * math.hypot(grouped.error / grouped.value, full.error / full.value))


SUBJECTS = {
    "T2": Subjects(check_reduction, Reduction({"weights": 2, "mean": 2}),
                   corrected=Reduction(POWERS)),
}
