"""`cca-lab compare`: every mechanism on one model, without training, at an equal budget of keys and values."""

import statistics
from pathlib import Path

import torch
from transformers import PreTrainedModel

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.caches import CACHES, LEAST, fits, fitted
from cca_lab.models import load_pretrained, swap_attention
from cca_lab.models.checkpoints import quiet
from cca_lab.models.evaluate import POSITIONS, Estimate
from cca_lab.reporting import device, device_name, machine, print_table, training_progress, write_json
from cca_lab.settings import LARGEST_WRITTEN, check_sizes
from cca_lab.studies.benchmarks.model import new_cache, write
from cca_lab.studies.evaluate import Evaluation, make_evaluation
from cca_lab.tasks.corpus import load_corpus

DECODED = 16  # tokens that are timed one by one
ROUNDS = 3


def compare(model_name: str, *, entries: int = 96, length: int | None = None, windows: int = 40, questions: int = 20,
            text: str | None = None, out: Path | None = None) -> dict:
    """Measure every mechanism that runs at inference; print the table, and write it if requested.

    Mechanisms with a cache keep at most `entries` keys and values per KV head after the prompt, which is
    `length` tokens minus the 16 that are decoded and timed. Those without a cache (MInference's) keep all and
    use their defaults; LongLoRA uses full attention at inference and has no row. A mechanism's own weights keep
    their random initialisation (seed 0).

    Args:
        model_name: a folder or a hub name.
        entries: the budget, in entries per KV head.
        length: tokens per text and per context; by default the model's context, at most 1024.
        windows: windows of held-out text for the perplexity.
        questions: questions per position of the answer, rounded up to the same number at each offset.
        text: as in `load_corpus`.
        out: JSON file to write.

    Returns:
        What is written: settings, and one measurement per mechanism.

    Raises:
        ValueError: for a length that leaves no prompt before the decoded tokens, or exceeds the model's context.
    """
    check_sizes(entries=(entries, LEAST, LARGEST_WRITTEN))
    quiet()
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
    mechanism = MECHANISMS[name]()
    if fits(name):
        mechanism = fitted(model.config, name, entries, evaluation.length - DECODED)
    torch.manual_seed(0)
    swap_attention(model, mechanism)
    try:
        found = evaluation.measure(model)
        found |= times(model, name, evaluation.stream[: evaluation.length].to(model.device))
    finally:
        swap_attention(model, "full")
    return {"title": mechanism.title, "options": mechanism.options(), "causal_scope": mechanism.causal_scope,
            "needs_training": mechanism.needs_training, **found}


def times(model: PreTrainedModel, name: str, ids: torch.Tensor) -> dict:
    """Return the bytes of the cache after the prompt, and the median seconds of a prefill and of a decoded token.

    A mechanism without a cache recomputes every token, so only its prefill is timed.
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
