"""What a base model is made of."""

from dataclasses import dataclass, field
from pathlib import Path

FAMILIES = ("gpt2", "opt")


@dataclass(frozen=True)
class PretrainOptions:
    """What a base model is made of.

    Attributes:
        family: "gpt2" or "opt".
        out: the folder to write.
        tokens: the budget of training tokens.
        context: the most tokens the model reads.
        vocabulary, width, layers, heads: of the model.
        learning_rate: peak rate.
        seed: of weights and data.
        text: a file, a folder or hub:NAME; None for the standard library.
        threads: CPU threads; 0 leaves torch's choice.
        attention: the mechanism to train with from the first step on.
        attention_options: of that mechanism; the others keep their defaults.
        text_only: learn to read and nothing else, without the curriculum of questions.
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
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide the width {self.width}; choose a divisor")
        for name, least in (("tokens", 1), ("context", 64), ("vocabulary", 512), ("layers", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}, wanted {least} or more")
