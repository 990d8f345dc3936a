"""The ledger of claims: every claim of the papers is judged, and the findings become JSON records and pages."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor, isfinite, log10
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any

from cca_lab.files import replacing, repository, results_folder
from cca_lab.theory import reachability
from cca_lab.theory.causality import dga as causality_dga
from cca_lab.theory.causality import focal as causality_focal
from cca_lab.theory.causality import lococo as causality_lococo
from cca_lab.theory.causality import masks
from cca_lab.theory.claim import PAPERS, Claim, Finding, Strength, Verdict, Weight
from cca_lab.theory.compression import convolution
from cca_lab.theory.compression import cost as compression_cost
from cca_lab.theory.conditioning import claims as conditioning_claims
from cca_lab.theory.conditioning import descent
from cca_lab.theory.conditioning import simplex as conditioning_simplex
from cca_lab.theory.cost import claims as cost_claims
from cca_lab.theory.cost import prefill as cost_prefill
from cca_lab.theory.judgement import Judgement, contradictions, judge
from cca_lab.theory.noise import models as noise_models
from cca_lab.theory.noise import output as noise_output
from cca_lab.theory.noise import weight
from cca_lab.theory.pages import counted, errata_page
from cca_lab.theory.published import claims as published_claims
from cca_lab.theory.quotes import fingerprint
from cca_lab.theory.reachability import depth as reachability_depth
from cca_lab.theory.reachability import floats as reachability_floats
from cca_lab.theory.reachability import rope as reachability_rope
from cca_lab.theory.sparsity import bounds as sparsity_bounds
from cca_lab.theory.sparsity import limit as sparsity_limit
from cca_lab.theory.sparsity import meaning as sparsity_meaning
from cca_lab.theory.sparsity import theorem1

MODULES: tuple[ModuleType, ...] = (
    theorem1,
    sparsity_bounds,
    sparsity_limit,
    sparsity_meaning,
    weight,
    noise_models,
    noise_output,
    conditioning_claims,
    conditioning_simplex,
    descent,
    reachability,
    reachability_floats,
    reachability_rope,
    reachability_depth,
    masks,
    causality_dga,
    causality_focal,
    causality_lococo,
    convolution,
    compression_cost,
    cost_claims,
    cost_prefill,
    published_claims,
)
DIGITS = 4  # significant digits in a record: enough for every claim, and equal on different machines


def collect(modules: Iterable[ModuleType] = MODULES) -> tuple[Claim, ...]:
    """Return the claims of all modules, in the order of the modules.

    Raises:
        ValueError: if two claims share an id, or a root is no claim with an error of its own.
    """
    claims: dict[str, Claim] = {}
    for module in modules:
        for claim in module.CLAIMS:
            if claim.id in claims:
                raise ValueError(f"claim id {claim.id!r} of {module.__name__} is taken; give it another")
            claims[claim.id] = claim
    _check_names(claims)
    return tuple(claims.values())


def _check_names(claims: Mapping[str, Claim]) -> None:
    for claim in claims.values():
        if claim.root and (claim.root not in claims or claims[claim.root].root or claims[claim.root].weight is None):
            raise ValueError(f"{claim.id}: root is {claim.root!r}; it must be the id of a claim with an error of its "
                             "own")


def select(ids: Sequence[str], claims: Sequence[Claim] | None = None) -> tuple[Claim, ...]:
    """Return the claims with these ids, in this order; all claims if no id is given.

    Raises:
        ValueError: for an id that no claim has.
    """
    claims = collect() if claims is None else claims
    known = {claim.id: claim for claim in claims}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise ValueError(f"claim: got {', '.join(unknown)}, wanted one of {', '.join(known)}")
    return tuple(known[name] for name in ids) if ids else tuple(claims)


def run(claims: Sequence[Claim], progress: Callable[[float, str], None] | None = None, *,
        prove: bool = True) -> list[dict[str, Any]]:
    """Judge claims one after the other.

    Args:
        claims: the claims to judge.
        progress: called as progress(number of claims done, id of the next claim).
        prove: whether to run the proving programs as well; see `judge`.

    Returns:
        One record per claim, of JSON values; see `record`.

    Raises:
        ModuleNotFoundError: if a proving program is not installed.
    """
    records = []
    for done, claim in enumerate(claims):
        if progress:
            progress(done, claim.id)
        records.append(record(claim, judge(claim, prove=prove)))
    if progress:
        progress(len(claims), "")
    return records


def record(claim: Claim, found: Judgement) -> dict[str, Any]:
    """Return the published record of a claim, given what its check found.

    "contradictions" says where the findings are not what the label declares. Numbers keep `DIGITS` significant
    digits and no time is recorded, so that two runs write the same file.
    """
    printed = found.printed
    return {
        "id": claim.id, "paper": claim.paper, "place": claim.place, "quote": list(claim.quotes),
        "formula": claim.formula, "reading": claim.reading, "verdict": claim.verdict.value,
        "weight": claim.weight.value if claim.weight else None, "root": None if claim.weight is None else root(claim),
        "strength": claim.strength.value, "evidence": printed.evidence,
        "numbers": {name: rounded(value) for name, value in printed.numbers.items()},
        "error": None if printed.error is None else rounded(printed.error),
        "hypothesis": claim.hypothesis.words if claim.hypothesis else None, "inside": _evidence(found.inside),
        "models": {name: {"accepted": finding.holds, "evidence": finding.evidence}
                   for name, finding in found.models.items()},
        "sides": {name: finding.evidence for name, finding in found.sides.items()},
        "repair": claim.repair, "repaired": claim.repaired.value if claim.repaired else None,
        "corrected": _evidence(found.corrected), "machine": _evidence(found.machine), "proof": claim.proof,
        "example": claim.example, "contradictions": list(contradictions(claim, found)),
    }


def root(claim: Claim) -> str:
    """Return the id of the claim whose error this one is or repeats."""
    return claim.root or claim.id


def _evidence(finding: Finding | None) -> str | None:
    return None if finding is None else finding.evidence


def rounded(value: float | int | str) -> float | int | str:
    """Return a float with `DIGITS` significant digits; integers and strings unchanged."""
    if isinstance(value, Integral):
        return int(value)  # NumPy's integers too, which JSON does not take
    if not isinstance(value, float) or value == 0:
        return value
    if not isfinite(value):
        return str(value)  # JSON has no infinity
    return round(float(value), DIGITS - 1 - floor(log10(abs(value))))


def failures(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids whose findings contradict the published label."""
    return [found["id"] for found in records if found["contradictions"]]


