"""Checkpoints of a10, read without trusting them, and their losses on held-out rows.

Only bytes are read: the config, as JSON, names the base, and the weights are put into a model that
is built here, with the attention that the task demands.
"""

import copy
import hashlib
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe
from cca_lab.course.tasks import GraderError, Mistake

GROUP, WINDOW, LENGTH, ROWS = 12, 48, 512, 24  # ROWS of each kind
KINDS = ("text", "answers")
BASES = {"gpt2": "gpt2-mini", "opt": "opt-mini"}  # by the "model_type" of config.json
# Trained models of the package, by their base.
SHIPPED = {"gpt2-mini": ("gpt2-mini-cca",), "opt-mini": ()}
# Cosine of what training changed, median over tensors; another run of one recipe on the same data
# has 0.7.
ALIKE = 0.85
CHOICE, WEIGHTS = "cca_lab_attention", "model.safetensors"
LARGEST = {WEIGHTS: 8 * 2**20}
SMALL = 2**16  # bytes of a JSON file
LOCK = threading.RLock()
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Checkpoint:
    """Float32 weights, by name, that fit "gpt2-mini" or "opt-mini"; the digest is of their file."""

    base: str
    digest: str
    weights: dict[str, Tensor] = field(compare=False, repr=False)


@contextmanager
def ours() -> Iterator[None]:
    """Blame the grader's machine for errors within the context; one thread at a time."""
    with LOCK:
        try:
            yield
        except Exception as error:
            raise GraderError(f"the base models cannot be measured here: {type(error).__name__}: "
                              f"{error}") from error


def content(folder: Path, name: str) -> bytes:
    """Return a file of a folder; it must be a plain file of reasonable size."""
    path, most = folder / name, LARGEST.get(name, SMALL)
    if folder.is_symlink() or path.is_symlink():
        raise Mistake(f"{name} or its folder is a link, wanted the files themselves")
    if not path.is_file():
        pickles = " (pickles, such as pytorch_model.bin, are not read)" if name == WEIGHTS else ""
        raise Mistake(f"there is no {name} in {folder.name or 'the folder'}{pickles}: write the "
                      "folder with save_pretrained of cca_lab")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise Mistake(f"{name} has more than {most} bytes, wanted at most that many: nothing but "
                      "one mini model")
    return data


