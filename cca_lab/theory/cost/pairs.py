"""What attention costs: pairs, the best group size, and why no group size is linear.

Rows and tokens count from 1, as in the papers. A row i > s has n = i - s tokens that are older than
the window s; it sees floor(n/g) cores of them and n mod g of them raw. So with N = L - s older
tokens in the last row

    pairs(L, g, s) = s(s+1)/2 + N s + older(N, g),
    older(N, g) = sum over n = 1..N of floor(n/g) + n mod g.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import isqrt

from cca_lab.mechanisms.cca.groups import pairs as cca_pairs
from cca_lab.mechanisms.dga import FocalRule
from cca_lab.theory.claim import Outcome, Subjects

SLACK = Fraction(9, 8)  # of `below_every_group`


def full_pairs(length: int) -> int:
    """Return the query-key pairs of causal full attention: L(L+1)/2."""
    return length * (length + 1) // 2


def window_pairs(length: int, window: int) -> int:
    """Return the query-key pairs if a row sees its `window` nearest tokens, its own included."""
    inside = min(length, window)
    return inside * (inside + 1) // 2 + (length - inside) * window


def older_pairs(older: int, group: int) -> int:
    """Return the pairs with tokens older than the window: sum n - (g-1) sum floor(n/g).

    In closed form, with N = Q g + R, sum floor(n/g) = g Q(Q-1)/2 + Q (R+1).
    """
    q, r = divmod(older, group)
    return older * (older + 1) // 2 - (group - 1) * (group * q * (q - 1) // 2 + q * (r + 1))


def cca_columns(row: int, group: int, window: int) -> tuple[range, range]:
    """List the cores and the raw tokens that row i, from 1, sees (CCA, Eqs. 3 and 4, repaired)."""
    cores = max(0, (row - window) // group)
    return range(1, cores + 1), range(cores * group + 1, row + 1)


def cca_pairs_listed(length: int, group: int, window: int) -> int:
    """Count CCA-Attention's pairs from the lists of all rows: the specification of `pairs`."""
    return sum(len(cores) + len(raw)
               for cores, raw in (cca_columns(row, group, window) for row in range(1, length + 1)))


def dga_keys(length: int, group: int) -> tuple[int, int]:
    """Return the most keys that a row of DGA reads in the paper's settings, and the focal ones.

    r + (L - r)/m + m, where r is max(L/10, 1024) plus the tokens that would not fill a group
    (Appendix C.2 and E).
    """
    r = FocalRule(group=group, gamma=0.1, floor=1024).focal_count(length)
    return r + (length - r) // group + group, r


def best_group(older: int) -> int:
    """Return the group size with the fewest pairs, by trying all; it lies within 1 of sqrt(N)."""
    return min(range(1, older + 2), key=lambda group: older_pairs(older, group))


def below_every_group(older: int, slack: Fraction = SLACK) -> bool:
    """Whether x^(3/2) - (9/8) x <= older(N, g) for all g, x = N + 1: in integers, squared."""
    x = older + 1
    return all((older_pairs(older, group) + slack * x)**2 >= x**3 for group in range(1, older + 2))


# ---------------------------------------------------------------- checks

def check_fixed_number(bound: Callable[[int, int], Fraction]) -> Outcome:
    """Judge a bound on the pairs for a fixed number m of groups, g = L/m, and s = 1, as L doubles.

    It must be attained.
    """
    cases = [(m * 2**k, m) for m in (1, 16, 64) for k in range(40)]
    ratios = [cca_pairs(length, length // m, 1) / bound(length, m) for length, m in cases]
    length, m = next((case for case, ratio in zip(cases, ratios, strict=True) if ratio > 1),
                     cases[-1])
    return Outcome(max(ratios) == 1, f"m={m}, s=1, L={length}: "
                   f"{cca_pairs(length, length // m, 1)} pairs, claimed are {bound(length, m)}; at "
                   f"most {float(max(ratios)):.3g} times as many, up to L=2^39 m")


def check_fewest_pairs(order: Callable[[int], float]) -> Outcome:
    """Judge what the fewest pairs over all g grow like, as a bracket of them at N = 4^30 tells.

    The bracket's lower end is checked for N < 200 and all g, and that its slack is the smallest: a
    thousandth less fails for g = 2k, N + 1 = 4k^2 + k.
    """
    k = 2**20
    x = 4 * k * k + k
    sharp = (older_pairs(x - 1, 2 * k) + (SLACK - Fraction(1, 1000)) * x)**2 < x**3
    if not sharp or not all(below_every_group(older) for older in range(1, 200)):
        return Outcome(False, f"x^(3/2) - {SLACK} x is no sharp bound")
    older = 4**30
    least = (older + 1) ** 1.5 - float(SLACK) * (older + 1), older_pairs(older, isqrt(older))
    low, high = (count / order(older) for count in least)
    few = [older_pairs(n, best_group(n)) for n in (16, 64, 256)]
    return Outcome(abs(low - 1) < 1e-8 and abs(high - 1) < 1e-8,
                   f"the fewest pairs over all g are {few[0]}, {few[1]}, {few[2]} for L-s = 16, "
                   f"64, 256; for 4^30 they are {high:.3g} times what is claimed")


def check_falls(groups: Sequence[int]) -> Outcome:
    """Judge "the cost falls as g grows" for group sizes at 16K tokens and s = 1024 (Table 8)."""
    length, window = 2**14, 1024
    counts = [cca_pairs(length, group, window) for group in groups]
    return Outcome(all(before > after for before, after in pairwise(counts)),
                   f"L={length}, s={window}: {counts[0]} pairs at g={groups[0]}, {counts[-1]} at "
                   f"g={groups[-1]}; the fewest are at g={best_group(length - window)}")


SUBJECTS = {
    "P1c.linear": Subjects(check_fixed_number, lambda length, m: Fraction(length * (m + 1)),
                           corrected=lambda length, m: Fraction(length * (m * m + length), 2 * m)),
    "P1c.every-g": Subjects(check_fewest_pairs, lambda older: older,
                            corrected=lambda older: older**1.5),
    "P1c.best-g": Subjects(check_falls, (2, 4, 8, 16, 32, 64)),
}
