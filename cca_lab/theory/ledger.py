"""The ledger of claims: words in TOML and checks in Python, joined, judged and recorded."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cca_lab.theory.claim import Claim, Subjects, contradictions, judge

WORDS = Path(__file__).parent / "claims"
GROUPS = ("t1", "t2", "t3", "p1", "p1c", "d1", "lc")  # its files, in order
MODULES = {  # by package: the modules whose tables SUBJECTS have the checks
    "sparsity": ("theorem1",),
    "noise": ("models",),
    "conditioning": ("spectrum",),
    "reachability": ("indices", "depth"),
    "causality": ("masks", "dga", "focal"),
    "cost": ("pairs",),
}
TEXTS = ("paper", "place", "reading", "repair")
FIELDS: dict[str, Any] = {  # the type of each field in TOML
    **dict.fromkeys(TEXTS, str), "quote": (str, list), "sides": list,
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
                    raise ValueError(f"{path.name}, {name}: {field} is {value!r}; wanted one of "
                                     f"{', '.join(FIELDS)}, of the type it has in other claims")
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
    """Return a claim of its table in TOML, with white space collapsed, and its code."""
    quote = facts.get("quote", [])
    texts: dict[str, Any] = {field: one_line(facts.get(field, "")) for field in TEXTS}
    return Claim(**vars(code), **texts, id=name, places=facts.get("sides", []),
                 quote=tuple(map(one_line, [quote] if isinstance(quote, str) else quote)))


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
        records.append({field: getattr(claim, field) for field in ("id", *TEXTS, "quote")} | {
            "verdict": claim.verdict.value, "evidence": found[0].outcome.evidence,
            "findings": {finding.what: finding.outcome.evidence for finding in found},
            "contradictions": list(contradictions(found))})
    if progress:
        progress(len(records), "")
    return records


def failures(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ids whose findings contradict the published label."""
    return [record["id"] for record in records if record["contradictions"]]
