"""What a finetuning run reads: the settings of its training data."""

from dataclasses import dataclass

from cca_lab.options import Count, Finite, Natural
from cca_lab.settings import check_integers, check_numbers

SHIFT = 64


@dataclass(frozen=True)
class Reading:
    """The training data of a finetuning run."""

    length: Count | None = None
    """Tokens per sequence; by default the model's context, at most 1024."""
    rows: Count = 8
    """Sequences per step, over all processes and micro-steps."""
    text_share: Finite = 0.75
    """Share of sequences (0 to 1) that are text; the rest are questions."""
    seed: Natural = 0
    """Random seed of the data."""
    shift: Natural = SHIFT
    """Most tokens of text before the documents of a question row."""
    varied: bool = True
    """Half of the questions have documents of 5 to 20 tokens; otherwise all have one length."""

    def __post_init__(self) -> None:
        check_integers(1, rows=self.rows)
        check_integers(0, seed=self.seed, shift=self.shift)
        check_numbers(0, 1, text_share=self.text_share)
