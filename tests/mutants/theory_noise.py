"""Wrong subjects for the claims on noise (DGA Theorem 2, Lemmas 1-2, Eq. 10): each must be refuted."""

from fractions import Fraction

import numpy as np
import torch

from cca_lab.theory import noise
from cca_lab.theory.noise import models as noise_models
from cca_lab.theory.noise import output as noise_output
from cca_lab.theory.noise.sampling import softmax


def no_cross_term(weights, j):
    """Lemma 2 without -2 alpha_j: as if alpha_j's own noise were not in the sum of the softmax."""
    return weights[j] ** 2 * (1 + sum(a * a for a in weights))


def no_hessian(weights, j):
    """The sigma^4 term without |grad^2 f|^2 / 2."""
    a, s2, s3 = weights[j], sum(w**2 for w in weights), sum(w**3 for w in weights)
    u = noise.lemma2(weights, j)
    return a**2 * u, a**2 * (2 * (s2 - 2 * a) * u + 4 * (a * (a - s2) - s3 + s2**2))


def token_masses(model, weights, m, j):
    """The factors without U_g(A): the masses of tokens are taken for those of groups."""
    return Fraction(1, m ** {"shared": 2, "mean": 1, "pooled": 0}[model])


def shared_as_mean(weights, m, j):
    """sigma^2 / m where one noise is shared: the noise of a mean of m."""
    return noise_models.shared_variance(weights, m, j) * m


def frozen_pool(logits):
    """F with P held fixed: the noise on the keys does not reach the pooling weights."""
    return float((softmax(np.array(logits)) ** 2).sum())


def between_groups(values, weights, m):
    """The scatter of the group means: what grouping keeps, not what it removes."""
    return noise_output.grouped_covariance(values, weights, m)


BROKEN = {
    "T2.lemma1": lambda eta, j: max(map(abs, eta)) ** 2,  # the remainder is of second order, not smaller
    "T2.lemma2": lambda i, j: 1,                          # one noise for all: softmax does not move
    "T2.eq29": lambda i, j: 1,
    "T2.eq23": no_cross_term,
    "T2.sigma4": no_hessian,
    "T2": token_masses,
    "T2.shared": shared_as_mean,
    "T2.eq14": frozen_pool,
    "T2.eq10": noise_output.GroupProblem(lambda x, size: x * size, lambda x, size: x * size),
    "T2.open": lambda weights: all(w >= 0 for w in weights),
    "T2.output": between_groups,
}


def output_of_one_group(model, logits, m, sigma, draws, seed=0):
    """Samples in which the noise of a group is drawn once a token and not divided."""
    generator = np.random.default_rng(seed)
    return softmax(np.asarray(logits) + sigma * np.repeat(generator.normal(size=(draws, len(logits) // m)), m, 1))


def noise_of_one_size(attend, sigma, generator, module, query, key, value, mask, scaling=None):
    """Noise on keys of size sigma, whatever the queries and the scale make of it."""
    return attend(module, query, key + sigma * torch.randn(key.shape, generator=generator), value, mask)
