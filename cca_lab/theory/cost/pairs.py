"""What attention costs: pairs, the best group size, and why no group size is linear.

Rows and tokens count from 1, as in the papers. A row i > s has n = i - s tokens that are older than
the window s; it sees floor(n/g) cores of them and n mod g of them raw. So with N = L - s older
tokens in the last row

    pairs(L, g, s) = s(s+1)/2 + N s + older(N, g),
    older(N, g) = sum over n = 1..N of floor(n/g) + n mod g.

The pairs of CCA in closed form are `cca_lab.mechanisms.cca.groups.pairs`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from math import isqrt

from cca_lab.mechanisms.cca.groups import cache_tokens
from cca_lab.mechanisms.cca.groups import pairs as cca_pairs
from cca_lab.mechanisms.dga import FocalRule, row_reads
from cca_lab.theory.claim import Outcome, Subjects
from cca_lab.theory.forall.core import demand, prove
from cca_lab.theory.forall.terms import integers
from cca_lab.theory.reachability.indices import printed_cover


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


def cca_columns(row: int, group: int, window: int, *, printed: bool = False) -> tuple[range, range]:
    """List the cores and the raw tokens that row i, from 1, sees (CCA, Eqs. 3 and 4).

    As printed, the raw tokens begin at k = i - s - ((i - s) mod g), which repeats the last token
    of the last core; otherwise at k + 1.
    """
    cores = max(0, (row - window) // group)
    first = cores * group + (0 if printed and cores else 1)
    return range(1, cores + 1), range(first, row + 1)


def cca_pairs_listed(length: int, group: int, window: int) -> int:
    """Count CCA-Attention's pairs from the lists of all rows: the specification of `pairs`."""
    return sum(len(cores) + len(raw)
               for cores, raw in (cca_columns(row, group, window) for row in range(1, length + 1)))


def dga_pairs_listed(length: int, focal: Iterable[int], group: int) -> tuple[int, int]:
    """Count the query-key pairs of DGA from what every row reads; return them and r.

    Focal tokens count from 0; the last (L - r) mod m others join them, which the paper leaves open.
    """
    chosen = set(focal)
    others = [token for token in range(length) if token not in chosen]
    kept = len(others) // group * group
    focal = sorted(chosen.union(others[kept:]))
    groups = [others[start:start + group] for start in range(0, kept, group)]
    rule = FocalRule(group=group, gamma=0.0)
    pairs = sum(len(tokens) for row in range(length)
                for tokens in row_reads(row, focal, groups, rule))
    return pairs, len(focal)


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


def least_bracket(older: int) -> tuple[float, int]:
    """Return bounds on the fewest pairs: x^(3/2) - 17x/8, x = N + 1, and the count at sqrt(N)."""
    x = older + 1
    return x**1.5 - 17 * x / 8, older_pairs(older, isqrt(older))


def below_every_group(older: int) -> bool:
    """Whether x^(3/2) - 17x/8 <= older(N, g) for all g, as (8 older + 17 x)^2 >= 64 x^3."""
    x = older + 1
    return all((8 * older_pairs(older, group) + 17 * x)**2 >= 64 * x**3
               for group in range(1, older + 2))


Sizes = tuple[int, int, int]  # length L, group g, window s
Bound = Callable[[int, int, int], int]  # (L, g, s) -> pairs or entries
FACTOR = 2
GROUPS = (2, 4, 8, 16, 32, 64)  # Table 8
# the fixed-length setting, g = L/m; and from L = g^2 on, also with a group left open
ADAPTED = [(m * 2**k, 2**k, s) for m, s, k in product((1, 16, 64), (1, 64, 1024), range(0, 41, 2))]
CONSTANT = [(g * g * 2**k + more, g, s)
            for g, s, k in product((1, 4, 16, 64), (1, 16, 1024), range(0, 41, 2))
            for more in (0, g - 1)]


def check_local_window(bound: Callable[[int, int], int]) -> Outcome:
    """Compare a bound (g, s) -> tokens with the longest list of raw tokens."""
    worst = (0, 0, 0)
    for group, window in product(range(1, 9), range(1, 13)):
        for row in range(1, 4 * (group + window)):
            seen = len(cca_columns(row, group, window, printed=True)[1])
            if seen > bound(group, window):
                return Outcome(False, f"g={group}, s={window}: row {row} reads {seen} raw tokens, "
                                      f"more than {bound(group, window)}", {"raw": seen})
            worst = max(worst, (seen - window - group, group, window))
    return Outcome(True, "g <= 8, s <= 12: the most is s+g with Eq. 4 as printed and s+g-1 once "
                   "the token that is read twice is taken out", {"most minus (s+g)": worst[0]})


