"""The options of `cca-lab pretrain`."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from cca_lab.settings import LARGEST_WRITTEN, check_sizes

MOST_WEIGHTS = 1e9
FAMILIES = ("gpt2", "opt")


@dataclass(frozen=True)
class PretrainOptions:
    """The options of a pretraining run.

    Attributes:
        family: "gpt2" or "opt".
        out: the folder to write.
        tokens: budget of training tokens.
        context: the longest sequence the model reads, in tokens.
        vocabulary, width, layers, heads: sizes of the model.
        learning_rate: peak learning rate.
        seed: seed of weights and data.
        text: a file, a folder or hub:NAME; None for the standard library.
        threads: CPU threads; 0 leaves the choice to PyTorch.
        attention: the mechanism to train with, from the first step.
        attention_options: options of that mechanism; those left out keep their defaults.
        text_only: train on text only, without the curriculum of questions.
    """

    family: str
    out: Path
    tokens: float = 20e6
    context: int = 512
    vocabulary: int = 2048
    width: int = 128
    layers: int = 4
    heads: int = 4
    learning_rate: float = 8e-3
    seed: int = 0
    text: str | None = None
    threads: int = 0
    attention: str = "full"
    attention_options: dict = field(default_factory=dict)
    text_only: bool = False

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family: got {self.family!r}, wanted one of {', '.join(FAMILIES)}")
        check_sizes(context=(self.context, 64, 2**20), vocabulary=(self.vocabulary, 512, 2**20),
                    layers=(self.layers, 1, 100), width=(self.width, 1, 16384), heads=(self.heads, 1, self.width),
                    threads=(self.threads, 0, 1024), seed=(self.seed, 0, LARGEST_WRITTEN))
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide the width {self.width}; choose a divisor")
        if not 1 <= self.tokens < math.inf:
            raise ValueError(f"tokens: got {self.tokens}, wanted 1 or more, and an end")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate: got {self.learning_rate}, wanted a finite number above 0")
        weights = self.width * (12 * self.layers * self.width + self.vocabulary + self.context)
        if weights > MOST_WEIGHTS:
            raise ValueError(f"width, layers, vocabulary, context: {weights:.1e} weights, wanted {MOST_WEIGHTS:.0e} at "
                             "most; make the model smaller")
