"""The ledger of claims: words in TOML and checks in Python, joined, judged and recorded."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cca_lab.theory.claim import Claim, Subjects, contradictions, judge

WORDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("claims.toml").read_text(encoding="utf-8"))
MODULES = (  # whose tables SUBJECTS have the checks
    "sparsity.theorem1", "noise.models", "conditioning.spectrum", "reachability.indices",
    "reachability.depth", "causality.masks", "causality.dga", "causality.focal", "cost.pairs",
)
SHOWN = ("id", "paper", "place", "quote", "reading", "repair")


def one_line(text: str) -> str:
    """Return a text with its white space collapsed."""
    return " ".join(text.split())


def joined(name: str, facts: Mapping[str, Any], code: Subjects) -> Claim:
    """Return a claim of its table in TOML, with white space collapsed, and its code."""
    words: dict[str, Any] = {
        field: one_line(fact) if isinstance(fact, str) else [*map(one_line, fact)]
        for field, fact in facts.items()}
    return Claim(**vars(code), **words, id=name)


@cache
def collect() -> tuple[Claim, ...]:
    """Return all claims in the order of the file; KeyError for one without a check."""
    checks: dict[str, Subjects] = {}
    for module in MODULES:
        checks |= import_module(f"cca_lab.theory.{module}").SUBJECTS
    return tuple(joined(name, facts, checks[name]) for name, facts in WORDS.items())


def select(ids: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims with these ids, all for none; ValueError for an id of no claim."""
    known = {claim.id: claim for claim in collect()}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise ValueError(f"claim: got {', '.join(unknown)}, wanted one of {', '.join(known)}")
    return tuple(known[name] for name in ids or known)


def run(claims: Sequence[Claim], progress: Callable[[float, str], None] | None = None, *,
        prove: bool = True) -> list[dict[str, Any]]:
    """Judge claims, as in `judge`, and return a record of each: its words, and what was found.

    "evidence" is what the check saw of the printed statement, "findings" all that it saw, and
    "contradictions" says where that is not what the label declares. `progress` is called with the
    number of claims that are done and the id of the next one.
    """
    records: list[dict[str, Any]] = []
    for claim in claims:
        if progress:
            progress(len(records), claim.id)
        found = judge(claim, prove=prove)
        records.append({field: getattr(claim, field) for field in SHOWN} | {
            "verdict": claim.verdict.value, "evidence": found[0].outcome.evidence,
            "findings": {finding.what: finding.outcome.evidence for finding in found},
            "contradictions": list(contradictions(found))})
    if progress:
        progress(len(records), "")
    return records


def failures(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ids whose findings contradict the published label."""
    return [record["id"] for record in records if record["contradictions"]]
