"""Finetuning trials: short training runs of one model, measured alike, and means over seeds."""

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cca_lab import models
from cca_lab.files import check_file, held
from cca_lab.models.recipe import Diverged, FinetuneConfig
from cca_lab.options import Count, Natural
from cca_lab.reporting import as_json, command_line, machine
from cca_lab.studies.evaluate import Evaluation, make_evaluation
from cca_lab.studies.finetune import mixture_for, run_with_progress
from cca_lab.studies.study import TextStudy, continued, measure_missing
from cca_lab.studies.summary import table
from cca_lab.tasks.reading import Reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from cca_lab.models.evaluate import Estimate


@dataclass(frozen=True)
class Trial:
    """One training run and its measurement."""

    attention: str
    options: dict[str, Any] = field(default_factory=dict)
    config: FinetuneConfig = FinetuneConfig(strategy="none")  # "none" measures the swap
    reading: Reading = Reading()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Trial":
        """Return the trial of a file; settings that are younger than the file are the defaults."""
        return cls(values["attention"], dict(values["options"]),
                   FinetuneConfig(**values["config"]), Reading(**values["reading"]))


@dataclass(frozen=True, kw_only=True)
class Trials(TextStudy):
    """One base model, and the measurements of its trials in `out`; none is run again."""

    out: Path
    """JSON file to write; what it holds is not measured again."""
    windows: Count = 64
    """Number of windows of held-out text."""
    questions: Natural = 64
    """Questions for each place of the answer and kind."""
    length: Count | None = None
    """Tokens per context; by default the model's, at most 1024."""

    @cached_property
    def evaluation(self) -> Evaluation:
        """What every trial is measured on."""
        base, tokenizer = self.loaded
        models.disable_attention_dropout(base)
        return make_evaluation(base, tokenizer, self.corpus, length=self.length,
                               windows=self.windows, questions=self.questions)

    @cached_property
    def base_losses(self) -> np.ndarray:
        """The base's loss of each window, (windows,)."""
        return self.evaluation.losses(self.loaded[0])

    @cached_property
    def content(self) -> dict[str, Any]:
        """The content of the file: the settings, and the row of each trial."""
        from cca_lab.models.adapters import fingerprint

        weights = dict(sorted(self.loaded[0].state_dict().items()))
        settings = {"model": self.name, "weights": fingerprint(weights),
                    "length": self.evaluation.length, "windows": self.windows,
                    "questions": self.evaluation.questions, "corpus": self.about_text()}
        return continued(self.out, settings) or {**settings, "machine": machine(), "trials": {}}

    def trials(self) -> dict[str, Trial]:
        """Return what is trained and measured, by name."""
        raise NotImplementedError

    def run(self) -> None:
        """Run the trials that the file lacks; print all that were asked for."""
        with held(check_file(self.out)):
            rows = self.run_trials(self.trials())
        print(table(rows, f"{self.name}, {self.evaluation.length} tokens"))

    def run_trials(self, trials: Mapping[str, Trial]) -> dict[str, dict[str, Any]]:
        """Run the trials missing in the file, and write it after each; return all rows."""
        rows = self.content["trials"]
        for name, trial in trials.items():
            # tuples among the options are lists in the file
            if name in rows and "trial" in rows[name] \
                    and Trial.of(rows[name]["trial"]) != Trial.of(as_json(asdict(trial))):
                raise ValueError(f"out: {self.out} holds {name!r} trained otherwise; give the same "
                                 "options, or name another file")
        if trials.keys() - rows.keys():
            _ = self.base_losses  # of the untrained base

        def row(name: str, trial: Trial, report: Any) -> dict[str, Any]:
            measured = self.measure(trial, name)
            if not math.isfinite(value := measured["perplexity"]["value"]):
                raise Diverged(f"{name}: the perplexity is {value}; lower the learning rate")
            return {"trial": asdict(trial), "command": command_line(), "machine": machine(),
                    **measured}

        measure_missing(self.out, self.content, trials, row, "trials")
        return {name: rows[name] for name in trials}

    def train(self, trial: Trial, title: str) -> "tuple[PreTrainedModel, list[dict[str, Any]]]":
        """Return a copy of the base model, swapped and trained, and the records of its steps."""
        torch.manual_seed(trial.reading.seed)  # for the weights that a mechanism adds
        model = models.swap_attention(copy.deepcopy(self.loaded[0]), trial.attention,
                                      **trial.options)
        if trial.config.strategy == "none":
            return model, []
        from cca_lab.models.finetune import Finetuner

        mixture = mixture_for(trial.reading, model, self.loaded[1], self.corpus)
        return model, run_with_progress(Finetuner(model, mixture, trial.config), title)

    def measure(self, trial: Trial, title: str) -> dict[str, Any]:
        """Run a trial, and return its measurements as JSON values."""
        model, records = self.train(trial, title)
        losses = self.evaluation.losses(model)
        row = self.evaluation.measure(model, losses)
        row["perplexity_ratio"] = asdict(self._ratio(losses))
        row["losses"] = losses.round(5).tolist()
        if not records:
            return row
        if trial.attention != "full":  # how much of the loss is the mechanism's
            models.swap_attention(model, "full")
            row["read_in_full"] = asdict(self._ratio(self.evaluation.losses(model)))
        row["seconds"] = round(records[-1]["seconds"], 1)
        return row

    def _ratio(self, losses: np.ndarray) -> "Estimate":
        """Return the perplexity over the base model's, paired window by window."""
        from cca_lab.models.evaluate import bootstrap_mean

        return bootstrap_mean(losses - self.base_losses, np.exp)
