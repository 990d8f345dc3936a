"""Laws of independent logits with a density: what the bounds on P_sparse need of them.

The bounds condition on the largest logit: given xi <= t, z = e^{xi - t} is in (0, 1]. Expectations
over z are sums over quadrature nodes.
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from math import exp
from typing import Any

import numpy as np
from scipy import stats

PANELS, NODES = 48, 16
CHUNK = 4_000_000  # number of logits drawn at once
FAR = 1e-18  # probability of the lower tail that a quadrature leaves out


@dataclass(frozen=True)
class LogitLaw:
    """The law of one logit xi; the L logits of a row are independent.

    Attributes:
        name: shown in evidence and legends.
        distribution: of xi, a frozen continuous distribution of scipy.stats.
        log_concave: whether the density is log-concave; then h of `sparsity.bounds` is
            nondecreasing.
        kinks: points at which the density is not smooth, and at which the quadrature is split.
        moments: (E X, E X^2) of X = e^xi, possibly infinite.
        bound: the essential supremum of xi, infinite for unbounded logits.
    """

    name: str
    distribution: Any
    log_concave: bool = True
    kinks: tuple[float, ...] = ()
    moments: tuple[float, float] = (np.inf, np.inf)
    bound: float = np.inf

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
    # e^700 still fits a float
    first, second = (exp(k**2 * tau**2 / 2) if k * tau < 37 else np.inf for k in (1, 2))
    return LogitLaw(f"Gaussian, tau={tau:g}", stats.norm(scale=tau), moments=(first, second))


def laplace(scale: float) -> LogitLaw:
    """Return xi ~ Laplace(scale); E X is infinite from scale 1 on, E X^2 from scale 1/2 on."""
    first, second = (1 / (1 - (k * scale) ** 2) if k * scale < 1 else np.inf for k in (1, 2))
    return LogitLaw(f"Laplace, scale={scale:g}", stats.laplace(scale=scale), kinks=(0.0,),
                    moments=(first, second))


def uniform(width: float) -> LogitLaw:
    """Return xi ~ Uniform(0, width), bounded logits."""
    first, second = (float(np.expm1(k * width) / (k * width)) for k in (1, 2))
    return LogitLaw(f"uniform, width={width:g}", stats.uniform(scale=width), kinks=(0.0,),
                    moments=(first, second), bound=width)


def cauchy(scale: float) -> LogitLaw:
    """Return Cauchy logits, of which X has no moment of any order; not log-concave."""
    return LogitLaw(f"Cauchy, scale={scale:g}", stats.cauchy(scale=scale), log_concave=False)


_rule = lru_cache(maxsize=1)(partial(np.polynomial.legendre.leggauss, NODES))


def nodes(law: LogitLaw, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Return quadrature nodes z = e^{xi - t}, (n,), and their probability for xi <= t, (n,).

    Composite Gauss-Legendre in xi. Weighted sums over the nodes give E[g(z); xi <= t], not divided
    by F(t), to which the weights sum.
    """
    low, high = float(law.distribution.ppf(FAR)), min(t, law.bound)
    edges = np.linspace(low, high, PANELS + 1)
    edges = np.unique([*edges, *(kink for kink in law.kinks if low < kink < high)])
    half = np.diff(edges)[:, None] / 2
    places, rule = _rule()
    xi = (edges[:-1, None] + half + half * places).ravel()
    return np.exp(xi - t), (half * rule).ravel() * law.distribution.pdf(xi)


@dataclass(frozen=True)
class Conditional:
    """A weight z = e^{xi - t} given xi <= t: moments, transform, and rounding to a grid.

    Attributes:
        law: of xi.
        t: the largest logit.
        places, chances: (n,) nodes of z, and their probabilities given xi <= t.
    """

    law: LogitLaw
    t: float
    places: np.ndarray
    chances: np.ndarray

    @classmethod
    def below(cls, law: LogitLaw, t: float) -> "Conditional":
        """Return the conditional law given xi <= t."""
        places, weights = nodes(law, t)
        return cls(law, t, places, weights / weights.sum())

    @property
    def mean(self) -> float:
        """Return m = E[z | xi <= t]."""
        return float(self.chances @ self.places)

    @property
    def variance(self) -> float:
        """Return v = Var(z | xi <= t)."""
        return float(self.chances @ (self.places - self.mean) ** 2)

    def log_mgf(self, u: float) -> tuple[float, float]:
        """Return ln E[e^{uz} | xi <= t] and its derivative in u, scaled by e^u against overflow."""
        tilted = self.chances * np.exp(u * (self.places - 1))
        total = tilted.sum()
        return float(u + np.log(total)), float(tilted @ self.places / total)

    def grid(self, cells: int) -> np.ndarray:
        """Return P((i-1)/cells < z <= i/cells | xi <= t) from the distribution function."""
        edges = self.t + np.log(np.arange(1, cells + 1) / cells)
        reached = np.exp(self.law.distribution.logcdf(edges) - self.law.distribution.logcdf(self.t))
        return np.diff(reached, prepend=0.0)


@dataclass(frozen=True)
class Sampled:
    """A Monte Carlo estimate of a probability.

    Attributes:
        value: the share of rows.
        error: half-width of its interval at `sigmas` standard errors, with two failures and two
            successes added.
        draws: number of random rows.
    """

    value: float
    error: float
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
