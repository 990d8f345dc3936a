"""Models of "noise under group coding", and the factor by which each changes a token's variance (DGA Theorem 2).

k groups of m tokens; alpha is constant within groups, A_g = m alpha_j the mass of group g. Full attention
gets independent noise N(0, sigma^2) on each logit; its variance is alpha_j^2 sigma^2 U_j (Lemma 2). Grouped:

    model     where noise is added                                       variance of a token's weight
    shared    every token's logit, by the same eta_g / m in group g      alpha_j^2 (sigma^2 / m^2) U_g(A)
    mean      every token's logit, independently; a group has their mean alpha_j^2 (sigma^2 / m)   U_g(A)
    weights   every token's logit, independently; a group's weight is the mean of its tokens' weights:  as "mean"
    pooled    the logit of the group                                     alpha_j^2  sigma^2        U_g(A)

with U_g(A) = 1 + sum A_h^2 - 2 A_g. Theorem 2 assumes independent noise on tokens, its proof "shared". As
U_j(alpha) = U_g(A) / m + 1 - 1/m and U_g(A) < 2, the ratio U_g(A) / U_j(alpha) is under 2 m / (m + 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from cca_lab.theory.claim import Claim, Finding, Hypothesis, Strength, Verdict, Weight, chosen
from cca_lab.theory.noise import series as noise_series
from cca_lab.theory.noise.pooling import CLAIMS as POOLING
from cca_lab.theory.noise.pooling import STANDS_OUT, numerical_factor, pooled_logit_factor
from cca_lab.theory.noise.weight import Weights, lemma2

__all__ = ["CASES", "CLAIMS", "MODELS", "STANDS_OUT", "Reduction", "check_reduction", "check_shared", "exact_variance",
           "factor", "factor_printed", "full_variance", "group_masses", "numerical_factor", "pooled_logit_factor",
           "shared_by_lemma2", "shared_variance", "two_groups"]

MODELS = {"shared": "one noise a group, divided by m", "mean": "one noise a token, averaged",
          "pooled": "one noise a group, on its pooled logit"}
POWERS = {"shared": 2, "mean": 1, "weights": 1, "pooled": 0}
CONSTANT = 2  # "of the order 1/m^2": U_g(A) / U_j(alpha) stays under it, for every m and alpha


def group_masses(weights: Weights, m: int) -> list[Any]:
    """Return A_g, the sum of the weights in each group of m neighbouring tokens."""
    return [sum(weights[start:start + m]) for start in range(0, len(weights), m)]


def factor(model: str, weights: Weights, m: int, j: int) -> Any:
    """Return Var(grouped) / Var(full) of token j's weight, to first order, for weights constant in each group."""
    return lemma2(group_masses(weights, m), j // m) / (lemma2(weights, j) * m**POWERS[model])


def factor_printed(model: str, weights: Weights, m: int, j: int) -> Fraction:
    """Theorem 2: 1 / m^2 for any noise."""
    return Fraction(1, m * m)


def shared_by_lemma2(weights: Weights, m: int, j: int) -> Any:
    """Theorem 2's last step: Lemma 2 with sigma / m for sigma, although a group now shares its noise."""
    return weights[j] ** 2 * lemma2(weights, j) / m**2


def shared_variance(weights: Weights, m: int, j: int) -> Any:
    """The variance of model "shared" in units of sigma^2."""
    return weights[j] ** 2 * lemma2(group_masses(weights, m), j // m) / m**2


# ---------------------------------------------------------------- exact: derivatives from the power series

def exact_variance(model: str, weights: Weights, m: int, j: int) -> Any:
    """Return the first-order variance of token j's grouped weight: a sum over the independent noises.

    The model is evaluated literally: each noise source moves some logits, and the degree-1 terms of
    the softmax's power series give the resulting change of the weight.
    """
    k, length = len(weights) // m, len(weights)
    total: Any = Fraction(0)
    for source in range(length if model in ("mean", "weights") else k):
        if model == "shared":     # eta_g / m on every token of the group; the softmax is over tokens
            moved = _derivative(weights, j, [Fraction(i // m == source, m) for i in range(length)])
        elif model == "weights":  # the weights of the tokens are noisy, and then averaged in the group
            members = range(j // m * m, j // m * m + m)
            moved = sum(_gradient(tuple(weights), member)[source] for member in members) / m
        else:                     # the softmax is over groups; a token has 1/m of its group's weight
            group, share = (source // m, Fraction(1, m)) if model == "mean" else (source, Fraction(1))
            moves = [share * (g == group) for g in range(k)]
            moved = _derivative(group_masses(weights, m), j // m, moves) / m
        total += moved**2
    return total


def full_variance(weights: Weights, j: int) -> Any:
    """Return the first-order variance of token j's weight in full attention, from the same derivatives."""
    return sum(slope**2 for slope in _gradient(tuple(weights), j))


def _derivative(weights: Weights, j: int, moves: Sequence[Fraction]) -> Any:
    """Return the change of the j-th weight along `moves` of the logits, from the series' degree-1 terms."""
    return sum(slope * move for slope, move in zip(_gradient(tuple(weights), j), moves, strict=True))


@cache
def _gradient(weights: tuple[Any, ...], j: int) -> tuple[Any, ...]:
    linear = noise_series.softmax_series(weights, j, order=1)[1]
    places = range(len(weights))
    return tuple(linear.get(tuple(int(n == place) for n in places), Fraction(0)) for place in places)


# ---------------------------------------------------------------- checks

CASES = tuple((tuple(Fraction(part, m * sum(parts)) for part in parts for _ in range(m)), m)
              for parts, m in (((1,) * 8, 8), ((1, 1), 2), ((1, 1, 1), 2), ((1, 3), 2), ((1, 1), 4), ((1, 2, 5), 2),
                               ((1, 9), 4), ((1,), 3)))
PLACES = tuple((case, m, j) for case, m in CASES for j in range(0, len(case), m))  # one token of each group


@dataclass(frozen=True)
class Reduction:
    """The claim that in each of these models the variance of a weight falls by a factor, up to `CONSTANT`.

    Attributes:
        factor: (model, weights, m, j) -> the claimed Var(grouped) / Var(full).
        models: where the noise is added.
    """

    factor: Callable[[str, Weights, int, int], Any]
    models: tuple[str, ...] = tuple(POWERS)


def check_reduction(subject: Reduction) -> Finding:
    """Judge a claimed reduction against exact derivatives, in rationals: at most `CONSTANT` times it may be left."""
    wrong, numbers, most = [], {}, Fraction(0)
    for model in subject.models:
        for weights, m, j in PLACES:
            left = exact_variance(model, weights, m, j) / full_variance(weights, j)
            claimed = subject.factor(model, weights, m, j)
            if left > CONSTANT * claimed:
                numbers[model] = float(left)
                wrong.append(f"{model}: {left} of the variance is left, not {claimed}, at L = {len(weights)}, m = {m}")
                break
            most = max(most, left / claimed if claimed else Fraction(0))
    if wrong:
        return Finding(False, "; ".join(wrong), numbers)
    return Finding(True, f"{', '.join(subject.models)}: what is left is at most {float(most):.3g} times what is "
                         f"claimed, "
                         f"in rationals, for {len(CASES)} groupings", {"most": float(most)})


def two_groups(case: tuple[Weights, int]) -> bool:
    """Whether there are two groups or more."""
    weights, m = case
    return len(weights) > m


def check_shared(subject: Callable[[Weights, int, int], Any],
                 within: Callable[[tuple[Weights, int]], bool] | None = None) -> Finding:
    """Judge the order of the variance of model "shared": over 0 where claimed so, and at most `CONSTANT` times it."""
    cases = chosen(CASES, within)
    for weights, m in reversed(cases):
        for j in range(0, len(weights), m):
            wanted, got = exact_variance("shared", weights, m, j), subject(weights, m, j)
            if wanted > CONSTANT * got or (got > 0) != (wanted > 0):
                return Finding(False, f"L = {len(weights)}, m = {m}: got {got} sigma^2, exact {wanted} sigma^2",
                               {"got": float(got), "exact": float(wanted)})
    return Finding(True, f"of the order sigma^2 / m^2, in rationals for {len(cases)} groupings")


CLAIMS = (
    Claim(id="T2", paper="DGA", place="Section 4.2; Theorem 2",
          quote=("the variance of weight changes is reduced by a factor of $1/m^2$",
                 r"Consider a Gaussian noise $\Delta \tilde{\alpha} \sim \mathcal{N}(\mathbf{0}, \sigma^2 "
                 r"\mathbf{I}_L)$ being added into $\tilde{\alpha}$"),
          reading="to first order in sigma, Var(change of a weight) under grouping is at most 1/m^2 of what it is in "
                  "full attention [up to a constant, here 2; weights constant within groups]",
          printed=Reduction(factor_printed), check=check_reduction, verdict=Verdict.DEPENDS, formula=True,
          models={
              "one noise for each group, divided by m on every token (assumed in A.2)":
                  (Reduction(factor_printed, ("shared",)), True),
              "independent noise on every token (Theorem 2), a group's weight the mean of its tokens' weights":
                  (Reduction(factor_printed, ("weights",)), False),
              "independent noise on every token, a group's logit the mean of its tokens'":
                  (Reduction(factor_printed, ("mean",)), False),
              "noise of the same size on the group's own logit": (Reduction(factor_printed, ("pooled",)), False)},
          strength=Strength.PROOF, corrected=Reduction(factor),
          repair="U_g(A) / U_j(alpha), which is under 2, times 1/m^2 if the noise is assumed divided by m, 1/m for "
                 "independent noise on the tokens, 1 for noise on the pooled logit",
          repaired=Strength.PROOF, weight=Weight.SUBSTANCE,
          proof="Noise eta_g / m, the mean of m noises, or eta_g on a group's logit has the variance sigma^2 / m^2, "
                "sigma^2 / m, sigma^2; Lemma 2 then holds with group masses A. Independent noise on tokens gives 1/m "
                "in either order of softmax and mean. U_j = U_g / m + 1 - 1/m and U_g < 2, so U_g / U_j < 2m / (m + "
                "1). The 1/m^2 is put in: A.2 moves noise from the weight of a group, after softmax, to eta_g / m on "
                "logits.",
          example="""from fractions import Fraction

k, m = 8, 8                                  # 8 groups of 8 tokens, all weights equal, noise on every token's logit
a = Fraction(1, k * m)
slope = [a * ((i == 0) - a) for i in range(k * m)]           # d alpha_1 / d logit_i
full = sum(s * s for s in slope)
# the group's weight is the mean of its tokens' weights: a noise moves it by the mean of their slopes
means = [a * (Fraction(i < m, m) - a) for i in range(k * m)]
left = sum(s * s for s in means) / full
print("left of the variance:", left, "and not", Fraction(1, m * m))
assert left == Fraction(1, 9)"""),
    Claim(id="T2.shared", paper="DGA", place="Appendix A.2, Eq. 22; Appendix A.2, Eq. 23",
          quote=(r"Since the factor $\frac{1}{m}$ can be shifted on the variance $\sigma$ of the noise",
                 r"the variance of the weight changes is $\mathcal{O}(\sigma^2/m^2)$"),
          reading="with the same noise eta_g / m on each weight of a group, the variance is of the order that Lemma 2 "
                  "[for independent noises] gives with sigma / m for sigma",
          printed=shared_by_lemma2, check=check_shared, verdict=Verdict.HOLDS_IF,
          hypothesis=Hypothesis("there are two groups or more", two_groups), strength=Strength.PROOF,
          corrected=shared_variance,
          repair="alpha_j^2 (sigma^2 / m^2) (1 + sum A_h^2 - 2 A_g), with group masses A for weights: 0 for one group, "
                 "else over 0 and under 2m / (m + 1) times what Lemma 2 gives",
          repaired=Strength.PROOF, weight=Weight.SLIP, formula=True,
          proof="Lemma 2 needs independent noise on every token, and a group shares eta_g; the softmax of the groups' "
                "masses has independent noises, so Lemma 2 applies to them. A single group shows the difference: all "
                "logits move together and softmax does not change.",
          example="""from math import exp

eta, m = 0.7, 3                                   # one group of three tokens, the same noise on each
powers = [exp(0.0 + eta / m) for _ in range(m)]
change = powers[0] / sum(powers) - 1 / 3
print("change of the weight:", change)            # 0, where Lemma 2 has the variance 2/27 sigma^2 / m^2
assert abs(change) < 1e-15"""),
    *POOLING,
)
