"""DGA's Appendix E on keys: how many fewer a generated token reads, in the limit and at all."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from cca_lab.theory.claim import Outcome, Subjects, chosen


class Decoding(NamedTuple):
    """A cache of DGA: L tokens, r of them focal, the others in groups of m."""

    length: int
    focal: int
    group: int

    @property
    def keys(self) -> Fraction:
        """What a generated token reads: focal tokens, groups, and an open group (Appendix E)."""
        return self.focal + Fraction(self.length - self.focal, self.group) + self.group


def decodings() -> list[Decoding]:
    """Return all caches of up to 40 tokens whose non-focal tokens fill groups of two or more."""
    return [Decoding(length, focal, group) for length in range(2, 41) for focal in range(length)
            for group in range(2, length - focal + 1) if (length - focal) % group == 0]


GAMMA, FLOOR = Fraction(1, 10), 1024  # Appendix C.2


def constant(length: int) -> int:
    """Return the focal tokens of Appendix E, where their number r is a constant."""
    return FLOOR


def floored(length: int) -> int:
    """Return the focal tokens of Appendix C.2, max(gamma L, 1K)."""
    return max(int(GAMMA * length), FLOOR)


def fewest(group: int) -> Fraction:
    """Return 1 / (gamma + (1 - gamma) / m), under which r = gamma L keeps the saving."""
    return 1 / (GAMMA + (1 - GAMMA) / group)


@dataclass(frozen=True)
class Saving:
    """The claim that L keys become fewer by at most `limit(m)` times, the least such number."""

    focal: Callable[[int], int]
    limit: Callable[[int], Fraction]


def times_m(group: int) -> Fraction:
    """Return m, what L^2 / m for L^2 pairs means: m times fewer."""
    return Fraction(group)


def check_saving(subject: Saving) -> Outcome:
    """Judge the limit of the saving for m = 4, 16, 64 and L = 2^13 .. 2^40."""
    for group in (16, 4, 64):
        limit = subject.limit(group)
        saved = [length / Decoding(length, subject.focal(length), group).keys
                 for length in (2**power for power in range(13, 41))]
        shown = (f"m={group}: {float(saved[0]):.2f}, {float(saved[1]):.2f}, {float(saved[2]):.2f} "
                 f"times fewer keys at 8K, 16K, 32K, {float(saved[-1]):.2f} in the end; "
                 f"limit {float(limit):.2f}")
        if max(saved) >= limit or saved[-1] < Fraction(99, 100) * limit:
            return Outcome(False, shown)
    return Outcome(True, shown)


def fewer_keys(case: Decoding) -> bool:
    """Whether r + (L - r)/m + m < L: that is m^2 < (m - 1)(L - r)."""
    return case.group**2 < (case.group - 1) * (case.length - case.focal)


def check_fewer(fewer: Callable[[Decoding], bool],
                within: Callable[[Decoding], bool] | None = None) -> Outcome:
    """Judge when a generated token reads fewer keys than full self-attention: L <= 40, m >= 2."""
    cases = chosen(decodings(), within)
    for case in cases:
        if fewer(case) != (case.keys < case.length):
            return Outcome(False, f"L={case.length}, r={case.focal}, m={case.group}: {case.keys} "
                           f"keys instead of {case.length}",
                           {"keys": int(case.keys), "length": case.length})
    return Outcome(True, f"right in {len(cases)} cases", {"cases": len(cases)})


SUBJECTS = {
    "D1.rate": Subjects(check_saving, Saving(floored, times_m), corrected=Saving(floored, fewest),
                        sides=(Saving(constant, times_m), Saving(floored, fewest))),
    "D1.inference": Subjects(check_fewer, lambda case: True, corrected=fewer_keys,
                             within=fewer_keys),
}
