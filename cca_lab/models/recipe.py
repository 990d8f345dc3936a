"""How a model is finetuned: the settings of a run; the defaults come from a sweep over recipes."""

from dataclasses import dataclass

from cca_lab.settings import check, option

MOST_RATE = 1e38  # a larger one is no number of float32


class Diverged(RuntimeError):
    """Training diverged: a loss, a gradient or a perplexity is not a finite number."""


@dataclass(frozen=True)
class FinetuneConfig:
    """Hyperparameters of a finetuning run.

    The learning rate decays linearly, to a tenth of the peak after the last step. While groups grow
    (2, 4, 8, ... tokens), a pair of tokens is close to a single token, so the model can use its
    cores from the first step; the papers do not do this.
    """

    steps: int = option(300, "Optimizer steps of a finetuning.", least=0)
    strategy: str = option(
        "full", "Weights to train: full, qkv (W^Q, W^K, W^V only, the paper's partial finetuning), "
                "lora (low-rank updates of these, which are saved alone), compressor (what the "
                "mechanism added, as in LoCoCo's Section 4.2) or none.",
        choices=("full", "qkv", "none", "compressor", "lora"))
    learning_rate: float = option(1e-3, "Learning rate after warm-up; falls linearly to a tenth.",
                                  above=0, most=MOST_RATE)
    optimizer: str = option("adamw", "adamw; or muon for the matrices of the blocks, AdamW for the "
                                     "rest.", choices=("adamw", "muon"))
    warmup: int = option(10, "Steps of linear warm-up of the learning rate.", least=0)
    accumulation: int = option(1, "Micro-steps per step, to save memory.", least=1)
    weight_decay: float = option(0.01, "Weight decay of AdamW, on matrices.", least=0)
    clip: float = option(1.0, "Largest norm of the gradient.", above=0)
    save_every: int = option(50, "Steps between checkpoints; 0 saves at the end only.", least=0)
    grow: float = option(0.6, "Share of the steps (0 to 1) in which groups grow from 2 tokens to "
                              "their size.", least=0, most=1)
    precision: str = option(
        "auto", "float32, bf16 (autocast; the weights stay float32) or auto: bf16 on a GPU that "
                "has it, and on a CPU where it is faster, measured before the first step.",
        choices=("auto", "float32", "bf16"))
    rank: int = option(16, "Rank of the updates that lora trains.", least=1)
    objective: str = option(
        "tokens", "What is trained: the prediction of tokens, or each layer's attention, to give "
                  "what full attention gave (before a finetuning on tokens).",
        choices=("tokens", "attention"))

    def __post_init__(self) -> None:
        check(self)
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
