"""Laws of independent logits with a density: what P_sparse needs of them.

They condition on the largest logit: given xi <= t, z = e^{xi - t} is in (0, 1]. Expectations
over z are sums over quadrature nodes.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

PANELS = 48
RULE = np.polynomial.legendre.leggauss(16)  # nodes and weights in a panel
CHUNK = 4_000_000  # number of logits drawn at once
FAR = 1e-18  # probability of the lower tail that a quadrature leaves out


@dataclass(frozen=True)
class LogitLaw:
    """The law of one logit xi, with a name for legends; the L logits of a row are independent."""

    name: str
    distribution: Any  # of xi, a frozen continuous distribution of scipy.stats

    def quantile_of_max(self, level: float, length: float) -> float:
        """Return the t with P(max of `length` logits <= t) = level."""
        return float(self.distribution.isf(-np.expm1(np.log(level) / length)))

    def rows(self, draws: int, length: int, generator: np.random.Generator) -> np.ndarray:
        """Draw rows of logits, (draws, length) float64."""
        return self.distribution.rvs((draws, length), random_state=generator)


def gaussian(tau: float) -> LogitLaw:
    """Return xi ~ N(0, tau^2); the mean does not matter, as a shift changes no weight."""
    if not tau > 0:
        raise ValueError(f"tau: got {tau}, wanted a positive standard deviation of the logits")
    return LogitLaw(f"Gaussian, tau={tau:g}", stats.norm(scale=tau))


def nodes(law: LogitLaw, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Return quadrature nodes z = e^{xi - t}, (n,), and their probability for xi <= t, (n,).

    Composite Gauss-Legendre in xi. Weighted sums over the nodes give E[g(z); xi <= t], not divided
    by F(t), to which the weights sum.
    """
    edges = np.linspace(float(law.distribution.ppf(FAR)), t, PANELS + 1)
    half = np.diff(edges)[:, None] / 2
    xi = (edges[:-1, None] + half + half * RULE[0]).ravel()
    return np.exp(xi - t), (half * RULE[1]).ravel() * law.distribution.pdf(xi)


class Conditional:
    """A weight z = e^{xi - t} given xi <= t: nodes (n,) of z, and their probabilities (n,)."""

    def __init__(self, law: LogitLaw, t: float) -> None:
        self.law, self.t = law, t
        self.z, weights = nodes(law, t)
        self.chances = weights / weights.sum()
        self.mean = float(self.chances @ self.z)
        self.variance = float(self.chances @ (self.z - self.mean) ** 2)


class Sampled(NamedTuple):
    """A Monte Carlo estimate of a probability: the share of random rows, and its interval."""

    value: float
    error: float  # `sigmas` standard errors, with two failures and two successes added
    draws: int


@lru_cache(maxsize=64)
def sample(law: LogitLaw, length: int, rho: float, draws: int = 20_000, seed: int = 0,
           sigmas: float = 4.0) -> Sampled:
    """Estimate P_sparse from rows of independent logits: the share with max X > S / (L rho)."""
    generator, hits, left = np.random.default_rng(seed), 0, draws
    while left:
        count = min(left, max(1, CHUNK // length))
        logits = law.rows(count, length, generator)
        top = logits.max(axis=1)
        hits += int((np.exp(logits - top[:, None]).sum(axis=1) < length * rho).sum())
        left -= count
    share = (hits + 2) / (draws + 4)
    return Sampled(hits / draws, sigmas * float(np.sqrt(share * (1 - share) / draws)), draws)
