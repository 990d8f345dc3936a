"""Finetuning of a model with swapped attention on text and questions: `cca-lab finetune`."""

import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from cca_lab import models
from cca_lab.files import check_folder, held
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.options import Count
from cca_lab.reporting import machine as machine_facts
from cca_lab.reporting import training_progress
from cca_lab.studies.evaluate import note_too_long, question_tasks
from cca_lab.studies.study import (
    MechanismOptions,
    TextStudy,
    context_of,
    load,
    note_full,
    note_other_model,
)
from cca_lab.tasks.corpus import Corpus
from cca_lab.tasks.mixture import Mixture, PackedExamples
from cca_lab.tasks.prompts import AnyTask, chosen_tasks
from cca_lab.tasks.reading import Reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from cca_lab.models.finetune import Finetuner

SHIFTED = 8  # a task's examples leave an eighth of a row to the text before them


def mixture_for(reading: Reading, model: "PreTrainedModel", tokenizer: Any, corpus: Corpus,
                tasks: Sequence[AnyTask] = ()) -> Mixture:
    """Return the training data of a run, `tasks` in place of the built-in questions if given."""
    from cca_lab.models.pretrain import tokenize

    context = context_of(model)
    length = min(context, 1024) if reading.length is None else reading.length
    stream = tokenize(corpus.train, tokenizer)
    if not 64 <= length <= min(context, len(stream)):
        raise ValueError(
            f"length: got {length}, wanted 64 to {min(context, len(stream))} (the model's context, "
            "and the text there is); give another length")
    shift = min(reading.shift, length // SHIFTED if tasks else length - 1)
    kinds: tuple[Any, ...] = tuple(PackedExamples(task, tokenizer, length - shift)
                                   for task in tasks)
    kinds = kinds or question_tasks(tokenizer)[:1 + reading.varied]
    return Mixture(stream, kinds, length, reading.rows, reading.text_share, reading.seed, shift)


@dataclass(frozen=True, kw_only=True)
class Finetune(TextStudy, MechanismOptions):
    """Swap a model's attention and finetune it, without its dropout; Ctrl-C saves the run."""

    out: Path
    """Folder for the run: its log, state and model."""
    attention: str = "cca"
    """Mechanism to train with, such as full, cca or dga."""
    config: FinetuneConfig = FinetuneConfig()
    reading: Reading = Reading()
    task: tuple[str, ...] = ()
    """Prompts to train on in place of the built-in questions: niah_single, niah_multikey,
    niah_multivalue, variable_tracking, key_values, or a file of your own questions in JSON
    lines."""
    difficulty: tuple[str, ...] = ()
    """Difficulty of the tasks, NAME=VALUE, such as chains=2."""
    context_parallel: Count = 1
    """Processes of torchrun that share each text, a part of its tokens each; cca only."""
    resume: bool = False
    """Continue the run in --out."""

    def run(self) -> list[dict[str, Any]]:
        """Load a model, swap its attention, train and save it; return its steps' records."""
        self.check_effects()
        logging.getLogger("accelerate").setLevel(logging.ERROR)  # it warns about tied weights
        attention, options = self.choice
        check_run_folder(self.out, self.resume)
        tasks = chosen_tasks(self.task, self.difficulty)
        torch.manual_seed(self.reading.seed)
        note_other_model(self.heads, self.model)
        model, tokenizer = load(self.model, adapter=self.adapter)
        models.disable_attention_dropout(model)
        models.swap_attention(model, attention or self.attention, **options)
        from cca_lab.models.finetune import Finetuner

        mixture = mixture_for(self.reading, model, tokenizer, self.corpus, tasks)
        finetuner = Finetuner(model, mixture, self.config, self.out, tokenizer,
                              self.context_parallel)
        main = finetuner.accelerator.is_main_process
        with held(self.out) if main else nullcontext():
            return self._trained(finetuner, tasks, main)

    def check_effects(self) -> None:
        """Raise ValueError for an option that has no effect beside the others."""
        config, reading = self.config, self.reading
        idle = {"rank": config.strategy != "lora" and "--strategy lora",
                "grow": self.attention == "full" and "a mechanism with groups"}
        if self.task and reading.text_share == 1:
            raise ValueError("task: given with --text-share 1, which leaves no questions; give a "
                             "smaller share")
        if config.strategy == "none":
            idle |= dict.fromkeys(("learning_rate", "optimizer", "warmup", "weight_decay", "clip"),
                                  "a strategy that trains")
        for settings in (self, config):
            for each in fields(settings):
                if (wanted := idle.get(each.name)) and getattr(settings, each.name) != each.default:
                    raise ValueError(f"{each.name.replace('_', '-')}: has no effect without "
                                     f"{wanted}; leave it out")

    def _trained(self, finetuner: "Finetuner", tasks: Sequence[AnyTask], main: bool
                 ) -> list[dict[str, Any]]:
        """Train, and say what happens in the main process."""
        config, out, mixture = self.config, self.out, finetuner.mixture
        if self.resume:
            finetuner.resume()
        elif main:
            # of a run that stopped before its first checkpoint
            (out / "log.jsonl").unlink(missing_ok=True)
        if main:
            Console(stderr=True).print(work_ahead(finetuner), highlight=False)
            note_full(models.attention_of(finetuner.accelerator.unwrap_model(finetuner.model)),
                      mixture.length)
            for task in tasks:
                note_too_long(task, finetuner.tokenizer, mixture.length - mixture.shift)
        title = f"finetuning {Path(self.model).name}, {self.attention}, {config.strategy}"
        try:
            records = run_with_progress(finetuner, title)
        except KeyboardInterrupt:
            saved = (out / "state").exists()
            told = f"saved in {out}, continue with --resume" if saved else "nothing saved yet"
            Console(stderr=True).print(f"stopped; {told}", highlight=False, soft_wrap=True)
            raise SystemExit(130) from None
        if main:
            if not records:
                print(f"nothing left to do: the run stands at step {finetuner.step} of "
                      f"{config.steps}")
            print(f"written: {out / 'model'}; evaluate it with: cca-lab evaluate --model "
                  f"{out / 'model'}")
        return records


def check_run_folder(out: Path, resume: bool) -> None:
    """Raise ValueError for a folder that holds what a run would replace."""
    check_folder(out)
    if (out / "config.json").exists() or (out / "adapter_config.json").exists():
        raise ValueError(f"out: {out} is a model's folder; choose a new one for the run")
    if resume:
        return
    if (out / "state").exists():
        raise ValueError(f"out: {out} holds a run already; continue it with --resume, or "
                         "choose another folder")
    log = out / "log.jsonl"
    if log.is_file() and log.stat().st_size:
        try:
            ours = "step" in json.loads(log.read_text(encoding="utf-8").splitlines()[0])
        except (ValueError, TypeError):
            ours = False
        if not ours:
            raise ValueError(f"out: {log} is not the log of a run, which would replace it; choose "
                             "another folder")


def run_with_progress(finetuner: "Finetuner", title: str) -> list[dict[str, Any]]:
    """Run a finetuner with a progress bar (in the main process only)."""
    if not finetuner.accelerator.is_main_process:
        return finetuner.run()
    with training_progress(title, finetuner.config.steps) as report:
        return finetuner.run(lambda record: report(record["step"], progress_text(record)))


def progress_text(record: dict[str, Any]) -> str:
    """Return a step's losses and speed in a few words, with a warning if the text loss rises."""
    text, task = ("-" if loss is None else f"{loss:.2f}"
                  for loss in (record["text_loss"], record["task_loss"]))
    text = f"text {text}  questions {task}  {record['tokens_per_second']:.0f} tokens/s"
    return text + ("  DIVERGING: lower the learning rate" if record["rising"] else "")


def work_ahead(finetuner: "Finetuner") -> str:
    """Return in one line the device, the attention, the precision and the amount of data."""
    machine, mixture = machine_facts(), finetuner.mixture
    mechanism = models.attention_of(finetuner.accelerator.unwrap_model(finetuner.model))
    processes = finetuner.accelerator.num_processes
    each = f" in each of {processes} processes" if processes > 1 else ""
    return (f"{machine['gpu'] or machine['cpu']}, {machine['threads']} of {machine['cores']} "
            f"threads{each}, {mechanism.name} attention, {finetuner.precision}; "
            f"{finetuner.config.steps} steps of {mixture.rows} x {mixture.length} tokens")
