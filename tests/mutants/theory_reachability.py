"""Wrong subjects for the claims on reachability (CCA Proposition 1, Algorithm 1): each must be refuted."""

import math

import torch

from cca_lab.theory import reachability
from cca_lab.theory.base_two import softmax
from cca_lab.theory.reachability import floats as reachability_floats
from cca_lab.theory.reachability import rope as reachability_rope


def window_mod_row(i, g, s):
    """Raw tokens are the s + (i mod g) nearest, with i for i - s: right only where g divides s."""
    return reachability.core_count(i, g, s), max(1, i - (s + i % g) + 1)


def core_one_row_early(i, g, s):
    """The cores of the next row: in row g + s - 1 all tokens of a group are read twice."""
    return reachability.core_count(i + 1, g, s), reachability.exact_cover(i, g, s)[1]


def future_core(i, g, s):
    """A core more than is complete: row i reads tokens after i."""
    j = reachability.core_count(i, g, s) + (s < g)
    return j, min(j * g + 1, i)


def one_core_short(i, length, g, s):
    """Eq. 6 with the last core left out and nothing in its place."""
    tokens, j = reachability.exact_terms(i, length, g, s), reachability.core_count(i, g, s)
    return tokens if j == 0 else [t for t in tokens if not (j - 1) * g < t <= j * g]


def scaled_twice(scores, root):
    """Scores divided by d instead of sqrt(d)."""
    return softmax([score // root**2 for score in scores])


def normal_numbers_only(dtype):
    """As if there were no subnormal numbers: a weight is 0 once it is below the smallest normal one."""
    return reachability_floats.predicted_gaps(dtype) | {"zero": -math.log(torch.finfo(dtype).smallest_normal)}


def whole_last_place(dtype):
    """As if a whole last place of 1, not half of it, were absorbed."""
    return reachability_floats.predicted_gaps(dtype) | {"absorbed": -math.log(torch.finfo(dtype).eps)}


def fractional_middle(base, group, equal_keys):
    """The middle at (g - 1) / 2, where no token of an even group stands."""
    turn = reachability_rope.angles(base, torch.arange(group) - (group - 1) / 2)
    if not equal_keys:
        return (2 - 2 * turn.cos()).mean().sqrt().item()
    return (torch.polar(torch.ones_like(turn), turn).mean(0) - 1).abs().square().mean().sqrt().item()


def equal_keys_only(base, group, equal_keys):
    """The difference of equal keys, for independent ones too."""
    return reachability_rope.predicted_difference(base, group, True)


def window_without_itself(distance, window):
    """ceil(distance / window): as if the window did not count the row itself."""
    return max(1, -(-distance // window))


BROKEN = {
    "P1": window_mod_row, "P1.alg1": window_mod_row, "P1.window": lambda i, g, s: s + i % g,
    "P1.eq6": one_core_short, "P1.line12": scaled_twice, "P1.float": normal_numbers_only,
    "P1.rope": fractional_middle, "P1.depth": window_without_itself,
}
ALSO_BROKEN = [
    ("P1", future_core), ("P1.alg1", core_one_row_early), ("P1.alg1", future_core),
    ("P1.float", whole_last_place), ("P1.rope", equal_keys_only),
]
