"""What CCA-Attention's paper says about its cost, each statement compared with exact counts.

An order of growth, O(...), is read as: from some length on, at most twice what stands inside.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product

from cca_lab.mechanisms.cca.groups import cache_tokens
from cca_lab.mechanisms.cca.groups import pairs as cca_pairs
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight
from cca_lab.theory.cost.dga import CLAIMS as DGA
from cca_lab.theory.cost.pairs import below_every_group, best_group, cca_columns, least_bracket, older_pairs
from cca_lab.theory.forall.core import demand, integers, prove
from cca_lab.theory.reachability.indices import printed_cover

Sizes = tuple[int, int, int]                       # length L, group g, window s
Bound = Callable[[int, int, int], int]             # (L, g, s) -> pairs or entries
FACTOR = 2
GROUPS, WINDOWS = (2, 4, 8, 16, 32, 64), (256, 512, 1024, 2048, 4096)    # Tables 8 and 9
FIXED_GROUPS = (1, 16, 64)                         # m of the fixed-length setting, g = L/m
ADAPTED = [(m * 2**k, 2**k, s) for m, s, k in product(FIXED_GROUPS, (1, 64, 1024), range(0, 41, 2))]
CONSTANT = [(g * g * 2**k + more, g, s) for g, s, k in product((1, 4, 16, 64), (1, 16, 1024), range(0, 41, 2))
            for more in (0, g - 1)]                # from L = g^2 on, and with a group left open


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
                         "read twice is taken out", {"most minus (s+g)": worst[0] if worst else 0})


def window_at_most() -> Finding:
    """Prove that no row reads more than s + g raw tokens by Eq. 4 as printed, for all rows, g and s."""
    i, g, s = integers("i g s")
    return prove(demand("raw tokens", [i >= 1, g >= 1, s >= 1],
                        lambda: i - printed_cover(i, g, s)[1] + 1 <= s + g))  # type: ignore[arg-type]


def check_bound(bound: Bound, sizes: Iterable[Sizes], count: Bound = cca_pairs, unit: str = "pairs") -> Finding:
    """Compare a bound (L, g, s) with the exact count at each (L, g, s): at most twice as many."""
    worst, first = (0.0, ""), ""
    for length, group, window in sizes:
        exact, limit = count(length, group, window), bound(length, group, window)
        where = f"L={_power(length)}, g={_power(group)}, s={window}: {_power(exact)} {unit}, bound {_power(limit)}"
        if exact > FACTOR * limit and not first:
            first = where
        worst = max(worst, (exact / limit, where))
    numbers = {"worst count / bound": worst[0]}
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


def check_rises(windows: Sequence[int]) -> Finding:
    """Judge "the cost rises with s" for these windows, at 16K tokens and g = 16, as in Table 9."""
    counts = [cca_pairs(2**14, 16, window) for window in windows]
    shown = ", ".join(f"{count / 1e6:.1f}e6 at s={window}" for count, window in zip(counts, windows, strict=True))
    return Finding(all(few < many for few, many in zip(counts, counts[1:], strict=False)), f"L=16384, g=16: {shown}",
                   {"first": counts[0], "last": counts[-1]})


def _power(number: int) -> str:
    """Format an integer, with an exponent if it is large."""
    return str(number) if number < 10**7 else f"{number:.3g}"


CCA: tuple[Claim, ...] = (
    Claim(
        id="P1c.window", paper="CCA", place="Section 3.6", verdict=Verdict.HOLDS, strength=Strength.SMT,
        quote="each token only attends preceding $s + g$ tokens at most",
        reading="No row reads more than s + g raw tokens, its own included.",
        printed=lambda g, s: s + g, check=check_local_window, machine=window_at_most,
        proof="The window is s + ((i-s) mod g) <= s + g - 1 tokens. Eq. 4 as printed begins one token earlier, "
              "so s + g is attained there."),
    Claim(
        id="P1c.quadratic", paper="CCA", place="Section 3.6", verdict=Verdict.HOLDS, strength=Strength.PROOF,
        quote=("we set the group size g as a constant",
               "our CCA-Attention achieves a computational complexity of $O(L^2/g + Ls)$"), formula=True,
        reading="With g and s constant, a sequence takes at most about L^2/g + L s pairs [from L = g^2 on].",
        printed=lambda length, g, s: length * length // g + length * s, check=partial(check_bound, sizes=CONSTANT),
        proof="A row has at most L/g cores and s + g - 1 raw tokens, and L g <= L^2/g from L = g^2 on. In shorter "
              "sequences with g > s the term L g is missing: L = 128, g = 64, s = 1 has 4224 pairs against 384; a "
              "constant g is soon past that. The leading term is (L-s)^2/(2g): doubling a long L quadruples the cost."),
    Claim(
        id="P1c.linear", paper="CCA", place="Section 3.6; Appendix C.3", verdict=Verdict.FALSE, strength=Strength.PROOF,
        weight=Weight.SUBSTANCE, formula=True,
        quote=("our CCA-Attention exhibits a linear computational complexity of $O(Lm + Ls)$",
               "we define the number of group m as a constant",
               "the overall computational complexity of our method is $O(L)$"),
        reading="With a constant number m of groups, so that g = L/m grows with the length of the task, and a constant "
                "s, the pairs are O(L m + L s).",
        printed=lambda length, g, s: length * (length // g) + length * s,
        corrected=lambda length, g, s: length * (length // g + s + g), repaired=Strength.PROOF,
        check=partial(check_bound, sizes=ADAPTED),
        repair="With g = L/m the cost is O(L m + L s + L^2/m), quadratic in L.",
        proof="The window s + ((i-s) mod g) averages about s + g/2 tokens, and g = L/m grows with L: pairs over bound "
              "tend to L / (2m (m + s)). The paper's own bound for the window, O(L (s + g)), contains L^2/m; the sum "
              "O(L m + L s) leaves it out. Within one task the length is fixed, and so is the cost; the statement "
              "compares lengths.",
        example="""
