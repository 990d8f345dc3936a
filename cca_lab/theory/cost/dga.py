"""What DGA's Appendix E says about pairs, keys and cache, compared with counts of what its rows read."""

from collections.abc import Callable, Mapping
from functools import partial

from cca_lab.theory.claim import Claim, Finding, Hypothesis, Strength, Verdict, Weight, chosen
from cca_lab.theory.cost.dga_counts import Decoding, Training, cache_sizes, decodings, pairs_in_front, trainings
from cca_lab.theory.cost.pairs import dga_keys

FACTOR = 2                                  # O(...) is read as: at most twice what stands inside
GAMMA, FLOOR, GROUP = 0.1, 1024, 16         # Appendix C.2
LENGTHS = (2**13, 2**14, 2**15)             # trained at 8K, tested up to 32K
Focal = Callable[[int], float]              # length -> focal tokens r


def within_budget(case: Training) -> bool:
    """Whether no more rows score the tokens than a row reads keys: r + (L - r)/m + m."""
    return case.queries <= case.focal + (case.length - case.focal) / case.group + case.group


def fewer_keys(case: Decoding) -> bool:
    """Whether r + (L - r)/m + m < L: that is m^2 < (m - 1)(L - r)."""
    return case.group**2 < (case.group - 1) * (case.length - case.focal)


def floored(length: int) -> float:
    """Return r of Appendix C.2: max(gamma L, 1K)."""
    return max(GAMMA * length, FLOOR)


def constant(length: int) -> float:
    """Return r of Appendix E, a constant: the 1K that C.2 has up to L = 10K."""
    return FLOOR


def check_training(bound: Callable[[int, int, int, int], float],
                   within: Callable[[Training], bool] | None = None) -> Finding:
    """Compare a bound (L, r, m, scoring rows) -> pairs with the counts: at most twice as many."""
    cases, worst = chosen(trainings(), within), 0.0
    for case in sorted(cases, key=lambda case: case.queries < case.length):
        limit = bound(*case[:4])
        if case.pairs > FACTOR * limit:
            return Finding(False, f"L={case.length}, m={case.group}, r={case.focal}, {case.queries} rows score: "
                                  f"{case.pairs} pairs, {case.attention} of them attention, more than twice {limit:g}",
                           {"pairs": case.pairs, "attention": case.attention})
        worst = max(worst, case.pairs / limit)
    return Finding(True, f"{len(cases)} cases: at most {worst:.3f} of the bound", {"cases": len(cases)})


def check_quadratic(bound: Callable[[int, int], float]) -> Finding:
    """Compare a bound (L, m) -> pairs with counts for constant m and r, from L = m (r + m) on, up to 2^40."""
    worst = (0.0, "")
    for focal, group, k in ((r, m, k) for r in (16, 1024) for m in (4, 16, 64) for k in range(41)):
        length = focal + group * (focal + group) * 2**k
        pairs, limit = pairs_in_front(length, focal, group), bound(length, group)
        where = f"L={length:.3g}, m={group}, r={focal}: {pairs:.3g} pairs, bound {limit:.3g}"
        if pairs > FACTOR * limit:
            return Finding(False, where, {"ratio": pairs / limit})
        worst = max(worst, (pairs / limit, where))
    return Finding(True, f"at most {worst[0]:.3g} times the bound ({worst[1]})", {"ratio": worst[0]})


def check_rate(places: Mapping[str, Focal]) -> Finding:
    """Judge whether all places mean the same saving of keys at 8K, 16K and 32K with m = 16, to 5 %."""
    fewer = {place: [length / Decoding(length, int(focal(length)), GROUP).keys for length in LENGTHS]
             for place, focal in places.items()}
    same = all(max(column) <= 1.05 * min(column) for column in zip(*fewer.values(), strict=True))
    limit = LENGTHS[-1] / dga_keys(LENGTHS[-1], GROUP)[0]
    return Finding(same, "; ".join(f"{place}: {', '.join(f'{x:.1f}x' for x in saving)} fewer keys at 8K, 16K, 32K"
                                   for place, saving in fewer.items()), {"exact at 32K": limit})


