"""The position of a core token: pooling rotated keys is not the same as rotating the pooled key to the middle.

CCA, Appendix B.2, gives a core key "the position embedding of the token at the middle position" of its
group. Keys are often rotated before they reach attention, and pooling rotated keys gives another core key.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from cca_lab.attention import pool_groups
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

BASES, GROUPS, HEAD_DIM = (1e4, 5e5), (4, 16, 64), 128
BATCHES, DRAWS = 20, 10  # the confidence interval is taken over the batches
Difference = Callable[[float, int, bool], float]  # (base, g, keys all equal) -> relative difference


def angles(base: float, positions: Tensor, head_dim: int = HEAD_DIM) -> Tensor:
    """Return RoPE's angle for each position and pair of features: (positions, D / 2), float64."""
    frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return positions.to(torch.float64)[:, None] * frequencies


def predicted_difference(base: float, group: int, equal_keys: bool) -> float:
    """Predict the root mean square difference of the two core keys, relative to the one at the middle; phi = 1/g.

    With delta_t the distance of token t to the middle, g//2, and theta the frequencies:
    independent keys sqrt(mean_{t, theta} (2 - 2 cos(delta_t theta))), equal keys
    sqrt(mean_theta |mean_t exp(i delta_t theta) - 1|^2).
    """
    turn = angles(base, torch.arange(group) - group // 2)  # (g, D/2)
    if not equal_keys:
        return (2 - 2 * turn.cos()).mean().sqrt().item()
    mean_turn = torch.polar(torch.ones_like(turn), turn).mean(dim=0)
    return (mean_turn - 1).abs().square().mean().sqrt().item()


def measured_difference(base: float, group: int, equal_keys: bool, seed: int = 0) -> tuple[float, float]:
    """Measure the same difference by pooling random keys in both ways; return it and its 95 % half-width."""
    generator = torch.Generator().manual_seed(seed)
    tokens = 1 if equal_keys else group
    keys = torch.randn(BATCHES * DRAWS, 1, tokens, HEAD_DIM, generator=generator, dtype=torch.float64)
    keys = keys.expand(-1, -1, group, -1)
    angle = angles(base, torch.arange(group))
    turned = torch.complex(*keys.chunk(2, dim=-1)) * torch.polar(torch.ones_like(angle), angle)
    rotated = torch.cat([turned.real, turned.imag], dim=-1)                     # (B, 1, g, D)
    tables = tuple(torch.cat([f(angle), f(angle)], dim=-1) for f in (torch.cos, torch.sin))
    middle, _ = pool_groups(rotated, rotated, rotated, group, weights="mean", rotation=tables)
    first_rotated, _ = pool_groups(rotated, rotated, rotated, group, weights="mean")
    apart, length = ((x.square().sum((1, 2, 3)).view(BATCHES, -1).mean(1)) for x in (first_rotated - middle, middle))
    ratios = (apart / length).sqrt()                                            # (batches,)
    return (apart.mean() / length.mean()).sqrt().item(), (1.96 * ratios.std() / BATCHES**0.5).item()


def table(difference: Difference = predicted_difference) -> dict[tuple[float, int], tuple[float, float]]:
    """Return the relative differences by (base, g): for independent keys and for equal keys."""
    return {(base, group): (difference(base, group, False), difference(base, group, True))
            for base in BASES for group in GROUPS}


def check_difference(difference: Difference) -> Finding:
    """Judge whether the predicted difference lies within twice the confidence interval of the measured one."""
    numbers, widest = {}, 0.0
    for base in BASES:
        for group in GROUPS:
            for equal_keys in (False, True):
                measured, error = measured_difference(base, group, equal_keys)
                predicted, kind = difference(base, group, equal_keys), "equal" if equal_keys else "independent"
                numbers[f"base {base:g}, g {group}, {kind}"] = round(measured, 4)
                widest = max(widest, error)
                if abs(predicted - measured) > 2 * error + 1e-9:
                    return Finding(False, f"base {base:g}, g={group}, {kind} keys: the core keys differ by "
                                          f"{measured:.2f} +- {error:.3f} of their length, predicted {predicted:.2f}",
                                   numbers, error)
    return Finding(True, "g=16, base 5e5: the core keys differ by "
                         f"{numbers['base 500000, g 16, independent']:.2f} (independent keys) and "
                         f"{numbers['base 500000, g 16, equal']:.2f} (equal keys) of their length", numbers, widest)


CLAIMS = (
    Claim(
        id="P1.rope", paper="CCA", place="Appendix B.2", check=check_difference,
        strength=Strength.MONTE_CARLO,
        statement="a core key has the position embedding of the token at its group's middle (whether keys are pooled "
                  "before or after their rotation)",
        printed=lambda base, group, equal_keys: 0.0, corrected=predicted_difference, verdict=Verdict.DEPENDS,
        repair="so if keys are pooled first and then rotated, as B.2 has it; pooling rotated keys is another core key, "
               "off by sqrt(mean(2 - 2 cos(delta theta))) for independent keys",
        proof="The pair of features with frequency theta is a complex number. Rotated and pooled: sum phi_t "
              "k_t e^(i t theta); pooled, then rotated at position c: e^(i c theta) sum phi_t k_t. Token t "
              "differs by |e^(i (t-c) theta) - 1|, and independent keys add the squares. Equal only if (t-c) "
              "theta is small for every member, so not for fast pairs."),
)
