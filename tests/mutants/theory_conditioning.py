"""Wrong subjects for the claims on conditioning (DGA Theorem 3), each to be refuted."""

from fractions import Fraction

import numpy as np

from cca_lab.theory.conditioning.spectrum import hessian


def no_cross_terms(values):
    """The diagonal of 2 V V^T: as if the weights did not interact."""
    return np.diag(np.diagonal(hessian(values)))


def covariance(values):
    """2 V^T V after the values' mean is taken off."""
    centred = values - values.sum(axis=0) / len(values)
    return 2 * centred.T @ centred


def half(values):
    """V V^T, without the 2 of the square."""
    return hessian(values) / 2


def gradient_along_the_simplex(weights, values, residual):
    """The gradient by the weights, its mean taken off, as if the constraint gave alpha_j."""
    slopes = [2 * value * residual for value in values]
    return [slope - sum(slopes) / len(slopes) for slope in slopes]


BROKEN = {
    "T3.hessian": half,
    "T3": no_cross_terms,
    "T3.proof": covariance,
    "T3.lemma3": lambda m: Fraction(1, m * m),
    "T3.lemma4": no_cross_terms,
    "T3.eq49": lambda z, m: Fraction(0),  # true, and says nothing
    "T3.nonzero": lambda values, m: len(values) // m >= len(values[0]),  # means span, badly
    "T3.align": lambda length, width: length // 16 <= width,  # the groups fit, the tokens do not
    "T3.descent": lambda values, m: len(values) // m <= len(values[0]),  # independent means
    "T3.rate": lambda kappa: int(np.ceil(kappa * np.log(1e8))),  # four times the exponent's kappa
    "T3.gradient": gradient_along_the_simplex,
}