def paths() -> dict[str, Path]:
    """Return where the ledger's files lie: the JSON records and their schema, the quotations found, and the pages."""
    docs, results = repository() / "docs", results_folder()
    return {"records": results / "claims.json", "schema": results / "claims.schema.json",
            "found": results / "quotes.json", "errata": docs / "claims" / "errata.md", "article": docs / "article.md"}


def contents(records: list[dict[str, Any]]) -> dict[Path, str]:
    """Return the text of every file that the ledger writes."""
    place = paths()
    return {
        place["records"]: json.dumps(records, indent=1, ensure_ascii=False) + "\n",
        place["schema"]: json.dumps(schema(), indent=1) + "\n",
        place["errata"]: errata_page(records),
        place["article"]: counted(place["article"].read_text(encoding="utf-8"), records),
    }


def schema() -> dict[str, Any]:
    """Return the JSON Schema of data/results/claims.json."""
    text, maybe = {"type": "string"}, {"type": ["string", "null"]}
    words = {"type": "string", "minLength": 1}
    strengths = [one.value for one in Strength]
    fields: dict[str, Any] = {
        "id": {"type": "string", "pattern": r"^\S+$", "description": "stable: never used again for another claim"},
        "paper": {"enum": list(PAPERS)}, "place": words,
        "quote": {"type": "array", "items": words, "description": "the paper's own words"},
        "formula": {"type": "boolean", "description": "whether the quote is a formula from extracted text"},
        "reading": {**words, "description": "what the quote is taken to mean"},
        "verdict": {"enum": [one.value for one in Verdict]},
        "weight": {"enum": [*(one.value for one in Weight), None]},
        "root": {**maybe, "description": "id of the claim whose error this is or repeats"},
        "strength": {"enum": strengths, "description": "what stands behind the verdict"}, "evidence": words,
        "numbers": {"type": "object", "additionalProperties": {"type": ["number", "string"]}},
        "error": {"type": ["number", "null"], "description": "half-width of the interval, Monte Carlo only"},
        "hypothesis": maybe, "inside": maybe,
        "models": {"type": "object", "additionalProperties": {
            "type": "object", "required": ["accepted", "evidence"],
            "properties": {"accepted": {"type": "boolean"}, "evidence": text}}},
        "sides": {"type": "object", "additionalProperties": text},
        "repair": text, "repaired": {"enum": [*strengths, None]}, "corrected": maybe, "machine": maybe, "proof": words,
        "example": {**text, "description": "Python that shows the smallest case"},
        "contradictions": {"type": "array", "maxItems": 0},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The ledger of claims", "type": "array",
            "items": {"type": "object", "required": list(fields), "additionalProperties": False, "properties": fields}}


def write(records: list[dict[str, Any]]) -> list[Path]:
    """Write the records and the pages, each file in one step; return the paths."""
    texts = contents(records)
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    return list(texts)


def write_found(claims: Iterable[Claim]) -> Path:
    """Record that the claims' quotations were found in the papers, each at its place; return the path."""
    path = paths()["found"]
    with replacing(path) as temporary:
        found = {claim.id: fingerprint(claim) for claim in claims}
        temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8", newline="\n")
    return path
