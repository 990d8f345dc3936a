"""Problem 2 (DGA Eq. 10): two consistent forms, and the one that is printed between them.

Problem 1 (Eq. 9) writes a target y as sum alpha_j V_j with sum alpha_j = 1. In Problem 2 the |G_g| tokens of each group
share one weight. There are two consistent forms:

    A: alphabar_g the mean weight of the group   sum_g alphabar_g sum_{j in G_g} V_j,   sum_g |G_g| alphabar_g = 1
    B: beta_g the mass of the group              sum_g beta_g Vbar_g,                   sum_g beta_g = 1

Noise eta on alphabar_g is eta on each weight of the group; noise eta on beta_g is eta / |G_g| on each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight


@dataclass(frozen=True)
class GroupProblem:
    """A reading of Problem 2 with one number x_g per group.

    Attributes:
        coefficient: (x_g, |G_g|) -> the factor of every V_j of the group in the objective.
        mass: (x_g, |G_g|) -> the group's term in the sum that the constraint sets to 1.
    """

    coefficient: Callable[[Any, int], Any]
    mass: Callable[[Any, int], Any]


PRINTED = GroupProblem(coefficient=lambda x, size: x / size, mass=lambda x, size: x * size)  # Eq. 10
MEAN_WEIGHT = GroupProblem(coefficient=lambda x, size: x, mass=lambda x, size: x * size)     # A
GROUP_MASS = GroupProblem(coefficient=lambda x, size: x / size, mass=lambda x, size: x)      # B


def residual(problem: GroupProblem, shares: Sequence[Any], values: Sequence[Sequence[Any]], target: Any) -> Any:
    """Return |sum_g coefficient_g sum_{j in G_g} V_j - y|^2 for one-dimensional values, a list for each group."""
    total = sum(problem.coefficient(x, len(group)) * sum(group) for x, group in zip(shares, values, strict=True))
    return (total - target) ** 2


# ---------------------------------------------------------------- checks

GROUPS = (((1,), (1,)), ((1, 1, 1), (1, 1, 1)), ((1, 2), (5, 3)), ((2, 7, 1), (4,)))
POINTS = ((1, 1), (1, 3))


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
    return Fraction(mass / problem.mass(Fraction(1), size))


@dataclass(frozen=True)
class Passed:
    """The claim that noise eta on a group's number is eta times a share on each weight of the group.

    Attributes:
        problem: what the group's number is.
        share: |G_g| -> the claimed share.
    """

    problem: GroupProblem
    share: Callable[[int], Fraction]


def check_passed(subject: Passed) -> Finding:
    """Judge the share of a group's noise that each weight gets, by the objective and by the constraint."""
    for size in (2, 3, 16):
        unit, claimed = Fraction(1), subject.share(size)
        by_objective, by_constraint = subject.problem.coefficient(unit, size), subject.problem.mass(unit, size) / size
        if not by_objective == by_constraint == claimed:
            return Finding(False, f"m = {size}: {by_objective} by the objective and {by_constraint} by the constraint, "
                                  f"claimed {claimed}")
    return Finding(True, "equal by the objective and by the constraint, for groups of 2, 3 and 16")


CLAIMS = (
    Claim(id="T2.eq10", paper="DGA", place="Section 4.2; Problem 2, Eq. 10",
          quote=(r"we define the group weight as $\bar{\alpha}_g = \frac{1}{|G_g|} \sum_{i \in G_g} \alpha_i$",
                 r"\sum_{g=1}^{k} \frac{\bar{\alpha}_{g}}{|G_{g}|} \sum_{j \in G_{g}} \mathbf{V}_{j} - \mathbf{y}",
                 r"\sum_{g=1}^{k} \bar{\alpha}_{g} |G_{g}| = 1"),
          reading="Problem 2 is Problem 1 for weights that are equal within each group",
          printed=PRINTED, check=check_problem, verdict=Verdict.INCONSISTENT, formula=True,
          sides={"the definition of the group weight, and the constraint": MEAN_WEIGHT,
                 "the objective [its number the mass of the group, so that masses sum to 1]": GROUP_MASS},
          strength=Strength.COUNTEREXAMPLE, corrected=MEAN_WEIGHT,
          repair="either alphabar_g sum V_j with sum |G_g| alphabar_g = 1, or beta_g Vbar_g with sum beta_g = 1",
          repaired=Strength.PROOF, weight=Weight.SUBSTANCE,
          proof="With alpha_j = alphabar_g the definition and the constraint agree; the objective then is that of "
                "(1/m) sum alpha_j V_j. If every V_j = y it equals (1 - 1/m)^2 |y|^2 wherever one stands: 4/9 for m = "
                "3. The 1/m^2 of Theorem 2 comes from this 1/m.",
          example="""from fractions import Fraction

values, y, m = [1, 1, 1], 1, 3                # one group of three tokens, each value equal to the target
weight = Fraction(1, m)                       # the only one with weight * m == 1
printed = (weight / m * sum(values) - y) ** 2
problem_1 = (sum(weight * v for v in values) - y) ** 2
print("Eq. 10:", printed, " Problem 1 at the same weights:", problem_1)
assert (printed, problem_1) == (Fraction(4, 9), 0)"""),
    Claim(id="T2.equivalent", paper="DGA", place="Appendix A.2, Eq. 21",
          quote=r"on $\bar{\alpha}_g$ is equivalent to adding the noise $\frac{\tilde{\alpha}_g}{m}$ on each weight",
          reading="noise eta on the number of a group is eta / m on the weight of each of its m tokens",
          printed=Passed(PRINTED, lambda m: Fraction(1, m)), check=check_passed, verdict=Verdict.DEPENDS,
          models={"the number is the mass of the group (Eq. 21's objective)":
                  (Passed(GROUP_MASS, lambda m: Fraction(1, m)), True),
                  "the number is the mean weight of the group (its definition, and Eq. 21's constraint)":
                  (Passed(MEAN_WEIGHT, lambda m: Fraction(1, m)), False)},
          strength=Strength.PROOF, corrected=Passed(MEAN_WEIGHT, lambda m: Fraction(1)),
          repair="eta on each weight, with the group weight as it is defined, the mean", repaired=Strength.PROOF,
          weight=Weight.SUBSTANCE, root="T2.eq10", formula=True,
          proof="The tokens of a group share one weight. If the number is that weight, its noise is theirs; if it is m "
                "times that weight, theirs is 1/m of it. Eq. 21 has the first in its constraint and the second in its "
                "objective. This step is where Theorem 2 gets its 1/m^2.",
          example="""from fractions import Fraction

m, eta = 4, Fraction(1, 100)
weights = [Fraction(1, 8)] * m                           # of one group; its mean is the group weight of Section 4.2
noisy = [w + eta / m for w in weights]                   # "the noise / m on each weight"
print("the group weight moved by", sum(noisy) / m - sum(weights) / m, "and not by", eta)
assert sum(noisy) / m - sum(weights) / m == eta / m"""),
)