def check_fewer(fewer: Callable[[Decoding], bool], within: Callable[[Decoding], bool] | None = None) -> Finding:
    """Judge when a generated token reads fewer keys than the L of full self-attention: L <= 40, m >= 2."""
    cases = chosen(decodings(), within)
    for case in sorted(cases, key=lambda case: (case.group < 4, case)):
        if fewer(case) != (case.keys < case.length):
            return Finding(False, f"L={case.length}, r={case.focal}, m={case.group}: {case.keys} keys instead of "
                                  f"{case.length}", {"keys": case.keys, "length": case.length})
    at_16k = Decoding(2**14, dga_keys(2**14, GROUP)[1], GROUP).keys
    return Finding(True, f"right in {len(cases)} cases; with Appendix C.2's settings {at_16k} keys at 16K", {
        "cases": len(cases), "keys at 16K": at_16k})


def check_cache(bound: Callable[[int, int, int], float]) -> Finding:
    """Compare a bound (L, r, m) -> entries with the cache after each of 200 generated tokens: at most twice as many."""
    worst = 0.0
    for length, focal, group in ((64, 0, 4), (64, 32, 8), (160, 16, 16), (1000, 200, 2), (1024, 1008, 16)):
        for tokens, r, entries in cache_sizes(length, focal, group, 200):
            limit = bound(tokens, r, group)
            if entries > FACTOR * limit:
                return Finding(False, f"{tokens} tokens, r={r}, m={group}: {entries} entries, more than twice "
                                      f"{limit:g}", {"entries": entries})
            worst = max(worst, entries / limit)
    return Finding(True, f"at most {worst:.3f} of the bound after each of 200 tokens", {"worst": worst})


