"""Figures 3a and 4 of DGA at a small scale: does grouped attention learn faster?

With each seed, every condition starts from the same weights and reads the same batches; held-out
losses are compared, condition minus full attention, by seed. Differs from the paper: models of
about 0.2 million parameters on the standard library of Python, a fixed budget of steps, several
seeds, and DGA in its causal form, choose="blocks": with focal tokens chosen from the whole prompt,
a row's loss would depend on tokens after it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from cca_lab.files import models_folder
from cca_lab.models import load_pretrained
from cca_lab.models.evaluate import perplexity
from cca_lab.models.finetune import Finetuner
from cca_lab.models.mini import new_model
from cca_lab.models.plugin import swap_attention
from cca_lab.models.pretrain import tokenize
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.reporting import device_name, print_table, training_progress
from cca_lab.settings import check_sizes, option
from cca_lab.studies.study import MOST_SEEDS, ModelStudy, Study, option_of
from cca_lab.tasks.corpus import load_corpus
from cca_lab.tasks.mixture import Mixture

CONFIDENCE = 0.95
TOKENIZER = "gpt2-mini"  # of the shipped models; all of them share it
CONDITIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "full attention": ("full", {}), "CCA": ("cca", {"group": 16, "window": 32}),
    "DGA": ("dga", {"group": 16, "gamma": 0.1, "choose": "blocks"})}


@dataclass(frozen=True)
class Budget:
    """The training and the model of every condition."""

    steps: int = 100  # of AdamW with betas 0.9 and 0.95, as Appendix C.5
    rows: int = 8  # sequences per step
    length: int = 256  # tokens per sequence, and the model's context
    rate: float = 4e-3  # learning rate after warm-up
    warmup: int = 10  # steps
    every: int = 20  # steps between two measurements
    windows: int = 16  # held-out windows per measurement
    family: str = "gpt2"
    layers: int = 2
    width: int = 64
    heads: int = 2


def learn(name: str, options: dict[str, Any], seed: int, budget: Budget, train: Tensor,
          held_out: Tensor, tokenizer: PreTrainedTokenizerBase) -> list[float]:
    """Train one model; return held-out losses in nats, at first and every `budget.every` steps."""
    torch.manual_seed(seed)
    model = new_model(budget.family, vocabulary=len(tokenizer), context=budget.length,
                      width=budget.width, layers=budget.layers, heads=budget.heads,
                      end_of_text=tokenizer.eos_token_id)
    swap_attention(model, name, **options)
    losses = []

    def measure() -> None:
        estimate = perplexity(model, held_out, length=budget.length, windows=budget.windows,
                              batch=budget.windows)
        losses.append(float(np.log(estimate.value)))

    config = FinetuneConfig(steps=budget.steps, learning_rate=budget.rate, warmup=budget.warmup,
                            save_every=0, grow=0.0, precision="float32")
    mixture = Mixture(train, (), budget.length, budget.rows, 1.0, seed)
    trainer = Finetuner(model, mixture, config)
    model.to(trainer.accelerator.device)
    measure()
    trainer.run(lambda record: measure() if record["step"] % budget.every == 0 else None)
    return losses


def compare(arms: Mapping[str, tuple[str, dict[str, Any]]], seeds: Sequence[int], budget: Budget,
            train: Tensor, held_out: Tensor, tokenizer: PreTrainedTokenizerBase,
            report: Callable[[int, str], None] = lambda done, text: None) -> dict[str, np.ndarray]:
    """Train every condition with every seed; return losses, (seeds, measurements) each."""
    losses: dict[str, list[list[float]]] = {condition: [] for condition in arms}
    for done, (seed, condition) in enumerate(product(seeds, arms)):
        report(done, f"{condition}, seed {seed}")
        name, options = arms[condition]
        losses[condition].append(learn(name, options, seed, budget, train, held_out, tokenizer))
    report(len(seeds) * len(arms), "")
    return {condition: np.array(losses[condition]) for condition in arms}


@dataclass(frozen=True)
class Difference:
    """A paired difference: mean over seeds and half-width of its 95 % interval (Student's t)."""

    value: float
    error: float

    @property
    def verdict(self) -> str:
        """Return "lower", "higher" or, if the interval contains 0, "no difference seen"."""
        if abs(self.value) <= self.error:
            return "no difference seen"
        return "lower" if self.value < 0 else "higher"


def paired(arm: np.ndarray, reference: np.ndarray) -> Difference:
    """Compare two conditions, losses (seeds,) each, paired by seed; ValueError below two seeds."""
    differences = np.asarray(arm) - np.asarray(reference)
    if len(differences) < 2:
        raise ValueError(
            f"seeds: got {len(differences)}, wanted 2 or more; one run shows no spread")
    spread = float(differences.std(ddof=1)) / len(differences) ** 0.5
    return Difference(float(differences.mean()),
                      float(stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)) * spread)


