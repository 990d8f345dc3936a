"""Noise on attention logits: its effect on one softmax weight, to second order (DGA Theorem 2, Lemmas 1-2).

alpha = softmax(logits) gets independent noise N(0, sigma^2) on each logit. With
s2 = sum alpha_i^2, s3 = sum alpha_i^3 and U_j = 1 + s2 - 2 alpha_j,

    E (change of alpha_j)   = alpha_j sigma^2 (s2 - alpha_j)                  + O(sigma^4)
    Var (change of alpha_j) = alpha_j^2 (sigma^2 U_j + sigma^4 C_j)           + O(sigma^6)
    C_j = 2 (s2 - 2 alpha_j) U_j + 4 (alpha_j (alpha_j - s2) - s3 + s2^2)
          + (U_j^2 - 2 (alpha_j - 2 alpha_j^2 + s3 - (alpha_j - s2)^2) + s2 - 2 s3 + s2^2) / 2

Proof: for f smooth and z Gaussian, Var f(x + sigma z) = sum_n sigma^(2n) / n! |E grad^n f|^2 (Hermite), so the
coefficient of sigma^4 is grad f . grad(Laplacian f) + |grad^2 f|^2 / 2. Insert d alpha_j / d xi_i =
alpha_j (delta_ij - alpha_i) and Laplacian alpha_j = 2 alpha_j (s2 - alpha_j).
Numbers may be floats or Fractions; the results have the type of the arguments.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.noise import series as noise_series

Weights = Sequence  # of L numbers, positive, summing to 1
FIVE_PER_CENT = 0.05


def lemma2(weights: Weights, j: int):
    """Return U_j = 1 + s2 - 2 alpha_j, the variance of Lemma 2 in units of sigma^2 (Eq. 29)."""
    return 1 + sum(a * a for a in weights) - 2 * weights[j]


def bias(weights: Weights, j: int):
    """Return the mean change of alpha_j in units of sigma^2: heavy weights fall, light ones rise."""
    return weights[j] * (sum(a * a for a in weights) - weights[j])


def second_order(weights: Weights, j: int):
    """Return C_j, the coefficient of alpha_j^2 sigma^4 in the variance of alpha_j."""
    a, s2, s3 = weights[j], sum(w**2 for w in weights), sum(w**3 for w in weights)
    u = lemma2(weights, j)
    hessian = u**2 - 2 * (a - 2 * a**2 + s3 - (a - s2) ** 2) + s2 - 2 * s3 + s2**2
    return 2 * (s2 - 2 * a) * u + 4 * (a * (a - s2) - s3 + s2**2) + hessian / 2


def variance_coefficients(weights: Weights, j: int) -> tuple:
    """Return the coefficients of sigma^2 and sigma^4 in the variance of alpha_j."""
    return weights[j] ** 2 * lemma2(weights, j), weights[j] ** 2 * second_order(weights, j)


def first_order_range(weights: Weights, j: int, share: float = FIVE_PER_CENT) -> float:
    """Return the sigma at which the sigma^4 term is `share` of the sigma^2 term: sqrt(share U_j / |C_j|)."""
    second = abs(second_order(weights, j))
    return math.sqrt(share * lemma2(weights, j) / second) if second else math.inf


def first_order_only(weights: Weights, j: int) -> tuple:
    """Eq. 23 as printed: the terms under o(.) are dropped inside the variance."""
    return weights[j] ** 2 * lemma2(weights, j), 0


def lemma1_remainder(weights: Sequence[Fraction], noise: Sequence[Fraction], j: int) -> Decimal:
    """Return (alpha_j' - alpha_j) / alpha_j - (eta_j - sum alpha_i eta_i), to 60 digits (Eq. 25)."""
    with localcontext(prec=60):
        a, eta = ([Decimal(x.numerator) / x.denominator for x in numbers] for numbers in (weights, noise))
        moved = [x * e.exp() for x, e in zip(a, eta, strict=True)]
        linear = eta[j] - sum(x * e for x, e in zip(a, eta, strict=True))
        return moved[j] / sum(moved) / a[j] - 1 - linear


# ---------------------------------------------------------------- checks

CASES = tuple(tuple(Fraction(part, sum(parts)) for part in parts)
              for parts in ((1, 1), (1, 3), (1, 1, 1), (1, 2, 5), (1, 1, 1, 1), (1, 2, 3, 10)))


def check_variance(subject: Callable[[Weights, int], tuple]) -> Finding:
    """Judge (coefficient of sigma^2, coefficient of sigma^4) against the rational power series."""
    for weights in CASES:
        for j in range(len(weights)):
            wanted, got = noise_series.variance_terms(weights, j), tuple(subject(weights, j))
            if got != wanted:
                return Finding(False, f"weights {_shown(weights)}, j = {j + 1}: got {_line(got)}, "
                                      f"exact {_line(wanted)}",
                               {"exact_sigma4": float(wanted[1]),
                                "first_order_range": first_order_range(weights, j)})
    return Finding(True, f"equal in rationals for {len(CASES)} weightings, every j; first order alone is good to "
                         f"5 % up to sigma = {first_order_range([1 / 4096] * 4096, 0):.2f} for diffuse weights",
                   {"cases": len(CASES)})


def _line(coefficients: Sequence) -> str:
    return " + ".join(f"{value} sigma^{2 * n}" for n, value in enumerate(coefficients, start=1))


def check_leading(subject: Callable[[Weights, int], Fraction]) -> Finding:
    """Judge the coefficient of sigma^2 in Var(alpha_j): exact, and positive, so that the order is sigma^2."""
    for weights in CASES:
        for j in range(len(weights)):
            wanted, got = noise_series.variance_terms(weights, j)[0], subject(weights, j)
            if got != wanted or got <= 0:
                return Finding(False, f"weights {_shown(weights)}, j = {j + 1}: got {got}, exact {wanted}")
    return Finding(True, f"equal in rationals and positive for {len(CASES)} weightings, every j")


def check_lemma2(covariance: Callable[[int, int], int]) -> Finding:
    """Judge Cov(eta_i, eta_j) in units of sigma^2: Lemma 2's variance must follow from it, term by term."""
    for weights in CASES:
        for j in range(len(weights)):
            combination = [Fraction(i == j) - a for i, a in enumerate(weights)]  # eta_j - sum_i alpha_i eta_i
            got = sum(x * y * covariance(i, n) for i, x in enumerate(combination)
                      for n, y in enumerate(combination))
            if got != lemma2(weights, j):
                return Finding(False, f"weights {_shown(weights)}, j = {j + 1}: variance {got} sigma^2, "
                                      f"Lemma 2 says {lemma2(weights, j)} sigma^2")
    return Finding(True, f"1 + s2 - 2 alpha_j in rationals for {len(CASES)} weightings, every j")


def check_lemma1(scale: Callable[[Sequence[Fraction], int], Fraction]) -> Finding:
    """Judge whether the remainder of Lemma 1 is o(scale(eta, j)): their ratio must go to 0 along every ray."""
    rays = (((1, 3), (0, 1), 0), ((1, 3), (1, 0), 0), ((1, 1), (1, 2), 1), ((1, 2, 5), (0, 1, -1), 0),
            ((1, 2, 5), (1, -1, 2), 2))
    worst = Decimal(0)
    for parts, direction, j in rays:
        weights = [Fraction(part, sum(parts)) for part in parts]
        ratios = []
        for exponent in (2, 4, 6):
            noise = [Fraction(x, 10**exponent) for x in direction]
            remainder, size = lemma1_remainder(weights, noise, j), scale(noise, j)
            if size == 0 and remainder != 0:
                return Finding(False, f"weights {_shown(weights)}, eta = {_shown(noise)}: "
                                      f"the remainder is {remainder:.3g}, o(.) of 0 must be 0",
                               {"remainder": float(remainder)})
            ratios.append(abs(remainder) * size.denominator / size.numerator if size else Decimal(0))
        if not (ratios[1] <= ratios[0] / 10 and ratios[2] <= ratios[1] / 10):
            return Finding(False, f"weights {_shown(weights)}, direction {direction}: remainder over scale is "
                                  + ", ".join(f"{ratio:.3g}" for ratio in ratios) + " and does not go to 0")
        worst = max(worst, ratios[2])
    return Finding(True, f"remainder over scale at most {worst:.2g} at eps = 1e-6, along {len(rays)} rays")


def _shown(numbers: Sequence[Fraction]) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"


CLAIMS = (
    Claim(id="T2.lemma1", paper="DGA", place="Lemma 1, Eq. 25",
          statement="change of alpha_j = alpha_j [eta_j - sum alpha_i eta_i + o(eta_j)]",
          printed=lambda eta, j: abs(eta[j]), check=check_lemma1, verdict=Verdict.FALSE,
          corrected=lambda eta, j: max(map(abs, eta)),
          repair="the remainder is o(||eta||), indeed O(||eta||^2); noise on the other logits enters it too",
          strength=Strength.SPOT,
          proof="Take eta_j = 0: then o(eta_j) = 0, but the noise on the other logits leaves a remainder of second "
                "order: weights (1/4, 3/4), j = 1, eta = (0, eps) gives (3/16) eps^2. Softmax is smooth, so "
                "Taylor's theorem gives a remainder O(||eta||^2)."),
    Claim(id="T2.lemma2", paper="DGA", place="Lemma 2, Eqs. 28-29",
          statement="Var(eta_j - sum alpha_i eta_i) = (1 + s2 - 2 alpha_j) sigma^2 for independent noise",
          printed=lambda i, j: int(i == j), check=check_lemma2, verdict=Verdict.HOLDS, corrected=None, repair="",
          strength=Strength.EXACT,
          proof="The combination has the coefficients delta_ij - alpha_i; independent noises add their squares: "
                "(1 - alpha_j)^2 + sum_{i != j} alpha_i^2 = 1 + s2 - 2 alpha_j."),
    Claim(id="T2.eq29", paper="DGA", place="Eq. 29, the line below it",
          statement="Cov(eta_i, eta_j) = sigma^2 when i != j",
          printed=lambda i, j: int(i != j), check=check_lemma2, verdict=Verdict.FALSE,
          corrected=lambda i, j: int(i == j), repair="sigma^2 when i = j, and 0 when i != j",
          strength=Strength.EXACT,
          proof="The third line of Eq. 29 keeps one term, 2 alpha_j sigma^2, of the sum: that is the term i = j."),
    Claim(id="T2.eq23", paper="DGA", place="Eq. 23",
          statement="Var(change of alpha_j) is of the order sigma^2",
          printed=lambda weights, j: weights[j] ** 2 * lemma2(weights, j), check=check_leading,
          verdict=Verdict.HOLDS, corrected=None, repair="", strength=Strength.EXACT,
          proof="Lemmas 1 and 2 give alpha_j^2 sigma^2 U_j, and U_j = (1 - alpha_j)^2 + sum_{i != j} alpha_i^2 > 0 "
                "for L >= 2."),
    Claim(id="T2.sigma4", paper="DGA", place="Eq. 23, from its third line to its fourth",
          statement="the remainder of Lemma 1 can be dropped inside the variance",
          printed=first_order_only, check=check_variance, verdict=Verdict.HOLDS_IF,
          corrected=variance_coefficients,
          repair="Var = alpha_j^2 (sigma^2 U_j + sigma^4 C_j) + O(sigma^6); dropping C_j errs by less than 5 % for "
                 "sigma < sqrt(0.05 U_j / |C_j|), 0.32 for diffuse weights",
          strength=Strength.EXACT,
          proof="Hermite: Var f(x + sigma z) = sum_n sigma^(2n) / n! |E grad^n f|^2. To order sigma^4 this is "
                "sigma^2 |grad f|^2 + sigma^4 (grad f . grad Lap f + |grad^2 f|^2 / 2). Insert the derivatives of "
                "softmax. For many small weights U = 1 and C = 1/2, so 5 % is reached at sigma = sqrt(0.1)."),
)
