"""`cca-lab convert`: a pretrained OPT in GPT-2's layout, with its card."""

import json
from pathlib import Path

import torch
from transformers.utils import logging

from cca_lab.models import load_pretrained, save_pretrained
from cca_lab.models.convert import gpt2_from_opt

CARD = """\
# {name}

A GPT-2 that holds the weights of [`{source}`](../{source}/README.md) in GPT-2's layout: `cca-lab convert --model
data/models/{source} --out data/models/{name}`. Both compute the same logits (a test compares them), so everything that
the card of `{source}` says about reading, retrieving and training holds here too. The activation is OPT's ReLU.

Why it was not trained by itself: runs of `cca-lab pretrain --family gpt2` found retrieval over the whole context later
than OPT's, and what they then gained in exact match they lost in perplexity; none met both targets in the time there
was. With the same activation and initialisation the two families are the same function, as this file shows.
"""


def convert(source: str, out: Path) -> None:
    """Write the GPT-2 of an OPT that `cca-lab pretrain` made.

    Raises:
        ValueError: if the model is no OPT, or `out` is there already.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if out.exists():
        raise ValueError(f"out: {out} is there already; choose another folder or remove it")
    opt, tokenizer = load_pretrained(source, "full", dtype=torch.float16)
    if opt.config.model_type != "opt":
        raise ValueError(f"model: got a {opt.config.model_type}, wanted an OPT")
    save_pretrained(gpt2_from_opt(opt), out, tokenizer)
    (out / "README.md").write_text(CARD.format(name=out.name, source=Path(source).name), encoding="utf-8")
    record = Path(source) / "pretraining.json"
    if record.is_file():
        told = json.loads(record.read_text(encoding="utf-8"))
        told |= {"converted_from": Path(source).name, "curve": [], "before": None}
        (out / "pretraining.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