def steps_to(losses: Sequence[float], level: float, every: int) -> float | None:
    """Return the interpolated step at which a loss curve first falls to a level, or None."""
    for index, loss in enumerate(losses):
        if loss <= level:
            if index == 0:
                return 0.0
            before = losses[index - 1]
            return every * (index - 1 + (before - level) / (before - loss))
    return None


@dataclass(frozen=True, kw_only=True)
class Convergence(Study):
    """Train small models with full attention, CCA and DGA from the same seeds, and compare.

    The file holds the losses by condition and seed, and each condition minus full attention.
    """

    seeds: int = option(4, "Training runs per attention, with seeds 0, 1, ...", least=2,
                        most=MOST_SEEDS)
    steps: int = option(Budget.steps, "Optimizer steps per run.")
    text: str | None = option_of(ModelStudy, "text")
    budget: Budget = Budget()
    default_file = "convergence.json"

    def result(self) -> dict[str, Any]:
        """Train every condition with every seed, and compare each with full attention."""
        check_sizes(steps=(self.steps, 2 * self.budget.every, 10**6))
        budget = replace(self.budget, steps=self.steps)
        _, tokenizer = load_pretrained(models_folder() / TOKENIZER, "full")
        assert tokenizer is not None  # a shipped model has one
        corpus = load_corpus(self.text)
        train, held_out = (tokenize(side, tokenizer) for side in (corpus.train, corpus.validation))
        with training_progress("convergence", self.seeds * len(CONDITIONS)) as report:
            losses = compare(CONDITIONS, range(self.seeds), budget, train, held_out, tokenizer,
                             report)
        full, rows = losses["full attention"], {}
        at = [index * budget.every for index in range(full.shape[1])]
        for condition, curves in losses.items():
            attention, options = CONDITIONS[condition]
            row = {"attention": attention, "options": options, "losses": curves.tolist()}
            if condition != "full attention":
                differences = [paired(curves[:, index], full[:, index]) for index in range(len(at))]
                row["minus_full"] = [asdict(difference) for difference in differences]
                row["verdict"] = differences[-1].verdict
                row["steps_to_full's_last_loss"] = [
                    steps_to(curve, reference[-1], budget.every)
                    for curve, reference in zip(curves, full, strict=True)]
            rows[condition] = row
        return {"budget": asdict(budget), "seeds": self.seeds, "at_step": at,
                "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
                "device": device_name(), "rows": rows}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print the last losses and differences."""
        lines = []
        for condition, row in result["rows"].items():
            last = [losses[-1] for losses in row["losses"]]
            cells = [f"{sum(last) / len(last):.4f}", "-", "-"]
            if "minus_full" in row:
                difference = row["minus_full"][-1]
                cells[1:] = [f"{difference['value']:+.4f} +- {difference['error']:.4f}",
                             row["verdict"]]
            lines.append([condition, *cells])
        print_table(f"held-out loss after {result['at_step'][-1]} steps, {result['seeds']} seeds",
                    ["attention", "loss", "minus full, paired [95 %]", "verdict"], lines)
