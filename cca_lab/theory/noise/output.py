"""The effect of grouping on the output under noise (DGA Section 4.2, 1), and Figure 3b).

Output identity. Full attention with independent noise on the logits of tokens; grouped attention with the same
noise, each group's logit the mean of its tokens'; weights constant in groups of m, A_g the mass of group g.
To first order in sigma,

    Cov_full(o) = Cov_grouped(o) + sigma^2 sum_g (A_g / m)^2 sum_{j in G_g} (V_j - Vbar_g)(V_j - Vbar_g)^T

Proof: d o = sum_j alpha_j eta_j (V_j - o). Split V_j - o = (V_j - Vbar_g) + (Vbar_g - o). The second part, summed
over a group with alpha_j = A_g / m, is the grouped noise; the cross terms sum_j (V_j - Vbar_g) vanish.

Noise of the same size on a group's own logit instead of the mean of m noises makes Cov_grouped(o) m times as large.
Where o is a distribution p, the mean KL divergence of the noisy from the clean one is sum_c Cov_cc / (2 p_c).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight
from cca_lab.theory.noise.models import group_masses
from cca_lab.theory.noise.problem import CLAIMS as PROBLEM
from cca_lab.theory.noise.problem import GROUP_MASS, MEAN_WEIGHT, PRINTED, GroupProblem, check_problem, residual
from cca_lab.theory.noise.weight import Weights

__all__ = ["APART", "CLAIMS", "EQUAL", "GROUP_MASS", "MEAN_WEIGHT", "PRINTED", "GroupProblem", "Smoothing", "always",
           "check_smoothing", "check_problem", "divergence", "full_covariance", "grouped_covariance", "only_scatter",
           "residual", "trace", "within_group_scatter"]

Vector = Sequence[Any]
Matrix = list[list[Any]]
Case = tuple[Sequence[Vector], Weights, int]  # values, weights that are constant in groups, tokens a group


def full_covariance(values: Sequence[Vector], weights: Weights) -> Matrix:
    """Return the first-order covariance of o = sum alpha_j V_j, independent noise on every logit, sigma = 1."""
    output = _mean(values, weights)
    return _scatter([_minus(value, output, weight) for value, weight in zip(values, weights, strict=True)])


def grouped_covariance(values: Sequence[Vector], weights: Weights, m: int, noise: str = "mean") -> Matrix:
    """Return the same covariance for groups of m, in units of sigma^2.

    Args:
        values: of the tokens.
        weights: of the tokens, constant in each group.
        m: tokens per group.
        noise: "mean", a group's logit is the mean of its tokens' noisy logits; "pooled", it has a noise of its own.
    """
    output, sources = _mean(values, weights), []
    for g, mass in enumerate(group_masses(weights, m)):
        centre = _mean(values[g * m:(g + 1) * m], [Fraction(1, m)] * m)
        # in the mean, each token's noise moves the group's logit by 1/m
        sources += [_minus(centre, output, mass / m)] * m if noise == "mean" else [_minus(centre, output, mass)]
    return _scatter(sources)


def within_group_scatter(values: Sequence[Vector], weights: Weights, m: int) -> Matrix:
    """Return sum_g (A_g / m)^2 sum_{j in G_g} (V_j - Vbar_g)(V_j - Vbar_g)^T: the covariance that grouping removes."""
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
    return [sum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*values, strict=True)]


def _minus(value: Vector, centre: Vector, factor: Any) -> list[Any]:
    return [factor * (v - c) for v, c in zip(value, centre, strict=True)]


def _scatter(vectors: Sequence[Vector]) -> Matrix:
    size = range(len(vectors[0]))
    return [[sum(vector[a] * vector[b] for vector in vectors) for b in size] for a in size]


# ---------------------------------------------------------------- checks

QUARTERS = (Fraction(1, 4),) * 4
EQUAL: Case = ([[1, 0], [1, 0], [0, 1], [0, 1]], QUARTERS, 2)                    # equal values in each group
APART: tuple[Case, ...] = (
    ([[int(i == j) for i in range(4)] for j in range(4)], QUARTERS, 2),          # another value for every token
    ([[1, 0], [0, 1], [1, 0], [0, 1]], QUARTERS, 2),                             # equal means of the groups
    ([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], (Fraction(1, 8),) * 2 + (Fraction(3, 8),) * 2, 2),
)


@dataclass(frozen=True)
class Smoothing:
    """The claim that grouping leaves less noise in the output, wherever `promises` says so, and nowhere else.

    Attributes:
        promises: (values, weights, m, noise) -> whether there is less.
        noise: where it is added: "mean", on every token; "pooled", as large on the group's own logit.
        cases: the values and weights.
    """

    promises: Callable[[Sequence[Vector], Weights, int, str], bool]
    noise: tuple[str, ...] = ("mean", "pooled")
    cases: tuple[Case, ...] = (EQUAL, *APART)


def always(values: Sequence[Vector], weights: Weights, m: int, noise: str) -> bool:
    """Section 4.2: grouping smooths noise out."""
    return True


def only_scatter(values: Sequence[Vector], weights: Weights, m: int, noise: str, *,
                 size: Callable[[Matrix, Vector], Any]) -> bool:
    """The identity: less by the scatter within groups, and more by m - 1 times the rest where the noise is pooled."""
    output = _mean(values, weights)
    removed = size(within_group_scatter(values, weights, m), output)
    added = 0 if noise == "mean" else (m - 1) * size(grouped_covariance(values, weights, m), output)
    return bool(removed > added)


def check_smoothing(subject: Smoothing, size: Callable[[Matrix, Vector], Any] = trace) -> Finding:
    """Judge where grouping leaves less noise in the output than full attention has, in rationals."""
    for values, weights, m in subject.cases:
        output = _mean(values, weights)
        full = size(full_covariance(values, weights), output)
        for noise in subject.noise:
            left = size(grouped_covariance(values, weights, m, noise), output)
            if subject.promises(values, weights, m, noise) != (left < full):
                return Finding(False, f"values {values}, m = {m}, noise "
                                      f"{'on tokens' if noise == 'mean' else 'on groups'}: {size.__name__} {full} "
                                      f"sigma^2 in full, {left} sigma^2 grouped",
                               {"full": float(full), "grouped": float(left)})
    return Finding(True, f"in rationals for {len(subject.cases)} sets of values; another value for every token: "
                         f"{size.__name__} {_example(size)}")


def _example(size: Callable[[Matrix, Vector], Any]) -> str:
    values, weights, m = APART[0]
    full, left = full_covariance(values, weights), grouped_covariance(values, weights, m)
    output = _mean(values, weights)
    return f"{size(full, output)} sigma^2 in full, {size(left, output)} sigma^2 grouped"


def _models() -> dict[str, tuple[Smoothing, bool]]:
    return {
        "independent noise on every token, a group's logit their mean; values that differ within a group":
            (Smoothing(always, ("mean",), APART), True),
        "the same noise; equal values within each group": (Smoothing(always, ("mean",), (EQUAL,)), False),
        "noise of the same size on the group's own logit; equal values within each group":
            (Smoothing(always, ("pooled",), (EQUAL,)), False)}


CLAIMS = (
    *PROBLEM,
    Claim(id="T2.output", paper="DGA", place="Section 4.2",
          quote="The grouping mechanism smooths out the impact of random noise by averaging over multiple tokens in "
                "the same group",
          reading="grouping leaves less noise in the output of attention than there is without [noise on logits, to "
                  "first order; weights constant within groups]",
          printed=Smoothing(always), check=check_smoothing, verdict=Verdict.DEPENDS, models=_models(),
          strength=Strength.PROOF, corrected=Smoothing(partial(only_scatter, size=trace)),
          repair="Cov_full - Cov_grouped = sigma^2 sum_g (A_g/m)^2 sum_{j in g} (V_j - Vbar_g)(V_j - Vbar_g)^T: only "
                 "the scatter within groups is removed (noise on tokens, a group's logit the mean)",
          repaired=Strength.PROOF, weight=Weight.SUBSTANCE, root="T2",
          proof="d o = sum alpha_j eta_j (V_j - o). Split V_j - o = (V_j - Vbar_g) + (Vbar_g - o); with alpha_j = "
                "A_g / m the second part is the grouped noise and the cross terms vanish; sympy finds the identity "
                "with symbols for the masses and values of 2 x 2 and 3 x 2 tokens. Full attention already averages "
                "independent noise: a group's mass has the same variance with and without grouping.",
          example="""from fractions import Fraction

