"""The ledger of claims: words in TOML and checks in Python, joined, judged and recorded."""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from math import floor, isfinite, log10
from numbers import Integral
from pathlib import Path
from typing import Any

from cca_lab.files import replacing, repository, results_folder
from cca_lab.theory.claim import (
    Claim,
    Hypothesis,
    Judgement,
    Outcome,
    Strength,
    Subjects,
    Weight,
    contradictions,
    judge,
)
from cca_lab.theory.pages import committed
from cca_lab.theory.published.printed import TABLES
from cca_lab.theory.quotes import digest, fingerprint, one_line

WORDS = Path(__file__).parent / "claims"
GROUPS = ("t1", "t2", "t3", "p1", "p1c", "d1", "lc", "cca", "dga")  # its files, in order
MODULES = {  # by package: the modules whose tables SUBJECTS have the checks
    "sparsity": ("theorem1", "bounds", "limit", "meaning"),
    "noise": ("weight", "models", "output"),
    "conditioning": ("spectrum", "descent"),
    "reachability": ("indices", "floats", "rope", "depth"),
    "causality": ("masks", "dga", "focal", "lococo"),
    "compression": ("convolution", "memory"),
    "cost": ("pairs", "dga", "prefill"),
    "published": ("printed", "sentences"),
}
TEXTS = ("paper", "place", "reading", "proof", "repair", "root",
         "hypothesis", "assumed")  # the last two say one thing
FIELDS: dict[str, Any] = {  # the type of each field in TOML
    **dict.fromkeys((*TEXTS, "strength", "weight", "repaired", "example"), str),
    "quote": (str, list), "sides": list, "models": dict, "formula": bool,
}
FOUND = ("evidence", "numbers", "error", "inside", "corrected", "machine", "contradictions")
DIGITS = 4  # significant digits in a record: equal on different machines


@cache
def words() -> dict[str, dict[str, Any]]:
    """Return what the TOML files say of each claim, by id, in order; see `read`."""
    return read(WORDS / f"{group}.toml" for group in GROUPS)


