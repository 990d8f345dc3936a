"""A claim of a paper: the statement, a check that can refute it, the verdict, and the repair."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

PAPERS = ("CCA", "DGA", "LoCoCo")


class Verdict(StrEnum):
    """What is published about a claim."""

    HOLDS = "holds"
    HOLDS_IF = "holds under added hypotheses"
    DEPENDS = "model dependent"
    FALSE = "false as printed"


class Strength(StrEnum):
    """How much a check proves."""

    EXACT = "exact"
    SPOT = "proved, spot-checked"
    MONTE_CARLO = "Monte Carlo"


@dataclass(frozen=True)
class Finding:
    """What a check saw.

    Attributes:
        holds: whether the subject survived the check.
        evidence: the counterexample, or the worst case seen: one line with its numbers.
        numbers: the same numbers for machines; they go to data/results/claims.json.
        error: half-width of the confidence interval, where the check is Monte Carlo.
    """

    holds: bool
    evidence: str
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)
    error: float | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of a paper, and the check that judges it.

    `check` judges any subject, not only the printed one: the tests feed it the corrected subject, which it
    must accept, and a broken one, which it must refute.

    Attributes:
        id: short and unique, such as "T1" or "P1.double".
        paper: "CCA", "DGA" or "LoCoCo".
        place: where it stands in the paper, such as "Theorem 1, Eq. 8".
        statement: the claim in one line, as printed.
        printed: the subject as printed: a function, a number, an implementation.
        check: judges a subject.
        verdict: what we publish. HOLDS says that `check` accepts `printed`; every other verdict says that
            `check` refutes it somewhere, and that `corrected` survives.
        corrected: the repaired subject, or None where the statement holds or has no repair.
        repair: the corrected statement in words or a formula; "" if it holds as printed.
        strength: how much `check` proves.
        proof: a few lines: why the corrected statement holds, or why the printed one fails.

    Raises:
        ValueError: if an identity or a repair is missing.
    """

    id: str
    paper: str
    place: str
    statement: str
    printed: Any
    check: Callable[[Any], Finding]
    verdict: Verdict
    corrected: Any | None
    repair: str
    strength: Strength
    proof: str

    def __post_init__(self) -> None:
        """Refuse a claim that a reader could not place, or that is refuted without a repair in words."""
        if not self.id or any(character.isspace() for character in self.id):
            raise ValueError(f"id is {self.id!r}; it must be one word, such as 'T1' or 'P1.double'")
        if self.paper not in PAPERS:
            raise ValueError(f"{self.id}: paper is {self.paper!r}; it must be one of {', '.join(PAPERS)}")
        for name in ("place", "statement", "proof"):
            if not getattr(self, name):
                raise ValueError(f"{self.id}: {name} is empty; say it in one line")
        if self.verdict is not Verdict.HOLDS and not self.repair:
            raise ValueError(f"{self.id}: the verdict is '{self.verdict}', so repair must say what holds instead")

    def agrees(self, finding: Finding) -> bool:
        """Whether the finding on `printed` is what the verdict says."""
        return finding.holds == (self.verdict is Verdict.HOLDS)
