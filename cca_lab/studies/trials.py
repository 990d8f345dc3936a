"""Finetuning trials: short training runs of one model, measured alike, and means over seeds."""

import copy
import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NotRequired, TypedDict

import numpy as np
import torch
from transformers import PreTrainedModel

from cca_lab.models import disable_attention_dropout, swap_attention
from cca_lab.models.evaluate import Estimate, bootstrap_mean
from cca_lab.models.finetune import Finetuner
from cca_lab.models.recipe import Diverged, FinetuneConfig
from cca_lab.reporting import command_line, device, machine, write_json
from cca_lab.settings import REQUIRED, option
from cca_lab.studies.evaluate import Evaluation, make_evaluation
from cca_lab.studies.finetune import mixture_for, run_with_progress
from cca_lab.studies.study import Interval, ModelStudy, continued
from cca_lab.studies.summary import print_recovery
from cca_lab.tasks.reading import Reading

LAST = 20  # last steps over which the training losses are averaged
CURVE = 10  # steps averaged in a point of the training curve


class TrialRow(TypedDict):
    """What a trial measured, as far as it is shown."""

    perplexity: Interval
    perplexity_ratio: Interval
    exact_match: NotRequired[dict[str, Any]]
    varied_match: NotRequired[dict[str, Any]]
    trial: NotRequired[dict[str, Any]]
    machine: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class Trial:
    """One training run and its measurement."""

    attention: str
    options: dict = field(default_factory=dict)
    config: FinetuneConfig = FinetuneConfig(strategy="none")  # "none" measures the swap
    reading: Reading = Reading()
    lengths: tuple[int, ...] = ()  # other lengths at which exact match is measured

    def as_json(self) -> dict:
        """Return the trial as JSON values; without `lengths` where there are none."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not self.lengths:
            del values["lengths"]
        return values


@dataclass(frozen=True, kw_only=True)
class Trials(ModelStudy):
    """One base model, and the measurements of its trials in `out`; none is run again."""

    row: ClassVar[Any] = TrialRow
    out: Path | None = option(REQUIRED, "JSON file to write; what it holds is not measured again.",
                              output="file")
    windows: int = 64
    questions: int = 64  # for each place of the answer
    length: int | None = None  # tokens of a context; None for the model's, at most 1024

    @property
    def tokens(self) -> int | None:
        """Tokens per context."""
        return self.length

    @cached_property
    def evaluation(self) -> Evaluation:
        """What every trial is measured on."""
        base, tokenizer = self.loaded
        disable_attention_dropout(base)
        return make_evaluation(base, tokenizer, self.corpus, length=self.tokens,
                               windows=self.windows, questions=self.questions)

    @cached_property
    def base_losses(self) -> np.ndarray:
        """The base's loss of each window, (windows,)."""
        return self.evaluation.losses(self.loaded[0])

    @cached_property
    def held(self) -> dict[str, Any]:
        """The content of the file: the settings, and the row of each trial."""
        settings = {"model": self.name, "weights": fingerprint(self.loaded[0]),
                    "length": self.evaluation.length, "windows": self.windows,
                    "questions": self.evaluation.questions, "corpus": self.about_text()}
        held = continued(self.file, settings, row=self.row)
        return held or {**settings, "machine": machine(), "trials": {}}

    def trials(self) -> dict[str, Trial]:
        """Return what is trained and measured, by name."""
        raise NotImplementedError

    def result(self) -> dict[str, Any]:
        """Run the trials missing in the file; return its content."""
        self.run_trials(self.trials())
        return self.held

    def show(self, result: Mapping[str, Any]) -> None:
        """Print the trials that were asked for, averaged over seeds."""
        rows = {name: result["trials"][name] for name in self.trials()}
        print_recovery(rows, f"{result['model']}, {result['length']} tokens")

    def run_trials(self, trials: Mapping[str, Trial]) -> dict[str, dict]:
        """Run the trials missing in the file, and write it after each; return all rows."""
        rows = self.held["trials"]
        wanted = {name: trial.as_json() for name, trial in trials.items()}
        for name, asked in wanted.items():
            if rows.get(name, {}).get("trial", asked) != asked:
                raise ValueError(f"out: {self.out} holds {name!r} trained otherwise; give the same "
                                 "options, or name another file")
        if wanted.keys() - rows.keys():
            _ = self.base_losses  # of the untrained base
        for number, (name, trial) in enumerate(trials.items(), start=1):
            if name in rows:
                continue
            row = self.measure(trial, f"{number}/{len(trials)} {name}")
            if not math.isfinite(value := row["perplexity"]["value"]):
                raise Diverged(f"{name}: the perplexity is {value}; lower the learning rate")
            rows[name] = {"trial": wanted[name], "command": command_line(), "machine": machine(),
                          **row}
            if self.file is not None:
                write_json(self.file, self.held)
        return {name: rows[name] for name in trials}

    def train(self, trial: Trial, title: str) -> tuple[PreTrainedModel, list[dict[str, Any]]]:
        """Return a copy of the base model, swapped and trained, and the records of its steps."""
        torch.manual_seed(trial.reading.seed)  # for the weights that a mechanism adds
        model = swap_attention(copy.deepcopy(self.loaded[0]), trial.attention, **trial.options)
        if trial.config.strategy == "none":
            return model, []
        mixture = mixture_for(trial.reading, model, self.loaded[1], self.corpus)
        config = trial.config
        if config.precision == "auto" and device().type == "cpu":
            config = replace(config, precision="float32")  # a timing would choose for each anew
        return model, run_with_progress(Finetuner(model, mixture, config), title)

    def measure(self, trial: Trial, title: str) -> dict:
        """Run a trial, and return its measurements as JSON values."""
        start = time.process_time()
        model, records = self.train(trial, title)
        cpu = time.process_time() - start
        losses = self.evaluation.losses(model)
        row = self.evaluation.measure(model, losses)
        if trial.lengths:
            row["by_length"] = self.evaluation.by_length(model, trial.lengths)
        row["perplexity_ratio"] = asdict(self._ratio(losses))
        row["losses"] = losses.round(5).tolist()
        if not records:
            return row
        if trial.attention != "full":  # how much of the loss is the mechanism's
            swap_attention(model, "full")
            row["read_in_full"] = asdict(self._ratio(self.evaluation.losses(model)))
        row["seconds"] = round(records[-1]["seconds"], 1)
        row["cpu_seconds"] = round(cpu, 1)  # of all threads, the loading of the data included
        row["last_losses"] = {}
        for kind in ("text_loss", "task_loss"):
            seen = [record[kind] for record in records[-LAST:] if record.get(kind) is not None]
            row["last_losses"] |= {kind: float(np.mean(seen))} if seen else {}
        texts = [record["text_loss"] for record in records]  # nats per token; None without text
        row["curve"] = [round(float(np.mean(texts[start : start + CURVE])), 4)
                        for start in range(0, len(texts), CURVE)] if None not in texts else []
        return row

    def _ratio(self, losses: np.ndarray) -> Estimate:
        """Return the perplexity over the base model's, paired window by window."""
        return bootstrap_mean(losses - self.base_losses, np.exp)


def fingerprint(model: torch.nn.Module) -> str:
    """Return the first 16 hex digits of the SHA-256 over a model's weights."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