def parsed(data: bytes, name: str) -> dict[str, Any]:
    """Return a JSON object from bytes, or say where it is none."""
    def refuse(word: str) -> float:
        raise Mistake(f"{name} holds {word}, which is no number: did the training diverge?")

    try:
        content_of = json.loads(data.decode("utf-8"), parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise Mistake(f"{name} is no JSON: {error.msg} in line {error.lineno}, column "
                      f"{error.colno}") from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise Mistake(f"{name} is no JSON ({type(error).__name__}): write it with "
                      "json.dump") from None
    if not isinstance(content_of, dict):
        raise Mistake(f"{name} holds {describe(content_of)}, wanted an object, {{...}}")
    return content_of


def read(folder: Path) -> Checkpoint:
    """Return the checkpoint in a folder, if it is one of ours that its author trained."""
    if folder.is_symlink() or not folder.is_dir():
        raise Mistake(f"{folder.name} is no folder, wanted the one that save_pretrained wrote")
    config = parsed(content(folder, "config.json"), "config.json")
    kind = config.get("model_type")
    base = BASES.get(kind) if isinstance(kind, str) else None
    if base is None:
        raise Mistake(f"config.json says model_type {describe(kind)}, wanted 'gpt2' (gpt2-mini) or "
                      "'opt' (opt-mini)")
    wanted = {"name": "cca", "group": GROUP, "window": WINDOW}
    if config.get(CHOICE) != wanted:
        raise Mistake(f"config.json says {CHOICE}: {describe(config.get(CHOICE))}, wanted "
                      f"{wanted}: swap before you train, and save with cca_lab.save_pretrained")
    data = content(folder, WEIGHTS)
    weights = fitting(data, base)
    _check_own(weights, base)
    return Checkpoint(base, hashlib.sha256(data).hexdigest(), weights)


def fitting(data: bytes, base: str) -> dict[str, Tensor]:
    """Return the weights in bytes of safetensors, float32, if they fit a base model."""
    from safetensors.torch import load

    try:
        weights = load(data)
    except Exception as error:  # safetensors raises its own, and whatever a broken header leads to
        raise Mistake(f"{WEIGHTS} cannot be read ({type(error).__name__}): save the model "
                      "again") from None
    wanted = stored(base)
    if set(weights) != set(wanted):
        name = min(set(weights) ^ set(wanted))
        raise Mistake(f"{WEIGHTS} {'lacks' if name in wanted else 'holds'} {describe(name)}, "
                      f"unlike {base}: is it another model, or was it not saved by "
                      "save_pretrained?")
    for name, tensor in weights.items():
        if tensor.shape != wanted[name].shape or tensor.dtype not in FLOATS:
            raise Mistake(f"{name} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}, "
                          f"wanted {tuple(wanted[name].shape)} in float32, float16 or bfloat16")
        if not tensor.isfinite().all():
            raise Mistake(f"{name} holds numbers that are not finite: the training diverged, lower "
                          "its learning rate")
    return {name: tensor.float() for name, tensor in weights.items()}


def _check_own(weights: dict[str, Tensor], base: str) -> None:
    """Refuse weights that nobody trained, or that the package ships."""
    start = stored(base)
    if all(torch.equal(tensor, start[name]) for name, tensor in weights.items()):
        raise Mistake(f"these are the weights of {base} as it is shipped: nothing was trained. Did "
                      "you save the model that was finetuned?")
    for other in SHIPPED[base]:
        cosines = [torch.cosine_similarity((tensor - start[name]).flatten(),
                                           (stored(other)[name] - start[name])
                                           .flatten(), dim=0) for name, tensor in weights.items()]
        if torch.stack(cosines).median() > ALIKE:
            raise Mistake(f"these are the weights of {other}, which the package ships, or nearly: "
                          f"train {base} yourself")


@lru_cache
def stored(name: str) -> dict[str, Tensor]:
    """Return the weights of a shipped model as its file has them, float32."""
    with ours():
        from safetensors.torch import load_file

        from cca_lab.files import models_folder

        return {key: tensor.float()
                for key, tensor in load_file(models_folder() / name / WEIGHTS).items()}


@lru_cache
def _shipped(name: str) -> Any:
    """Return a shipped model with full attention, and its tokenizer."""
    with ours():
        from cca_lab.files import models_folder
        from cca_lab.models import load_pretrained
        from cca_lab.models.checkpoints import quiet

        quiet()
        return load_pretrained(models_folder() / name, "full")


@lru_cache
def held_out() -> tuple[Tensor, tuple[Any, ...], str]:
    """Return the held-out text's tokens, both kinds of questions, the corpus's fingerprint."""
    tokenizer = _shipped("gpt2-mini")[1]
    with ours():
        from cca_lab.models.pretrain import tokenize
        from cca_lab.tasks.corpus import load_corpus
        from cca_lab.tasks.multi_document_qa import MultiDocumentQA, VariedDocumentQA

        corpus = load_corpus()
        stream = tokenize(corpus.validation, tokenizer)
        return stream, (MultiDocumentQA(tokenizer), VariedDocumentQA(tokenizer)), corpus.fingerprint


@lru_cache(maxsize=8)
def rows(seed: int) -> tuple[Tensor, Tensor]:
    """Return input_ids (2 ROWS, LENGTH), text first, and the mask of the tokens to predict."""
    stream, tasks, _ = held_out()
    with ours():
        from cca_lab.tasks.mixture import Mixture

        return Mixture(stream, tasks, LENGTH, 2 * ROWS, 0.5, seed).batch(0)


@lru_cache(maxsize=48)  # few, for a checkpoint is kept with its losses
@torch.no_grad()
def loss(model: str | Checkpoint, kind: str, seed: int, swapped: bool = True) -> float:
    """Return the mean loss of a base (by name) or a checkpoint on held-out rows, nats a token."""
    base = model if isinstance(model, str) else model.base
    both = copy.deepcopy(_shipped(base)[0])
    with ours():
        from cca_lab.models import swap_attention
        from cca_lab.models.pretrain import token_losses

        if isinstance(model, Checkpoint):
            both.load_state_dict(model.weights, strict=False)  # the tied head is not in the file
        if swapped:
            swap_attention(both, "cca", group=GROUP, window=WINDOW)
    mine = slice(0, ROWS) if kind == "text" else slice(ROWS, 2 * ROWS)
    mean = token_losses(both, *(part[mine] for part in rows(seed)))[0].double().mean().item()
    if not math.isfinite(mean):
        raise Mistake(f"the loss on {kind} is not finite: the weights are far too large")
    return mean
