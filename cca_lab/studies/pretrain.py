"""Pretraining of a tokenizer and a small base model, and its model card: `cca-lab pretrain`."""

import math
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.files import held
from cca_lab.models.checkpoints import is_finite, quiet, save_pretrained
from cca_lab.models.evaluate import exact_match, perplexity
from cca_lab.models.mini import new_model, train_tokenizer
from cca_lab.models.plugin import attention_of, swap_attention
from cca_lab.models.pretrain import Pretrainer, Recipe, curriculum, tokenize
from cca_lab.models.recipe import MOST_RATE, Diverged
from cca_lab.reporting import device, device_name, training_progress, write_json
from cca_lab.settings import LARGEST_WRITTEN, REQUIRED, check, option
from cca_lab.studies.study import ModelStudy, SwappedStudy, given, note_full, option_of
from cca_lab.tasks.corpus import Corpus, load_corpus
from cca_lab.tasks.multi_document_qa import MultiDocumentQA
from cca_lab.tasks.ngram import KneserNey

CURVE_EVERY = 20  # steps between the points of the loss curve in the card's data
NGRAM_ORDERS = (1, 2, 3, 4, 5)
MOST_WEIGHTS = 1e9
FAMILIES = ("gpt2", "opt")
PLACES = {"0.0": "first", "0.5": "middle", "1.0": "last"}
CARD = """\
# {name}

A small {family} that reads and retrieves, so that long-context attention can be tried on a laptop.

| | |
|---|---|
| command | `{command}` |
| size | {parameters:,} parameters: {layers} layers, width {width}, {heads} heads, \
vocabulary {vocabulary}, context {context} tokens; weights in fp16 |
| text | {corpus}, fingerprint `{fingerprint}`, dealt to train and validation by module |
| task | multi-document question answering (`cca_lab/tasks/multi_document_qa.py`) |
| training | {steps:,} steps, {tokens:.1f} million tokens, seed {seed}, \
{minutes:.0f} minutes on {device}, torch {torch} |
| optimizer | Muon for the blocks' matrices, AdamW for the rest, \
peak rate {rate:g}, curriculum below |

## Does it read?

Perplexity per token on the held-out modules, against interpolated Kneser-Ney n-grams \
trained on the same tokens.
The model is read in windows of {context} tokens that start without context; \
the n-grams read the whole stream.

| model | perplexity |
|---|---|
{reading}

## Does it retrieve?

Exact match by the place of the answer; 95 % interval for all positions together.
Chance is below 1 % for any surname; for one that stands in the documents, one over their number.

| context | documents | {positions} | all |
|---|---|{dashes}---|
{retrieving}

## How it got there

| stage | reached at step | after |
|---|---|---|
{stages}

One seed. `pretraining.json` holds the loss curve and everything above.
The perplexity is of the standard library of the Python named above; \
another Python's differs a little.
"""


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Train a tokenizer and a small base model that reads and retrieves, and write its card."""

    out: Path = option(REQUIRED, "New folder to write the model to.", output="folder")
    family: str = option("gpt2", "Architecture: gpt2 or opt.", choices=FAMILIES)
    tokens: float = option(20e6, "Budget of training tokens.", least=1)
    context: int = option(512, "Longest sequence the model reads, in tokens.", least=64, most=2**20)
    vocabulary: int = option(2048, "Size of the tokenizer's vocabulary.", least=512, most=2**20)
    width: int = option(128, "Width of the residual stream; a multiple of the heads.", least=1,
                        most=16384)
    layers: int = option(4, "Transformer blocks.", least=1, most=100)
    heads: int = option(4, "Query heads per block.", least=1)
    learning_rate: float = option(8e-3, "Peak learning rate.", above=0, most=MOST_RATE)
    seed: int = option(0, "Random seed of the weights and the data.", least=0, most=LARGEST_WRITTEN)
    text: str | None = option_of(ModelStudy, "text")
    threads: int = option(0, "CPU threads; 0 leaves the choice to PyTorch.", least=0, most=1024)
    attention: str = option("full", "Mechanism to train with, from the first step.")
    group: int | None = option_of(SwappedStudy, "group")
    window: int | None = option_of(SwappedStudy, "window")
    text_only: bool = option(False, "Train on text only, without questions.")
    option: tuple[str, ...] = option_of(SwappedStudy, "option")

    def __post_init__(self) -> None:
        check(self)
        if self.heads > self.width or self.width % self.heads:
            raise ValueError(f"heads: got {self.heads}, which does not divide the width "
                             f"{self.width}; choose a divisor")
        weights = self.width * (12 * self.layers * self.width + self.vocabulary + self.context)
        if weights > MOST_WEIGHTS:
            raise ValueError(f"width, layers, vocabulary, context: {weights:.1e} weights, wanted "
                             f"{MOST_WEIGHTS:.0e} at most; make the model smaller")

    @property
    def options(self) -> dict[str, Any]:
        """The options of the mechanism, checked."""
        return given(self.attention, self.option, group=self.group, window=self.window)

    def run(self) -> dict:
        """Train a base model, write it with its model card, and return the card's data."""
        quiet()
        with held(self.out):
            if self.out.exists():
                raise ValueError(f"out: {self.out} is there already; choose another folder or "
                                 "remove it")
            return self._made()

    def _made(self) -> dict:
        options = self.options
        if self.threads:
            torch.set_num_threads(self.threads)
        corpus = load_corpus(self.text)
        torch.manual_seed(self.seed)
        tokenizer = train_tokenizer(corpus, self.vocabulary)
        tokenizer.model_max_length = self.context
        model = new_model(self.family, vocabulary=self.vocabulary, context=self.context,
                          width=self.width, layers=self.layers, heads=self.heads,
                          end_of_text=tokenizer.eos_token_id)
        swap_attention(model, self.attention, **options)
        note_full(attention_of(model), self.context)
        model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
        recipe = Recipe(learning_rate=self.learning_rate)
        curve, stages = self._train(Pretrainer(model, tokenizer, corpus, recipe, self.seed))
        model.half().float()  # evaluated as it is saved: with weights rounded to fp16
        if not is_finite(model.state_dict().values()):
            raise Diverged("the weights are no finite numbers in fp16; lower the learning rate")
        settings = {key: value for key, value in asdict(self).items()
                    if key not in ("group", "window", "option")}  # those are "attention_options"
        card = {"options": settings | {"out": self.out.name, "attention_options": options},
                "recipe": asdict(recipe), "parameters": sum(p.numel() for p in model.parameters()),
                "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
                "device": device_name(), "torch": torch.__version__.split("+")[0],
                "seconds": curve[-1]["seconds"], "steps": curve[-1]["step"],
                "tokens": curve[-1]["tokens"], "stages": stages,
                "results": judge(model, tokenizer, corpus, self.context), "curve": curve}
        temporary = self.out.with_name(self.out.name + ".part")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            save_pretrained(model.half(), temporary, tokenizer)
            write_json(temporary / "pretraining.json", _rounded(card))
            (temporary / "README.md").write_text(model_card(card), encoding="utf-8")
            temporary.replace(self.out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        print(f"written: {self.out}")
        return card

    def _train(self, pretrainer: Pretrainer) -> tuple[list[dict], list[dict]]:
        """Run the curriculum; return the loss curve, and each stage's first step and time."""
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


def judge(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, corpus: Corpus,
          context: int) -> dict:
    """Measure perplexity, beside n-grams, and exact match by position and length."""
    held_out = tokenize(corpus.validation, tokenizer)
    training = tokenize(corpus.train, tokenizer).numpy()
    orders = [order for order in NGRAM_ORDERS if KneserNey.fits(order, len(tokenizer))]
    ngrams = {order: KneserNey(training, order, len(tokenizer)).perplexity(held_out.numpy())
              for order in orders}
    task = MultiDocumentQA(tokenizer)
    lengths = [length for length in (128, 256, 512, 1024) if length < context] + [context]
    matches = {length: exact_match(model, task, length=length, text=held_out).as_json()
               for length in lengths}
    return {"perplexity": asdict(perplexity(model, held_out, length=min(context, len(held_out)),
                                            windows=160)),
            "ngram_perplexity": ngrams,
            "documents": {length: task.documents_in(length) for length in lengths},
            "exact_match": matches}


def _rounded(value: Any) -> Any:
    """Round every float of a JSON value to five significant digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def model_card(card: dict) -> str:
    """Return the Markdown card for what `cca-lab pretrain` measured."""
    options, results = card["options"], card["results"]
    perplexity = "{value:.1f} [{low:.1f}, {high:.1f}]".format(**results["perplexity"])
    reading = [f"| **{options['out']}** | **{perplexity}** |"]
    reading += [f"| {order}-gram | {value:.1f} |"
                for order, value in results["ngram_perplexity"].items()]
    lengths = list(results["exact_match"])
    positions = [key for key in results["exact_match"][lengths[0]]
                 if key not in ("all", "by_offset")]
    retrieving = []
    for length in lengths:
        matches = results["exact_match"][length]
        low, high = (100 * matches["all"][end] for end in ("low", "high"))
        cells = [f"{100 * matches[key]['value']:.0f} %" for key in (*positions, "all")]
        retrieving.append(f"| {length} | {results['documents'][length]} | {' | '.join(cells)} "
                          f"[{low:.0f}, {high:.0f}] |")
    stages = [f"| {stage['task']}, {stage['length']} tokens | {stage['step']} | "
              f"{stage['seconds'] / 60:.1f} min |" for stage in card["stages"]]
    return CARD.format(
        name=options["out"], family={"gpt2": "GPT-2", "opt": "OPT"}[options["family"]],
        command=_command(options), parameters=card["parameters"], corpus=card["corpus"]["name"],
        fingerprint=card["corpus"]["fingerprint"], steps=card["steps"], tokens=card["tokens"] / 1e6,
        minutes=card["seconds"] / 60, device=card["device"], torch=card["torch"],
        rate=card["recipe"]["learning_rate"], reading="\n".join(reading),
        retrieving="\n".join(retrieving), stages="\n".join(stages),
        positions=" | ".join(PLACES.get(position, f"{100 * float(position):.0f} %")
                             for position in positions),
        dashes="---|" * len(positions),
        **{key: options[key]
           for key in ("layers", "width", "heads", "vocabulary", "context", "seed")})


def _command(options: dict) -> str:
    """Return the command that made a model, with the options that differ from the defaults."""
    defaults = {field.name: field.default for field in fields(Pretrain)}
    words = []
    for key, value in options.items():
        if key not in ("out", "attention_options") and (key == "family" or value != defaults[key]):
            name = f"--{key.replace('_', '-')}"
            written = f"{value:g}" if isinstance(value, float) else value
            words.append(name if value is True else f"{name} {written}")
    words += [f"--{key} {value}" if key in ("group", "window") else f"--option {key}={value}"
              for key, value in options.get("attention_options", {}).items()]
    return f"cca-lab pretrain {' '.join(words)} --out data/models/{options['out']}"
