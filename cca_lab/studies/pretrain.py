"""Pretraining of a tokenizer and a small base model: `cca-lab pretrain`."""

import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch

from cca_lab import models
from cca_lab.files import check_folder, held
from cca_lab.models.recipe import Diverged
from cca_lab.options import Count, Finite, Natural, at_least
from cca_lab.reporting import command_line, device, device_name, training_progress, write_json
from cca_lab.studies.study import given, note_full, noted_corpus
from cca_lab.tasks.corpus import Corpus
from cca_lab.tasks.multi_document_qa import MultiDocumentQA

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from cca_lab.models.pretrain import Pretrainer

CURVE_EVERY = 20  # steps between the points of the loss curve
LEAST_WORDS = 600  # of a tokenizer, in which enough of the questions' names are one token


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Train a tokenizer and a small base model that reads and retrieves."""

    out: Path
    """New folder to write the model to."""
    family: Literal["gpt2", "opt"] = "gpt2"
    """Architecture."""
    tokens: Finite = 20e6
    """Budget of training tokens."""
    context: Annotated[int, at_least(64)] = 512
    """Longest sequence the model reads, in tokens."""
    vocabulary: Annotated[int, at_least(LEAST_WORDS)] = 2048
    """Size of the tokenizer's vocabulary."""
    width: Count = 128
    """Width of the residual stream; a multiple of the heads."""
    layers: Count = 4
    """Transformer blocks."""
    heads: Count = 4
    """Query heads per block."""
    learning_rate: Finite = 8e-3
    """Peak learning rate."""
    seed: Natural = 0
    """Random seed of the weights and the data."""
    text: str | None = None
    """Text to read: a file or a folder; by default Python's library."""
    threads: Natural = 0
    """CPU threads; 0 leaves the choice to PyTorch."""
    attention: str = "full"
    """Mechanism to train with, from the first step."""
    group: int | float | None = None
    """Tokens per group."""
    window: int | None = None
    """Local window, in tokens."""
    option: tuple[str, ...] = ()
    """Other options of the mechanism, NAME=VALUE, such as gamma=0.2."""
    text_only: bool = False
    """Train on text only, without questions."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of the mechanism, checked."""
        return given(self.attention, self.option, group=self.group, window=self.window)

    def run(self) -> dict[str, Any]:
        """Train a base model, write it with what was measured, and return that."""
        from cca_lab.models.checkpoints import quiet

        quiet()
        options = self.options
        with held(check_folder(self.out)):
            if self.out.exists():
                raise ValueError(f"out: {self.out} is there already; choose another folder or "
                                 "remove it")
            return self._trained(options)

    def _trained(self, options: dict[str, Any]) -> dict[str, Any]:
        """Train the model, judge it and write it."""
        from cca_lab.models.checkpoints import is_finite
        from cca_lab.models.mini import new_model, train_tokenizer
        from cca_lab.models.pretrain import Pretrainer, Recipe

        if self.threads:
            torch.set_num_threads(self.threads)
        corpus = noted_corpus(self.text)
        torch.manual_seed(self.seed)
        tokenizer = train_tokenizer(corpus, self.vocabulary)
        tokenizer.model_max_length = self.context
        model = new_model(self.family, vocabulary=self.vocabulary, context=self.context,
                          width=self.width, layers=self.layers, heads=self.heads,
                          end_of_text=tokenizer.eos_token_id)
        models.swap_attention(model, self.attention, **options)
        note_full(models.attention_of(model), self.context)
        model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
        recipe = Recipe(learning_rate=self.learning_rate)
        curve, stages = self._train(Pretrainer(model, tokenizer, corpus, recipe, self.seed))
        model.half().float()  # evaluated as it is saved: with weights rounded to fp16
        if not is_finite(model.state_dict().values()):
            raise Diverged("the weights are no finite numbers in fp16; lower the learning rate")
        settings = {key: value for key, value in asdict(self).items()
                    if key not in ("group", "window", "option")}  # those are "attention_options"
        found = {"command": command_line(),
                 "options": settings | {"out": self.out.name, "attention_options": options},
                 "recipe": asdict(recipe), "parameters": sum(p.numel() for p in model.parameters()),
                 "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
                 "device": device_name(), "torch": torch.__version__.split("+")[0],
                 "seconds": curve[-1]["seconds"], "steps": curve[-1]["step"],
                 "tokens": curve[-1]["tokens"], "stages": stages,
                 "results": judge(model, tokenizer, corpus, self.context), "curve": curve}
        temporary = self.out.with_name(self.out.name + ".part")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            models.save_pretrained(model.half(), temporary, tokenizer)
            # every float in five significant digits
            write_json(temporary / "pretraining.json", json.loads(
                json.dumps(found), parse_float=lambda number: float(f"{float(number):.5g}")))
            temporary.replace(self.out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        print(f"written: {self.out}")
        return found

    def _train(self, pretrainer: "Pretrainer") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Run the curriculum; return the loss curve, and each stage's first step and time."""
        from cca_lab.models.pretrain import curriculum

        plan = curriculum(self.context, self.tokens, self.text_only)
        curve: list[dict[str, Any]] = []
        stages: list[dict[str, Any]] = []
        record: dict[str, Any] = {}
        with training_progress(f"pretraining {self.out.name}", self.tokens) as report:
            for record in pretrainer.run(plan, self.tokens):
                if not math.isfinite(record["text_loss"] + record["task_loss"]):
                    raise Diverged(f"step {record['step']}: the loss is no finite number at a peak "
                                   f"learning rate of {self.learning_rate:.1e}; lower it")
                if not stages or record["stage"] != stages[-1]["stage"]:
                    stages.append({key: record[key]
                                   for key in ("stage", "task", "length", "step", "seconds")})
                if record["step"] % CURVE_EVERY == 0:
                    curve.append(record)
                report(record["tokens"],
                       f"{record['task']} {record['length']}  text {record['text_loss']:.2f}  task "
                       f"{record['task_loss']:.2f}  right {record['running_accuracy']:.2f}")
        if not curve or curve[-1]["step"] != record["step"]:
            curve.append(record)
        return curve, stages


def judge(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", corpus: Corpus,
          context: int) -> dict[str, Any]:
    """Measure perplexity, and exact match by position and length."""
    from cca_lab.models.evaluate import exact_match, perplexity
    from cca_lab.models.pretrain import tokenize

    held_out = tokenize(corpus.validation, tokenizer)
    task = MultiDocumentQA(tokenizer)
    lengths = [length for length in (128, 256, 512, 1024) if length < context] + [context]
    matches = {length: exact_match(model, task, length=length, text=held_out).as_json()
               for length in lengths}
    return {"perplexity": asdict(perplexity(model, held_out, length=min(context, len(held_out)),
                                            windows=160)),
            "documents": {length: task.documents_in(length) for length in lengths},
            "exact_match": matches}
