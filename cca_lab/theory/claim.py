"""A claim of a paper: the statement, a check that can refute it, the verdict, and the repair."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

PAPERS = ("CCA", "DGA", "LoCoCo")


class Verdict(StrEnum):
    """The published verdict on a claim."""

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
    """The result of a check.

    Attributes:
        holds: whether the subject passed the check.
        evidence: the counterexample or the worst case found, in one line with its numbers.
        numbers: the same numbers in machine-readable form, for data/results/claims.json.
        error: half-width of the confidence interval, if the check is Monte Carlo.
    """

    holds: bool
    evidence: str
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)
    error: float | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of a paper, and the check that judges it.

    `check` judges any subject, not only the printed one: the tests also pass it the corrected subject, which it
    must accept, and a wrong one, which it must refute.

    Attributes:
        id: short and unique, such as "T1" or "P1.double".
        paper: "CCA", "DGA" or "LoCoCo".
        place: its place in the paper, such as "Theorem 1, Eq. 8".
        statement: the claim in one line, as printed.
        printed: the subject as printed: a function, a number, an implementation.
        check: judges a subject.
        verdict: the published verdict. HOLDS means that `check` accepts `printed`; every other verdict means that
            `check` refutes it in some case and accepts `corrected`.
        corrected: the repaired subject, or None where the statement holds or has no repair.
        repair: the corrected statement in words or a formula; "" if it holds as printed.
        strength: how much `check` proves.
        proof: why the corrected statement holds, or why the printed one fails, in a few lines.

    Raises:
        ValueError: if the id, paper, place, statement, proof or a needed repair is missing or invalid.
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
        """Reject a claim that lacks its source or proof, or that is refuted without a repair in words."""
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
        """Whether the finding on `printed` agrees with the verdict."""
        return finding.holds == (self.verdict is Verdict.HOLDS)