values, a = [1, 1, 0, 0], Fraction(1, 4)            # two groups of two tokens, equal values in each
o = sum(a * v for v in values)
full = sum((a * (v - o)) ** 2 for v in values)      # four independent noises on four logits
groups = [(values[0] + values[1]) / Fraction(2), (values[2] + values[3]) / Fraction(2)]
grouped = sum((a * (v - o)) ** 2 for v in groups for _ in range(2))  # each moves its group's logit by a half
print("variance of the output:", full, "in full,", grouped, "grouped")
assert full == grouped"""),
    Claim(id="T2.kl", paper="DGA", place="Section 6.3",
          quote="This coincides with Theorem 2, demonstrating that group coding enhances robustness to random noise.",
          reading="that noise moves the output distribution less is what group coding brings: a lower KL divergence "
                  "follows from it [noise on logits, to second order; the output distribution is that of one layer]",
          printed=Smoothing(always), check=partial(check_smoothing, size=divergence), verdict=Verdict.DEPENDS,
          models=_models(), strength=Strength.PROOF, corrected=Smoothing(partial(only_scatter, size=divergence)),
          repair="with noise on tokens the divergence falls by that of the scatter within groups, and by nothing where "
                 "the tokens of a group predict the same; with noise of one size on every logit it can rise m-fold",
          repaired=Strength.PROOF, weight=Weight.SUBSTANCE, root="T2",
          proof="The mean KL divergence is sum_c Cov_cc / (2 p_c) to second order, so the identity of T2.output "
                "decides. A measured drop is no evidence for 1/m^2: it may come from averaging (1/m), from values that "
                "differ, or from noise of another size on the logits; Section 6.3 does not say where its noise is "
                "added.",
          example="""from fractions import Fraction

half, m = Fraction(1, 2), 2           # two groups of two tokens; a group predicts one word, so p = (1/2, 1/2)
slope = half * half                   # d p_1 / d (logit of group 1): softmax over the two groups
def divergence(variance):             # of the two group logits, to second order
    return sum(2 * slope ** 2 * variance / (2 * half) for _ in range(2))
full, grouped = divergence(Fraction(1, m)), divergence(1)   # mean of m noises; one noise on the group's logit
print("KL / sigma^2:", full, "in full,", grouped, "grouped")
assert grouped == m * full"""),
)
