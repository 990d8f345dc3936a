"""`cca-lab experiments`: DGA's Figures 3b (noise) and 3a, 4 (convergence), measured on small models."""

import copy
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import PreTrainedModel

from cca_lab.files import check_file, models_folder, new_result
from cca_lab.models import disable_attention_dropout, load_pretrained, swap_attention
from cca_lab.models.checkpoints import quiet
from cca_lab.models.evaluate import Estimate, perplexity
from cca_lab.models.finetune import FinetuneConfig, Finetuner
from cca_lab.models.pretrain import tokenize
from cca_lab.reporting import device, device_name, print_table, training_progress, write_json
from cca_lab.settings import check_sizes
from cca_lab.studies.convergence import Budget, compare, paired, steps_to
from cca_lab.studies.evaluate import context_of
from cca_lab.studies.noise_on_models import SITES, divergences
from cca_lab.tasks.corpus import load_corpus
from cca_lab.tasks.mixture import Mixture

MOST_SEEDS = 100
SIGMAS = (0.1, 0.3, 1.0)
NOISE_CONDITIONS = {"full attention": ("full", {}), "CCA": ("cca", {"group": 16, "window": 64}),
                    "DGA": ("dga", {"group": 16, "gamma": 0.1})}
LEARNING_CONDITIONS = {"full attention": ("full", {}), "CCA": ("cca", {"group": 16, "window": 32}),
                       "DGA": ("dga", {"group": 16, "gamma": 0.1, "choose": "blocks"})}
TOKENIZER = "gpt2-mini"  # of the shipped models; all of them share it


