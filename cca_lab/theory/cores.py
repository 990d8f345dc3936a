"""What a row of CCA-Attention reads and what it costs: the formulas of the article and the proofs.

Rows, tokens and cores count from 1, as in the paper. i, g and s are numbers, or the symbolic
integers of `cca_lab.theory.forall`.
"""

from collections.abc import Callable
from typing import Any

Cover = Callable[[int, int, int], tuple[int, int]]  # (i, g, s) -> (j cores, first raw token k)


def reads(cover: Cover, i: int, g: int, s: int, t: int) -> int:
    """Count how often row i reads token t >= 1, inside a core or raw."""
    j, k = cover(i, g, s)
    return (t <= j * g) + (k <= t <= i)


def window_size(i: Any, g: Any, s: Any) -> Any:
    """Return the raw tokens of row i (Section 3.3), where i >= s: s + ((i - s) mod g)."""
    return s + (i - s) % g


def most_raw(g: Any, s: Any) -> Any:
    """Return the most raw tokens that a row reads: s + g - 1."""
    return s + g - 1


def most_kept(g: Any, s: Any) -> Any:
    """Return the most raw tokens that a decoder keeps between two tokens: s + g - 2."""
    return s + g - 2


def most_pairs(L: Any, g: Any, s: Any) -> Any:
    """Return 2g times a bound on the query-key pairs of L >= s rows, N = L - s.

    g s (s + 1) + 2 g s N + (N + 1) (N + (g - 1)^2).
    """
    older = L - s
    return g * s * (s + 1) + 2 * g * s * older + (older + 1) * (older + (g - 1) * (g - 1))


def spared_pairs(L: Any, g: Any, s: Any) -> Any:
    """Return what `most_pairs` is above 2g times the pairs: (g - 1)(r + 1)(g - 1 - r), r = N mod g.

    It is 0 exactly where g divides N + 1.
    """
    rest = (L - s) % g
    return (g - 1) * (rest + 1) * (g - 1 - rest)
