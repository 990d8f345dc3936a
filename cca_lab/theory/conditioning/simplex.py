"""Theorem 3 on the constraint set, and for groups of unequal size (DGA Problem 2, Theorem 3).

The weights sum to 1, so a step stays in the tangent space T = {v : sum v = 0}, and only H restricted to T matters.

    kappa_T(Hbar) <= kappa_T(H)   whenever V_1 .. V_L are affinely independent, which allows L = d + 1

Proof: P = sqrt(m) M^T maps the tangent space of the k groups isometrically into T; apply the separation theorem there.

For groups of sizes n_g, with x_g the mass of a group and Hbar = 2 Vbar Vbar^T:

    kappa(Hbar) <= kappa(H) max n_g / min n_g,   attained by H = I

Proof (Ostrowski): Hbar = D^(1/2) P^T H P D^(1/2), P orthonormal, D = diag(1 / n_g); its extreme eigenvalues lie in
[lambda_min(H) / max n_g, lambda_max(H) / min n_g]. In the variables x_g / sqrt(n_g), D and the factor disappear.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.conditioning import (
    SLACK,
    ZERO,
    cases,
    condition_number,
    grouped,
    grouping_matrix,
    hessian,
    hessian_printed,
)


def tangent_hessian(values: np.ndarray) -> np.ndarray:
    """Return H on the tangent space of the simplex, in an orthonormal basis: (L, d) -> (L - 1, L - 1)."""
    length = len(values)
    basis = np.linalg.svd(np.ones((1, length)))[2][1:]  # (L - 1, L), orthonormal, each row summing to 0
    return basis @ hessian(values.astype(float)) @ basis.T


def affinely_independent(values: np.ndarray) -> bool:
    """Whether V_2 - V_1 .. V_L - V_1 are linearly independent, which needs L <= d + 1."""
    differences = (values[1:] - values[0]).astype(float)
    return np.linalg.matrix_rank(differences, tol=ZERO * np.abs(differences).max()) == len(differences)


def printed_hypothesis(values: np.ndarray) -> bool:
    """Whether lambda_min(2 V^T V) > 0: Theorem 3's hypothesis with the H of Lemmas 3 and 4."""
    return condition_number(hessian_printed(values)) < float("inf")


def grouped_by_sizes(values: np.ndarray, sizes: Sequence[int], *, rescaled: bool = False) -> np.ndarray:
    """Return Hbar for groups of these sizes, by masses x_g, or by x_g / sqrt(n_g) if `rescaled`."""
    matrix = grouping_matrix(sizes).astype(float)
    if rescaled:
        matrix = np.sqrt(np.array(sizes, dtype=float))[:, None] * matrix
    return hessian(matrix @ values.astype(float))


# ---------------------------------------------------------------- checks

SIZES = ((1, 7), (2, 2, 4), (1, 2, 5), (3, 3, 2), (4, 4))


def check_hypothesis(promises: Callable[[np.ndarray], bool]) -> Finding:
    """Judge a hypothesis: where it holds, kappa_T(Hbar) <= kappa_T(H) < infinity; it must cover L = d + 1."""
    generator = np.random.default_rng(1)
    edge = [(f"Gaussian V, L = {n}, d = {n - 1}, m = 2", generator.normal(size=(n, n - 1)), 2) for n in (4, 8, 16)]
    covered, worst = 0, 0.0
    for name, values, m in (*edge, *cases()):
        if not promises(values):
            continue
        before = condition_number(tangent_hessian(values))
        after = condition_number(tangent_hessian(grouped(values, m)))
        if before == float("inf") or after > before * (1 + SLACK):
            return Finding(False, f"{name}: the hypothesis holds, but kappa is {before:.4g} on the tangent space of "
                                  f"the simplex, grouped {after:.4g}")
        covered, worst = covered + (len(values) > values.shape[1]), max(worst, after / before)
    if covered < len(edge):
        return Finding(False, f"promises nothing in {len(edge) - covered} of {len(edge)} cases with L = d + 1, where "
                              "grouping does not raise kappa on the tangent space")
    return Finding(True, f"kappa_T(Hbar) / kappa_T(H) at most {worst:.3f}, L = d + 1 included", {"ratio": float(worst)})


