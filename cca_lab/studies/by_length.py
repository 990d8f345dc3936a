"""`cca-lab experiments lengths`: the loss of a model by the length of the context, with every mechanism."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.files import check_file
from cca_lab.mechanisms import MECHANISMS, mechanism_of
from cca_lab.mechanisms.caches import LEAST, fits, fitted
from cca_lab.models import attention_of, load_pretrained, swap_attention
from cca_lab.models.checkpoints import quiet
from cca_lab.models.evaluate import bootstrap_mean, window_starts
from cca_lab.models.pretrain import tokenize
from cca_lab.reporting import command_line, device, machine, print_table, training_progress, write_json
from cca_lab.settings import LARGEST_WRITTEN, check_sizes
from cca_lab.studies.evaluate import context_of
from cca_lab.tasks.corpus import load_corpus

FIRST = 256  # tokens of the first bucket; each next one is as long as all before it
HIDDEN_AT_ONCE = 512  # rows of logits in memory at a time


def lengths(model_name: str, out: Path, *, length: int = 4096, windows: int = 4, entries: int = 512,
            attentions: Sequence[str] = (), trained: Mapping[str, str] | None = None, text: str | None = None) -> dict:
    """Measure the loss by context length with each mechanism swapped in untrained, and of finetuned models.

    Every token of a window is predicted from all tokens before it, so the tokens from 1024 to 2048 tell the
    perplexity at contexts of that length. A mechanism whose rows depend on later tokens (its causal scope says so)
    has no perplexity in that sense; its number is marked.

    Args:
        model_name: a folder or a hub name.
        out: the JSON file; what it holds already is not measured again.
        length: tokens of a window.
        windows: windows of held-out text.
        entries: the budget of keys and values per KV head, for mechanisms whose cache can be fitted to it.
        attentions: mechanisms; all that run at inference if empty.
        trained: folders of finetuned models by name, measured with the attention they were saved with.
        text: as in `load_corpus`.

    Returns:
        What is written.

    Raises:
        ValueError: for a number out of range, a trained model with a mechanism's name, or a file with other settings.
    """
    quiet()
    check_sizes(windows=(windows, 1, 2**16), entries=(entries, LEAST, LARGEST_WRITTEN))
    check_file(out)
    if taken := [name for name in trained or {} if name in MECHANISMS]:
        raise ValueError(f"trained: got {taken[0]!r}, the name of a mechanism that is not trained; name the model "
                         f"otherwise, such as {taken[0]}-finetuned")
    model, tokenizer = load_pretrained(model_name, "full")
    check_sizes(length=(length, FIRST, context_of(model)))
    corpus = load_corpus(text)
    stream = tokenize(corpus.validation, tokenizer)
    starts = window_starts(len(stream), length, min(windows, len(stream) // length))
    ids = stream[starts[:, None] + torch.arange(length)].to(device())  # (windows, length)
    settings = {"model": Path(model_name).name, "length": length, "windows": len(ids), "entries": entries,
                "buckets": buckets(length), "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint}}
    result = _earlier(out, settings) or {**settings, "command": command_line(), "rows": {}}
    names = attentions or ["full", *(name for name, cls in MECHANISMS.items()
                                     if name != "full" and not cls.training_only)]
    todo = [(name, model_name) for name in names] + list((trained or {}).items())
    with training_progress(f"lengths, {settings['model']}", len(todo)) as report:
        for done, (name, source) in enumerate(todo):
            report(done, name)
            if name in result["rows"]:
                continue
            swapped = source == model_name
            if not swapped:
                model, _ = load_pretrained(source)
            else:
                torch.manual_seed(0)  # of a mechanism's own weights
                options = fitted(model.config, name, entries, length).options() if fits(name) else {}
                swap_attention(model, mechanism_of(name, options))
            result["rows"][name] = {"swapped": swapped, "machine": machine(), **measure(model.to(device()), ids)}
            write_json(out, result)
        report(len(todo), "")
    show(result)
    return result


def buckets(length: int) -> list[int]:
    """Return the first token of each bucket and, last, the length: 0, 256, 512, 1024, ..."""
    edges = [0, FIRST]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1], length))
    return edges


def measure(model: PreTrainedModel, ids: Tensor) -> dict[str, Any]:
    """Return the mean loss of each bucket and window, and its perplexity, as JSON values: ids (windows, length)."""
    edges, mechanism = buckets(ids.shape[1]), attention_of(model)
    found = np.stack([token_losses(model, row) for row in ids])  # (windows, length - 1)
    # token t is predicted from t tokens, and stands at index t - 1
    means = np.stack([found[:, max(0, low - 1) : high - 1].mean(1) for low, high in pairwise(edges)], axis=1)
    return {"attention": mechanism.name, "options": mechanism.options(), "causal_scope": mechanism.causal_scope,
            "losses": means.round(5).tolist(),
            "perplexity": [asdict(bootstrap_mean(column, np.exp)) for column in means.T]}


@torch.no_grad()
def token_losses(model: PreTrainedModel, ids: Tensor) -> np.ndarray:
    """Return the loss of every token after the first, (L - 1,) in nats; logits are never all in memory."""
    model.eval()
    hidden = model.base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0, :-1]  # (L-1, width)
    head = model.get_output_embeddings()
    parts = [F.cross_entropy(head(some).float(), targets, reduction="none")
             for some, targets in zip(hidden.split(HIDDEN_AT_ONCE), ids[1:].split(HIDDEN_AT_ONCE), strict=True)]
    return torch.cat(parts).double().cpu().numpy()


def _earlier(out: Path, settings: dict) -> dict | None:
    if not out.exists():
        return None
    found = json.loads(out.read_text(encoding="utf-8"))
    differing = [key for key, value in settings.items() if found.get(key) != value]
    if differing:
        raise ValueError(f"out: {out} holds a measurement with another {', '.join(differing)}; name another file")
    return found


def show(result: dict) -> None:
    """Print perplexity by context length, a row for each mechanism."""
    edges = result["buckets"]
    rows = [[name, *(f"{found['value']:.2f}" for found in row["perplexity"])] for name, row in result["rows"].items()]
    print_table(f"{result['model']}: perplexity of the tokens from .. to, {result['windows']} windows",
                ["attention", *(f"{low}-{high}" for low, high in pairwise(edges))], rows)
