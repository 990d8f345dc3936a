"""Whether what a claim's check finds is what its label says, fact by fact."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cca_lab.theory.claim import Claim, Finding, Strength, Verdict


@dataclass(frozen=True)
class Judgement:
    """The findings on one claim.

    Attributes:
        printed: on the subject as printed, in all cases.
        corrected: on the repaired subject, in all cases.
        inside: on the printed subject within the hypothesis, if there is one.
        outside: on the printed subject outside of it.
        models: on each model of a claim that depends on them.
        sides: on each place of an inconsistent paper by itself.
        machine: what the proving program found.
    """

    printed: Finding
    corrected: Finding | None = None
    inside: Finding | None = None
    outside: Finding | None = None
    models: Mapping[str, Finding] = field(default_factory=dict)
    sides: Mapping[str, Finding] = field(default_factory=dict)
    machine: Finding | None = None


def judge(claim: Claim, *, prove: bool = True) -> Judgement:
    """Run a claim's check on everything that its verdict is about, and its proving program.

    Args:
        claim: the claim.
        prove: whether to run the proving program, which needs the extra `proofs`.

    Raises:
        ModuleNotFoundError: if the solver or the ball arithmetic that the proof needs is not installed.
    """
    inside = outside = None
    if claim.hypothesis:
        accepts = claim.hypothesis.accepts
        inside = claim.check(claim.printed, within=accepts)
        outside = claim.check(claim.printed, within=lambda *case, **named: not accepts(*case, **named))
    return Judgement(
        claim.check(claim.printed), None if claim.corrected is None else claim.check(claim.corrected), inside, outside,
        {name: claim.check(subject) for name, (subject, _) in claim.models.items()},
        {name: claim.check(subject) for name, subject in claim.sides.items()},
        claim.machine() if claim.machine and prove else None)


def contradictions(claim: Claim, found: Judgement) -> Iterator[str]:
    """Say where the findings are not what the claim's label declares; nothing if all are."""
    holds = claim.verdict is Verdict.HOLDS
    if claim.verdict is not Verdict.DEPENDS and found.printed.holds != holds:
        yield f"the printed statement {_outcome(found.printed)}"
    if found.corrected is not None and not found.corrected.holds:
        yield f"the repair {_outcome(found.corrected)}"
    if found.inside is not None and not found.inside.holds:
        yield f"within the hypothesis the statement {_outcome(found.inside)}"
    if found.outside is not None and found.outside.holds:
        yield f"outside of the hypothesis the statement {_outcome(found.outside)}"
    for name, (_, accepted) in claim.models.items():
        if found.models[name].holds != accepted:
            yield f"the model '{name}' {_outcome(found.models[name])}"
    for name, finding in found.sides.items():
        if not finding.holds:
            yield f"'{name}' by itself {_outcome(finding)}"
    if found.machine is not None and not found.machine.holds:
        yield f"the proof {_outcome(found.machine)}"
    about = {claim.strength: found.printed, claim.repaired: found.corrected}
    for strength, finding in about.items():
        if strength is Strength.MONTE_CARLO and (finding is None or finding.error is None):
            yield "Monte Carlo without the half-width of its interval"
        if strength is not Strength.MONTE_CARLO and finding is not None and finding.error is not None \
                and Strength.MONTE_CARLO not in about:
            yield f"'{strength}' with an interval of random draws"


def _outcome(found: Finding) -> str:
    return f"{'passes' if found.holds else 'fails'}: {found.evidence}"