def check_sizes(bound: Callable[[float, Sequence[int]], float]) -> Finding:
    """Judge a bound on kappa(Hbar) from kappa(H) and the group sizes: valid, and attained by H = I."""
    worst = 0.0
    for sizes in SIZES:
        diagonal = [Fraction(1, size) for size in sizes]  # V = I / sqrt(2): H = I, Hbar = M M^T
        kappa, allowed = max(diagonal) / min(diagonal), bound(Fraction(1), sizes)
        if kappa > allowed:
            return Finding(False, f"H = I, groups of {sizes}: kappa(H) = 1, kappa(Hbar) = {kappa}, bound {allowed}",
                           {"kappa_grouped": float(kappa), "bound": float(allowed)})
        if kappa < allowed:
            return Finding(False, f"H = I, groups of {sizes}: kappa(Hbar) = {kappa}, the bound {allowed} is not sharp")
    generator = np.random.default_rng(2)
    for number in range(60):
        sizes = SIZES[number % len(SIZES)]
        values = generator.normal(size=(sum(sizes), sum(sizes) + number % 9))
        before, after = condition_number(hessian(values)), condition_number(grouped_by_sizes(values, sizes))
        allowed = bound(before, sizes)
        if after > allowed * (1 + SLACK):
            return Finding(False, f"Gaussian V, groups of {sizes}: kappa(Hbar) = {after:.4g}, bound {allowed:.4g}")
        worst = max(worst, after / allowed)
    return Finding(True, f"attained by H = I for groups of 1 and 7 (kappa 1 becomes 7); kappa(Hbar) at most "
                         f"{worst:.2f} of the bound in 60 Gaussian draws", {"share_of_bound": float(worst)})


CLAIMS = (
    Claim(id="T3.tangent", paper="DGA", place="Theorem 3, with the H of Lemmas 3 and 4",
          statement="lambda_min(2 V^T V) > 0 gives kappa(Hbar) <= kappa(H) (of the Hessians restricted to "
                    "sum alpha = 1, the constraint of Problems 1 and 2)",
          printed=printed_hypothesis, check=check_hypothesis, verdict=Verdict.HOLDS_IF, corrected=affinely_independent,
          repair="if V_1 .. V_L are affinely independent (L <= d + 1), that is lambda_min > 0 for the restricted "
                 "Hessian itself",
          strength=Strength.SPOT,
          proof="Steps sum to 0. P = sqrt(m) M^T maps such steps of the groups isometrically to such steps of the "
                "tokens, so separation holds on T; H is positive there iff no affine combination of the V_j "
                "vanishes. A head has d of about 100 and L in the thousands: neither version applies."),
    Claim(id="T3.sizes", paper="DGA", place="Section 4.2, 2), with the groups of Problem 2",
          statement="group coding reduces the condition number (also for groups of unequal sizes, which Theorem 3 "
                    "does not cover)",
          printed=lambda kappa, sizes: kappa, check=check_sizes, verdict=Verdict.HOLDS_IF,
          corrected=lambda kappa, sizes: kappa * max(sizes) / min(sizes),
          repair="kappa(Hbar) <= kappa(H) max |G| / min |G|, attained by H = I; equal sizes, or variables scaled by "
                 "1 / sqrt |G|, give the theorem back",
          strength=Strength.SPOT,
          proof="Hbar = D^(1/2) P^T H P D^(1/2), D = diag(1 / |G_g|), P orthonormal columns: eigenvalues between "
                "lambda_min(H) / max |G| and lambda_max(H) / min |G|. H = I gives Hbar = D."),
)
