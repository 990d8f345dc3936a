"""`cca-lab finetune`: swap the attention of a model, and train the model on text and questions."""

import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from transformers import PreTrainedModel

from cca_lab.models import attention_of, disable_attention_dropout, load_pretrained, swap_attention
from cca_lab.models.checkpoints import quiet
from cca_lab.models.finetune import Finetuner
from cca_lab.models.pretrain import tokenize
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.reporting import machine as machine_facts
from cca_lab.reporting import training_progress
from cca_lab.settings import check_sizes
from cca_lab.studies.answers import note_left_out, note_too_long
from cca_lab.studies.evaluate import context_of, note_full, question_tasks
from cca_lab.tasks.corpus import Corpus, load_corpus
from cca_lab.tasks.mixture import Mixture, PackedExamples
from cca_lab.tasks.prompts import AnyTask, chosen_tasks
from cca_lab.tasks.reading import Reading

MOST_TOKENS = 2**24  # per step
SHIFTED = 8  # examples of a task leave at least this part of a row to the text that may stand before them


def mixture_for(reading: Reading, model: PreTrainedModel, tokenizer, corpus: Corpus,
                tasks: Sequence[AnyTask] = ()) -> Mixture:
    """Return the training data of a run; text alone if the tokenizer does not have the names as single tokens.

    Args:
        reading: lengths, rows and shares.
        model: its context limits the length.
        tokenizer: the model's own.
        corpus: the text.
        tasks: asked in place of the built-in questions, with equal shares of the question rows.

    Raises:
        ValueError: for a length over the model's context or over that of the text, or too short for a task.
    """
    context = context_of(model)
    length = min(context, 1024) if reading.length is None else reading.length
    check_sizes(rows=(reading.rows, 1, MOST_TOKENS // max(1, length)))
    stream = tokenize(corpus.train, tokenizer)
    if not 64 <= length <= min(context, len(stream)):
        raise ValueError(f"length: got {length}, wanted 64 to {min(context, len(stream))} (the model's "
                         "context, and the text there is); give another length")
    shift = min(reading.shift, length // SHIFTED if tasks else length - 1)
    kinds = tuple(PackedExamples(task, tokenizer, length - shift) for task in tasks) or \
        question_tasks(tokenizer)[: 1 + reading.varied]
    return Mixture(stream, kinds, length, reading.rows, reading.text_share, reading.seed, shift)


def finetune(model_name: str, attention: str, options: dict, config: FinetuneConfig, reading: Reading,
             out: Path, *, text: str | None = None, resume: bool = False, tasks: Sequence[str] = (),
             difficulty: Sequence[str] = (), context_parallel: int = 1) -> list[dict]:
    """Load a model, swap its attention, train and save it; return the records of the steps taken.

    Dropout on attention weights is disabled, as pooled attention does not support it. `tasks` and `difficulty` are
    those of `chosen_tasks`, and replace the built-in questions; `context_parallel` is that of `Finetuner`.

    Raises:
        ValueError: if `out` is a model's folder, or holds a saved run and `resume` is False, or for a wrong task.
    """
    quiet()
    logging.getLogger("accelerate").setLevel(logging.ERROR)  # its warning about tied weights is expected
    if (out / "config.json").exists():
        raise ValueError(f"out: {out} is a model's folder; choose a new one for the run")
    if (out / "state").exists() and not resume:
        raise ValueError(f"out: {out} holds a run already; continue it with --resume, or choose another folder")
    asked = chosen_tasks(tasks, difficulty)
    torch.manual_seed(reading.seed)
    model, tokenizer = load_pretrained(model_name)
    disable_attention_dropout(model)
    swap_attention(model, attention, **options)
    corpus = load_corpus(text)
    mixture = mixture_for(reading, model, tokenizer, corpus, asked)
    finetuner = Finetuner(model, mixture, config, out, tokenizer, context_parallel)
    if resume:
        finetuner.resume()
    elif finetuner.accelerator.is_main_process:
        (out / "log.jsonl").unlink(missing_ok=True)  # of a run that stopped before its first checkpoint
    if finetuner.accelerator.is_main_process:
        Console(stderr=True).print(work_ahead(finetuner), highlight=False)
        note_full(attention_of(model), mixture.length)
        note_left_out(corpus)
        for task in asked:
            note_too_long(task, tokenizer, mixture.length - mixture.shift)
    records = run_with_progress(finetuner, f"finetuning {Path(model_name).name}, {attention}, {config.strategy}")
    if finetuner.accelerator.is_main_process:
        if not records:
            print(f"nothing left to do: the run stands at step {finetuner.step} of {config.steps}")
        print(f"written: {out / 'model'}; evaluate it with: cca-lab evaluate --model {out / 'model'}")
    return records


def run_with_progress(finetuner: Finetuner, title: str) -> list[dict]:
    """Run a finetuner with a progress bar (in the main process only)."""
    if not finetuner.accelerator.is_main_process:
        return finetuner.run()
    with training_progress(title, finetuner.config.steps) as report:
        return finetuner.run(lambda record: report(record["step"], progress_text(record)))


def progress_text(record: dict) -> str:
    """Return a step's losses and speed in a few words, with a warning if the text loss rises."""
    text = (f"text {_loss(record['text_loss'])}  questions {_loss(record['task_loss'])}  "
            f"{record['tokens_per_second']:.0f} tokens/s")
    return text + ("  DIVERGING: lower the learning rate" if record["rising"] else "")


def work_ahead(finetuner: Finetuner) -> str:
    """Return in one line the device, the attention and its implementation, the precision and the amount of data."""
    machine, mixture = machine_facts(), finetuner.mixture
    name = attention_of(finetuner.accelerator.unwrap_model(finetuner.model)).name
    path = "PyTorch's" if name == "full" else "kernels" if machine["gpu"] else machine["cpu_attention"]
    processes = finetuner.accelerator.num_processes
    return (f"{machine['gpu'] or machine['cpu']}, {machine['threads']} of {machine['cores']} threads"
            f"{f' in each of {processes} processes' if processes > 1 else ''}, {name} attention ({path}), "
            f"{finetuner.precision}; {finetuner.config.steps} steps of {mixture.rows} x {mixture.length} tokens")


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
