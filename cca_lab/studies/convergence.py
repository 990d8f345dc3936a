"""Figures 3a and 4 of DGA at a small scale: does a model with grouped attention learn faster?

For each of several seeds, every condition starts from the same weights, reads the same batches and takes as many
steps; only the attention differs. The losses on held-out text are compared, condition minus full attention, by seed.

Differs from the paper: models of about 0.2 million parameters on the standard library of Python, a fixed budget of
steps, several seeds instead of one, and DGA in its causal form, choose="blocks": with focal tokens chosen from the
whole prompt, a row's loss would depend on tokens after it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from cca_lab.models.evaluate import perplexity
from cca_lab.models.finetune import FinetuneConfig, Finetuner
from cca_lab.models.mini import new_model
from cca_lab.models.plugin import swap_attention
from cca_lab.tasks.mixture import Mixture

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Budget:
    """The training budget and the model of every condition.

    Attributes:
        steps: optimizer steps (AdamW with betas 0.9 and 0.95, as Appendix C.5).
        rows: sequences per step.
        length: tokens per sequence, and the model's context.
        rate: learning rate after warm-up.
        warmup: steps of warm-up.
        every: steps between two measurements.
        windows: held-out windows per measurement.
        family, layers, width, heads: sizes of the model.
    """

    steps: int = 100
    rows: int = 8
    length: int = 256
    rate: float = 4e-3
    warmup: int = 10
    every: int = 20
    windows: int = 16
    family: str = "gpt2"
    layers: int = 2
    width: int = 64
    heads: int = 2


def learn(name: str, options: dict, seed: int, budget: Budget, train: Tensor, held_out: Tensor,
          tokenizer: PreTrainedTokenizerBase) -> list[float]:
    """Train one model; return its held-out loss (nats per token) before the first step and every `budget.every` steps.

    Args:
        name, options: the mechanism and its options.
        seed: seed of the weights and of the batches.
        budget: steps and sizes.
        train: (n,) token ids to train on.
        held_out: (n,) token ids to evaluate on.
        tokenizer: the tokenizer of these ids.
    """
    torch.manual_seed(seed)
    model = new_model(budget.family, vocabulary=len(tokenizer), context=budget.length, width=budget.width,
                      layers=budget.layers, heads=budget.heads, end_of_text=tokenizer.eos_token_id)
    swap_attention(model, name, **options)
    losses = []

    def measure() -> None:
        found = perplexity(model, held_out, length=budget.length, windows=budget.windows, batch=budget.windows)
        losses.append(float(np.log(found.value)))

    config = FinetuneConfig(steps=budget.steps, learning_rate=budget.rate, warmup=budget.warmup, save_every=0, grow=0.0,
                            precision="float32")
    mixture = Mixture(train, (), budget.length, budget.rows, 1.0, seed)
    trainer = Finetuner(model, mixture, config)
    model.to(trainer.accelerator.device)
    measure()
    trainer.run(lambda record: measure() if record["step"] % budget.every == 0 else None)
    return losses


def compare(arms: Mapping[str, tuple[str, dict]], seeds: Sequence[int], budget: Budget, train: Tensor,
            held_out: Tensor, tokenizer: PreTrainedTokenizerBase,
            report: Callable[[int, str], None] = lambda done, text: None) -> dict[str, np.ndarray]:
    """Train every condition with every seed; return held-out losses, (seeds, measurements) by condition.

    Args:
        arms: the conditions: (mechanism, options) by name.
        report: called with the number of runs done, and the name of the next one.
        The others are those of `learn`.
    """
    losses: dict[str, list[list[float]]] = {condition: [] for condition in arms}
    done = 0
    for seed in seeds:
        for condition, (name, options) in arms.items():
            report(done, f"{condition}, seed {seed}")
            losses[condition].append(learn(name, options, seed, budget, train, held_out, tokenizer))
            done += 1
    report(done, "")
    return {condition: np.array(found) for condition, found in losses.items()}


@dataclass(frozen=True)
class Difference:
    """A paired difference: the mean over seeds and the half-width of its 95 % interval (Student's t)."""

    value: float
    error: float

    @property
    def verdict(self) -> str:
        """Return "lower", "higher" or, if the interval contains 0, "no difference seen"."""
        if abs(self.value) <= self.error:
            return "no difference seen"
        return "lower" if self.value < 0 else "higher"


def paired(arm: np.ndarray, reference: np.ndarray) -> Difference:
    """Compare two conditions at one measurement, paired by seed: (seeds,) losses each.

    Raises:
        ValueError: for fewer than two seeds, which have no spread.
    """
    differences = np.asarray(arm) - np.asarray(reference)
    if len(differences) < 2:
        raise ValueError(f"seeds: got {len(differences)}, wanted 2 or more; one run shows no spread")
    spread = float(differences.std(ddof=1)) / len(differences) ** 0.5
    return Difference(float(differences.mean()),
                      float(stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)) * spread)


def steps_to(losses: Sequence[float], level: float, every: int) -> float | None:
    """Return the step at which a loss curve first falls to a level, interpolated linearly; None if it does not."""
    for index, loss in enumerate(losses):
        if loss <= level:
            if index == 0:
                return 0.0
            before = losses[index - 1]
            return every * (index - 1 + (before - level) / (before - loss))
    return None
