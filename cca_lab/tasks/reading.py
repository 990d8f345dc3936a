"""What a finetuning run reads: the settings of its training data."""

from dataclasses import dataclass

from cca_lab.settings import check, option

SHIFT = 64


@dataclass(frozen=True)
class Reading:
    """The training data of a finetuning run."""

    length: int | None = option(None, "Tokens per sequence.", least=1,
                                shown="the model's context, at most 1024")
    rows: int = option(8, "Sequences per step, over all processes and micro-steps.", least=1)
    text_share: float = option(
        0.75, "Share of sequences (0 to 1) that are text; the rest are questions.", least=0, most=1)
    seed: int = option(0, "Random seed of the data.", least=0)
    shift: int = option(SHIFT, "Most tokens of text before the documents of a question row.",
                        least=0)
    varied: bool = option(
        True, "Half of the questions have documents of 5 to 20 tokens; otherwise all have one "
        "length.", flag="--varied/--one-length")

    def __post_init__(self) -> None:
        check(self)
