"""Wrong statements about CCA-Attention, and true ones that say less than holds: all are refuted."""

from fractions import Fraction
from typing import Any

from cca_lab.mechanisms.indices import core_count
from cca_lab.theory.reachability import indices


def window_mod_row(i, g, s):
    """Raw tokens are the s + (i mod g) nearest, with i for i - s: right only where g divides s."""
    return core_count(i, g, s), max(1, i - (s + i % g) + 1)


def core_one_row_early(i, g, s):
    """The cores of the next row: in row g + s - 1 all tokens of a group are read twice."""
    return core_count(i + 1, g, s), indices.exact_cover(i, g, s)[1]


def future_core(i, g, s):
    """A core more than is complete: row i reads tokens after i."""
    j = core_count(i, g, s) + (s < g)
    return j, min(j * g + 1, i)


def one_core_short(i, length, g, s):
    """Eq. 6 with the last core left out and nothing in its place."""
    tokens, j = indices.exact_terms(i, length, g, s), core_count(i, g, s)
    return tokens if j == 0 else [t for t in tokens if not (j - 1) * g < t <= j * g]


def window_without_itself(length, window, sinks, layers):
    """As if the window did not count the row itself: n w tokens back."""
    return layers * window < length - 1 - sinks


ONCE = (indices.as_sized, indices.each_once)
BROKEN: dict[str, Any] = {
    "P1": window_mod_row, "P1.alg1": (window_mod_row, ONCE), "P1.eq6": one_core_short,
    "P1.overlooked": lambda change, full: full[0] != full[1],  # as if the row's own weights decided
    "P1.depth": window_without_itself,
    "P1c.linear": lambda length, m: Fraction(length * (m + 1), 2),  # g = L/m taken for m
    "P1c.every-g": lambda older: older**1.25,
    "P1c.best-g": (32, 64, 128, 256),  # past the turn at 124
}
ALSO_BROKEN = [
    ("P1", future_core), ("P1.alg1", (core_one_row_early, ONCE)), ("P1.alg1", (future_core, ONCE)),
    ("P1.alg1", (indices.exact_cover, (indices.s_before,))),  # s - 1 tokens before the row's own
    ("P1.depth", lambda length, window, sinks, layers: window + sinks < length - 1),
    # true, and less than what holds
    ("P1c.linear", lambda length, m: Fraction(length * (m * m + length), m)),
    ("P1c.every-g", lambda older: 0.5 * older**1.5),
    ("P1.overlooked", lambda change, full: sum(change) == 1),  # of one token only
]
# label, a piece of the article's formula, and what could stand there in error
FORMULAS = [
    ("cca-cores", "i - s", "i - s + 1"), ("cca-first-raw", "+ 1", ""), ("cca-window", "i - s", "i"),
    ("cca-most-raw", "g - 1", "g"), ("cca-depth", "w - 1", "w"), ("cca-depth", "<", r"\le"),
    ("cca-premise", r"\varphi_t e", "e"), ("cca-premise", r"{\delta_t}", "t"),
    ("cca-pairs", "- (g - 1)(r", "- (r"), ("cca-pairs", "g - 1 - r", "g - r"),
    ("cca-entries", "- 2", ""), ("cca-entries", "- 2", "- 1"), ("cca-linear", "/2", ""),
    ("cca-every-g", r"\frac{9}{8}", r"\frac{17}{8}"), ("cca-every-g", r"\frac{9}{8} x", "x"),
]
