"""Four models of "noise under group coding", and the factor by which each changes a token's variance.

k groups of m tokens; alpha is constant within groups, A_g = m alpha_j the mass of group g. Full attention
gets independent noise N(0, sigma^2) on each logit; its variance is alpha_j^2 sigma^2 U_j (Lemma 2). Grouped:

    model     where noise is added                                       variance of a token's weight
    shared    every token's logit, by the same eta_g / m in group g      alpha_j^2 (sigma^2 / m^2) U_g(A)
    mean      every token's logit, independently; a group has their mean alpha_j^2 (sigma^2 / m)   U_g(A)
    pooled    the logit of the group                                     alpha_j^2  sigma^2        U_g(A)
    softmax   every token's key, independently; keys are pooled by Eq. 14

with U_g(A) = 1 + sum A_h^2 - 2 A_g. The proof of Theorem 2 assumes "shared". In "softmax" the pooling query is
also the query that attends, with logits a_j on the tokens of a group and P = softmax(a):

    noise on the group's logit = sigma^2 F,   F = sum_j P_j^2 (1 + a_j - sum_i P_i a_i)^2     (first order in sigma)
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

import numpy as np

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.noise import lemma2
from cca_lab.theory.noise import series as noise_series
from cca_lab.theory.noise.sampling import softmax

MODELS = {"shared": "one noise a group, divided by m", "mean": "one noise a token, averaged",
          "pooled": "one noise a group, on its pooled logit"}
STANDS_OUT = 2.4  # by how much the logit of one token exceeds the others of its group


def group_masses(weights: Sequence, m: int) -> list:
    """Return A_g, the sum of the weights in each group of m neighbouring tokens."""
    return [sum(weights[start:start + m]) for start in range(0, len(weights), m)]


def factor(model: str, weights: Sequence, m: int, j: int):
    """Return Var(grouped) / Var(full) of token j's weight, to first order, for weights constant in each group."""
    power = {"shared": 2, "mean": 1, "pooled": 0}[model]
    return lemma2(group_masses(weights, m), j // m) / (lemma2(weights, j) * m**power)


def factor_printed(model: str, weights: Sequence, m: int, j: int):
    """Theorem 2: 1 / m^2 for any noise."""
    return Fraction(1, m * m)


def shared_by_lemma2(weights: Sequence, m: int, j: int):
    """Theorem 2's last step: Lemma 2 with sigma / m for sigma, although a group now shares its noise."""
    return weights[j] ** 2 * lemma2(weights, j) / m**2


def shared_variance(weights: Sequence, m: int, j: int):
    """The variance of model "shared" in units of sigma^2."""
    return weights[j] ** 2 * lemma2(group_masses(weights, m), j // m) / m**2


def pooled_logit_factor(logits: Sequence[float]) -> float:
    """Return F of model "softmax": the variance of a group's logit over that of a token's logit (Eq. 14).

    The logit of the pooled key is l(a) = sum_j P_j a_j with P = softmax(a), and d l / d a_j =
    P_j (1 + a_j - l).
    """
    top = max(logits)
    powers = [math.exp(a - top) for a in logits]
    pool = [power / sum(powers) for power in powers]
    pooled = sum(p * a for p, a in zip(pool, logits, strict=True))
    return sum((p * (1 + a - pooled)) ** 2 for p, a in zip(pool, logits, strict=True))


# ---------------------------------------------------------------- exact: derivatives from the power series

def exact_variance(model: str, weights: Sequence[Fraction], m: int, j: int) -> Fraction:
    """Return the first-order variance of token j's grouped weight: a sum over the independent noises.

    The model is evaluated literally: each noise source moves some logits, and the degree-1 terms of
    the softmax's power series give the resulting change of the weight.
    """
    k = len(weights) // m
    total = Fraction(0)
    for source in range(len(weights) if model == "mean" else k):
        if model == "shared":    # eta_g / m on every token of the group; the softmax is over tokens
            moves = [Fraction(i // m == source, m) for i in range(len(weights))]
            moved = _derivative(weights, j, moves)
        else:                    # the softmax is over groups; a token has 1/m of its group's weight
            group, share = (source // m, Fraction(1, m)) if model == "mean" else (source, Fraction(1))
            moves = [share * (g == group) for g in range(k)]
            moved = _derivative(group_masses(weights, m), j // m, moves) / m
        total += moved**2
    return total


def _derivative(weights: Sequence[Fraction], j: int, moves: Sequence[Fraction]) -> Fraction:
    """Return the change of the j-th weight along `moves` of the logits, from the series' degree-1 terms."""
    gradient = _gradient(tuple(weights), j)
    return sum((slope * move for slope, move in zip(gradient, moves, strict=True)), start=Fraction(0))


@cache
def _gradient(weights: tuple[Fraction, ...], j: int) -> tuple[Fraction, ...]:
    linear = noise_series.softmax_series(weights, j)[1]
    places = range(len(weights))
    return tuple(linear.get(tuple(int(n == place) for n in places), Fraction(0)) for place in places)


# ---------------------------------------------------------------- checks

CASES = tuple((tuple(Fraction(part, m * sum(parts)) for part in parts for _ in range(m)), m)
              for parts, m in (((1, 1), 2), ((1, 1, 1), 2), ((1, 3), 2), ((1, 1), 4), ((1, 2, 5), 2), ((1,), 3)))


def check_factor(subject: Callable[[str, Sequence, int, int], Fraction]) -> Finding:
    """Judge the factor of each model against exact derivatives, in rationals."""
    wrong, numbers = [], {}
    for model in MODELS:
        for weights, m in CASES:
            for j in range(0, len(weights), m):
                full = sum(_derivative(weights, j, [Fraction(i == n) for i in range(len(weights))]) ** 2
                           for n in range(len(weights)))
                wanted, got = exact_variance(model, weights, m, j) / full, subject(model, weights, m, j)
                if got != wanted and model not in numbers:
                    numbers[model] = float(wanted)
                    wrong.append(f"{model}: {wanted} and not {got} at L = {len(weights)}, m = {m}")
    if wrong:
        return Finding(False, "; ".join(wrong), numbers)
    return Finding(True, f"equal in rationals for {len(MODELS)} models and {len(CASES)} groupings")


def check_shared(subject: Callable[[Sequence, int, int], Fraction]) -> Finding:
    """Judge the variance of model "shared" in units of sigma^2, in rationals; for a single group it must be 0."""
    for weights, m in reversed(CASES):
        for j in range(0, len(weights), m):
            wanted, got = exact_variance("shared", weights, m, j), subject(weights, m, j)
            if got != wanted:
                return Finding(False, f"L = {len(weights)}, m = {m}: got {got} sigma^2, exact {wanted} sigma^2",
                               {"got": float(got), "exact": float(wanted)})
    return Finding(True, f"equal in rationals for {len(CASES)} groupings; 0 for a single group")


def check_pooled_logit(subject: Callable[[Sequence[float]], float]) -> Finding:
    """Judge F against numerical derivatives of the pooled logit, at flat, peaked and random logits."""
    generator = np.random.default_rng(0)
    cases = [[STANDS_OUT, 0.0], [0.0] * 4, [STANDS_OUT, 0.0, 0.0, 0.0]]
    cases += [[math.log(m - 1), *[0.0] * (m - 1)] for m in (64, 1024)]
    cases += [list(generator.normal(size=m) * tau) for m in (2, 8, 16) for tau in (1.0, 4.0)]
    worst = 0.0
    for logits in cases:
        wanted, got = numerical_factor(logits), subject(logits)
        if abs(got - wanted) > 1e-6 * (1 + wanted):
            shown = ", ".join(f"{a:.2g}" for a in logits[:4])
            return Finding(False, f"m = {len(logits)}, logits {shown}: got {got:.4g}, the derivative says "
                                  f"{wanted:.4g}", {"factor": wanted})
        worst = max(worst, wanted)
    return Finding(True, f"equals the derivative for {len(cases)} groups; {pooled_logit_factor(cases[0]):.3f} for "
                         f"m = 2 with one token {STANDS_OUT} above the other; the largest seen is {worst:.3f}")


def numerical_factor(logits: Sequence[float], step: float = 1e-5) -> float:
    """Return sum_j (d l / d a_j)^2 of the pooled logit l by central differences."""
    def pooled(a: np.ndarray) -> float:
        return float(softmax(a) @ a)

    units = step * np.eye(len(logits))
    return sum(((pooled(logits + unit) - pooled(logits - unit)) / (2 * step)) ** 2 for unit in units)


CLAIMS = (
    Claim(id="T2", paper="DGA", place="Theorem 2", statement="group coding reduces the variance of the weight "
          "changes by 1/m^2", printed=factor_printed, check=check_factor, verdict=Verdict.DEPENDS,
          corrected=factor,
          repair="U_g(A) / U_j(alpha) times 1/m^2, 1/m or 1: noise assumed divided by m; independent noise on "
                 "tokens whose logits are averaged; noise on the pooled logit",
          strength=Strength.EXACT,
          proof="A token's weight is softmax over tokens (shared) or the m-th part of a softmax over groups. Noise "
                "eta_g / m, the mean of m noises, or eta_g on the logit of a group has the variance sigma^2 / m^2, "
                "sigma^2 / m, sigma^2; then Lemma 2 holds with group masses A. The 1/m^2 is put in by assuming "
                "the noise divided by m."),
    Claim(id="T2.shared", paper="DGA", place="A.2, last step of the proof of Theorem 2",
          statement="with eta_g / m on each weight of a group, Lemma 2 with sigma / m gives the variance",
          printed=shared_by_lemma2, check=check_shared, verdict=Verdict.FALSE, corrected=shared_variance,
          repair="alpha_j^2 (sigma^2 / m^2) (1 + sum A_h^2 - 2 A_g), with group masses A",
          strength=Strength.EXACT,
          proof="Lemma 2 needs independent noise on every token; eta_g is shared in a group. A single group shows "
                "it: all logits move together, softmax does not change, the variance is 0."),
    Claim(id="T2.eq14", paper="DGA", place="Section 4.2, 1), with the pooling of Eq. 14",
          statement="pooling smooths noise on the keys out, by 1/m^2",
          printed=lambda logits: 1 / len(logits) ** 2, check=check_pooled_logit, verdict=Verdict.DEPENDS,
          corrected=pooled_logit_factor,
          repair="F = sum P_j^2 (1 + a_j - sum P_i a_i)^2: 1/m for equal logits, over 1 for peaked ones, "
                 "without an upper bound as m grows",
          strength=Strength.SPOT,
          proof="d l / d a_j = P_j (1 + a_j - l). Equal logits give m / m^2. For m = 2 and a = (ln 11, 0): "
                "P = (11/12, 1/12), F >= (11/12)^2 (1 + ln(11) / 12)^2 > 1, as ln 11 > 2 > 12/11. No bound holds for "
                "all m: one token ln(m - 1) above the others has P = 1/2, so F >= (2 + ln(m - 1))^2 / 16."),
)
