"""Wrong subjects for the claims on noise (DGA Theorem 2, Lemmas 1-2), each to be refuted."""

from fractions import Fraction

import numpy as np
import torch

from cca_lab.theory.noise import models as noise_models
from cca_lab.theory.noise import output as noise_output
from cca_lab.theory.noise.models import softmax


def no_cross_term(weights, j):
    """Lemma 2 without -2 alpha_j: as if alpha_j's own noise were not in the sum of the softmax."""
    return weights[j] ** 2 * (1 + sum(a * a for a in weights))


def no_squares(weights, j):
    """Lemma 2 without sum alpha_i^2: as if the other logits had no noise."""
    return 1 - 2 * weights[j] + weights[j] ** 2


def averaged_too_often(model, weights, m, j):
    """1/m also for noise on the pooled logit, which nothing averages."""
    return Fraction(1, m ** {"shared": 2, "mean": 1, "weights": 1, "pooled": 1}[model])


def divided_twice(weights, m, j):
    """The noise of a group is divided by m, and once more by m for its m tokens."""
    return noise_models.shared_variance(weights, m, j) / m**2


def frozen_pool(logits):
    """F with P held fixed: the noise on the keys does not reach the pooling weights."""
    return float((softmax(np.array(logits)) ** 2).sum())


def values_differ_at_all(values, weights, m, noise):
    """Scatter between the groups, which stays, taken for scatter within them."""
    return any(value != values[0] for value in values)


BROKEN = {
    # the remainder is of second order, not smaller
    "T2.lemma1": lambda eta, j: max(map(abs, eta))**2,
    "T2.lemma2": no_squares,
    "T2.eq29": lambda i, j: 1,  # one noise for all: softmax does not move
    "T2.eq23": no_cross_term,
    "T2": noise_models.Reduction(averaged_too_often),
    "T2.shared": divided_twice,
    "T2.eq14": noise_models.Pooled(frozen_pool),
    "T2.eq10": noise_output.GroupProblem(lambda x, size: x * size, lambda x, size: x * size),
    "T2.equivalent": noise_output.Passed(noise_output.GROUP_MASS, lambda m: Fraction(1)),
    "T2.output": noise_output.Smoothing(values_differ_at_all),
    "T2.kl": noise_output.Smoothing(values_differ_at_all, ("mean",)),
}


def output_of_one_group(model, logits, m, sigma, draws, seed=0):
    """Samples in which the noise of a group is drawn once a token and not divided."""
    generator = np.random.default_rng(seed)
    return softmax(np.asarray(logits)
                   + sigma * np.repeat(generator.normal(size=(draws, len(logits) // m)), m, 1))


def noise_of_one_size(attend, sigma, generator, module, query, key, value, mask, scaling=None):
    """Noise on keys of size sigma, whatever the queries and the scale make of it."""
    return attend(module, query, key + sigma * torch.randn(key.shape, generator=generator), value,
                  mask)
