"""Finetuning of a model with swapped attention on text and questions: `cca-lab finetune`."""

import logging
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import PreTrainedModel

from cca_lab.files import held
from cca_lab.models import attention_of, disable_attention_dropout, load_pretrained, swap_attention
from cca_lab.models.adapters import CONFIG_FILE
from cca_lab.models.checkpoints import quiet
from cca_lab.models.finetune import Finetuner
from cca_lab.models.pretrain import tokenize
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.reporting import machine as machine_facts
from cca_lab.reporting import training_progress
from cca_lab.settings import REQUIRED, check, check_sizes, nested, option
from cca_lab.studies.evaluate import Evaluate, note_left_out, note_too_long, question_tasks
from cca_lab.studies.study import (
    ModelStudy,
    SwappedStudy,
    context_of,
    given,
    note,
    note_full,
    option_of,
    with_kept_heads,
)
from cca_lab.tasks.corpus import Corpus, load_corpus
from cca_lab.tasks.mixture import Mixture, PackedExamples
from cca_lab.tasks.prompts import AnyTask, chosen_tasks
from cca_lab.tasks.reading import Reading

MOST_TOKENS = 2**24  # per step
SHIFTED = 8  # a task's examples leave an eighth of a row to the text before them


def mixture_for(reading: Reading, model: PreTrainedModel, tokenizer, corpus: Corpus,
                tasks: Sequence[AnyTask] = ()) -> Mixture:
    """Return the training data of a run, `tasks` in place of the built-in questions if given."""
    context = context_of(model)
    length = min(context, 1024) if reading.length is None else reading.length
    check_sizes(rows=(reading.rows, 1, MOST_TOKENS // max(1, length)))
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
class Finetune:
    """Swap a model's attention and finetune it, without its dropout; Ctrl-C saves the run."""

    model: str = option_of(ModelStudy, "model")
    adapter: str | None = option_of(ModelStudy, "adapter")
    out: Path = option(REQUIRED, "Folder for the run: its log, state and model.", output="folder")
    attention: str = option("cca", "Mechanism to train with, such as full, cca or dga.")
    group: int | None = option_of(SwappedStudy, "group")
    window: int | None = option_of(SwappedStudy, "window")
    config: FinetuneConfig = nested(FinetuneConfig, without=("weight_decay", "clip"))
    reading: Reading = nested(Reading, without=("shift", "varied"))
    text: str | None = option_of(ModelStudy, "text")
    task: tuple[str, ...] = option_of(Evaluate, "task")
    difficulty: tuple[str, ...] = option_of(Evaluate, "difficulty")
    context_parallel: int = option(
        1, "Processes of torchrun that share each text, a part of its tokens each; "
           "cca only.", least=1)
    resume: bool = option(False, "Continue the run in --out.")
    allow_different: bool = option(
        False, "Continue although random states are lost, so that dropout draws other numbers.")
    option: tuple[str, ...] = option_of(SwappedStudy, "option")
    heads: Path | None = option_of(SwappedStudy, "heads")
    keep: int | None = option_of(SwappedStudy, "keep")

    def run(self) -> list[dict]:
        """Load a model, swap its attention, train and save it; return its steps' records."""
        check(self)
        check_launch()
        quiet()
        logging.getLogger("accelerate").setLevel(logging.ERROR)  # it warns about tied weights
        attention, options = with_kept_heads(
            self.attention, given(self.attention, self.option, group=self.group,
                                  window=self.window), self.heads, self.keep)
        config, reading, out = self.config, self.reading, self.out
        if (out / "config.json").exists() or (out / CONFIG_FILE).exists():
            raise ValueError(f"out: {out} is a model's folder; choose a new one for the run")
        if self.allow_different and not self.resume:
            raise ValueError("allow-different: given without --resume; leave it out")
        if (out / "state").exists() and not self.resume:
            raise ValueError(f"out: {out} holds a run already; continue it with --resume, or "
                             "choose another folder")
        tasks = chosen_tasks(self.task, self.difficulty)
        torch.manual_seed(reading.seed)
        model, tokenizer = load_pretrained(self.model, adapter=self.adapter)
        disable_attention_dropout(model)
        swap_attention(model, attention or self.attention, **options)
        corpus = load_corpus(self.text)
        mixture = mixture_for(reading, model, tokenizer, corpus, tasks)
        finetuner = Finetuner(model, mixture, config, out, tokenizer, self.context_parallel)
        main = finetuner.accelerator.is_main_process
        with held(out) if main else nullcontext():
            return self._trained(finetuner, corpus, tasks, main)

    def _trained(self, finetuner: Finetuner, corpus: Corpus, tasks: Sequence[AnyTask], main: bool
                 ) -> list[dict]:
        """Train, and say what happens in the main process."""
        config, out, mixture = self.config, self.out, finetuner.mixture
        if self.resume:
            finetuner.resume(allow_different=self.allow_different)
        elif main:
            # of a run that stopped before its first checkpoint
            (out / "log.jsonl").unlink(missing_ok=True)
        if main:
            Console(stderr=True).print(work_ahead(finetuner), highlight=False)
            note_full(attention_of(finetuner.accelerator.unwrap_model(finetuner.model)),
                      mixture.length)
            note_left_out(corpus)
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


def check_launch() -> None:
    """Refuse variables of a launcher that fit no process, and say whom the others wait for."""
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    if not rank and not size:
        return
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise ValueError(f"RANK, WORLD_SIZE: got {rank!r} of {size!r}, wanted a number from 0 and "
                         "their count; unset both, which a launcher such as torchrun sets")
    if int(size) > 1 and rank == "0":
        note(f"RANK and WORLD_SIZE are set: waiting for {int(size) - 1} other process(es) at "
             f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}; without torchrun, "
             "unset them")


def run_with_progress(finetuner: Finetuner, title: str) -> list[dict]:
    """Run a finetuner with a progress bar (in the main process only)."""
    if not finetuner.accelerator.is_main_process:
        return finetuner.run()
    with training_progress(title, finetuner.config.steps) as report:
        return finetuner.run(lambda record: report(record["step"], progress_text(record)))


def progress_text(record: dict) -> str:
    """Return a step's losses and speed in a few words, with a warning if the text loss rises."""
    text, task = ("-" if loss is None else f"{loss:.2f}"
                  for loss in (record["text_loss"], record["task_loss"]))
    text = f"text {text}  questions {task}  {record['tokens_per_second']:.0f} tokens/s"
    return text + ("  DIVERGING: lower the learning rate" if record["rising"] else "")


def work_ahead(finetuner: Finetuner) -> str:
    """Return in one line the device, the attention, the precision and the amount of data."""
    machine, mixture = machine_facts(), finetuner.mixture
    name = attention_of(finetuner.accelerator.unwrap_model(finetuner.model)).name
    path = ("PyTorch's" if name == "full" else
            "kernels" if machine["gpu"] else machine["cpu_attention"])
    processes = finetuner.accelerator.num_processes
    each = f" in each of {processes} processes" if processes > 1 else ""
    return (f"{machine['gpu'] or machine['cpu']}, {machine['threads']} of {machine['cores']} "
            f"threads{each}, {name} attention ({path}), {finetuner.precision}; "
            f"{finetuner.config.steps} steps of {mixture.rows} x {mixture.length} tokens")
