"""DGA's Appendix E on pairs, keys and cache, compared with counts of what rows read."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations, product
from math import ceil
from typing import NamedTuple

from cca_lab.theory.claim import Outcome, Subjects, chosen
from cca_lab.theory.cost.pairs import dga_keys, dga_pairs_listed, older_pairs


class Training(NamedTuple):
    """One sequence of a training step: L tokens, r of them focal, the others in groups of m."""

    length: int
    focal: int  # with the tokens that would not fill a group
    group: int
    queries: int  # rows that score the importance of tokens (Algorithm 1, line 1); all in Eq. 16
    attention: int  # pairs of the attention itself (line 8), counted

    @property
    def pairs(self) -> int:
        """The pairs of line 8, and those of line 1 with the last rows."""
        return self.attention + self.queries * self.length - self.queries * (self.queries - 1) // 2


class Decoding(NamedTuple):
    """A cache of DGA: L tokens, r of them focal, the others in groups of m."""

    length: int
    focal: int
    group: int

    @property
    def keys(self) -> int:
        """What a generated token reads at most: focal tokens, groups, and an open group."""
        return self.focal + (self.length - self.focal) // self.group + self.group


@cache
def trainings() -> tuple[Training, ...]:
    """Return every set of focal tokens of up to 7 tokens, and some of 256."""
    small = [(length, focal, group, {0, 1, length}) for length in range(2, 8) for group in (2, 3, 5)
             for size in range(length + 1) for focal in combinations(range(length), size)]
    large = [(256, tuple(range(0, 256, 256 // r)), group, {0, 8, 16, 256}) for r in (4, 16)
             for group in (8, 16)]
    cases = []
    for length, focal, group, queries in [*small, *large]:
        pairs, r = dga_pairs_listed(length, focal, group)
        cases += [Training(length, r, group, n, pairs) for n in sorted(queries)]
    return tuple(cases)


def decodings() -> list[Decoding]:
    """Return all caches of up to 40 tokens whose non-focal tokens fill groups of two or more."""
    return [Decoding(length, focal, group) for length in range(2, 41) for focal in range(length)
            for group in range(2, length - focal + 1) if (length - focal) % group == 0]


def pairs_in_front(length: int, focal: int, group: int) -> int:
    """Return DGA's pairs if the first r tokens are focal and the others fill groups of m."""
    others = length - focal
    return focal * (focal + 1) // 2 + others * focal + older_pairs(others - 1, group) + others


def cache_sizes(length: int, focal: int, group: int, generated: int) -> list[tuple[int, int, int]]:
    """Return (tokens, focal tokens, entries of the cache) after each token (Section 5.1).

    Once m' = 1.1 m tokens are generated, m of them become one group and the others focal.
    """
    groups, open_tokens, sizes = (length - focal) // group, 0, []
    waiting = ceil(1.1 * group)
    for step in range(1, generated + 1):
        open_tokens += 1
        if open_tokens == waiting:
            groups, focal, open_tokens = groups + 1, focal + waiting - group, 0
        sizes.append((length + step, focal, focal + groups + open_tokens))
    return sizes


FACTOR = 2  # O(...) is read as: at most twice what stands inside
GAMMA, FLOOR, GROUP = 0.1, 1024, 16  # Appendix C.2
LENGTHS = (2**13, 2**14, 2**15)  # trained at 8K, tested up to 32K
Focal = Callable[[int], float]  # length -> focal tokens r


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
                   within: Callable[[Training], bool] | None = None) -> Outcome:
    """Compare a bound (L, r, m, scoring rows) -> pairs with the counts: at most twice as many."""
    cases, worst = chosen(trainings(), within), 0.0
    for case in sorted(cases, key=lambda case: case.queries < case.length):
        limit = bound(*case[:4])
        if case.pairs > FACTOR * limit:
            return Outcome(False, f"L={case.length}, m={case.group}, r={case.focal}, "
                           f"{case.queries} rows score: {case.pairs} pairs, {case.attention} of "
                           f"them attention, more than twice {limit:g}",
                           {"pairs": case.pairs, "attention": case.attention})
        worst = max(worst, case.pairs / limit)
    return Outcome(True, f"{len(cases)} cases: at most {worst:.3f} of the bound",
                   {"cases": len(cases)})


