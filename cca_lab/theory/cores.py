"""How many cores a row of CCA-Attention reads, and which tokens: what checks and proofs share.

Rows, tokens and cores count from 1, as in the paper. i, g and s are numbers, or the symbolic
integers of `cca_lab.theory.forall`.
"""

from collections.abc import Callable

Cover = Callable[[int, int, int], tuple[int, int]]  # (i, g, s) -> (j cores, first raw token k)


def core_count(i: int, g: int, s: int) -> int:
    """Return the number of cores that row i reads (below Eq. 3): j = max(0, floor((i - s) / g))."""
    return max(0, (i - s) // g)


def reads(cover: Cover, i: int, g: int, s: int, t: int) -> int:
    """Count how often row i reads token t >= 1, inside a core or raw."""
    j, k = cover(i, g, s)
    return (t <= j * g) + (k <= t <= i)
