"""DGA's Appendix E on keys: how many fewer a generated token reads in the limit."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from cca_lab.theory.claim import Outcome, Subjects


def keys(length: int, focal: int, group: int) -> Fraction:
    """Return what a generated token reads: focal tokens, groups, and an open group (Appendix E)."""
    return focal + Fraction(length - focal, group) + group


GAMMA, FLOOR = Fraction(1, 10), 1024  # Appendix C.2


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


def check_saving(subject: Saving) -> Outcome:
    """Judge the limit of the saving for m = 4, 16, 64 and L = 2^13 .. 2^40."""
    for group in (16, 4, 64):
        limit = subject.limit(group)
        saved = [length / keys(length, subject.focal(length), group)
                 for length in (2**power for power in range(13, 41))]
        shown = (f"m={group}: {float(saved[0]):.2f}, {float(saved[1]):.2f}, {float(saved[2]):.2f} "
                 f"times fewer keys at 8K, 16K, 32K, {float(saved[-1]):.2f} in the end; "
                 f"limit {float(limit):.2f}")
        if max(saved) >= limit or saved[-1] < Fraction(99, 100) * limit:
            return Outcome(False, shown)
    return Outcome(True, shown)


TIMES_M = Saving(lambda length: FLOOR, Fraction)  # with a constant r, as in Appendix E
SUBJECTS = {
    "D1.rate": Subjects(check_saving, Saving(floored, Fraction), corrected=Saving(floored, fewest),
                        sides=(TIMES_M, Saving(floored, fewest))),
}