def pairs(L, g, s):      # row i reads floor((i - s) / g) cores, and raw what they leave over
    cores = [max(0, (i - s) // g) for i in range(1, L + 1)]
    return sum(n + i - g * n for i, n in enumerate(cores, start=1))

m, s = 16, 16
for L in (2**10, 2**12, 2**14):
    print(L, pairs(L, L // m, s), L * m + L * s)
assert pairs(2**14, 2**14 // m, s) > 12 * pairs(2**12, 2**12 // m, s)   # four times as many tokens
"""),
    Claim(
        id="P1c.every-g", paper="CCA", place="Section 1; Impact Statement", verdict=Verdict.FALSE,
        strength=Strength.PROOF, weight=Weight.SUBSTANCE, root="P1c.linear",
        quote=("Our CCA-Attention reduces computational complexity to linear complexity",
               "we achieve a reduction in attention complexity to linear time"),
        reading="For some choice of g for each length, and a constant s, the pairs are O(L).",
        printed=lambda older: older, corrected=lambda older: older**1.5, repaired=Strength.PROOF,
        check=check_fewest_pairs,
        repair="For every g(L) the cost is at least (L-s)^(3/2) - O(L); g near sqrt(L-s) reaches that.",
        proof="With N = L - s, x = N + 1 and any integer Q, sum floor(n/g) <= max over Q of Q x - g Q(Q+1)/2 "
              "<= (x - g/2)^2/(2g), so older(N, g) >= x^2/(2g) + x g/2 - x - g(g-1)/8. If g < 3 sqrt(x), the last "
              "term is at most 9x/8 and the first two add up to x^(3/2) at least. If 3 sqrt(x) <= g <= x, the last "
              "term is at most x g/8, and x^2/(2g) + 3 x g/8 >= 9/8 x^(3/2). If g > N, the cost is N(N+1)/2. So "
              "older(N, g) >= x^(3/2) - 17x/8 for every g, which the check repeats in integers for N < 200.",
        example="""
def older(N, g):         # pairs with tokens before the window: floor(n / g) cores and n mod g raw tokens
    return sum(n // g + n % g for n in range(1, N + 1))

fewest = {N: min(older(N, g) for g in range(1, N + 1)) for N in (16, 64, 256)}
print(fewest)
assert fewest[64] > 7 * fewest[16] and fewest[256] > 7 * fewest[64]     # four times as many tokens
"""),
    Claim(
        id="P1c.best-g", paper="CCA", place="Appendix C.5; Table 8", verdict=Verdict.HOLDS,
        strength=Strength.ARITHMETIC, quote="as g increases, the computational efficiency improves",
        reading="From g = 2 to g = 64 [a sequence of 16K tokens with s = 1024 takes fewer and fewer pairs].",
        printed=GROUPS, check=check_falls,
        proof="Table 8 ends at g = 64, before the turn. A larger group means fewer cores, but a longer raw window: "
              "with N = L - s, N^2/(2g) + N g/2 is least at g = sqrt(N), 124 at L = 16K and s = 1024, and rises "
              "beyond."),
    Claim(
        id="P1c.larger-s", paper="CCA", place="Appendix C.5; Table 9", verdict=Verdict.HOLDS, check=check_rises,
        strength=Strength.ARITHMETIC, quote="but also increases computational demands", printed=WINDOWS,
        reading="From s = 256 to s = 4096 [a sequence of 16K tokens with g = 16 takes more and more pairs].",
        proof="One more raw token in the window takes the place of 1/g core: about (L - s)(1 - 1/g) pairs more."),
    Claim(
        id="P1c.storage", paper="CCA", place="Section 3.6", verdict=Verdict.HOLDS, strength=Strength.PROOF,
        quote="our CCA-Attention has a storage complexity of $O(L/g + s)$", formula=True,
        reading="With g and s constant, the cache has at most about L/g + s entries [from L = g^2 on].",
        printed=lambda length, g, s: length // g + s,
        check=partial(check_bound, sizes=CONSTANT, count=cache_tokens, unit="entries"),
        proof="floor(L/g) cores, and the raw tokens that the next row reads: at most s + g - 2, not only the "
              "\"preceding s tokens\", for a group stays raw until it is complete and older than the window. With m = "
              "L/g constant the same term is L/m, as in P1c.linear; a cache is said to be kept for a constant g only."),
)
CLAIMS: tuple[Claim, ...] = (*CCA, *DGA)