def read(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Read claims, each a table of TOML under a new id, with fields of the types in `FIELDS`."""
    claims: dict[str, dict[str, Any]] = {}
    for path in paths:
        for name, facts in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in claims or name in retired():
                raise ValueError(f"{path.name}: the id {name!r} is taken or retired; give the "
                                 "claim another")
            for field, value in facts.items():
                if not isinstance(value, FIELDS.get(field, ())):
                    raise ValueError(f"{path.name}, {name}: {field} is {value!r}; wanted "
                                     f"{', '.join(FIELDS)}, each a string, list or table as in the "
                                     "other claims")
            claims[name] = facts
    return claims


@cache
def retired() -> dict[str, str]:
    """Return the ids that are never used again, each with the claim that has its words now."""
    return tomllib.loads((WORDS / "retired.toml").read_text(encoding="utf-8"))


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
                 hypothesis=hypothesis, machine=code.machine,
                 strength=Strength(facts["strength"]),
                 weight=Weight(facts["weight"]) if "weight" in facts else None,
                 repaired=Strength(facts["repaired"]) if "repaired" in facts else None,
                 models={model: (subject, wanted) for (model, wanted), subject in accepted},
                 sides=dict(zip(sides, code.sides, strict=True)), example=facts.get("example", ""),
                 formula=facts.get("formula", False),
                 **{field: texts[field] for field in TEXTS[:-2]})


@cache
def collect() -> tuple[Claim, ...]:
    """Return all claims in the order of the files; ValueError unless each has words and a check."""
    if apart := words().keys() ^ subjects().keys():
        raise ValueError(f"{min(apart)}: it needs words in {WORDS.name}/*.toml and a check in a "
                         "table SUBJECTS")
    claims = {name: joined(name, facts, subjects()[name]) for name, facts in words().items()}
    check_roots(claims)
    return tuple(claims.values())


def check_roots(claims: Mapping[str, Claim]) -> None:
    """Raise ValueError if the root of a claim is no claim with an error of its own."""
    for claim in claims.values():
        if claim.root and (claim.root not in claims or claims[claim.root].root
                           or claims[claim.root].weight is None):
            raise ValueError(f"{claim.id}: root is {claim.root!r}; it must be the id of a claim "
                             "with an error of its own")


def select(ids: Sequence[str], claims: Sequence[Claim] | None = None) -> tuple[Claim, ...]:
    """Return the claims with these ids, or with those that they were merged into; all for none."""
    claims = collect() if claims is None else claims
    known = {claim.id: claim for claim in claims}
    ids = [retired().get(name) or name for name in ids]
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
    """Return the published record of a claim, given what its check found.

    "contradictions" says where the outcomes are not what the label declares. Numbers keep `DIGITS`
    significant digits and no time is recorded, so that two runs write the same file.
    """
    printed = judgement.printed
    models = {name: {"accepted": outcome.holds, "evidence": outcome.evidence}
              for name, outcome in judgement.models.items()}
    return {"id": claim.id, "paper": claim.paper, "place": claim.place, "quote": list(claim.quotes),
            "formula": claim.formula, "reading": claim.reading, "verdict": claim.verdict.value,
            "weight": claim.weight.value if claim.weight else None,
            "root": claim.root or claim.id if claim.weight else None,
            "strength": claim.strength.value, "evidence": printed.evidence,
            "numbers": {name: rounded(value) for name, value in printed.numbers.items()},
            "error": None if printed.error is None else rounded(printed.error),
            "hypothesis": claim.hypothesis.words if claim.hypothesis else None,
            "assumed": claim.hypothesis.assumed if claim.hypothesis else None,
            "inside": _evidence(judgement.inside), "models": models,
            "sides": {name: outcome.evidence for name, outcome in judgement.sides.items()},
            "repair": claim.repair, "repaired": claim.repaired.value if claim.repaired else None,
            "corrected": _evidence(judgement.corrected), "machine": _evidence(judgement.machine),
            "proof": claim.proof, "example": claim.example,
            "contradictions": list(contradictions(claim, judgement))}


def _evidence(outcome: Outcome | None) -> str | None:
    return None if outcome is None else outcome.evidence


def rounded(value: float | int | str) -> float | int | str:
    """Return a float with `DIGITS` significant digits; integers and strings unchanged."""
    if isinstance(value, Integral):
        return int(value)  # NumPy's integers too, which JSON does not take
    if not isinstance(value, float) or value == 0:
        return value
    if not isfinite(value):
        return str(value)  # JSON has no infinity
    return round(float(value), DIGITS - 1 - floor(log10(abs(value))))


def restated(records: Iterable[dict[str, Any]], before: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return, by id, what is stated otherwise than before: all but what the checks found.

    Both are records of all claims; a claim that is new or gone is stated otherwise too.
    """
    old, new = ({record["id"]: {name: stated(name, value) for name, value in record.items()
                                if name not in FOUND} for record in each}
                for each in (before, records))
    changed = {name: [field for field in {**old.get(name, {}), **new.get(name, {})}
                      if old.get(name, {}).get(field) != new.get(name, {}).get(field)]
               for name in {**old, **new}}
    return {name: ", ".join(fields) for name, fields in changed.items() if fields}


def stated(field: str, value: Any) -> Any:
    """Return what a field of a record states: of models and sides the names, not the evidence."""
    if field == "models":
        return {name: seen["accepted"] for name, seen in value.items()}
    return list(value) if field == "sides" else value


def failures(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids whose findings contradict the published label."""
    return [record["id"] for record in records if record["contradictions"]]


def paths() -> dict[str, Path]:
    """Return where the ledger's files lie: records, schema, quotations found, and pages."""
    docs, results = repository() / "docs", results_folder()
    return {"records": results / "claims.json", "schema": results / "claims.schema.json",
            "found": results / "quotes.json", "errata": docs / "claims" / "errata.md"}


def stored() -> list[dict[str, Any]]:
    """Return the records of the committed ledger."""
    records: list[dict[str, Any]] = json.loads(paths()["records"].read_text(encoding="utf-8"))
    return records


def contents(records: list[dict[str, Any]]) -> dict[Path, str]:
    """Return the text of every file that the ledger writes."""
    files = paths()
    return {files["records"]: json.dumps(records, indent=1, ensure_ascii=False) + "\n",
            **committed(files["errata"].parent, records)}


def write(records: list[dict[str, Any]]) -> list[Path]:
    """Write the records and the pages, each file in one step; return the paths."""
    texts = contents(records)
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    return list(texts)


def write_found(claims: Iterable[Claim]) -> Path:
    """Record that quotations and tables were found in the papers, in place; return the path."""
    path = paths()["found"]
    with replacing(path) as temporary:
        digests = {claim.id: fingerprint(claim) for claim in claims}
        digests["tables"] = digest(str(TABLES))
        temporary.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8", newline="\n")
    return path
