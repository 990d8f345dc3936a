"""`cca-lab study compare`: every mechanism on one model, untrained, with equal memory."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cca_lab import models
from cca_lab.mechanisms import MECHANISMS, Mechanism
from cca_lab.options import Count, Natural
from cca_lab.reporting import device_name, machine
from cca_lab.studies.evaluate import PLACES, Evaluation, make_evaluation
from cca_lab.studies.study import (
    Report,
    TextStudy,
    cell,
    continued,
    markdown,
    measure_missing,
    percent,
    writing,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DECODED = 16  # tokens that are timed one by one
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Compare(TextStudy):
    """Measure every mechanism that runs at inference, untrained, at an equal budget.

    Those with a cache keep at most `entries` keys and values per KV head after the prompt, `length`
    minus the 16 tokens that are decoded and timed; the others keep all and use their defaults.
    """

    entries: Count = 96
    """Entries (a key and a value each) to keep per KV head."""
    length: int | None = None
    """Tokens per sequence; by default the model's context, at most 1024."""
    windows: Count = 40
    """Number of windows of held-out text."""
    questions: Natural = 20
    """Questions per answer position; rounded up to a multiple of 16."""
    out: Path | None = None
    """JSON file to write; what it holds is not measured again."""

    def run(self) -> dict[str, Any]:
        """Measure the mechanisms that the file lacks; print the table."""
        from cca_lab.mechanisms.caches import LEAST, fits, fitted

        with writing(self.out):
            evaluation = make_evaluation(*self.loaded, self.corpus, length=self.length,
                                         windows=self.windows, questions=self.questions)
            length = evaluation.length - DECODED
            if length < LEAST:
                raise ValueError(f"length: got {evaluation.length}, wanted at least "
                                 f"{DECODED + LEAST}: {DECODED} tokens are decoded after a prompt; "
                                 "give a longer one")
            settings = {"model": self.name, "entries": self.entries, "length": evaluation.length,
                        "windows": self.windows, "questions": evaluation.questions,
                        "corpus": self.about_text(), "device": device_name()}
            result = continued(self.out, settings, "rows") or {
                **settings, "machine": machine(), "rows": {}}
            mechanisms = {
                name: fitted(self.loaded[0].config, name, self.entries, length)
                if fits(name) else mechanism() for name, mechanism in MECHANISMS.items()
                if not (mechanism.training_only or mechanism.of_one_model)}

            def row(name: str, mechanism: Mechanism, report: Report) -> dict[str, Any]:
                return row_of(self.loaded[0], mechanism, evaluation)

            measure_missing(self.out, result, mechanisms, row)
        print(table(result))
        return result


def row_of(model: "PreTrainedModel", mechanism: Mechanism, evaluation: Evaluation
           ) -> dict[str, Any]:
    """Return perplexity, exact match, bytes and times of one mechanism."""
    torch.manual_seed(0)
    ids = evaluation.stream[:evaluation.length].to(model.device)
    with models.swapped(model, mechanism):
        measured = evaluation.measure(model) | times(model, mechanism.name, ids)
    return {"title": mechanism.title, "options": mechanism.options(),
            "causal_scope": mechanism.causal_scope, "needs_training": mechanism.needs_training,
            **measured}


def times(model: "PreTrainedModel", name: str, ids: torch.Tensor) -> dict[str, Any]:
    """Return the cache's bytes after the prompt, and median seconds of prefill and of a token."""
    from cca_lab.mechanisms.caches import CACHES
    from cca_lab.studies.benchmarks.model import new_cache, write

    cached = name in CACHES or name == "full"
    prompt, rest = ids[:-DECODED], ids[-DECODED:]
    written = [write(model, new_cache(model, name) if cached else None, prompt, rest)
               for _ in range(ROUNDS)]
    decodes = [seconds for text in written for seconds in text.tokens]
    return {"cache_bytes": written[-1].nbytes,
            "prefill_seconds": statistics.median(text.first for text in written),
            "decode_seconds": statistics.median(decodes) if decodes else None}


def table(result: Mapping[str, Any]) -> str:
    """Return the table of every mechanism on one model at an equal budget."""
    rows = []
    for row in result["rows"].values():
        matches, size = row.get("exact_match"), row["cache_bytes"]
        rows.append([row["title"], cell(row["perplexity"]["value"], digits=1),
                     *(percent(matches[place]["value"]) if matches else "-"
                       for place in (*PLACES, "all")),
                     "all" if size is None else cell(size, 1024),
                     cell(row["prefill_seconds"], 1e-3), cell(row["decode_seconds"], 1e-3, 1)])
    return markdown(
        ["mechanism", "perplexity", *PLACES.values(), "all places", "cache KiB", "prefill ms",
         "ms a token"], rows,
        "{model}, {length} tokens, {entries} entries a KV head, {questions} questions a place; "
        "{device}.".format_map(result))
