"""The papers' statements about cost, each compared with exact counts."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations, product

from cca_lab.mechanisms.groups import pairs as cca_pairs
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict
from cca_lab.theory.cost import (
    below_every_group,
    best_group,
    cca_columns,
    chunk_pairs,
    dga_keys,
    dga_pairs_listed,
    least_bracket,
    older_pairs,
)

FIXED_GROUPS = (1, 16, 64)   # m of the fixed-length setting, g = L/m
ADAPTED = [(m * 2**k, 2**k, s) for m, s, k in product(FIXED_GROUPS, (1, 64, 1024), range(0, 41, 2))]
CONSTANT = [(2**k, g, s) for g, s, k in product((1, 4, 16), (16, 1024), range(2, 41, 2))]


def check_local_window(bound: Callable[[int, int], int]) -> Finding:
    """Compare a bound (g, s) -> tokens with the longest list of raw tokens, as printed and repaired."""
    worst = None
    for group, window in ((g, s) for g in range(1, 9) for s in range(1, 13)):
        for row in range(1, 4 * (group + window)):
            seen = len(cca_columns(row, group, window, printed=True)[1])
            if seen > bound(group, window):
                return Finding(False, f"g={group}, s={window}: row {row} reads {seen} raw tokens, "
                                      f"more than {bound(group, window)}", {"raw": seen})
            worst = max(worst or (0, 0, 0), (seen - window - group, group, window))
    return Finding(True, "g <= 8, s <= 12: the most is s+g with Eq. 4 as printed and s+g-1 once the token that is "
                         "read twice is taken out", {"most minus (s+g)": worst[0]})


def check_cost_bound(bound: Callable[[int, int, int], int], sizes: Iterable[tuple[int, int, int]],
                     factor: int = 1) -> Finding:
    """Compare a bound (L, g, s) -> pairs with the exact count at each (L, g, s), up to a constant factor."""
    worst, first = (0.0, ""), ""
    for length, group, window in sizes:
        pairs, limit = cca_pairs(length, group, window), bound(length, group, window)
        where = f"L={_power(length)}, g={_power(group)}, s={window}: {_power(pairs)} pairs, bound {_power(limit)}"
        if pairs > factor * limit and not first:
            first = where
        worst = max(worst, (pairs / limit, where))
    numbers = {"worst pairs / bound": worst[0]}
    if first:
        return Finding(False, f"{first}; it grows without limit: {worst[1]}, {worst[0]:.3g} times", numbers)
    return Finding(True, f"at most {worst[0]:.3g} times the bound ({worst[1]})", numbers)


def check_fewest_pairs(order: Callable[[int], float]) -> Finding:
    """Judge a claimed order of min over g of older(N, g): the ratio must stay within [1/2, 2] up to N = 4^30."""
    unproved = next((older for older in range(1, 200) if not below_every_group(older)), None)
    if unproved:
        return Finding(False, f"N={unproved}: a group size is cheaper than x^(3/2) - 17x/8")
    ratios = [(4**k, least_bracket(4**k)[0] / order(4**k), least_bracket(4**k)[1] / order(4**k))
              for k in range(4, 31)]
    _, low, high = ratios[-1]
    few = [older_pairs(n, best_group(n)) for n in (16, 64, 256)]
    evidence = (f"the fewest pairs over all g are {few[0]}, {few[1]}, {few[2]} for L-s = 16, 64, 256; "
                f"for 4^30 they are {high:.3g} times the claimed order")
    return Finding(all(low > 0.5 and high < 2 for _, low, high in ratios), evidence, {"low": low, "high": high})


def check_falls(groups: Sequence[int]) -> Finding:
    """Judge "the cost falls as g grows" for these group sizes, at 16K tokens and s = 1024, as in Table 8."""
    length, window = 2**14, 1024
    counts = [cca_pairs(length, group, window) for group in groups]
    best = best_group(length - window)
    for before, after, few, many in zip(groups, groups[1:], counts, counts[1:], strict=False):
        if many > few:
            return Finding(False, f"L={length}, s={window}: {few} pairs at g={before}, but {many} at g={after}; the "
                                  f"fewest are at g={best}", {"rises": after, "best": best})
    return Finding(True, f"L={length}, s={window}: from {counts[0]} pairs at g={groups[0]} down to {counts[-1]} at "
                         f"g={groups[-1]}; the fewest are at g={best}", {"best": best})


def check_dga_pairs(bound: Callable[[int, int, int], float]) -> Finding:
    """Compare a bound (L, r, m) -> pairs with the count, for every set of focal tokens of up to 9 tokens."""
    cases, worst = 0, 0.0
    for length, group in ((length, group) for length in range(2, 10) for group in (2, 3, 5)):
        for focal in (set(chosen) for size in range(length + 1)
                      for chosen in combinations(range(length), size)):
            pairs, r = dga_pairs_listed(length, focal, group)
            limit, cases = bound(length, r, group), cases + 1
            if pairs > limit:
                return Finding(False, f"L={length}, m={group}, focal {sorted(focal) or 'none'}: {pairs} pairs, "
                                      f"more than {limit:g}", {"pairs": pairs})
            worst = max(worst, pairs / limit)
    return Finding(True, f"{cases} sets of focal tokens: at most {worst:.3f} of the bound", {"cases": cases})


def check_key_reduction(reduction: Callable[[int, int], float]) -> Finding:
    """Compare a reduction (L, m) -> keys of full / keys of DGA with the exact one in the paper's settings, to 10 %."""
    worst = (0.0, "", 0.0)
    for length, group in ((2**k, m) for k in range(14, 21) for m in (16, 64)):
        keys, r = dga_keys(length, group)
        exact = length / keys
        error = abs(reduction(length, group) / exact - 1)
        where = f"L={length}, m={group}, r={r}: {exact:.2f}x fewer keys, claimed {reduction(length, group):.2f}x"
        if reduction(length, group) == group:
            where += ", which m would give if r were constant and small"
        worst = max(worst, (error, where, exact))
    return Finding(worst[0] <= 0.1, worst[1], {"reduction": worst[2], "error": worst[0]})


