"""What attention costs: exact pair counts, the best group size, and why no group size gives linear cost.

Rows and tokens count from 1, as in the papers. A row i > s has n = i - s tokens that are older than the window s; it
sees floor(n/g) cores of them and n mod g of them raw. So with N = L - s older tokens in the last row

    pairs(L, g, s) = s(s+1)/2 + N s + older(N, g),    older(N, g) = sum over n = 1..N of floor(n/g) + n mod g.

The pairs of CCA in closed form are `cca_lab.mechanisms.cca.groups.pairs`.
"""

from collections.abc import Iterable
from math import isqrt

from cca_lab.mechanisms.dga import FocalRule, row_reads


def full_pairs(length: int) -> int:
    """Return the query-key pairs of causal full attention: L(L+1)/2."""
    return length * (length + 1) // 2


def window_pairs(length: int, window: int) -> int:
    """Return the query-key pairs if a row sees its `window` nearest tokens, its own included."""
    inside = min(length, window)
    return inside * (inside + 1) // 2 + (length - inside) * window


def older_pairs(older: int, group: int) -> int:
    """Return the pairs with tokens older than the window: sum of floor(n/g) + n mod g over n = 1..N, in closed form.

    It is sum n - (g-1) sum floor(n/g), where with N = Q g + R, sum floor(n/g) = g Q(Q-1)/2 + Q (R+1).
    """
    q, r = divmod(older, group)
    return older * (older + 1) // 2 - (group - 1) * (group * q * (q - 1) // 2 + q * (r + 1))


def cca_columns(row: int, group: int, window: int, *, printed: bool = False) -> tuple[range, range]:
    """List the cores and the raw tokens that a row sees (CCA, Eqs. 3 and 4).

    Args:
        row: i, from 1.
        group, window: g and s.
        printed: begin the raw tokens at k = i - s - ((i - s) mod g), as printed, which repeats the last token
            of the last core; otherwise begin at k + 1, after that token.
    """
    cores = max(0, (row - window) // group)
    first = cores * group + (0 if printed and cores else 1)
    return range(1, cores + 1), range(first, row + 1)


def cca_pairs_listed(length: int, group: int, window: int) -> int:
    """Count the query-key pairs of CCA-Attention from the lists of all rows: the specification of `pairs`."""
    return sum(len(cores) + len(raw) for cores, raw in
               (cca_columns(row, group, window) for row in range(1, length + 1)))


def dga_pairs_listed(length: int, focal: Iterable[int], group: int) -> tuple[int, int]:
    """Count the query-key pairs of DGA from what every row reads.

    Args:
        length: L.
        focal: focal tokens, counted from 0; the last (L - r) mod m others join them (the paper leaves open which).
        group: m.

    Returns:
        The pairs, and r, the number of focal tokens with those that joined.
    """
    chosen = set(focal)
    others = [token for token in range(length) if token not in chosen]
    kept = len(others) // group * group
    focal = sorted(chosen.union(others[kept:]))
    groups = [others[start:start + group] for start in range(0, kept, group)]
    rule = FocalRule(group=group, gamma=0.0)
    return sum(len(part) for row in range(length) for part in row_reads(row, focal, groups, rule)), len(focal)


def dga_keys(length: int, group: int) -> tuple[int, int]:
    """Return the most keys that one row of DGA reads in the paper's settings, and how many of them are focal.

    r + (L - r)/m + m, where r is max(L/10, 1024) plus the tokens that would not fill a group (Appendix C.2 and E).
    """
    r = FocalRule(group=group, gamma=0.1, floor=1024).focal_count(length)
    return r + (length - r) // group + group, r


def best_group(older: int) -> int:
    """Return the group size with the fewest pairs, by trying all; it lies within 1 of sqrt(N)."""
    return min(range(1, older + 2), key=lambda group: older_pairs(older, group))


def least_bracket(older: int) -> tuple[float, int]:
    """Return a lower and an upper bound on the fewest pairs over all group sizes.

    Lower: x^(3/2) - 17x/8 with x = N + 1, for every g. Upper: the count at g = floor(sqrt(N)).
    """
    x = older + 1
    return x**1.5 - 17 * x / 8, older_pairs(older, isqrt(older))


def below_every_group(older: int) -> bool:
    """Whether x^(3/2) - 17x/8 <= older(N, g) for every g, in integers: (8 older + 17 x)^2 >= 64 x^3."""
    x = older + 1
    return all((8 * older_pairs(older, group) + 17 * x) ** 2 >= 64 * x**3 for group in range(1, older + 2))
