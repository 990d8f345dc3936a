"""The ledger for other programs: a JSON Schema of its records, and schema.org ClaimReview as JSON-LD."""

from collections.abc import Iterable, Mapping
from typing import Any

from cca_lab.theory.claim import PAPERS, Strength, Verdict, Weight

SOURCES = {
    "CCA": {"headline": "Core Context Aware Transformers for Long Context Language Modeling",
            "author": "Yaofo Chen et al.", "isPartOf": "ICML 2025", "sameAs": "https://arxiv.org/abs/2412.12465"},
    "DGA": {"headline": "Curse of High Dimensionality Issue in Transformer for Long-context Modeling",
            "author": "Shuhai Zhang et al.", "isPartOf": "ICML 2025"},
    "LoCoCo": {"headline": "LoCoCo: Dropping In Convolutions for Long Context Compression",
               "author": "Ruisi Cai et al.", "isPartOf": "ICML 2024", "sameAs": "https://arxiv.org/abs/2406.05317"},
}
RATINGS = {Verdict.FALSE: 1, Verdict.INCONSISTENT: 2, Verdict.DEPENDS: 3, Verdict.HOLDS_IF: 4, Verdict.HOLDS: 5}


def reviews(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all claims as one JSON-LD graph of ClaimReview; ratings go from 1, false, to 5, holds."""
    return {"@context": "https://schema.org", "@graph": [review(found) for found in records]}


def review(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return one claim as a schema.org ClaimReview."""
    source = SOURCES[found["paper"]]
    author = {"@type": "Person", "name": source["author"]}
    work = {"@type": "ScholarlyArticle", **source, "author": author}
    return {
        "@type": "ClaimReview", "@id": f"docs/claims/{found['id']}.md", "identifier": found["id"],
        "claimReviewed": " … ".join(found["quote"]) or found["reading"],
        "author": {"@type": "Organization", "name": "The cca_lab authors"},
        "itemReviewed": {"@type": "Claim", "author": author, "appearance": {**work, "pagination": found["place"]}},
        "reviewRating": {"@type": "Rating", "ratingValue": RATINGS[Verdict(found["verdict"])], "bestRating": 5,
                         "worstRating": 1, "alternateName": found["verdict"]},
        "reviewBody": f"{found['evidence']} {found['repair']}".strip(),
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
