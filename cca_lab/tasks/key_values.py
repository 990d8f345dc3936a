"""Key-value retrieval: a JSON object of random pairs, one of whose keys is asked for.

    Liu et al., Lost in the Middle: How Language Models Use Long Contexts (2024)

Differs from the paper: the wording is the lab's own, and the prompt ends in the pair that is asked for, up to the
opening quotation mark of its value. The number of pairs follows from the length.
"""

import json
import random
import uuid
from dataclasses import dataclass
from typing import ClassVar

from cca_lab.tasks.examples import Example, Task


def prompt_of(pairs: list[tuple[str, str]], key: str) -> str:
    """Return the prompt that shows the pairs as JSON and asks for the value of a key."""
    lines = ",\n ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in pairs)
    return f"These keys have these values:\n{{{lines}}}\nThe pair of one key again:\n{json.dumps(key)}: \""


@dataclass(frozen=True)
class KeyValues(Task):
    """Pairs of random UUIDs; the value of one is wanted.

    Attributes:
        short: keys and values of six hexadecimal digits, for tokenizers that need many tokens for a UUID.
    """

    name: ClassVar[str] = "key_values"
    short: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.short, bool):
            raise ValueError(f"short: got {self.short!r}, wanted true or false")

    def build(self, draw: random.Random, place: float | None, pieces: int) -> Example:
        """Return an example with `pieces` pairs beside the one that is asked for."""
        place = draw.random() if place is None else place
        texts: dict[str, None] = {}
        while len(texts) < 2 * (1 + pieces):
            texts[self._text(draw)] = None
        key, value, *others = texts
        pairs = list(zip(others[::2], others[1::2], strict=True))
        pairs.insert(round(place * pieces), (key, value))
        return Example(prompt_of(pairs, key), (value,), place)

    def _text(self, draw: random.Random) -> str:
        return f"{draw.getrandbits(24):06x}" if self.short else str(uuid.UUID(int=draw.getrandbits(128), version=4))
