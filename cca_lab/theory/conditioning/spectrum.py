"""The condition number under grouping: which matrix is DGA's Hessian (Theorem 3).

V holds the L values, (L, d); M takes means over groups of m tokens, Vbar = M V. Two matrices can be
meant by "Hessian", of which the article docs/claims/dga.md says more:

    of the proof (Eqs. 32, 35; Lemmas 3, 4)  H = 2 V^T V  (d x d)    Hbar = 2 Vbar^T Vbar  (d x d)
    of Problems 1 and 2, by the weights      H = 2 V V^T  (L x L)    Hbar = 2 Vbar Vbar^T  (k x k)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cca_lab.theory.claim import Outcome, Subjects

Array = npt.NDArray[Any]
Hessian = Callable[[Array], Array]
ZERO = 1e-9   # an eigenvalue below this share of the largest one counts as 0
SLACK = 1e-9  # relative tolerance for comparisons of eigenvalues in float64


def hessian(values: Array) -> Array:
    """Return 2 V V^T, the second derivative of |V^T alpha - y|^2 by alpha: (L, d) -> (L, L)."""
    return 2 * values @ values.T


def hessian_printed(values: Array) -> Array:
    """Return 2 V^T V, the H of Lemmas 3 and 4, and of Vbar the Hbar of Eq. 32: (L, d) -> (d, d)."""
    return 2 * values.T @ values


def grouped(values: Array, m: int) -> Array:
    """Return Vbar, the means of m neighbouring rows: (L, d) -> (L / m, d)."""
    return values.reshape(-1, m, values.shape[1]).sum(axis=1) / m


def smallest_counterexample(e: Any = Fraction(1, 10)) -> Array:
    """Return V, 4 x 2: V^T V = diag(4, 4 + 8 e^2) and, for m = 2, Vbar^T Vbar = diag(2, 2 e^2).

    So kappa can rise as far as one likes.
    """
    rows = np.array([[1, 1], [1, -1 + 2 * e], [1, 1], [1, -1 - 2 * e]], dtype=object)
    return np.vectorize(lambda x: Fraction(x) if isinstance(x, int | float) else x)(rows)


def identity(size: int) -> Array:
    """Return the unit matrix of Fractions."""
    return np.diag([Fraction(1)] * size) + Fraction(0)


def eigenvalues(matrix: Array) -> Array:
    """Return a symmetric matrix's eigenvalues, ascending; Fractions if diagonal in them."""
    diagonal = np.diagonal(matrix)
    if matrix.dtype == object and not np.any(matrix - np.diag(diagonal)):
        return np.array(sorted(diagonal), dtype=object)
    return np.linalg.eigvalsh(matrix.astype(float))


def condition_number(matrix: Array) -> Any:
    """Return lambda_max / lambda_min; infinite where lambda_min is 0 up to rounding."""
    values = eigenvalues(matrix)
    return values[-1] / values[0] if values[0] > ZERO * values[-1] else float("inf")


def separation_margin(values: Array, m: int) -> float:
    """Return the margin from Hbar's eigenvalues to Poincare's bounds, relative to H's largest.

    With ascending eigenvalues, lambda_i(H) <= m lambda_i(Hbar) <= lambda_(L-k+i)(H) for i = 1 .. k.
    """
    outer, inner = eigenvalues(hessian(values)), m * eigenvalues(hessian(grouped(values, m)))
    k = len(inner)
    return float(min((inner - outer[:k]).min(), (outer[-k:] - inner).min()) / outer[-1])


def cases() -> Iterator[tuple[str, Array, int]]:
    """Yield (name, V, m): the smallest examples, then Gaussian V with L > d and with L <= d.

    The third has the fewest tokens, components and ones against the proof.
    """
    def exact(rows: list[list[int]]) -> Array:
        return np.array(rows, dtype=object) + Fraction(0)

    yield "V = (1, 0), L = 2, d = 1, m = 2", exact([[1], [0]]), 2
    yield "V = I, L = d = m = 2", identity(2), 2
    yield "V = (0, 0), (0, 1), (0, 1), (1, 0), m = 2", exact([[0, 0], [0, 1], [0, 1], [1, 0]]), 2
    yield "the 4 x 2 family, e = 1/10, m = 2", smallest_counterexample(), 2
    yield "V = diag(1, 1, 2, 2), m = 2", exact(np.diag([1, 1, 2, 2]).tolist()), 2
    yield "equal rows, m = 2", exact([[1]] * 4), 2
    generator = np.random.default_rng(0)
    yield "V constant in groups of 4", np.repeat(generator.normal(size=(8, 4)), 4, axis=0), 4
    for length, width, m in ((64, 8, 2), (64, 8, 4), (256, 16, 8), (8, 16, 2), (16, 32, 4),
                             (24, 24, 3), (32, 64, 4)):
        for number in range(4):
            name = f"Gaussian V number {number + 1}, L = {length}, d = {width}, m = {m}"
            yield name, generator.normal(size=(length, width)), m


@dataclass(frozen=True)
class Condition:
    """The claim that kappa(Hbar) <= factor kappa(H) if lambda_min(H) > 0, and no less will do."""

    hessian: Hessian
    factor: int = 1


def check_theorem(subject: Condition) -> Outcome:
    """Judge Theorem 3 for a Hessian; a repair must be attained, and not at kappa = 1.

    One refuting case is named for each form of the hypothesis, with lambda_min(Hbar) > 0 (Eq. 11)
    or without (Eq. 30).
    """
    applies, closest = 0, 0.0
    wrong: dict[str, str] = {}
    for name, values, m in cases():
        before, after = (condition_number(subject.hessian(v)) for v in (values, grouped(values, m)))
        if before == float("inf"):
            continue  # the theorem does not speak of it
        applies += 1
        if after > subject.factor * before * (1 + SLACK):
            hypothesis = "Eq. 30" if after == float("inf") else "Eq. 11"
            wrong.setdefault(hypothesis,
                             f"{name}: kappa {_number(before)} becomes {_number(after)}")
        elif before > 1 + SLACK:
            closest = max(closest, float(after / (subject.factor * before)))
    if wrong:
        return Outcome(False, "; ".join(f"{case} (under {name}'s hypothesis)"
                                        for name, case in wrong.items()))
    return Outcome(closest > 1 - SLACK, f"kappa(Hbar) at most {closest:.3g} of the bound in the "
                   f"{applies} cases with lambda_min(H) > 0")


def _number(value: Any) -> str:
    if value == float("inf"):
        return "infinity"
    return str(value) if isinstance(value, Fraction) else f"{value:.4g}"


SUBJECTS = {
    "T3": Subjects(check_theorem, Condition(hessian)),
    "T3.proof": Subjects(check_theorem, Condition(hessian_printed), corrected=Condition(hessian)),
}
