"""P_sparse of independent logits: an integral over the largest one, and its prediction.

With n = L - 1, T = L rho - 1 and z_k = X_k / y given X_k <= y, conditioning on the maximum y gives

    P_sparse = integral of h(y) dF(y)^L,    h(y) = P(z_1 + .. + z_n < T)

Here h is estimated by the central limit theorem; `enclosure` proves bounds.
"""

import numpy as np
from scipy.special import ndtr

from cca_lab.theory.sparsity.logits import Conditional, LogitLaw


def predict(law: LogitLaw, length: int, rho: float, points: int = 100) -> float:
    """Estimate P_sparse: the central limit theorem for h, and the midpoint rule for the integral.

    ValueError for numbers out of range.
    """
    if length < 2 or not 0 < rho <= 1:
        raise ValueError(f"length, rho: got {length} and {rho}, wanted at least 2 and a rate over "
                         f"0 and at most 1")
    most = length * rho - 1
    if most <= 0:
        return 0.0
    maxima = (law.quantile_of_max((k + 0.5) / points, length) for k in range(points))
    given, others = [Conditional(law, t) for t in maxima], length - 1
    return float(sum(ndtr((most - others * z.mean) / np.sqrt(others * z.variance)) for z in given)
                 / points)


def printed_at_median(law: LogitLaw, length: int, rho: float) -> float:
    """Return 1 - 2^-L, which Equation 8 reaches with x at the median of X, where P_head = 1/2."""
    return 1 - 2.0**-length
