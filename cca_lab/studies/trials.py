"""Finetuning trials: many short training runs of one model, measured alike, in a file that a later call continues."""

import copy
import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from cca_lab.models import disable_attention_dropout, load_pretrained, swap_attention
from cca_lab.models.checkpoints import quiet
from cca_lab.models.evaluate import bootstrap_mean
from cca_lab.models.finetune import Finetuner
from cca_lab.models.recipe import Diverged, FinetuneConfig
from cca_lab.reporting import command_line, device, machine, write_json
from cca_lab.studies.evaluate import make_evaluation
from cca_lab.studies.finetune import mixture_for, run_with_progress
from cca_lab.tasks.corpus import load_corpus
from cca_lab.tasks.reading import Reading

LAST = 20  # last steps over which the training losses are averaged
CURVE = 10  # steps averaged in a point of the training curve


@dataclass(frozen=True)
class Trial:
    """One training run and its measurement.

    Attributes:
        attention: a mechanism.
        options: options of the mechanism.
        config: hyperparameters; the strategy "none" measures the swapped model.
        reading: the training data.
        lengths: other lengths at which exact match is measured, too.
    """

    attention: str
    options: dict = field(default_factory=dict)
    config: FinetuneConfig = FinetuneConfig(strategy="none")
    reading: Reading = Reading()
    lengths: tuple[int, ...] = ()

    def as_json(self) -> dict:
        """Return the trial as JSON values; without `lengths` where there are none."""
        found = json.loads(json.dumps(asdict(self)))
        return found if self.lengths else {key: value for key, value in found.items() if key != "lengths"}


class Study:
    """One base model, and the measurements of its trials.

    Args:
        model_name: a folder or a hub name.
        out: the JSON file of the measurements; trials that it holds already are not run again.
        windows, questions: number of windows and questions of every measurement.
        length: tokens per sequence and per context; None for the model's context, at most 1024.
        text: as in `load_corpus`.

    Raises:
        ValueError: if the file holds a study of another model or with other settings, or is not a study.
    """

    def __init__(self, model_name: str, out: Path, *, windows: int = 64, questions: int = 64,
                 length: int | None = None, text: str | None = None) -> None:
        quiet()
        self.out, earlier, self.corpus = out, read_study(out), load_corpus(text)
        self.base, self.tokenizer = load_pretrained(model_name, "full")
        disable_attention_dropout(self.base).to(device())
        self.evaluation = make_evaluation(self.base, self.tokenizer, self.corpus, length=length, windows=windows,
                                          questions=questions)
        self.base_losses = self.evaluation.losses(self.base)
        settings = {"model": Path(model_name).name, "weights": fingerprint(self.base),
                    "length": self.evaluation.length, "windows": windows, "questions": self.evaluation.questions,
                    "corpus": {"name": self.corpus.name, "fingerprint": self.corpus.fingerprint}}
        self.result = {**settings, "machine": machine(), "trials": {}}
        if earlier is not None:
            self.result = earlier
            differing = [key for key, value in settings.items() if self.result.get(key) != value]
            if differing:
                raise ValueError(f"out: {out} holds a study with another {', '.join(differing)}; name another file, "
                                 "or remove it")

    def run(self, trials: Mapping[str, Trial]) -> dict[str, dict]:
        """Run the trials missing in the file, and write it after each; return the rows of all trials.

        Raises:
            ValueError: before any training, if the file holds a trial of the same name with other settings.
            Diverged: if a training run diverged.
        """
        rows = self.result["trials"]
        wanted = {name: trial.as_json() for name, trial in trials.items()}
        for name, asked in wanted.items():
            if rows.get(name, {}).get("trial", asked) != asked:
                raise ValueError(f"out: {self.out} holds {name!r} trained otherwise; give the same options, or name "
                                 "another file")
        for number, (name, trial) in enumerate(trials.items(), start=1):
            if name in rows:
                continue
            found = self.measure(trial, f"{number}/{len(trials)} {name}")
            if not math.isfinite(found["perplexity"]["value"]):
                raise Diverged(f"{name}: the perplexity is {found['perplexity']['value']}; lower the learning rate")
            rows[name] = {"trial": wanted[name], "command": command_line(), "machine": machine(), **found}
            write_json(self.out, self.result)
        return {name: rows[name] for name in trials}

    def train(self, trial: Trial, title: str) -> tuple[torch.nn.Module, list[dict]]:
        """Return a copy of the base model, swapped and trained, and the records of its steps."""
        torch.manual_seed(trial.reading.seed)  # for the weights that a mechanism adds
        model = swap_attention(copy.deepcopy(self.base), trial.attention, **trial.options)
        if trial.config.strategy == "none":
            return model, []
        mixture, config = mixture_for(trial.reading, model, self.tokenizer, self.corpus), trial.config
        if config.precision == "auto" and device().type == "cpu":  # a timing would choose, for each trial anew
            config = replace(config, precision="float32")
        return model, run_with_progress(Finetuner(model, mixture, config), title)

    def measure(self, trial: Trial, title: str) -> dict:
        """Run a trial, and return its measurements as JSON values."""
        start = time.process_time()
        model, records = self.train(trial, title)
        cpu = time.process_time() - start
        losses = self.evaluation.losses(model)
        found = self.evaluation.measure(model, losses)
        found |= {"by_length": self.evaluation.by_length(model, trial.lengths)} if trial.lengths else {}
        found["perplexity_ratio"] = asdict(self._ratio(losses))
        found["losses"] = losses.round(5).tolist()
        if trial.attention != "full" and records:  # the same weights show how much of the loss is due to the mechanism
            found["read_in_full"] = asdict(self._ratio(self.evaluation.losses(swap_attention(model, "full"))))
        if records:
            found["seconds"] = round(records[-1]["seconds"], 1)
            found["cpu_seconds"] = round(cpu, 1)  # of all threads, the loading of the data included
            found["last_losses"] = {}
            for kind in ("text_loss", "task_loss"):
                seen = [record[kind] for record in records[-LAST:] if record.get(kind) is not None]
                found["last_losses"] |= {kind: float(np.mean(seen))} if seen else {}
            found["curve"] = _curve([record["text_loss"] for record in records])
        return found

    def _ratio(self, losses: np.ndarray):
        """Return the perplexity over the base model's, paired window by window."""
        return bootstrap_mean(losses - self.base_losses, np.exp)


def _curve(losses: Sequence[float | None]) -> list[float]:
    """Return the mean of each `CURVE` steps' text losses, nats per token; empty without text."""
    if None in losses:
        return []
    parts = [losses[start : start + CURVE] for start in range(0, len(losses), CURVE)]
    return [round(float(np.mean(part)), 4) for part in parts]


def read_study(out: Path) -> dict | None:
    """Return the content of a study's file, or None if there is no file.

    Raises:
        ValueError: if the file is not a study.
    """
    if not out.exists():
        return None
    try:
        found = json.loads(out.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("trials"), dict):
        raise ValueError(f"out: {out} holds something else than a study; name another file, or remove it")
    return found


def fingerprint(model: torch.nn.Module) -> str:
    """Return the first 16 hex digits of the SHA-256 over a model's weights."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
