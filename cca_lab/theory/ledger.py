"""The ledger of claims: every claim of the papers is judged, and the findings become JSON records and pages."""

import json
from collections.abc import Callable, Iterable, Sequence
from math import floor, isfinite, log10
from pathlib import Path
from types import ModuleType
from typing import Any

from cca_lab.outputs import replacing
from cca_lab.paths import repository, results_folder
from cca_lab.theory import causality, compression, descent, noise, reachability, sparsity
from cca_lab.theory.causality import dga as causality_dga
from cca_lab.theory.causality import focal as causality_focal
from cca_lab.theory.causality import lococo as causality_lococo
from cca_lab.theory.claim import Claim, Finding, Verdict
from cca_lab.theory.compression import cost as compression_cost
from cca_lab.theory.conditioning import claims as conditioning_claims
from cca_lab.theory.conditioning import simplex as conditioning_simplex
from cca_lab.theory.cost import claims as cost_claims
from cca_lab.theory.cost import prefill as cost_prefill
from cca_lab.theory.noise import models as noise_models
from cca_lab.theory.noise import output as noise_output
from cca_lab.theory.pages import claims_page, errata_page
from cca_lab.theory.published import claims as published_claims
from cca_lab.theory.reachability import depth as reachability_depth
from cca_lab.theory.reachability import floats as reachability_floats
from cca_lab.theory.reachability import rope as reachability_rope
from cca_lab.theory.sparsity import bounds as sparsity_bounds
from cca_lab.theory.sparsity import limit as sparsity_limit
from cca_lab.theory.sparsity import meaning as sparsity_meaning

MODULES: tuple[ModuleType, ...] = (
    sparsity,
    sparsity_bounds,
    sparsity_limit,
    sparsity_meaning,
    noise,
    noise_models,
    noise_output,
    conditioning_claims,
    conditioning_simplex,
    descent,
    reachability,
    reachability_floats,
    reachability_rope,
    reachability_depth,
    causality,
    causality_dga,
    causality_focal,
    causality_lococo,
    compression,
    compression_cost,
    cost_claims,
    cost_prefill,
    published_claims,
)
DIGITS = 4  # significant digits in a record: enough for every claim, and equal on different machines


def collect(modules: Iterable[ModuleType] = MODULES) -> tuple[Claim, ...]:
    """Return the claims of all modules, in the order of the modules.

    Raises:
        ValueError: if two claims share an id.
    """
    claims: dict[str, Claim] = {}
    for module in modules:
        for claim in module.CLAIMS:
            if claim.id in claims:
                raise ValueError(f"claim id {claim.id!r} of {module.__name__} is taken; give it another")
            claims[claim.id] = claim
    return tuple(claims.values())


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


def run(claims: Sequence[Claim], progress: Callable[[float, str], None] | None = None) -> list[dict[str, Any]]:
    """Judge claims one after the other.

    Args:
        claims: the claims to judge.
        progress: called as progress(number of claims done, id of the next claim).

    Returns:
        One record per claim, of JSON values; see `record`.
    """
    records = []
    for done, claim in enumerate(claims):
        if progress:
            progress(done, claim.id)
        corrected = None if claim.corrected is None else claim.check(claim.corrected)
        records.append(record(claim, claim.check(claim.printed), corrected))
    if progress:
        progress(len(claims), "")
    return records


def record(claim: Claim, printed: Finding, corrected: Finding | None) -> dict[str, Any]:
    """Return the published record of a claim, given the findings on its printed and its corrected subject.

    "agrees" means that both findings are as the verdict says. Numbers keep `DIGITS` significant digits and no
    time is recorded, so that two runs write the same file.
    """
    agrees = claim.agrees(printed) and (corrected is None or corrected.holds)
    return {
        "id": claim.id, "paper": claim.paper, "place": claim.place, "statement": claim.statement,
        "verdict": claim.verdict.value, "agrees": agrees, "evidence": printed.evidence,
        "numbers": {name: rounded(value) for name, value in printed.numbers.items()},
        "error": None if printed.error is None else rounded(printed.error),
        "repair": claim.repair, "corrected": None if corrected is None else corrected.evidence,
        "strength": claim.strength.value, "proof": claim.proof,
    }


def rounded(value: float | int | str) -> float | int | str:
    """Return a float with `DIGITS` significant digits; integers and strings unchanged."""
    if not isinstance(value, float) or value == 0:
        return value
    if not isfinite(value):
        return str(value)  # JSON has no infinity
    return round(float(value), DIGITS - 1 - floor(log10(abs(value))))


def failures(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids whose findings contradict the published verdict."""
    return [found["id"] for found in records if not found["agrees"]]


def counts(records: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return how many claims have each verdict."""
    verdicts = [found["verdict"] for found in records]
    return {verdict.value: verdicts.count(verdict.value) for verdict in Verdict}


def paths() -> tuple[Path, Path, Path]:
    """Return the paths of the ledger: the JSON records and the two pages."""
    docs = repository() / "docs"
    return results_folder() / "claims.json", docs / "claims.md", docs / "errata.md"


def contents(records: list[dict[str, Any]]) -> dict[Path, str]:
    """Return the text of every file that the ledger writes."""
    texts = (json.dumps(records, indent=1, ensure_ascii=False) + "\n", claims_page(records, counts(records)),
             errata_page(records))
    return dict(zip(paths(), texts, strict=True))


def write(records: list[dict[str, Any]]) -> list[Path]:
    """Write the records and the pages, each file in one step; return the paths."""
    texts = contents(records)
    for path, text in texts.items():
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    return list(texts)
