"""What a finetuning run reads: the settings of its training data."""

from dataclasses import dataclass

from cca_lab.settings import check_integers, check_numbers

SHIFT = 64


@dataclass(frozen=True)
class Reading:
    """The training data of a finetuning run.

    Attributes:
        length: tokens of a sequence; None for the model's context, at most 1024.
        rows: sequences of a step, over all processes and micro-steps.
        text_share: fraction of them that are text; the rest are questions.
        seed: seed of all random draws.
        shift: largest number of text tokens before the documents of a question row.
        varied: whether half of the questions have documents of 5 to 20 tokens; otherwise all have one length.
    """

    length: int | None = None
    rows: int = 8
    text_share: float = 0.75
    seed: int = 0
    shift: int = SHIFT
    varied: bool = True

    def __post_init__(self) -> None:
        if self.length is not None:
            check_integers(1, length=self.length)
        check_integers(1, rows=self.rows)
        check_integers(0, seed=self.seed, shift=self.shift)
        check_numbers(0, 1, text_share=self.text_share)
