"""A claim of a paper, and how it is judged: words, check, verdict, repair.

The words stand in `cca_lab/theory/claims/*.toml`; the checks, and what they judge, in the tables
`SUBJECTS` of the modules of `cca_lab/theory/`. `ledger` joins the two.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

PAPERS = ("CCA", "DGA", "LoCoCo")
Case = TypeVar("Case")
LONGEST_QUOTE = 240  # characters: enough to find the place, short enough to be a citation


class Verdict(StrEnum):
    """The published verdict on a claim; `Claim` says which facts each needs."""

    HOLDS = "holds"
    HOLDS_IF = "holds under added hypotheses"
    DEPENDS = "model dependent"
    INCONSISTENT = "inconsistent within the paper"
    FALSE = "false as printed"


@dataclass(frozen=True)
class Outcome:
    """What a check saw: whether its subject passed, and the counterexample or the worst case."""

    holds: bool
    evidence: str  # one line, with its numbers
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hypothesis:
    """What has to be added to a statement so that it holds."""

    words: str  # to follow "holds if"
    accepts: Callable[..., bool]  # whether a case of the check, as that describes it, satisfies it
    assumed: str  # where a reader of the paper could have taken it from; else the claim is false


@dataclass(frozen=True)
class Subjects:
    """The code of a claim: its check, and what that judges; `Claim` says what each field means.

    `within` is what the hypothesis accepts; `models` and `sides` are in the order of the words.
    """

    check: Callable[..., Outcome]
    printed: Any
    corrected: Any | None = None
    within: Callable[..., bool] | None = None
    models: tuple[Any, ...] = ()
    sides: tuple[Any, ...] = ()
    machine: Callable[[], Outcome] | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of a paper, and the check that judges it.

    `check` judges any subject, not only the printed one: the tests also pass it the corrected
    subject, which it must accept, and a wrong one, which it must refute. The check of a claim that
    holds under a hypothesis also takes `within`, a predicate that says which of its cases to judge.

    Attributes:
        id: short and unique, such as "T1" or "P1.double".
        place: its place in the paper, such as "Theorem 1, Eq. 8".
        quote: the paper's words, one or several pieces; "" for none only where `place` is a table.
        reading: what we take them to mean, in our words, in the most charitable way.
        printed: the subject as printed: a function, a number, an implementation.
        proof: why the corrected statement holds, or why the printed one fails, in a few lines.
        corrected: the repaired subject, which `check` accepts on all cases; None if it holds.
        repair: the corrected statement in words or a formula; "" if it holds as printed.
        slip: whether any reader would repair the error, and the conclusion stands.
        models: name of the model -> (its subject, whether `check` accepts it).
        sides: place -> what it says by itself.
        machine: a program that proves the statement, or its repair, for all cases.
        example: a few lines of Python that show the smallest case, to paste; needs nothing but the
            standard library and NumPy, and ends in an assertion.

    Raises:
        ValueError: if a fact is missing or does not go with the verdict.
    """

    id: str
    paper: str
    place: str
    quote: str | tuple[str, ...]
    reading: str
    printed: Any
    check: Callable[..., Outcome]
    proof: str
    corrected: Any | None = None
    repair: str = ""
    slip: bool = False
    hypothesis: Hypothesis | None = None
    models: Mapping[str, tuple[Any, bool]] = field(default_factory=dict)
    sides: Mapping[str, Any] = field(default_factory=dict)
    machine: Callable[[], Outcome] | None = None
    example: str = ""

    def __post_init__(self) -> None:
        """Reject a claim that lacks its source, its proof, or what its verdict asks for."""
        if not self.id or any(character.isspace() for character in self.id):
            raise ValueError(f"id is {self.id!r}; it must be one word, such as 'T1' or 'P1.double'")
        for problem in problems(self):
            raise ValueError(f"{self.id}: {problem}")

    @property
    def verdict(self) -> Verdict:
        """The verdict, which follows from what is judged; `contradictions` says if it is not so.

        INCONSISTENT: `check` accepts each of `sides`, two or more places of the paper, and refutes
        `printed`, which joins them. DEPENDS: it accepts some of `models` and refutes others, as
        declared. HOLDS_IF: it refutes `printed` on all cases, accepts it on those of `hypothesis`,
        and refutes it on the others. FALSE: it refutes `printed`. HOLDS: it accepts `printed`.
        """
        if self.sides:
            return Verdict.INCONSISTENT
        if self.models:
            return Verdict.DEPENDS
        if self.hypothesis:
            return Verdict.HOLDS_IF
        return Verdict.HOLDS if self.corrected is None else Verdict.FALSE

    @property
    def quotes(self) -> tuple[str, ...]:
        """The pieces of the quote."""
        pieces = (self.quote,) if isinstance(self.quote, str) else self.quote
        return tuple(piece for piece in pieces if piece)


