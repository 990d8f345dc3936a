"""How a model is finetuned: the settings of a run; the defaults come from a sweep over recipes."""

from dataclasses import dataclass
from math import inf

from cca_lab.settings import check_integers, check_numbers

STRATEGIES = ("full", "qkv", "none", "compressor")
OPTIMIZERS = ("adamw", "muon")
PRECISIONS = ("auto", "float32", "bf16")


class Diverged(RuntimeError):
    """Training diverged: a loss, a gradient or a perplexity is not a finite number."""


@dataclass(frozen=True)
class FinetuneConfig:
    """Hyperparameters of a finetuning run.

    Attributes:
        steps: optimizer steps.
        strategy: "full", "qkv" (W^Q, W^K, W^V only, the paper's partial
            finetuning), "none" (the swapped model as it is) or "compressor" (only
            what the mechanism added, as in LoCoCo's Section 4.2).
        learning_rate: peak rate, after warm-up. It decays linearly, to a tenth of the peak after the last step.
        optimizer: "adamw", or "muon" for the blocks' matrices and AdamW for the rest, as in pretraining.
        warmup: steps of linear warm-up.
        accumulation: micro-steps into which a step's batch is cut, to save memory.
        weight_decay: weight decay of AdamW, on matrices.
        clip: largest gradient norm.
        save_every: steps between checkpoints; 0 saves at the end only.
        grow: fraction of the steps during which groups grow (2, 4, 8, ... tokens) to the size that the model was
            swapped to; 0 trains with that size from the start. A pair of tokens is close to a single token, so
            the model can use its cores from the first step. The papers do not do this.
        precision: "float32", "bf16" (autocast; the weights stay float32) or "auto": bf16 on a GPU that has it,
            and on a CPU with matrix units for it (AMX) if it is faster there, measured before the first step.
    """

    steps: int = 300
    strategy: str = "full"
    learning_rate: float = 1e-3
    optimizer: str = "adamw"
    warmup: int = 10
    accumulation: int = 1
    weight_decay: float = 0.01
    clip: float = 1.0
    save_every: int = 50
    grow: float = 0.6
    precision: str = "auto"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy: got {self.strategy!r}, wanted one of {', '.join(STRATEGIES)}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer: got {self.optimizer!r}, wanted one of {', '.join(OPTIMIZERS)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision: got {self.precision!r}, wanted one of {', '.join(PRECISIONS)}")
        check_integers(0, steps=self.steps, warmup=self.warmup, save_every=self.save_every)
        check_integers(1, accumulation=self.accumulation)
        check_numbers(0, inf, learning_rate=self.learning_rate, weight_decay=self.weight_decay, clip=self.clip)
        if not self.learning_rate > 0 or not self.clip > 0:
            raise ValueError(f"learning_rate, clip: got {self.learning_rate} and {self.clip}, wanted more than 0")
        check_numbers(0, 1, grow=self.grow)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step (0-indexed)."""
        warm = min(1.0, (step + 1) / max(1, self.warmup))
        return self.learning_rate * warm * (1.0 - 0.9 * step / max(1, self.steps))

    def group(self, step: int, last: int) -> int:
        """Return the group size of a step (0-indexed) while groups grow to the size `last`."""
        sizes = [2**power for power in range(1, last.bit_length()) if 2**power < last]
        phase = self.grow * self.steps / max(1, len(sizes))  # steps for each size
        return sizes[int(step / phase)] if step < phase * len(sizes) else last
