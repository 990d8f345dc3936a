"""`cca-lab study compare`: every mechanism on one model, untrained, with equal memory."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NotRequired, TypedDict

import torch
from transformers import PreTrainedModel

from cca_lab.mechanisms import MECHANISMS, Mechanism
from cca_lab.mechanisms.caches import CACHES, LEAST, fits, fitted
from cca_lab.models import swap_attention
from cca_lab.models.evaluate import POSITIONS, Estimate
from cca_lab.reporting import device_name, machine, print_table
from cca_lab.settings import LARGEST_WRITTEN, option
from cca_lab.studies.benchmarks.model import new_cache, write
from cca_lab.studies.evaluate import LENGTH, MOST_SAMPLES, Evaluation, make_evaluation
from cca_lab.studies.study import Continued, Interval, ModelStudy, Report

DECODED = 16  # tokens that are timed one by one
ROUNDS = 3


class CompareRow(TypedDict):
    """What one mechanism measured, as far as it is shown."""

    title: str
    perplexity: Interval
    exact_match: NotRequired[dict[str, Any]]
    cache_bytes: int | None
    prefill_seconds: float
    decode_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Compare(Continued, ModelStudy):
    """Measure every mechanism that runs at inference, untrained, at an equal budget.

    Those with a cache keep at most `entries` keys and values per KV head after the prompt, `length`
    minus the 16 tokens that are decoded and timed; the others keep all and use their defaults.
    """

    row: ClassVar[Any] = CompareRow
    entries: int = option(96, "Entries (a key and a value each) to keep per KV head.", least=LEAST,
                          most=LARGEST_WRITTEN)
    length: int | None = option(None, "Tokens per sequence.", shown=LENGTH)
    windows: int = option(40, "Number of windows of held-out text.", least=1, most=MOST_SAMPLES)
    questions: int = option(20, "Questions per answer position; rounded up to a multiple of 16.",
                            least=0, most=MOST_SAMPLES)

    @cached_property
    def evaluation(self) -> Evaluation:
        """What every mechanism is measured on."""
        evaluation = make_evaluation(*self.loaded, self.corpus, length=self.length,
                                     windows=self.windows, questions=self.questions)
        if evaluation.length < DECODED + LEAST:
            raise ValueError(
                f"length: got {evaluation.length}, wanted at least {DECODED + LEAST}: {DECODED} "
                "tokens are decoded after a prompt; give a longer one")
        return evaluation

    def settings(self) -> dict[str, Any]:
        """Return the model and the sizes."""
        return {"model": self.name, "entries": self.entries, "length": self.evaluation.length,
                "windows": self.windows, "questions": self.evaluation.questions}

    def facts(self) -> dict[str, Any]:
        """Return the machine."""
        return {"device": device_name(), "machine": machine()}

    def cells(self) -> dict[str, Mechanism]:
        """Return the mechanisms; ValueError if one does not fit into the budget."""
        config, length = self.loaded[0].config, self.evaluation.length - DECODED
        return {name: fitted(config, name, self.entries, length) if fits(name) else mechanism()
                for name, mechanism in MECHANISMS.items()
                if not (mechanism.training_only or mechanism.of_one_model)}

    def measure(self, name: str, mechanism: Mechanism, report: Report) -> dict[str, Any]:
        """Return perplexity, exact match, bytes and times of one mechanism."""
        model = self.loaded[0]
        torch.manual_seed(0)
        swap_attention(model, mechanism)
        try:
            ids = self.evaluation.stream[:self.evaluation.length].to(model.device)
            row = self.evaluation.measure(model) | times(model, name, ids)
        finally:
            swap_attention(model, "full")
        return {"title": mechanism.title, "options": mechanism.options(),
                "causal_scope": mechanism.causal_scope, "needs_training": mechanism.needs_training,
                **row}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print a row for each mechanism."""
        rows = []
        for row in result["rows"].values():
            matches = row.get("exact_match", {})
            cells = [f"{100 * matches[str(position)]['value']:.0f} %" if matches else "-"
                     for position in POSITIONS]
            size, decode = row["cache_bytes"], row["decode_seconds"]
            rows.append([row["title"], f"{Estimate(**row['perplexity']).value:.1f}", *cells,
                         "all" if size is None else f"{size / 1024:.0f} KiB",
                         f"{1e3 * row['prefill_seconds']:.0f} ms",
                         "-" if decode is None else f"{1e3 * decode:.1f} ms"])
        columns = ["mechanism", "perplexity", *(f"at {position:.0%}" for position in POSITIONS),
                   "cache", "prefill", "a token"]
        print_table(
            f"{result['model']}, {result['length']} tokens, {result['entries']} entries a KV head, "
            f"{result['device']}", columns, rows)


def times(model: PreTrainedModel, name: str, ids: torch.Tensor) -> dict[str, Any]:
    """Return the cache's bytes after the prompt, and median seconds of prefill and of a token."""
    cached = name in CACHES or name == "full"
    prompt, rest = ids[:-DECODED], ids[-DECODED:]
    written = [write(model, new_cache(model, name) if cached else None, prompt, rest)
               for _ in range(ROUNDS)]
    decodes = [seconds for text in written for seconds in text.tokens]
    return {"cache_bytes": written[-1].nbytes,
            "prefill_seconds": statistics.median(text.first for text in written),
            "decode_seconds": statistics.median(decodes) if decodes else None}
