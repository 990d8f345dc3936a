"""The position of a core token: pooling rotated keys is not rotating the pooled key.

CCA, Appendix B.2, gives a core key "the position embedding of the token at the middle position" of
its group. Keys are often rotated before they reach attention, and pooling rotated keys gives
another core key.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor

from cca_lab.attention import pool_groups
from cca_lab.theory.claim import Outcome, Subjects

BASES, GROUPS, HEAD_DIM = (1e4, 5e5), (4, 16, 64), 128
BATCHES, DRAWS = 20, 10  # the confidence interval is taken over the batches
Kernel = Callable[[Tensor, float], Tensor]  # (keys without position, base) -> core keys
Difference = Callable[[float, int, bool], float]  # (base, g, keys all equal) -> relative difference


def angles(base: float, positions: Tensor, head_dim: int = HEAD_DIM) -> Tensor:
    """Return RoPE's angle for each position and pair of features: (positions, D / 2), float64."""
    frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return positions.to(torch.float64)[:, None] * frequencies


def predicted_difference(base: float, group: int, equal_keys: bool) -> float:
    """Predict the root mean square difference of the two core keys, relative; phi = 1/g.

    With delta_t the distance of token t to the middle, g//2, and theta the frequencies:
    independent keys sqrt(mean_{t, theta} (2 - 2 cos(delta_t theta))), equal keys
    sqrt(mean_theta |mean_t exp(i delta_t theta) - 1|^2).
    """
    turn = angles(base, torch.arange(group) - group // 2)  # (g, D/2)
    if not equal_keys:
        return (2 - 2 * turn.cos()).mean().sqrt().item()
    mean_turn = torch.polar(torch.ones_like(turn), turn).mean(dim=0)
    return (mean_turn - 1).abs().square().mean().sqrt().item()


def _pooled(keys: Tensor, base: float, *, to_middle: bool) -> Tensor:
    angle = angles(base, torch.arange(keys.shape[2]))
    rotated = _turned(keys, angle)
    tables = (torch.cat([angle.cos()] * 2, dim=-1), torch.cat([angle.sin()] * 2, dim=-1))
    cores, _ = pool_groups(rotated, rotated, rotated, keys.shape[2], weights="mean",
                           rotation=tables if to_middle else None)
    return cores


# keys without position, (B, 1, g, D) -> core keys, (B, 1, 1, D): pooled and then rotated to their
# group's middle (B.2), and pooled as they enter attention, already rotated
pooled_first: Kernel = partial(_pooled, to_middle=True)
rotated_first: Kernel = partial(_pooled, to_middle=False)


def _turned(keys: Tensor, angle: Tensor) -> Tensor:
    turned = torch.complex(*keys.chunk(2, dim=-1)) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


def measured_difference(kernel: Kernel, base: float, group: int, equal_keys: bool,
                        seed: int = 0) -> tuple[float, float]:
    """Measure how far a kernel's core keys are from the pooled key at its middle token.

    Return the root mean square difference, relative to that key, and its 95 % half-width.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = 1 if equal_keys else group
    keys = torch.randn(BATCHES * DRAWS, 1, tokens, HEAD_DIM, generator=generator,
                       dtype=torch.float64)
    keys = keys.expand(-1, -1, group, -1)
    middle = _turned(keys.mean(dim=2, keepdim=True), angles(base, torch.tensor([group // 2])))
    apart, length = (x.square().sum((1, 2, 3)).view(BATCHES, -1).mean(1)
                     for x in (kernel(keys, base) - middle, middle))
    ratios = (apart / length).sqrt()  # (batches,)
    return (apart.mean() / length.mean()).sqrt().item(), (1.96 * ratios.std() / BATCHES**0.5).item()


def no_difference(base: float, group: int, equal_keys: bool) -> float:
    """The core key is the pooled key with the middle's position embedding."""
    return 0.0


def check_difference(subject: tuple[Kernel, Difference]) -> Outcome:
    """Judge how far core keys are said to be from the middle's, to twice the interval."""
    kernel, difference = subject
    numbers = {}
    for base, group, equal_keys in product(BASES, GROUPS, (False, True)):
        measured, error = measured_difference(kernel, base, group, equal_keys)
        predicted = difference(base, group, equal_keys)
        kind = "equal" if equal_keys else "independent"
        numbers[f"base {base:g}, g {group}, {kind}"] = round(measured, 4)
        if abs(predicted - measured) > 2 * error + 1e-9:
            return Outcome(False, f"base {base:g}, g={group}, {kind} keys: the core keys differ by "
                           f"{measured:.2f} +- {error:.3f} of their length, claimed "
                           f"{predicted:.2f}", numbers)
    return Outcome(True, "g=16, base 5e5: the core keys differ by "
                   f"{numbers['base 500000, g 16, independent']:.2f} (independent keys) and "
                   f"{numbers['base 500000, g 16, equal']:.2f} (equal keys) of their length",
                   numbers)


SUBJECTS = {
    "P1.rope": Subjects(check_difference, (pooled_first, no_difference),
                        corrected=(rotated_first, predicted_difference),
                        models=((pooled_first, no_difference), (rotated_first, no_difference))),
}
