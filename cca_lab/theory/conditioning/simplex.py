"""How far DGA's Theorem 3 reaches: the simplex, unequal groups, the runs of Section 6.3.

The weights sum to 1, so a step stays in the tangent space T = {v : sum v = 0}, and only H
restricted to T matters. Where V_1 .. V_L are affinely independent, which allows L = d + 1,

    kappa_T(Hbar) <= kappa_T(H)

Proof: P = sqrt(m) M^T maps the tangent space of the k groups isometrically into T; apply the
separation theorem there. For groups of sizes n_g, with x_g the mass of a group,

    kappa(Hbar) <= kappa(H) max n_g / min n_g,   attained by H = I

Proof (Ostrowski): Hbar = D^(1/2) P^T H P D^(1/2), P orthonormal, D = diag(1 / n_g); its extreme
eigenvalues lie in [lambda_min(H) / max n_g, lambda_max(H) / min n_g]. In the variables x_g /
sqrt(n_g), D and the factor disappear.
"""

from collections.abc import Callable

import numpy as np

from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.conditioning.spectrum import ZERO, Array, hessian


def tangent_hessian(values: Array) -> Array:
    """Return H on the tangent space of the simplex, orthonormal basis: (L, d) -> (L - 1, L - 1)."""
    length = len(values)
    basis = np.linalg.svd(np.ones((1, length)))[2][1:]  # (L - 1, L), each row summing to 0
    return basis @ hessian(values.astype(float)) @ basis.T


def affinely_independent(values: Array) -> bool:
    """Whether V_2 - V_1 .. V_L - V_1 are linearly independent, which needs L <= d + 1."""
    differences = (values[1:] - values[0]).astype(float)
    return bool(np.linalg.matrix_rank(differences, tol=ZERO * np.abs(differences).max())
                == len(differences))


# (L, d): GPT2-S and OPT-125M, by Section 6.3 and the models' published widths.
RUNS = ((1024, 768), (2048, 768))
SMALL = ((3, 3), (4, 3), (5, 3), (8, 7), (9, 7))


def check_runs(covers: Callable[[int, int], bool]) -> Outcome:
    """Judge whether Theorem 3 speaks of L values of width d, on the simplex."""
    for length, width in RUNS:
        if covers(length, width) and length - 1 > width:
            return Outcome(False, f"L = {length}, d = {width}: 2 V V^T is {length} x {length} of "
                           f"rank {width} at most, so lambda_min(H) = 0 for every V, on the "
                           "simplex as well", {"length": length, "width": width})
    generator = np.random.default_rng(0)
    for length, width in SMALL:
        if covers(length, width) != affinely_independent(generator.normal(size=(length, width))):
            return Outcome(False, f"L = {length}, d = {width}, Gaussian V: the theorem "
                           f"{'does not speak' if covers(length, width) else 'speaks'} of it")
    return Outcome(True, f"right for the {len(RUNS)} runs and for Gaussian V of {len(SMALL)} "
                   "shapes")


SUBJECTS = {
    "T3.align": Subjects(check_runs, lambda length, width: True,
                         corrected=lambda length, width: length <= width + 1),
}