def check_quadratic(bound: Callable[[int, int], float]) -> Outcome:
    """Compare a bound (L, m) -> pairs with counts for constant m and r, L = m (r + m) to 2^40."""
    worst = (0.0, "")
    for focal, group, k in product((16, 1024), (4, 16, 64), range(41)):
        length = focal + group * (focal + group) * 2**k
        pairs, limit = pairs_in_front(length, focal, group), bound(length, group)
        where = f"L={length:.3g}, m={group}, r={focal}: {pairs:.3g} pairs, bound {limit:.3g}"
        if pairs > FACTOR * limit:
            return Outcome(False, where, {"ratio": pairs / limit})
        worst = max(worst, (pairs / limit, where))
    return Outcome(True, f"at most {worst[0]:.3g} times the bound ({worst[1]})",
                   {"ratio": worst[0]})


def check_rate(places: Mapping[str, Focal]) -> Outcome:
    """Judge whether all places mean one saving of keys at 8K, 16K, 32K with m = 16, to 5 %."""
    fewer = {section: [length / Decoding(length, int(focal(length)), GROUP).keys
                       for length in LENGTHS] for section, focal in places.items()}
    same = all(max(column) <= 1.05 * min(column) for column in zip(*fewer.values(), strict=True))
    limit = LENGTHS[-1] / dga_keys(LENGTHS[-1], GROUP)[0]
    shown = {section: ", ".join(f"{x:.1f}x" for x in saving) for section, saving in fewer.items()}
    return Outcome(same, "; ".join(f"{section}: {savings} fewer keys at 8K, 16K, 32K"
                                   for section, savings in shown.items()), {"exact at 32K": limit})


def check_fewer(fewer: Callable[[Decoding], bool],
                within: Callable[[Decoding], bool] | None = None) -> Outcome:
    """Judge when a generated token reads fewer keys than full self-attention: L <= 40, m >= 2."""
    cases = chosen(decodings(), within)
    for case in sorted(cases, key=lambda case: (case.group < 4, case)):
        if fewer(case) != (case.keys < case.length):
            return Outcome(False, f"L={case.length}, r={case.focal}, m={case.group}: {case.keys} "
                           f"keys instead of {case.length}",
                           {"keys": case.keys, "length": case.length})
    at_16k = Decoding(2**14, dga_keys(2**14, GROUP)[1], GROUP).keys
    return Outcome(True, f"right in {len(cases)} cases; with Appendix C.2's settings {at_16k} keys "
                   f"at 16K", {"cases": len(cases), "keys at 16K": at_16k})


def check_cache(bound: Callable[[int, int, int], float]) -> Outcome:
    """Compare a bound (L, r, m) -> entries with the cache after 200 tokens, to a factor 2."""
    worst = 0.0
    for length, focal, group in ((64, 0, 4), (64, 32, 8), (160, 16, 16), (1000, 200, 2),
                                 (1024, 1008, 16)):
        for tokens, r, entries in cache_sizes(length, focal, group, 200):
            limit = bound(tokens, r, group)
            if entries > FACTOR * limit:
                return Outcome(False, f"{tokens} tokens, r={r}, m={group}: {entries} entries, more "
                               f"than twice {limit:g}", {"entries": entries})
            worst = max(worst, entries / limit)
    return Outcome(True, f"at most {worst:.3f} of the bound after each of 200 tokens",
                   {"worst": worst})


SUBJECTS = {
    "D1.pairs": Subjects(check_training,
                         lambda length, r, m, n: (length * r + length * (length - r) / m
                                                  + length * m),
                         corrected=lambda length, r, m, n: length * (r + (length - r) / m + m + n),
                         within=lambda case: case.queries <= (
                             case.focal + (case.length - case.focal) / case.group + case.group)),
    "D1.keys": Subjects(check_quadratic, lambda length, m: length**2 / m),
    "D1.rate": Subjects(check_rate, {"Appendix E": constant, "Appendix C.2": floored},
                        corrected={"Appendix C.2": floored},
                        sides=({"Appendix E": constant}, {"Appendix C.2": floored})),
    "D1.inference": Subjects(check_fewer, lambda case: True, corrected=fewer_keys,
                             within=fewer_keys),
    "D1.cache": Subjects(check_cache, lambda length, r, m: r + (length - r) / m + m),
}