def window_at_most() -> Outcome:
    """Prove that no row reads more than s + g raw tokens by Eq. 4, for all rows, g and s."""
    i, g, s = integers("i g s")
    return prove(demand("raw tokens", [i >= 1, g >= 1, s >= 1],
                        lambda: i - printed_cover(i, g, s)[1] + 1 <= s + g))


def check_bound(bound: Bound, sizes: Iterable[Sizes], count: Bound = cca_pairs,
                unit: str = "pairs") -> Outcome:
    """Compare a bound (L, g, s) with the exact count at each (L, g, s): at most twice as many."""
    def shown(number: int) -> str:
        return str(number) if number < 10**7 else f"{number:.3g}"

    worst, first = (0.0, ""), ""
    for length, group, window in sizes:
        exact, limit = count(length, group, window), bound(length, group, window)
        where = (f"L={shown(length)}, g={shown(group)}, s={window}: {shown(exact)} {unit}, "
                 f"bound {shown(limit)}")
        if exact > FACTOR * limit and not first:
            first = where
        worst = max(worst, (exact / limit, where))
    numbers = {"worst count / bound": worst[0]}
    if first:
        return Outcome(False, f"{first}; it grows without limit: {worst[1]}, {worst[0]:.3g} times",
                       numbers)
    return Outcome(True, f"at most {worst[0]:.3g} times the bound ({worst[1]})", numbers)


def check_fewest_pairs(order: Callable[[int], float]) -> Outcome:
    """Judge an order of min over g of older(N, g): the ratio in [1/2, 2] up to N = 4^30."""
    unproved = next((older for older in range(1, 200) if not below_every_group(older)), None)
    if unproved:
        return Outcome(False, f"N={unproved}: a group size is cheaper than x^(3/2) - 17x/8")
    ratios = [(4**k, least_bracket(4**k)[0] / order(4**k), least_bracket(4**k)[1] / order(4**k))
              for k in range(4, 31)]
    _, low, high = ratios[-1]
    few = [older_pairs(n, best_group(n)) for n in (16, 64, 256)]
    evidence = (f"the fewest pairs over all g are {few[0]}, {few[1]}, {few[2]} for L-s = 16, 64, "
                f"256; for 4^30 they are {high:.3g} times the claimed order")
    return Outcome(all(low > 0.5 and high < 2 for _, low, high in ratios), evidence,
                   {"low": low, "high": high})


def check_falls(groups: Sequence[int]) -> Outcome:
    """Judge "the cost falls as g grows" for group sizes at 16K tokens and s = 1024 (Table 8)."""
    length, window = 2**14, 1024
    counts = [cca_pairs(length, group, window) for group in groups]
    best = best_group(length - window)
    for before, after, few, many in zip(groups, groups[1:], counts, counts[1:], strict=False):
        if many > few:
            return Outcome(False, f"L={length}, s={window}: {few} pairs at g={before}, but {many} "
                           f"at g={after}; the fewest are at g={best}",
                           {"rises": after, "best": best})
    return Outcome(True, f"L={length}, s={window}: from {counts[0]} pairs at g={groups[0]} down to "
                   f"{counts[-1]} at g={groups[-1]}; the fewest are at g={best}", {"best": best})


SUBJECTS = {
    "P1c.window": Subjects(check_local_window, lambda g, s: s + g, machine=window_at_most),
    "P1c.quadratic": Subjects(partial(check_bound, sizes=CONSTANT),
                              lambda length, g, s: length * length // g + length * s),
    "P1c.linear": Subjects(partial(check_bound, sizes=ADAPTED),
                           lambda length, g, s: length * (length // g) + length * s,
                           corrected=lambda length, g, s: length * (length // g + s + g)),
    "P1c.every-g": Subjects(check_fewest_pairs, lambda older: older,
                            corrected=lambda older: older**1.5),
    "P1c.best-g": Subjects(check_falls, GROUPS),
    "P1c.storage": Subjects(partial(check_bound, sizes=CONSTANT, count=cache_tokens,
                                    unit="entries"),
                            lambda length, g, s: length // g + s),
}
