"""Every method with the same number of keys and values: the arms of the comparisons at equal memory."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from transformers import AutoConfig, PreTrainedConfig

from cca_lab.files import models_folder
from cca_lab.mechanisms.caches import fitted
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.studies.reproduce.artefact import Arm, Artefact, study_file
from cca_lab.studies.reproduce.ordering import UNSEEN, values

BASE, LENGTH = "gpt2-mini", 512
BUDGETS = (48, 96, 192)  # entries for each KV head, of 512
MIDDLE = 96  # the budget at which exact match is measured at other lengths, too
LENGTHS = (128, 256, 384)
METHODS = {"CCA": "cca", "DGA": "dga", "LoCoCo": "lococo", "H2O": "h2o", "StreamingLLM": "streaming_llm",
           "LM-Infinite": "lm_infinite", "mean pooling": "mean_pooling", "random tokens": "random_tokens"}


@cache
def _config() -> PreTrainedConfig:
    return AutoConfig.from_pretrained(models_folder() / BASE)


def arms_at(entries: int, methods: Mapping[str, str]) -> dict[str, Arm]:
    """Return the arms of some mechanisms, each with the largest cache of at most `entries` after 512 tokens.

    Args:
        entries: keys, and as many values, for each KV head.
        methods: mechanisms by label; "full" keeps everything.
    """
    return {name: Arm(method, {} if method == "full" else fitted(_config(), method, entries, LENGTH).options(),
                      lengths=LENGTHS if method == "full" or entries == MIDDLE else ())
            for name, method in methods.items()}


def _all(entries: int) -> dict[str, Arm]:
    """Return every method, trained and only swapped, and full attention."""
    trained = arms_at(entries, METHODS)
    return {**arms_at(entries, {"full": "full"}), **trained,
            **{f"{name}, swapped": Arm(arm.attention, arm.options, "none") for name, arm in trained.items()}}


def points(folder: Path) -> tuple[dict[str, list[dict]], dict[str, float]]:
    """Return what `figures.reproduction.frontier` draws: a line for each method, and full attention.

    Args:
        folder: of the results.
    """
    study = json.loads((folder / study_file("short", BASE)).read_text(encoding="utf-8"))
    sizes = CacheSizes.of(_config())

    def scores(rows: list[dict]) -> dict[str, float] | None:
        if not rows:
            return None
        return {"answers": 1 - float(values(rows, "answers").mean()),
                "ratio": float(np.exp(values(rows, "perplexity").mean()))}

    def kib(entries: int) -> float:
        return sizes.layers * sizes.entries(entries) / 1024

    lines: dict[str, list[dict]] = {method: [] for method in METHODS}
    full: dict[str, float] = {}
    for entries, artefact in zip(BUDGETS, ARTEFACTS, strict=True):
        rows = artefact.rows(study["trials"])
        full = {"kib": kib(LENGTH), **(scores(rows.get("full", [])) or {})}
        for method, line in lines.items():
            trained, swapped = scores(rows.get(method, [])), scores(rows.get(f"{method}, swapped", []))
            if trained or swapped:
                line.append({"kib": kib(entries), **(trained or {}), "swapped": swapped})
    return {method: line for method, line in lines.items() if line}, full


# By entries: the verdict, and why. Those of one seed have none.
JUDGED: Mapping[int, dict[str, str]] = MappingProxyType({
    96: {"verdict": UNSEEN, "why":
         "CCA answers more in each of three seeds, but so differently that the interval of the difference includes "
         "none (Student's t). DGA answers most; DGA and LoCoCo read text worst, and the plain window reads it best."},
})

ARTEFACTS = tuple(
    Artefact(f"budget-{entries}", "all three", f"equal memory, {entries} of {LENGTH} entries",
             "at equal memory, CCA answers more than methods that forget (StreamingLLM)",
             {}, _all(entries), ("CCA", "StreamingLLM"), "", metric="answers",
             **JUDGED.get(entries, {}))
    for entries in BUDGETS)
