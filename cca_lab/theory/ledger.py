"""The ledger of claims: words in TOML and checks in Python, joined, judged and recorded."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cca_lab.theory.claim import (
    Claim,
    Hypothesis,
    Judgement,
    Outcome,
    Subjects,
    contradictions,
    judge,
)

WORDS = Path(__file__).parent / "claims"
GROUPS = ("t1", "t2", "t3", "p1", "p1c", "d1", "lc")  # its files, in order
MODULES = {  # by package: the modules whose tables SUBJECTS have the checks
    "sparsity": ("theorem1", "limit", "meaning"),
    "noise": ("models", "output"),
    "conditioning": ("spectrum",),
    "reachability": ("indices", "floats", "depth"),
    "causality": ("masks", "dga", "focal", "lococo"),
    "compression": ("convolution", "memory"),
    "cost": ("pairs", "dga"),
}
TEXTS = ("paper", "place", "reading", "proof", "repair",
         "hypothesis", "assumed")  # the last two say one thing
FIELDS: dict[str, Any] = {  # the type of each field in TOML
    **dict.fromkeys((*TEXTS, "example"), str),
    "quote": (str, list), "sides": list, "models": dict, "slip": bool,
}


@cache
def words() -> dict[str, dict[str, Any]]:
    """Return what the TOML files say of each claim, by id, in order; see `read`."""
    return read(WORDS / f"{group}.toml" for group in GROUPS)


def read(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Read claims, each a table of TOML under a new id, with fields of the types in `FIELDS`."""
    claims: dict[str, dict[str, Any]] = {}
    for path in paths:
        for name, facts in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in claims:
                raise ValueError(f"{path.name}: the id {name!r} is taken; give the claim another")
            for field, value in facts.items():
                if not isinstance(value, FIELDS.get(field, ())):
                    raise ValueError(f"{path.name}, {name}: {field} is {value!r}; wanted "
                                     f"{', '.join(FIELDS)}, each a string, list or table as in the "
                                     "other claims")
            claims[name] = facts
    return claims


@cache
def subjects() -> dict[str, Subjects]:
    """Return the checks of all modules by the id of their claim, which only one may check."""
    tables: dict[str, Subjects] = {}
    for package, modules in MODULES.items():
        for module in modules:
            table = import_module(f"cca_lab.theory.{package}.{module}").SUBJECTS
            if twice := tables.keys() & table.keys():
                raise ValueError(f"{min(twice)}: {package}.{module} checks it again; one table has "
                                 "the check")
            tables |= table
    return tables


def joined(name: str, facts: Mapping[str, Any], code: Subjects) -> Claim:
    """Return a claim of its table in TOML, with white space collapsed but in examples, and code."""
    texts = {field: one_line(facts.get(field, "")) for field in TEXTS}
    quote = facts.get("quote", [])
    models, sides = facts.get("models", {}), facts.get("sides", [])
    said = len(models), len(sides), "hypothesis" in facts
    if said != (len(code.models), len(code.sides), code.within is not None):
        raise ValueError(f"{name}: {len(models)} models, {len(sides)} sides and the hypothesis "
                         f"{texts['hypothesis']!r} in words are not those of its check; give each "
                         "its subject")
    hypothesis = None
    if code.within:
        hypothesis = Hypothesis(texts["hypothesis"], code.within, texts["assumed"])
    accepted = zip(models.items(), code.models, strict=True)
    return Claim(id=name, quote=tuple(map(one_line, [quote] if isinstance(quote, str) else quote)),
                 check=code.check, printed=code.printed, corrected=code.corrected,
                 hypothesis=hypothesis, machine=code.machine, slip=facts.get("slip", False),
                 models={model: (subject, wanted) for (model, wanted), subject in accepted},
                 sides=dict(zip(sides, code.sides, strict=True)), example=facts.get("example", ""),
                 **{field: texts[field] for field in TEXTS[:-2]})


def one_line(text: str) -> str:
    """Return a text with its white space collapsed."""
    return " ".join(text.split())


@cache
def collect() -> tuple[Claim, ...]:
    """Return all claims in the order of the files; ValueError unless each has words and a check."""
    if apart := words().keys() ^ subjects().keys():
        raise ValueError(f"{min(apart)}: it needs words in {WORDS.name}/*.toml and a check in a "
                         "table SUBJECTS")
    return tuple(joined(name, facts, subjects()[name]) for name, facts in words().items())


def select(ids: Sequence[str], claims: Sequence[Claim] | None = None) -> tuple[Claim, ...]:
    """Return the claims with these ids, all for none; ValueError for an id of no claim."""
    claims = collect() if claims is None else claims
    known = {claim.id: claim for claim in claims}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise ValueError(f"claim: got {', '.join(unknown)}, wanted one of {', '.join(known)}")
    return tuple(known[name] for name in ids) if ids else tuple(claims)


def run(claims: Sequence[Claim], progress: Callable[[float, str], None] | None = None, *,
        prove: bool = True) -> list[dict[str, Any]]:
    """Judge claims, as in `judge`, and return their records.

    `progress` is called with the number of claims that are done and the id of the next one.
    """
    records = []
    for done, claim in enumerate(claims):
        if progress:
            progress(done, claim.id)
        records.append(record(claim, judge(claim, prove=prove)))
    if progress:
        progress(len(claims), "")
    return records


def record(claim: Claim, judgement: Judgement) -> dict[str, Any]:
    """Return what is shown of a claim: its words, and what its check found.

    "contradictions" says where the outcomes are not what the label declares.
    """
    models = {name: {"accepted": outcome.holds, "evidence": outcome.evidence}
              for name, outcome in judgement.models.items()}
    return {"id": claim.id, "paper": claim.paper, "place": claim.place, "quote": list(claim.quotes),
            "reading": claim.reading, "verdict": claim.verdict.value, "slip": claim.slip,
            "evidence": judgement.printed.evidence,
            "hypothesis": claim.hypothesis.words if claim.hypothesis else None,
            "assumed": claim.hypothesis.assumed if claim.hypothesis else None,
            "inside": _evidence(judgement.inside), "models": models,
            "sides": {name: outcome.evidence for name, outcome in judgement.sides.items()},
            "repair": claim.repair, "corrected": _evidence(judgement.corrected),
            "machine": _evidence(judgement.machine), "proof": claim.proof,
            "example": claim.example, "contradictions": list(contradictions(claim, judgement))}


def _evidence(outcome: Outcome | None) -> str | None:
    return None if outcome is None else outcome.evidence


def failures(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids whose findings contradict the published label."""
    return [record["id"] for record in records if record["contradictions"]]
