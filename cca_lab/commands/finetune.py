"""`cca-lab finetune`: swap the attention of a model, and train it on text and questions."""

import logging as standard_logging
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.utils import logging

from cca_lab.commands.evaluate import context_of, question_task
from cca_lab.commands.progress import training_progress
from cca_lab.models import disable_attention_dropout, load_pretrained, swap_attention
from cca_lab.models.finetune import FinetuneConfig, Finetuner
from cca_lab.models.pretrain import tokenize
from cca_lab.tasks.corpus import Corpus, load_corpus
from cca_lab.tasks.mixture import Mixture


@dataclass(frozen=True)
class Reading:
    """What a finetuning run reads.

    Attributes:
        length: tokens of a sequence; None for the model's context, at most 1024.
        rows: sequences a micro-step and process.
        text_share: share of them that are text, the rest are questions.
        seed: of every draw.
    """

    length: int | None = None
    rows: int = 8
    text_share: float = 0.75
    seed: int = 0

    def mixture(self, model: PreTrainedModel, tokenizer, corpus: Corpus) -> Mixture:
        """Return the mixture for a model; text alone where its tokenizer lacks the names.

        Raises:
            ValueError: for a length over the model's context or more than the text has.
        """
        context = context_of(model)
        length = min(context, 1024) if self.length is None else self.length
        stream = tokenize(corpus.train, tokenizer)
        if not 64 <= length <= min(context, len(stream)):
            raise ValueError(f"length: got {length}, wanted 64 to {min(context, len(stream))} (the model's "
                             "context, and the text there is); give another length")
        return Mixture(stream, question_task(tokenizer), length, self.rows, self.text_share, self.seed)


def finetune(model_name: str, attention: str, options: dict, config: FinetuneConfig, reading: Reading,
             out: Path, *, text: str | None = None, resume: bool = False) -> list[dict]:
    """Load, swap, train and save; return the records of the steps taken.

    Dropout on attention weights, which pooled attention does not have, is switched off.

    Raises:
        ValueError: if `out` already holds a saved run and `resume` was not asked for.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    standard_logging.getLogger("accelerate").setLevel(standard_logging.ERROR)  # tied weights are kept once, as meant
    if (out / "state").exists() and not resume:
        raise ValueError(f"out: {out} holds a run already; continue it with --resume, or choose another folder")
    torch.manual_seed(reading.seed)
    model, tokenizer = load_pretrained(model_name)
    disable_attention_dropout(model)
    swap_attention(model, attention, **options)
    finetuner = Finetuner(model, reading.mixture(model, tokenizer, load_corpus(text)), config, out, tokenizer)
    if resume:
        finetuner.resume()
    elif finetuner.accelerator.is_main_process:
        (out / "log.jsonl").unlink(missing_ok=True)  # of a run that never came to its first checkpoint
    records = run_with_progress(finetuner, f"finetuning {Path(model_name).name}, {attention}, {config.strategy}")
    if finetuner.accelerator.is_main_process:
        if not records:
            print(f"nothing left to do: the run stands at step {finetuner.step} of {config.steps}")
        print(f"written: {out / 'model'}; judge it with: cca-lab evaluate --model {out / 'model'}")
    return records


def run_with_progress(finetuner: Finetuner, title: str) -> list[dict]:
    """Run a finetuner under a progress bar (on the first process only)."""
    if not finetuner.accelerator.is_main_process:
        return finetuner.run()
    with training_progress(title, finetuner.config.steps) as report:
        return finetuner.run(lambda record: report(
            record["step"], f"text {_loss(record['text_loss'])}  questions {_loss(record['task_loss'])}  "
                            f"{record['tokens_per_second']:.0f} tokens/s"))


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
