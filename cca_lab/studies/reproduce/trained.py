"""The tables and figures that a finetuned small model can tell something about."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, PreTrainedConfig

from cca_lab.files import models_folder
from cca_lab.mechanisms.caches import fitted
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.models.recipe import Strategy
from cca_lab.studies.reproduce.artefact import ROWS, Arm, Artefact, study_file, values

BASE, LENGTH = "gpt2-mini", 512
BUDGETS = (48, 96, 192)  # entries for each KV head, of 512
MIDDLE = 96  # the budget of artefacts that name their methods
METHODS = {"CCA": "cca", "DGA": "dga", "LoCoCo": "lococo", "H2O": "h2o",
           "StreamingLLM": "streaming_llm", "LM-Infinite": "lm_infinite",
           "mean pooling": "mean_pooling", "random tokens": "random_tokens"}
BASES: dict[str, dict[str, Any]] = {  # options of an arm that names no others
    "cca": {"group": 8, "window": 64},
    "dga": {"group": 16, "gamma": 0.1},  # Appendix C.5
    "lococo": {"slots": 48, "segment": 48, "weights": "relu"}}  # the paper's ratio, equation 7


@cache
def _config() -> PreTrainedConfig:
    return AutoConfig.from_pretrained(models_folder() / BASE)


def arms_at(entries: int, methods: Mapping[str, str]) -> dict[str, Arm]:
    """Return arms by label, with the largest caches of `entries` per KV head; "full" keeps all."""
    return {name: Arm(method, {} if method == "full"
                      else fitted(_config(), method, entries, LENGTH).options())
            for name, method in methods.items()}


def arm(attention: str, strategy: Strategy = "full", plain: bool = False, **options: object) -> Arm:
    """Return an arm with some options other than those of `BASES`; a variant has DGA's."""
    base = BASES.get(attention.partition("_")[0], {})
    return Arm(attention, {**base, **options}, strategy, plain=plain)


def artefact(name: str, row: Mapping[str, Any]) -> Artefact:
    """Return the artefact of a row of artefacts.toml."""
    facts = dict(row)
    if "budget" in facts:  # every method, trained and only swapped, and full attention
        entries = facts.pop("budget")
        trained = arms_at(entries, METHODS)
        arms = arms_at(entries, {"full": "full"}) | trained | {
            f"{label}, swapped": Arm(each.attention, each.options, "none")
            for label, each in trained.items()}
    elif "methods" in facts:
        arms = arms_at(MIDDLE, facts.pop("methods"))
    else:
        arms = {label: arm(**{"attention": row["paper"].lower(), **options})
                for label, options in facts.pop("arms").items()}
    return Artefact(name, arms=arms, **{"printed": {}, "order": list(arms), "unit": "", **facts})


TRAINED = {name: artefact(name, row) for name, row in ROWS["trained"].items()}


def chosen(names: Sequence[str]) -> list[Artefact]:
    """Return the artefacts of some names, or all; ValueError for an unknown name."""
    for name in names:
        if name not in TRAINED:
            raise ValueError(f"name: got {name!r}, wanted one of {', '.join(TRAINED)}")
    return [TRAINED[name] for name in names] if names else list(TRAINED.values())


def points(folder: Path) -> tuple[dict[str, list[dict[str, Any]]], dict[str, float]]:
    """Return what `views.figures.training.frontier` draws: a line a method, and full attention."""
    study = json.loads((folder / study_file("short", BASE)).read_text(encoding="utf-8"))
    sizes = CacheSizes.of(_config())

    def scores(rows: list[dict[str, Any]]) -> dict[str, float]:
        return {"answers": 1 - float(values(rows, "answers").mean()),
                "ratio": float(np.exp(values(rows, "perplexity").mean()))} if rows else {}

    def kib(entries: int) -> float:
        return sizes.layers * sizes.entries(entries) / 1024

    lines: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    full: dict[str, float] = {}
    for entries in BUDGETS:
        rows = TRAINED[f"budget-{entries}"].rows(study["trials"])
        full = {"kib": kib(LENGTH), **scores(rows.get("full", []))}
        for method, line in lines.items():
            trained = scores(rows.get(method, []))
            swapped = scores(rows.get(f"{method}, swapped", [])) or None
            if trained or swapped:
                line.append({"kib": kib(entries), **trained, "swapped": swapped})
    return {method: line for method, line in lines.items() if line}, full
