"""Gradient descent on the coding problem: steps by condition number (DGA Theorem 3).

With the best fixed step 2 / (lambda_max + lambda_min), each step multiplies every mode by a factor
of at most (kappa - 1) / (kappa + 1) in size, and the two extreme modes by exactly that. The gap f -
f* falls with its square. Where H is singular (L > d), descent never changes the error along the
null space, so kappa is that of the nonzero eigenvalues, which 2 V V^T and 2 V^T V share. For
Gaussian V with y = L / d it is near ((1 + sqrt y) / (1 - sqrt y))^2, grouped the same with y / m.
"""

import math

import numpy as np

from cca_lab.theory.conditioning.spectrum import ZERO, Array
from cca_lab.theory.conditioning.spectrum import smallest_counterexample as counterexample

TOLERANCE = 1e-8
MOST_STEPS = 200_000


def nonzero_spectrum(matrix: Array) -> tuple[Array, Array]:
    """Return the nonzero eigenvalues in ascending order, (n,), and their eigenvectors, (N, n)."""
    values, vectors = np.linalg.eigh(matrix.astype(float))
    kept = values > ZERO * values[-1]
    return values[kept], vectors[:, kept]


def effective_condition(matrix: Array) -> float:
    """Return kappa of the nonzero eigenvalues, which determines the speed of gradient descent."""
    values, _ = nonzero_spectrum(matrix)
    return float(values[-1] / values[0])


def predicted_steps(kappa: float, tolerance: float = TOLERANCE) -> int:
    """Return ln(tol) / (2 ln((kappa - 1) / (kappa + 1))), the steps from the worst start to tol."""
    rate = (kappa - 1) / (kappa + 1)
    if rate**2 <= tolerance:
        return 1
    return math.ceil(math.log(tolerance) / (2 * math.log(rate)) - 1e-9)


def worst_start(matrix: Array) -> Array:
    """Return the start whose error falls slowest: the extreme eigenvectors, half the gap each."""
    values, vectors = nonzero_spectrum(matrix)
    if len(values) == 1:
        return vectors[:, 0]
    return vectors[:, 0] / math.sqrt(values[0]) + vectors[:, -1] / math.sqrt(values[-1])


def descend(matrix: Array, error: Array, *, tolerance: float = TOLERANCE,
            most: int = MOST_STEPS) -> Array:
    """Run gradient descent on e^T H e / 2 to `tolerance` times its value; return the path.

    H is (N, N), the start `error` = alpha - alpha* is (N,), the path (steps + 1, N). It stops after
    `most` steps in any case.
    """
    matrix = matrix.astype(float)
    values, _ = nonzero_spectrum(matrix)
    step = 2 / (values[0] + values[-1])
    path = [np.asarray(error, dtype=float)]
    first = path[0] @ matrix @ path[0]
    while path[-1] @ matrix @ path[-1] > tolerance * first and len(path) <= most:
        path.append(path[-1] - step * (matrix @ path[-1]))
    return np.array(path)


def measured_steps(matrix: Array) -> int:
    """Return the steps that gradient descent takes from the worst start."""
    return len(descend(matrix, worst_start(matrix))) - 1


def gaussian(length: int, width: int, seed: int = 0) -> Array:
    """Return Gaussian values, (L, d)."""
    return np.random.default_rng(seed).normal(size=(length, width))


CASES = (("L = 8, d = 16, m = 2", gaussian(8, 16), 2),
         ("L = 32, d = 64, m = 4", gaussian(32, 64), 4),
         ("the 4 x 2 example with e = 1/20, m = 2", counterexample(1 / 20).astype(float), 2),
         ("L = 256, d = 16, m = 8", gaussian(256, 16), 8))
