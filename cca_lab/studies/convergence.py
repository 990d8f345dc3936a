"""Figures 3a and 4 of DGA at a small scale: does grouped attention learn faster?

With each seed, every condition starts from the same weights and reads the same batches; held-out
losses are compared, condition minus full attention, by seed. Differs from the paper: models of
about 0.2 million parameters on the standard library of Python, a fixed budget of steps, several
seeds, and DGA in its causal form, choose="blocks": with focal tokens chosen from the whole prompt,
a row's loss would depend on tokens after it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from torch import Tensor

from cca_lab import models
from cca_lab.files import models_folder, new_result
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.options import Count, at_least
from cca_lab.reporting import device_name, training_progress
from cca_lab.studies.study import load, markdown, noted_corpus, result_file
from cca_lab.tasks.mixture import Mixture

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
          held_out: Tensor, tokenizer: "PreTrainedTokenizerBase") -> list[float]:
    """Train one model; return held-out losses in nats, at first and every `budget.every` steps."""
    from cca_lab.models.evaluate import perplexity
    from cca_lab.models.finetune import Finetuner
    from cca_lab.models.mini import new_model

    torch.manual_seed(seed)
    model = new_model(budget.family, vocabulary=len(tokenizer), context=budget.length,
                      width=budget.width, layers=budget.layers, heads=budget.heads,
                      end_of_text=tokenizer.eos_token_id)
    models.swap_attention(model, name, **options)
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
            train: Tensor, held_out: Tensor, tokenizer: "PreTrainedTokenizerBase",
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
    from scipy import stats

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
class Convergence:
    """Train small models with full attention, CCA and DGA from the same seeds, and compare.

    The file holds the losses by condition and seed, and each condition minus full attention.
    """

    seeds: Annotated[int, at_least(2)] = 4
    """Training runs per attention, with seeds 0, 1, ..."""
    steps: Count = 100
    """Optimizer steps per run; a multiple of 20."""
    text: str | None = None
    """Text to read: a file, a folder, or hub:NAME for a data set; by default Python's library."""
    out: Path | None = None
    """JSON file to write; by default in data/results."""

    def run(self, budget: Budget | None = None) -> dict[str, Any]:
        """Train every condition with every seed, and compare each with full attention."""
        budget = budget or Budget(steps=self.steps)
        from cca_lab.models.pretrain import tokenize

        with result_file(self.out or new_result("convergence.json")) as result:
            _, tokenizer = load(str(models_folder() / TOKENIZER), "full")
            corpus = noted_corpus(self.text)
            train, held_out = (tokenize(side, tokenizer)
                               for side in (corpus.train, corpus.validation))
            with training_progress("convergence", self.seeds * len(CONDITIONS)) as report:
                losses = compare(CONDITIONS, range(self.seeds), budget, train, held_out, tokenizer,
                                 report)
            result |= {"budget": asdict(budget), "seeds": self.seeds,
                       "at_step": [index * budget.every
                                   for index in range(losses["full attention"].shape[1])],
                       "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint},
                       "device": device_name(),
                       "rows": {name: row_of(name, losses, budget) for name in CONDITIONS}}
        print(table(result))
        return result


def row_of(condition: str, losses: Mapping[str, np.ndarray], budget: Budget) -> dict[str, Any]:
    """Return a condition's losses, (seeds, measurements), beside those of full attention."""
    attention, options = CONDITIONS[condition]
    curves, full = losses[condition], losses["full attention"]
    row: dict[str, Any] = {"attention": attention, "options": options, "losses": curves.tolist()}
    if condition != "full attention":
        differences = [paired(*columns) for columns in zip(curves.T, full.T, strict=True)]
        row["minus_full"] = [asdict(difference) for difference in differences]
        row["verdict"] = differences[-1].verdict
        row["steps_to_full's_last_loss"] = [
            steps_to(curve, reference[-1], budget.every)
            for curve, reference in zip(curves, full, strict=True)]
    return row


def table(result: Mapping[str, Any]) -> str:
    """Return the table of the last losses and differences."""
    rows = []
    for condition, row in result["rows"].items():
        last = row.get("minus_full", [None])[-1]
        rows.append([condition, f"{np.mean([losses[-1] for losses in row['losses']]):.4f}",
                     f"{last['value']:+.4f} +- {last['error']:.4f}" if last else "-",
                     row.get("verdict", "-")])
    return markdown(["attention", "held-out loss", "minus full, paired [95 %]", "verdict"], rows,
                    f"After {result['at_step'][-1]} steps, {result['seeds']} seeds.")
