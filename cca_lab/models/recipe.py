"""How a model is finetuned: the settings of a run; the defaults come from a sweep over recipes."""

from dataclasses import dataclass
from typing import Literal, get_args

from cca_lab.options import Count, Finite, Natural
from cca_lab.settings import check_integers, check_numbers

MOST_RATE = 1e38  # a larger one is no number of float32
Strategy = Literal["full", "qkv", "none", "compressor", "lora"]
Optimizer = Literal["adamw", "muon"]
Precision = Literal["auto", "float32", "bf16"]


class Diverged(RuntimeError):
    """Training diverged: a loss, a gradient or a perplexity is not a finite number."""


@dataclass(frozen=True)
class FinetuneConfig:
    """Hyperparameters of a finetuning run.

    The learning rate decays linearly, to a tenth of the peak after the last step. While groups grow
    (2, 4, 8, ... tokens), a pair of tokens is close to a single token, so the model can use its
    cores from the first step; the papers do not do this.
    """

    steps: Natural = 300
    """Optimizer steps of a finetuning."""
    strategy: Strategy = "full"
    """Weights to train: full, qkv (W^Q, W^K, W^V only, the paper's partial finetuning), lora
    (low-rank updates of these, which are saved alone), compressor (what the mechanism added, as in
    LoCoCo's Section 4.2) or none."""
    learning_rate: Finite = 1e-3
    """Learning rate after warm-up; falls linearly to a tenth."""
    optimizer: Optimizer = "adamw"
    """adamw; or muon for the matrices of the blocks, AdamW for the rest."""
    warmup: Natural = 10
    """Steps of linear warm-up of the learning rate."""
    accumulation: Count = 1
    """Micro-steps per step, to save memory."""
    weight_decay: Finite = 0.01
    """Weight decay of AdamW, on matrices."""
    clip: Finite = 1.0
    """Largest norm of the gradient."""
    save_every: Natural = 50
    """Steps between checkpoints; 0 saves at the end only."""
    grow: Finite = 0.6
    """Share of the steps (0 to 1) in which groups grow from 2 tokens to their size."""
    precision: Precision = "auto"
    """float32, bf16 (autocast; the weights stay float32) or auto: bf16 on a GPU that has it, else
    float32."""
    rank: Count = 16
    """Rank of the updates that lora trains."""

    def __post_init__(self) -> None:
        check_integers(0, steps=self.steps, warmup=self.warmup, save_every=self.save_every)
        check_integers(1, accumulation=self.accumulation, rank=self.rank)
        check_numbers(0, MOST_RATE, learning_rate=self.learning_rate, clip=self.clip,
                      weight_decay=self.weight_decay)
        for name in ("learning_rate", "clip"):
            if not getattr(self, name):
                raise ValueError(f"{name}: got 0, which trains nothing; choose a number above 0")
        check_numbers(0, 1, grow=self.grow)
        for name, kind in (("strategy", Strategy), ("optimizer", Optimizer),
                           ("precision", Precision)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name}: got {getattr(self, name)!r}, wanted one of "
                                 f"{', '.join(get_args(kind))}")
        if self.strategy == "lora" and self.optimizer == "muon":
            raise ValueError("optimizer: got 'muon' with the strategy 'lora', wanted 'adamw': muon "
                             "is for whole matrices, and lora trains factors of their updates")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step (0-indexed)."""
        warm = min(1.0, (step + 1) / max(1, self.warmup))
        return self.learning_rate * warm * (1.0 - 0.9 * step / max(1, self.steps))

    def group(self, step: int, last: int) -> int:
        """Return the group size of a step (0-indexed) while groups grow to the size `last`."""
        sizes = [2**power for power in range(1, last.bit_length()) if 2**power < last]
        phase = self.grow * self.steps / max(1, len(sizes))  # steps for each size
        return sizes[int(step / phase)] if step < phase * len(sizes) else last