DGA = partial(Claim, paper="DGA", formula=True)
CLAIMS: tuple[Claim, ...] = (
    DGA(
        id="D1.pairs", place="Appendix E; Algorithm 1", verdict=Verdict.HOLDS_IF, check=check_training,
        strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF, weight=Weight.SLIP,
        quote=(r"DGA-LLM achieves a computational complexity of $O(Lr + L\frac{L-r}{m} + Lm)$",
               "Compute the importance score s via Eqn. (16) and (17)"),
        reading="A training sequence takes O(L r + L (L-r)/m + L m) pairs, those of Algorithm 1's line 1 included.",
        printed=lambda length, r, m, n: length * r + length * (length - r) / m + length * m,
        corrected=lambda length, r, m, n: length * (r + (length - r) / m + m + n),
        hypothesis=Hypothesis("no more rows score the tokens (Eq. 17) than a row reads keys, r + (L-r)/m + m",
                              within_budget),
        repair="O(L r + L (L-r)/m + L m + L n), where n rows of queries score the tokens: L rows in Eq. 16, a small "
               "sample in Eq. 17.",
        proof="A row sees at most r focal tokens, (L-r)/m groups, and the past of the one open group, at most m "
              "tokens. Line 1 comes before: Eq. 16 is the attention of all rows on all tokens, L^2/2 pairs, and Eq. 17 "
              "that of a sample. The paper samples \"a small portion\" of the rows and gives no number.",
        example="""
L, r, m = 256, 16, 16
bound = L * r + L * (L - r) / m + L * m
print(L * (L + 1) // 2, bound)              # Eq. 16, with all rows; what Appendix E counts
assert L * (L + 1) // 2 > 2 * bound
"""),
    DGA(
        id="D1.keys", place="Appendix E", verdict=Verdict.HOLDS, strength=Strength.PROOF, check=check_quadratic,
        quote="Considering the group size m and the number of focal tokens r as constant, the final computational "
              "complexity can degenerate as $O(L^2/m)$",
        reading="With m and r constant, a sequence takes at most about L^2/m pairs [from L = m (r + m) on].",
        printed=lambda length, m: length**2 / m,
        proof="L r + L m <= L^2/m from L = m (r + m) on. That r is constant is a hypothesis of the statement; the "
              "paper's own r is not (D1.rate)."),
    DGA(
        id="D1.rate", place="Appendix E; Appendix C.2", verdict=Verdict.INCONSISTENT, check=check_rate,
        strength=Strength.ARITHMETIC, repaired=Strength.PROOF, weight=Weight.SUBSTANCE,
        quote=("Considering the group size m and the number of focal tokens r as constant",
               r"the number of the focal tokens is $\max{\{\gamma L, 1k\}}$"),
        reading="The number r of focal tokens, from which the saving follows, is constant in one place and grows with "
                "L in the other.",
        printed={"Appendix E": constant, "Appendix C.2": floored},
        sides={"Appendix E": {"Appendix E": constant}, "Appendix C.2": {"Appendix C.2": floored}},
        corrected={"Appendix C.2": floored},
        repair="With C.2's r the cost is at least L^2 (gamma + (1-gamma)/m) for each m: at most 6.4 times fewer keys "
               "at m = 16, and at most 10 times for any m.",
        proof="Both say the same up to L = 10K, where gamma L = 1K. A token reads r + (L-r)/m + m keys. With r = L/10 "
              "that is more than L (0.1 + 0.9/m); at m = 16, 64 % of it is focal. The saving is 3.3x at 4K, 5.5x at 8K "
              "and 6.3x at 16K, and stays below 1/(0.1 + 0.9/16) = 6.4x.",
        example="""
m = 16
for L in (2**13, 2**14, 2**15, 2**20):
    fewer = [L / (r + (L - r) / m + m) for r in (1024, max(0.1 * L, 1024))]
    print(L, [round(x, 2) for x in fewer])
assert fewer[0] > 15 and fewer[1] < 1 / (0.1 + 0.9 / m)
"""),
    DGA(
        id="D1.inference", place="Appendix E", verdict=Verdict.HOLDS_IF, check=check_fewer, formula=False,
        strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF, weight=Weight.SLIP,
        quote="This is significantly lower with large m compared to the full self-attention mechanism",
        reading="A generated token reads fewer keys, r + (L-r)/m + m, than the L of full self-attention [for any m > "
                "1, large ones included].",
        printed=lambda case: True, corrected=fewer_keys,
        hypothesis=Hypothesis("m^2 < (m - 1)(L - r), that is L - r > 4 and m <= L - r - 2", fewer_keys),
        repair="Fewer keys exactly if m^2 < (m - 1)(L - r); the fewest are at m = sqrt(L - r), not at a large m",
        proof="r + (L-r)/m + m < L is (L-r)(1 - 1/m) > m. One group of all m = L - r tokens gives L + 1 keys. With m = "
              "64, Table 4's largest, and r = 1K there are fewer keys from 4K on. As an order of growth nothing is "
              "lower if r = gamma L (D1.rate).",
        example="""
L, r = 128, 28
keys = {m: r + (L - r) / m + m for m in (2, 10, 50, 100)}
print(keys)
assert min(keys, key=keys.get) == 10 and keys[100] == L + 1
"""),
    DGA(
        id="D1.cache", place="Appendix E", verdict=Verdict.HOLDS, strength=Strength.PROOF, check=check_cache,
        quote=(r"our proposed DGA-LLM significantly reduces it to $O(r + \frac{L-r}{m} + m)$",
               r"generating a token is reduced to $O(r + \frac{L-r}{m} + m)$"),
        reading="After each generated token the cache, which the next one reads, has O(r + (L-r)/m + m) entries.",
        printed=lambda length, r, m: r + (length - r) / m + m,
        proof="Up to 1.1 m new tokens wait for their group, m of which become one entry and the others focal (Section "
              "5.1): at most r + (L-r)/m + 1.1 m. Weights P that are computed again for older groups would need their "
              "raw tokens; the paper says that only the new group is added."),
)
