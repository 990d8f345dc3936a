"""Wrong subjects for the claims on reachability (CCA Proposition 1), each to be refuted."""

import torch

from cca_lab.theory.base_two import softmax
from cca_lab.theory.reachability import floats as reachability_floats
from cca_lab.theory.reachability import indices as reachability
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


def normal_numbers_only(name, weight):
    """As if there were no subnormal numbers: 0 below the smallest normal one."""
    return weight >= torch.finfo(reachability_floats.DTYPES[name]).smallest_normal


def tie_to_one(name, weight):
    """As if half of the smallest subnormal number were rounded up to it."""
    return weight >= 2.0 ** -reachability_floats.POWERS[name]


def fractional_middle(base, group, equal_keys):
    """The middle at (g - 1) / 2, where no token of an even group stands."""
    turn = reachability_rope.angles(base, torch.arange(group) - (group - 1) / 2)
    if not equal_keys:
        return (2 - 2 * turn.cos()).mean().sqrt().item()
    return (torch.polar(torch.ones_like(turn),
                        turn).mean(0) - 1).abs().square().mean().sqrt().item()


def equal_keys_only(base, group, equal_keys):
    """The difference of equal keys, for independent ones too."""
    return reachability_rope.predicted_difference(base, group, True)


def window_without_itself(length, window, sinks, layers):
    """As if the window did not count the row itself: n w tokens back."""
    return layers * window < length - 1 - sinks


def sinks_reach_further(length, window, sinks, layers):
    """As if a chain could go through a kept initial token: it comes before all others."""
    return layers * (window + sinks - 1) < length - 1


BROKEN = {
    "P1": window_mod_row, "P1.alg1": window_mod_row, "P1.window": lambda i, g, s: min(s + i % g, i),
    "P1.least": lambda i, g, s: min(s + (i - s) % g, i) - 1,  # the row's own token left out
    "P1.short": lambda i, g, s: i <= g + s, "P1.eq6": one_core_short, "P1.line12": scaled_twice,
    "P1.float": normal_numbers_only, "P1.rope": (reachability_rope.pooled_first, fractional_middle),
    "P1.depth": window_without_itself,
}
ALSO_BROKEN = [("P1", future_core), ("P1.alg1", core_one_row_early), ("P1.alg1", future_core),
               ("P1.float", tie_to_one),
               ("P1.rope", (reachability_rope.rotated_first, fractional_middle)),
               ("P1.rope", (reachability_rope.rotated_first, equal_keys_only)),
               ("P1.least", lambda i, g, s: s)]
