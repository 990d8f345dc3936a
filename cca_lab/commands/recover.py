"""`cca-lab recover`: what the swap to CCA costs a model, and what finetuning brings back."""

import copy
import json
from dataclasses import asdict
from pathlib import Path

import torch
from transformers.utils import logging

from cca_lab.bench.report import device, device_name, write_json
from cca_lab.commands.evaluate import make_evaluation, print_evaluations
from cca_lab.commands.finetune import Reading, run_with_progress
from cca_lab.models import disable_attention_dropout, load_pretrained, swap_attention
from cca_lab.models.finetune import FinetuneConfig, Finetuner
from cca_lab.tasks.corpus import load_corpus


def recover(model_name: str, options: dict, steps: int, rate: float, reading: Reading, out: Path, *,
            text: str | None = None) -> dict:
    """Measure a model with full attention, swapped to CCA, and finetuned (all weights; W^Q, W^K, W^V).

    The base model finetuned with full attention for as many steps stands beside
    them: training by itself changes the numbers, and CCA is judged against that.

    Args:
        model_name: a folder or a hub name.
        options: group and window of CCA.
        steps: of every finetuning.
        rate: learning rate of every finetuning.
        reading: what is read; the same for every finetuning.
        out: the JSON file to write.
        text: as in `load_corpus`.

    Returns:
        What was written: settings, and one measurement a row.

    Raises:
        ValueError: for no steps.
    """
    if steps < 1:
        raise ValueError(f"steps: got {steps}, wanted 1 or more; `cca-lab evaluate` measures without finetuning")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    corpus = load_corpus(text)
    base, tokenizer = load_pretrained(model_name, "full")
    disable_attention_dropout(base).to(device())
    evaluation = make_evaluation(base, tokenizer, corpus, length=reading.length)
    mixture = reading.mixture(base, tokenizer, corpus)
    rows: dict[str, dict] = {}

    def measure(name: str, attention: str, strategy: str) -> None:
        torch.manual_seed(reading.seed)
        model = copy.deepcopy(base)
        swap_attention(model, attention, **(options if attention == "cca" else {}))
        config = FinetuneConfig(steps=steps, learning_rate=rate, strategy=strategy)
        seconds = 0.0
        if strategy != "none":
            records = run_with_progress(Finetuner(model, mixture, config), name)
            seconds = records[-1]["seconds"]
        rows[name] = evaluation.measure(model) | {"attention": attention, "strategy": strategy,
                                                  "seconds": round(seconds, 1)}

    measure("full attention", "full", "none")
    measure("full attention, finetuned", "full", "full")
    measure("CCA, swapped", "cca", "none")
    measure("CCA, finetuned (all weights)", "cca", "full")
    measure("CCA, finetuned (W^Q, W^K, W^V)", "cca", "qkv")
    result = {"model": Path(model_name).name, "options": options, "steps": steps, "learning_rate": rate,
              "reading": asdict(reading), "length": evaluation.length, "questions": evaluation.questions,
              "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
              "device": device_name(), "rows": rows}
    write_json(out, result)
    print_evaluations(rows, f"{result['model']}, {evaluation.length} tokens, {json.dumps(options)}")
    return result
