"""`cca-lab compare`: every mechanism on one model, without training, at an equal budget of keys and values."""

import statistics
from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.utils import logging

from cca_lab.bench.model import new_cache, write
from cca_lab.bench.report import device, device_name, machine, print_table, write_json
from cca_lab.caches import CACHES
from cca_lab.caches.budget import LEAST, fits, fitted_options
from cca_lab.commands.evaluate import Evaluation, make_evaluation
from cca_lab.commands.progress import training_progress
from cca_lab.mechanisms import MECHANISMS
from cca_lab.models import load_pretrained, swap_attention
from cca_lab.models.evaluate import POSITIONS, Estimate
from cca_lab.ranges import LARGEST_WRITTEN, check_sizes
from cca_lab.tasks.corpus import load_corpus

DECODED = 16  # tokens that are timed one by one
ROUNDS = 3


def compare(model_name: str, *, entries: int = 96, length: int | None = None, windows: int = 40, questions: int = 20,
            text: str | None = None, out: Path | None = None) -> dict:
    """Measure every mechanism that runs at inference; print the table, and write it if asked.

    Mechanisms with a cache keep at most `entries` keys and values a KV head after the prompt, which is
    `length` tokens less the 16 that are decoded and timed. Those without (MInference's) keep all and run with
    their defaults; LongLoRA attends in full once trained and has no row. What a mechanism would train is left
    as it was drawn (seed 0).

    Args:
        model_name: a folder or a hub name.
        entries: the budget.
        length: tokens of a text and of a context; by default the model's context, at most 1024.
        windows: windows of held-out text behind a perplexity.
        questions: questions for each place of the answer, rounded up to as many at each offset of the text.
        text: as in `load_corpus`.
        out: JSON file to write.

    Returns:
        What was written: settings, and one measurement a mechanism.

    Raises:
        ValueError: for a length that leaves no prompt before the decoded tokens, or one over the model's context.
    """
    check_sizes(entries=(entries, LEAST, LARGEST_WRITTEN))
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, tokenizer = load_pretrained(model_name, "full")
    model.to(device())
    evaluation = make_evaluation(model, tokenizer, load_corpus(text), length=length, windows=windows,
                                 questions=questions)
    _check_length(evaluation.length)
    names = [name for name, mechanism in MECHANISMS.items() if not mechanism.training_only]
    rows = {}
    with training_progress("comparing", len(names)) as progress:
        for done, name in enumerate(names):
            progress(done, MECHANISMS[name].title)
            rows[name] = measure(model, name, entries, evaluation)
        progress(len(names), "done")
    result = {"model": Path(model_name).name, "entries": entries, "length": evaluation.length, "windows": windows,
              "questions": evaluation.questions, "device": device_name(), "machine": machine(), "rows": rows}
    _print(result)
    if out is not None:
        write_json(out, result)
    return result


def measure(model: PreTrainedModel, name: str, entries: int, evaluation: Evaluation) -> dict:
    """Return perplexity, exact match, bytes and times of one mechanism, as JSON values."""
    mechanism = MECHANISMS[name]
    options = mechanism.defaults
    if fits(name):
        options = fitted_options(model.config, name, entries, evaluation.length - DECODED)
    torch.manual_seed(0)
    swap_attention(model, name, **options)
    try:
        found = evaluation.measure(model)
        found |= times(model, name, evaluation.stream[: evaluation.length].to(model.device))
    finally:
        swap_attention(model, "full")
    return {"title": mechanism.title, "options": options, "causal_scope": mechanism.causal_scope(**options),
            "needs_training": mechanism.needs_training, **found}


def times(model: PreTrainedModel, name: str, ids: torch.Tensor) -> dict:
    """Return the cache's bytes after the prompt, and medians of the seconds of a prefill and of a decoded token.

    A mechanism without a cache recomputes: it has a prefill only.
    """
    cached = name in CACHES or name == "full"
    prompt, rest = ids[:-DECODED], ids[-DECODED:]
    written = [write(model, new_cache(model, name) if cached else None, prompt, rest) for _ in range(ROUNDS)]
    decodes = [seconds for one in written for seconds in one.tokens]
    return {"cache_bytes": written[-1].nbytes, "prefill_seconds": statistics.median(one.first for one in written),
            "decode_seconds": statistics.median(decodes) if decodes else None}


def _check_length(length: int) -> None:
    if length < DECODED + LEAST:
        raise ValueError(f"length: got {length}, wanted at least {DECODED + LEAST}: {DECODED} tokens are decoded after "
                         "a prompt; give a longer one")


def _print(result: dict) -> None:
    rows = []
    for row in result["rows"].values():
        matches = row.get("exact_match", {})
        cells = [f"{100 * matches[str(position)]['value']:.0f} %" if matches else "-" for position in POSITIONS]
        size, decode = row["cache_bytes"], row["decode_seconds"]
        rows.append([row["title"], f"{Estimate(**row['perplexity']).value:.1f}", *cells,
                     "all" if size is None else f"{size / 1024:.0f} KiB", f"{1e3 * row['prefill_seconds']:.0f} ms",
                     "-" if decode is None else f"{1e3 * decode:.1f} ms"])
    columns = ["mechanism", "perplexity", *(f"at {position:.0%}" for position in POSITIONS), "cache", "prefill",
               "a token"]
    print_table(f"{result['model']}, {result['length']} tokens, {result['entries']} entries a KV head, "
                f"{result['device']}", columns, rows)