def problems(claim: Claim) -> Iterable[str]:
    """Say what a claim lacks, or has too much, for its verdict."""
    holds = claim.verdict is Verdict.HOLDS
    if claim.paper not in PAPERS:
        yield f"paper is {claim.paper!r}; it must be one of {', '.join(PAPERS)}"
    for name in ("place", "reading"):
        if not getattr(claim, name):
            yield f"{name} is empty; say it in one line"
    if not claim.quotes and "Table" not in claim.place:
        yield "quote is empty; give the paper's own words (only a table may go without)"
    if (longest := max(map(len, claim.quotes), default=0)) > LONGEST_QUOTE:
        yield f"a quote has {longest} characters; {LONGEST_QUOTE} are enough"
    if holds and (claim.repair or claim.slip):
        yield "it holds, so there is no repair, and no slip"
    if not holds and not (claim.repair and claim.corrected is not None):
        yield (f"the verdict is '{claim.verdict}', so repair and corrected must say what holds "
               "instead")
    if sum(map(bool, (claim.hypothesis, claim.models, claim.sides))) > 1:
        yield "hypothesis, models and sides are three verdicts; give one of them"
    if claim.hypothesis and not claim.hypothesis.assumed:
        yield ("assumed is empty; say where a reader could have taken the hypothesis from, or "
               "leave it out: then the claim is false")
    if claim.models and len({accepted for _, accepted in claim.models.values()}) < 2:
        yield "models must name one that the check accepts and one that it refutes"
    if claim.sides and len(claim.sides) < 2:
        yield "sides must name two places or more"


@dataclass(frozen=True)
class Judgement:
    """The outcomes of a claim's check on each of its subjects."""

    printed: Outcome
    corrected: Outcome | None = None
    inside: Outcome | None = None  # the printed subject, within the hypothesis
    outside: Outcome | None = None
    models: Mapping[str, Outcome] = field(default_factory=dict)
    sides: Mapping[str, Outcome] = field(default_factory=dict)
    machine: Outcome | None = None


def judge(claim: Claim, *, prove: bool = True) -> Judgement:
    """Run a claim's check on all that its verdict is about and, if `prove`, its proving program.

    Raises:
        ModuleNotFoundError: if the solver or ball arithmetic of the proof is not installed.
    """
    inside = outside = None
    if claim.hypothesis:
        accepts = claim.hypothesis.accepts
        inside = claim.check(claim.printed, within=accepts)
        outside = claim.check(claim.printed,
                              within=lambda *case, **named: not accepts(*case, **named))
    return Judgement(claim.check(claim.printed),
                     None if claim.corrected is None else claim.check(claim.corrected),
                     inside, outside,
                     {name: claim.check(subject) for name, (subject, _) in claim.models.items()},
                     {name: claim.check(subject) for name, subject in claim.sides.items()},
                     claim.machine() if claim.machine and prove else None)


def contradictions(claim: Claim, judgement: Judgement) -> Iterator[str]:
    """Say where the outcomes are not what the claim's label declares; nothing if all are."""
    printed = None if claim.verdict is Verdict.DEPENDS else judgement.printed
    for what, outcome, wanted in (
            ("the printed statement", printed, claim.verdict is Verdict.HOLDS),
            ("the repair", judgement.corrected, True),
            ("within the hypothesis the statement", judgement.inside, True),
            ("outside of the hypothesis the statement", judgement.outside, False),
            *((f"the model '{name}'", judgement.models[name], accepted)
              for name, (_, accepted) in claim.models.items()),
            *((f"'{name}' by itself", outcome, True) for name, outcome in judgement.sides.items()),
            ("the proof", judgement.machine, True)):
        if outcome is not None and outcome.holds != wanted:
            yield f"{what} {'passes' if outcome.holds else 'fails'}: {outcome.evidence}"


def chosen(cases: Iterable[Case], within: Callable[[Case], bool] | None) -> list[Case]:
    """Return the cases that a check judges, all or those within a hypothesis, at least one."""
    left = [case for case in cases if within is None or within(case)]
    if not left:
        raise ValueError("within: no case of the check is left; widen the cases or the hypothesis")
    return left