def check_chunk(bound: Callable[[int, int], int]) -> Finding:
    """Compare a bound (B, M) -> pairs with the exact pairs of one chunk."""
    for chunk, memory in ((b, m) for b in (1, 2, 16, 512) for m in (0, 8, 128, 512)):
        if chunk_pairs(chunk, memory) > bound(chunk, memory):
            return Finding(False, f"B={chunk}, M={memory}: {chunk_pairs(chunk, memory)} pairs, "
                                  f"more than {bound(chunk, memory)}")
    return Finding(True, f"B=M=512: {chunk_pairs(512, 512)} pairs of at most {bound(512, 512)}",
                   {"pairs": chunk_pairs(512, 512)})


def _power(number: int) -> str:
    """Format an integer, with an exponent if it is large."""
    return str(number) if number < 10**7 else f"{number:.3g}"


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="P1c.window", paper="CCA", place="Section 3.6", strength=Strength.EXACT, verdict=Verdict.HOLDS,
        statement="Each token attends to at most the s + g preceding tokens in the locality-preserving module.",
        printed=lambda g, s: s + g, corrected=None, check=check_local_window, repair="",
        proof="The window is s + ((i-s) mod g) <= s + g - 1 tokens. Eq. 4 as printed begins one token earlier, "
              "so s + g is attained there."),
    Claim(
        id="P1c.quadratic", paper="CCA", place="Section 3.6", strength=Strength.SPOT, verdict=Verdict.HOLDS,
        statement="With a constant group size g the cost is O(L^2/g + L s).",
        printed=lambda length, g, s: length * length // g + length * s,
        corrected=None, check=partial(check_cost_bound, sizes=CONSTANT, factor=2), repair="",
        proof="A row has at most L/g cores and s + g - 1 raw tokens, and L g <= L s for g <= s. The leading term "
              "is (L-s)^2/(2g): at g = 16 it passes L s from L of about 32 s on, so doubling L then quadruples the "
              "cost."),
    Claim(
        id="P1c.linear", paper="CCA", place="Section 3.6 and Appendix C.3", strength=Strength.EXACT,
        verdict=Verdict.FALSE,
        statement="For fixed-length tasks, with a constant number m of groups, the cost is linear, O(L m + L s).",
        printed=lambda length, g, s: length * (length // g) + length * s,
        corrected=lambda length, g, s: length * (length // g + s + g),
        check=partial(check_cost_bound, sizes=ADAPTED),
        repair="With g = L/m the cost is O(L m + L s + L^2/m), quadratic in L.",
        proof="The window s + ((i-s) mod g) averages about s + g/2 tokens, and g = L/m grows with L. The paper's own "
              "bound for the window, O(L (s + g)), contains L^2/m; the sum O(L m + L s) leaves it out. Within one task "
              "the length is fixed, and so is the cost; the statement compares lengths."),
    Claim(
        id="P1c.every-g", paper="CCA", place="Section 1; Impact Statement", strength=Strength.SPOT,
        verdict=Verdict.FALSE,
        statement="CCA-Attention reduces attention to linear complexity (for some choice of g, with s constant).",
        printed=lambda older: older, corrected=lambda older: older**1.5, check=check_fewest_pairs,
        repair="For every g(L) the cost is at least (L-s)^(3/2) - O(L); g near sqrt(L-s) reaches that.",
        proof="With N = L - s, x = N + 1 and any integer Q, sum floor(n/g) <= max over Q of Q x - g Q(Q+1)/2 "
              "<= (x - g/2)^2/(2g), so older(N, g) >= x^2/(2g) + x g/2 - x - g(g-1)/8. If g < 3 sqrt(x), the last "
              "term is at most 9x/8 and the first two add up to x^(3/2) at least. If 3 sqrt(x) <= g <= x, the last "
              "term is at most x g/8, and x^2/(2g) + 3 x g/8 >= 9/8 x^(3/2). If g > N, the cost is N(N+1)/2. So "
              "older(N, g) >= x^(3/2) - 17x/8 for every g, which the check repeats in integers for N < 200."),
    Claim(
        id="P1c.best-g", paper="CCA", place="Appendix C.5, Table 8", strength=Strength.EXACT,
        verdict=Verdict.HOLDS,
        statement="As g increases (from 2 to 64, at 16K tokens), the computational efficiency improves.",
        printed=(2, 4, 8, 16, 32, 64), corrected=None, check=check_falls, repair="",
        proof="Table 8 ends at g = 64, before the turn. A larger group means fewer cores, but a longer raw window: "
              "with N = L - s, N^2/(2g) + N g/2 is least at g = sqrt(N), 124 at L = 16K and s = 1024, and rises "
              "beyond."),
    Claim(
        id="D1.pairs", paper="DGA", place="Appendix E", strength=Strength.EXACT, verdict=Verdict.HOLDS,
        statement="Training costs O(L r + L (L-r)/m + L m).",
        printed=lambda length, r, m: length * r + length * (length - r) / m + length * m,
        corrected=None, check=check_dga_pairs, repair="",
        proof="A row sees at most r focal tokens, (L-r)/m groups, and the past of the one open group, at most m "
              "tokens."),
    Claim(
        id="D1.keys", paper="DGA", place="Appendix E and C.2", strength=Strength.EXACT, verdict=Verdict.HOLDS_IF,
        statement="With m and r constant, the complexity degenerates to O(L^2/m) (m times fewer keys in C.2's "
                  "settings, as if they kept r constant).",
        printed=lambda length, m: m, corrected=lambda length, m: 1 / (0.1 + 0.9 / m), check=check_key_reduction,
        repair="r = max(L/10, 1K) is not constant in the paper's settings: the reduction is at most "
               "1/(0.1 + 0.9/m), 6.4x at m = 16 and 10x for any m.",
        proof="A token reads r + (L-r)/m + m keys. With r = L/10 that is more than L (0.1 + 0.9/m); at m = 16, 64 % "
              "of it is focal. The reduction is 3.3x at 4K, 5.5x at 8K and 6.34x at 16K."),
    Claim(
        id="LC.chunk", paper="LoCoCo", place="Table 2", strength=Strength.EXACT, verdict=Verdict.HOLDS,
        statement="Attention of one chunk of B tokens over a memory of M costs O(B (B + M)).",
        printed=lambda chunk, memory: chunk * (chunk + memory),
        corrected=None, check=check_chunk, repair="",
        proof="A chunk reads B M + B(B+1)/2 pairs, and T/B chunks T (M + (B+1)/2): linear in T. The convolution that "
              "writes the memory is not counted here."),
)
