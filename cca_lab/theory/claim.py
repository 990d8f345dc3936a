"""A claim of a paper, and how it is judged: words, check, verdict, repair.

The words stand in `cca_lab/theory/claims.toml`; the checks, and what they judge, in the tables
`SUBJECTS` of the modules of `cca_lab/theory/`; proofs and examples in the articles, docs/claims.
`ledger` joins words and checks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """The published verdict on a claim; `Claim` says which facts each needs."""

    HOLDS = "holds"
    INCONSISTENT = "inconsistent within the paper"
    FALSE = "false as printed"


@dataclass(frozen=True)
class Outcome:
    """What a check saw: whether its subject passed, and the counterexample or the worst case."""

    holds: bool
    evidence: str  # one line, with its numbers
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Subjects:
    """The code of a claim: its check, and what that judges.

    `check` judges any subject, not only the printed one: the tests also pass it the corrected
    subject, which it must accept, and a wrong one, which it must refute.

    Attributes:
        printed: the subject as printed: a function, a number, an implementation.
        corrected: the repaired subject, which `check` accepts on all cases; None if it holds.
        sides: what each of the places says by itself.
        machine: a program that proves the statement, or its repair, for all cases.
    """

    check: Callable[..., Outcome]
    printed: Any
    corrected: Any | None = None
    sides: tuple[Any, ...] = ()
    machine: Callable[[], Outcome] | None = None


@dataclass(frozen=True, kw_only=True)
class Claim(Subjects):
    """One statement of a paper in words, and the check that judges it.

    Attributes:
        id: short and unique, such as "T1" or "P1.alg1".
        place: its place in the paper, such as "Theorem 1, Eq. 8".
        quote: pieces of the paper's words.
        reading: what we take them to mean, in our words, in the most charitable way.
        repair: the corrected statement in words or a formula; "" if it holds as printed.
        places: name of each of `sides`.

    Raises:
        ValueError: if words and check do not go together.
    """

    id: str
    paper: str
    place: str
    quote: Sequence[str]
    reading: str
    repair: str = ""
    places: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Reject words that are not those of the check."""
        repaired = {bool(self.repair), self.corrected is not None}
        if len(self.places) != len(self.sides) or len(self.sides) == 1 or repaired != {
                self.verdict is not Verdict.HOLDS}:
            raise ValueError(f"{self.id}: what does not hold has a repair, in words and in code, "
                             "and each side of a contradiction its place; nothing else has any")

    @property
    def verdict(self) -> Verdict:
        """The verdict, which follows from what is judged; `contradictions` says if it is not so.

        INCONSISTENT: `check` accepts each of `sides`, two or more places of the paper, and refutes
        `printed`, which joins them. FALSE: it refutes `printed`. HOLDS: it accepts `printed`.
        """
        if self.sides:
            return Verdict.INCONSISTENT
        return Verdict.HOLDS if self.corrected is None else Verdict.FALSE


@dataclass(frozen=True)
class Finding:
    """What a check saw of one subject of a claim, and what the label declares."""

    what: str
    wanted: bool
    outcome: Outcome


def judge(claim: Claim, *, prove: bool = True) -> list[Finding]:
    """Run a claim's check on all that its verdict is about and, if `prove`, its proving program.

    Raises:
        ModuleNotFoundError: if the solver or ball arithmetic of the proof is not installed.
    """
    found = [Finding("the printed statement", claim.verdict is Verdict.HOLDS,
                     claim.check(claim.printed))]
    if claim.corrected is not None:
        found.append(Finding("the repair", True, claim.check(claim.corrected)))
    found += [Finding(f"'{name}' by itself", True, claim.check(subject))
              for name, subject in zip(claim.places, claim.sides, strict=True)]
    if claim.machine and prove:
        found.append(Finding("the proof", True, claim.machine()))
    return found


def contradictions(findings: Iterable[Finding]) -> Iterator[str]:
    """Say where what was found is not what the claim's label declares; nothing if all is."""
    for finding in findings:
        if finding.outcome.holds != finding.wanted:
            yield (f"{finding.what} {'passes' if finding.outcome.holds else 'fails'}: "
                   f"{finding.outcome.evidence}")
