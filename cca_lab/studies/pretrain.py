"""`cca-lab pretrain`: train a tokenizer and a base model, and write the model card."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.models.checkpoints import quiet, save_pretrained
from cca_lab.models.evaluate import exact_match, perplexity
from cca_lab.models.mini import new_model, train_tokenizer
from cca_lab.models.plugin import attention_of, swap_attention
from cca_lab.models.pretrain import Pretrainer, Recipe, curriculum, tokenize
from cca_lab.reporting import device, device_name, training_progress
from cca_lab.studies.card import model_card
from cca_lab.studies.evaluate import note_full
from cca_lab.studies.pretrain_options import PretrainOptions
from cca_lab.tasks.corpus import Corpus, load_corpus
from cca_lab.tasks.multi_document_qa import MultiDocumentQA
from cca_lab.tasks.ngram import KneserNey

CURVE_EVERY = 20  # steps between the points of the loss curve in the card's data
NGRAM_ORDERS = (1, 2, 3, 4, 5)


def pretrain(options: PretrainOptions) -> dict:
    """Train a base model, write it with its model card, and return the card's data."""
    quiet()
    if options.out.exists():
        raise ValueError(f"out: {options.out} is there already; choose another folder or remove it")
    if options.threads:
        torch.set_num_threads(options.threads)
    corpus = load_corpus(options.text)
    torch.manual_seed(options.seed)
    model, tokenizer = _new(corpus, options)
    model.to(device())
    recipe = Recipe(learning_rate=options.learning_rate)
    curve, stages = _train(model, tokenizer, corpus, recipe, options)
    model.half().float()  # evaluated as it is saved: with weights rounded to fp16
    card = {"options": asdict(options) | {"out": options.out.name}, "recipe": asdict(recipe),
            "parameters": sum(p.numel() for p in model.parameters()),
            "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
            "device": device_name(),
            "torch": torch.__version__.split("+")[0], "seconds": curve[-1]["seconds"],
            "steps": curve[-1]["step"], "tokens": curve[-1]["tokens"], "stages": stages,
            "results": judge(model, tokenizer, corpus, options.context), "curve": curve}
    _write(model.half(), tokenizer, card, options.out)
    return card


def _new(corpus: Corpus, options: PretrainOptions) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    tokenizer = train_tokenizer(corpus, options.vocabulary)
    tokenizer.model_max_length = options.context
    model = new_model(options.family, vocabulary=options.vocabulary, context=options.context,
                      width=options.width, layers=options.layers, heads=options.heads,
                      end_of_text=tokenizer.eos_token_id)
    swap_attention(model, options.attention, **options.attention_options)
    note_full(attention_of(model), options.context)
    return model, tokenizer


def _train(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, corpus: Corpus, recipe: Recipe,
           options: PretrainOptions) -> tuple[list[dict], list[dict]]:
    """Run the curriculum; return the loss curve, and the step and time at which each stage began."""
    pretrainer = Pretrainer(model, tokenizer, corpus, recipe, options.seed)
    plan = curriculum(options.context, options.tokens, options.text_only)
    curve, stages, record = [], [], {}
    with training_progress(f"pretraining {options.out.name}", options.tokens) as report:
        for record in pretrainer.run(plan, options.tokens):
            if not stages or record["stage"] != stages[-1]["stage"]:
                stages.append({key: record[key] for key in ("stage", "task", "length", "step", "seconds")})
            if record["step"] % CURVE_EVERY == 0:
                curve.append(record)
            report(record["tokens"], f"{record['task']} {record['length']}  text {record['text_loss']:.2f}  "
                   f"task {record['task_loss']:.2f}  right {record['running_accuracy']:.2f}")
    if not curve or curve[-1]["step"] != record["step"]:
        curve.append(record)
    return curve, stages


def judge(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, corpus: Corpus, context: int) -> dict:
    """Measure perplexity, beside that of n-grams, and exact match by position and context length."""
    held_out = tokenize(corpus.validation, tokenizer)
    training = tokenize(corpus.train, tokenizer).numpy()
    orders = [order for order in NGRAM_ORDERS if KneserNey.fits(order, len(tokenizer))]
    ngrams = {order: KneserNey(training, order, len(tokenizer)).perplexity(held_out.numpy()) for order in orders}
    task = MultiDocumentQA(tokenizer)
    lengths = [length for length in (128, 256, 512, 1024) if length < context] + [context]
    matches = {length: exact_match(model, task, length=length, text=held_out).as_json() for length in lengths}
    return {"perplexity": asdict(perplexity(model, held_out, length=min(context, len(held_out)), windows=160)),
            "ngram_perplexity": ngrams,
            "documents": {length: task.documents_in(length) for length in lengths},
            "exact_match": matches}


def _write(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, card: dict, out: Path) -> None:
    temporary = out.with_name(out.name + ".part")
    shutil.rmtree(temporary, ignore_errors=True)
    save_pretrained(model, temporary, tokenizer)
    (temporary / "pretraining.json").write_text(json.dumps(_rounded(card), indent=1) + "\n", encoding="utf-8")
    (temporary / "README.md").write_text(model_card(card), encoding="utf-8")
    temporary.replace(out)


def _rounded(value, digits: int = 5):
    """Round every float of a JSON value to `digits` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item, digits) for item in value]
    return value
