"""The four noise models of `noise.models`, simulated: samples, variances, intervals."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Z_999 = 3.29  # half-width of a two-sided 99.9 % interval, in standard errors


class Measured(NamedTuple):
    """A Monte Carlo value with the half-width of its 99.9 % interval."""

    value: float
    error: float

    def agrees(self, wanted: float) -> bool:
        """Whether the interval contains `wanted`."""
        return abs(self.value - wanted) <= self.error


def simulate(model: str, logits: Sequence[float], m: int, sigma: float, draws: int,
             seed: int = 0) -> Array:
    """Draw the noisy weight of each token, (draws, L): "full", one of MODELS, or "softmax".

    The pooled logit of a group is the mean of its m tokens'; for "softmax", that of Eq. 14. The
    noise on a logit has the standard deviation sigma.
    """
    generator = np.random.default_rng(seed)
    clean = np.asarray(logits, dtype=float)
    groups = (draws, len(clean) // m)
    if model in ("full", "shared"):
        noise = generator.normal(size=(draws, len(clean)) if model == "full" else groups)
        noise = noise if model == "full" else np.repeat(noise / m, m, axis=1)
        return softmax(clean + sigma * noise)
    if model == "pooled":
        group_logits = clean.reshape(-1, m).mean(1) + sigma * generator.normal(size=groups)
    else:
        tokens = (clean + sigma * generator.normal(size=(draws, len(clean)))).reshape(*groups, m)
        pool = softmax(tokens) if model == "softmax" else np.full(m, 1 / m)
        group_logits = (pool * tokens).sum(-1)  # (draws, k)
    return np.repeat(softmax(group_logits) / m, m, axis=1)


def softmax(logits: Array) -> Array:
    """Return the softmax along the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def measured_variance(samples: Array) -> Measured:
    """Return the sample variance with its 99.9 % interval, from the fourth moment."""
    centred = samples - samples.mean()
    variance = float((centred**2).mean())
    spread = float((centred**4).mean()) - variance**2
    return Measured(variance, Z_999 * math.sqrt(max(spread, 0.0) / len(samples)))


def measured_factor(model: str, logits: Sequence[float], m: int, *, sigma: float = 0.1,
                    draws: int = 20_000, j: int = 0, seed: int = 0) -> Measured:
    """Return Var(grouped) / Var(full) of token j, relative to squared means, with its interval."""
    relative = []
    for offset, name in enumerate((model, "full")):
        samples = simulate(name, logits, m, sigma, draws, seed + offset)[:, j]
        relative.append(measured_variance(samples / samples.mean()))
    grouped, full = relative
    ratio = grouped.value / full.value
    return Measured(ratio,
                    ratio * math.hypot(grouped.error / grouped.value, full.error / full.value))