def noise(model_name: str | None = None, out: Path | None = None, *, texts: int = 8, length: int = 256,
          seeds: int = 3, steps: int = 30, sigmas: Sequence[float] = SIGMAS, text: str | None = None) -> dict:
    """Measure KL(without noise || with noise) of a model under full attention, CCA and DGA (Figure 3b).

    Every attention, full attention included, is measured right after the swap and after `steps` of finetuning.

    Args:
        model_name: a folder or a hub name; None for the shipped gpt2-mini.
        out: the JSON file to write; None for data/results/noise-MODEL.json.
        texts: number of windows of held-out text.
        length: tokens per window.
        seeds: random draws of the noise.
        steps: optimizer steps of finetuning; 0 for none.
        sigmas: standard deviations of the noise on a token's logit.
        text: as in `load_corpus`.

    Returns:
        What is written to the file.
    """
    quiet()
    check_sizes(seeds=(seeds, 1, MOST_SEEDS), steps=(steps, 0, 10**6))
    source = models_folder() / TOKENIZER if model_name is None else model_name
    out = check_file(out or new_result(f"noise-{Path(source).resolve().name}.json"))
    base, tokenizer = load_pretrained(source, "full")
    disable_attention_dropout(base).to(device())
    corpus, name = load_corpus(text), Path(source).name
    train, held_out = tokenize(corpus.train, tokenizer), tokenize(corpus.validation, tokenizer)
    check_sizes(length=(length, 2, min(context_of(base), len(held_out))))
    check_sizes(texts=(texts, 2, len(held_out) // length))
    first = torch.linspace(0, len(held_out) - length, texts).long()
    input_ids = held_out[first[:, None] + torch.arange(length)].to(base.device)   # (texts, length)
    mixture = Mixture(train, (), length, 8, 1.0)
    rows, done = [], 0
    with training_progress(f"noise, {name}", 2 * len(NOISE_CONDITIONS)) as report:
        for condition, (attention, options) in NOISE_CONDITIONS.items():
            for taken in sorted({0, steps}):
                report(done, f"{condition}, {taken} steps")
                model = swap_attention(copy.deepcopy(base), attention, **options)
                _train(model, mixture, taken)
                found = divergences(model, input_ids, sigmas, range(seeds))
                clean = perplexity(model, held_out, length=length, windows=texts)
                rows += [{"attention": condition, "options": options, "steps": taken, "perplexity": asdict(clean),
                          "site": site, "sigma": sigma, "kl": asdict(estimate), "seeds": each}
                         for site, by_sigma in found.items() for sigma, (estimate, each) in by_sigma.items()]
                done += 1
        report(2 * len(NOISE_CONDITIONS), "")
    result = {"model": name, "texts": texts, "length": length, "noise_seeds": seeds, "finetuning_steps": steps,
              "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint}, "device": device_name(),
              "rows": rows}
    write_json(out, result)
    _print_noise(result, sigmas)
    return result


def _train(model: PreTrainedModel, mixture: Mixture, steps: int) -> None:
    if steps:
        Finetuner(model, mixture, FinetuneConfig(steps=steps, save_every=0, grow=0.0, precision="float32")).run()
    model.eval()


def _print_noise(result: dict, sigmas: Sequence[float]) -> None:
    for site in SITES:
        lines: dict[tuple[str, int], list[str]] = {}
        for row in result["rows"]:
            if row["site"] == site:
                kl = Estimate(**row["kl"])
                cell = f"{kl.value:.3g} +- {(kl.high - kl.low) / 2:.1g}"
                lines.setdefault((row["attention"], row["steps"]), []).append(cell)
        print_table(f"KL in nats, with half the 95 % interval, noise on {site}, {result['model']}",
                    ["attention, steps", *(f"sigma {sigma:g}" for sigma in sigmas)],
                    [[f"{condition}, {steps}", *cells] for (condition, steps), cells in lines.items()])


def convergence(out: Path | None = None, *, seeds: int = 4, budget: Budget | None = None,
                text: str | None = None) -> dict:
    """Train small models with full attention, CCA and DGA from the same seeds, and compare (Figures 3a, 4).

    Args:
        out: the JSON file to write; None for data/results/convergence.json.
        seeds: training runs per attention.
        budget: steps and sizes; None for the default ones.
        text: as in `load_corpus`.

    Returns:
        What is written: losses by condition and seed, and condition minus full attention at every measurement.
    """
    quiet()
    budget = Budget() if budget is None else budget
    out = check_file(out or new_result("convergence.json"))
    check_sizes(seeds=(seeds, 2, MOST_SEEDS), steps=(budget.steps, 2 * budget.every, 10**6))
    _, tokenizer = load_pretrained(models_folder() / TOKENIZER, "full")
    corpus = load_corpus(text)
    streams = (tokenize(side, tokenizer) for side in (corpus.train, corpus.validation))
    with training_progress("convergence", seeds * len(LEARNING_CONDITIONS)) as report:
        losses = compare(LEARNING_CONDITIONS, range(seeds), budget, *streams, tokenizer, report)
    at = [index * budget.every for index in range(len(next(iter(losses.values()))[0]))]
    full = losses["full attention"]
    rows = {}
    for condition, found in losses.items():
        attention, options = LEARNING_CONDITIONS[condition]
        row = {"attention": attention, "options": options, "losses": found.tolist()}
        if condition != "full attention":
            differences = [paired(found[:, index], full[:, index]) for index in range(len(at))]
            row["minus_full"] = [asdict(difference) for difference in differences]
            row["verdict"] = differences[-1].verdict
            row["steps_to_full's_last_loss"] = [steps_to(own, reference[-1], budget.every)
                                                for own, reference in zip(found, full, strict=True)]
        rows[condition] = row
    result = {"budget": asdict(budget), "seeds": seeds, "at_step": at,
              "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint}, "device": device_name(),
              "rows": rows}
    write_json(out, result)
    _print_convergence(result)
    return result


def _print_convergence(result: dict) -> None:
    lines = []
    for condition, row in result["rows"].items():
        last = [losses[-1] for losses in row["losses"]]
        cells = [f"{sum(last) / len(last):.4f}", "-", "-"]
        if "minus_full" in row:
            difference = row["minus_full"][-1]
            cells[1:] = [f"{difference['value']:+.4f} +- {difference['error']:.4f}", row["verdict"]]
        lines.append([condition, *cells])
    print_table(f"held-out loss after {result['at_step'][-1]} steps, {result['seeds']} seeds",
                ["attention", "loss", "minus full, paired [95 %]", "verdict"], lines)
