"""Synthetic tasks: RULER's needles and variable tracking; key-value retrieval.

    Hsieh et al., RULER: What's the Real Context Size of Your Long-Context Language Models? (2024)
    Liu et al., Lost in the Middle: How Language Models Use Long Contexts (2024), for `KeyValues`

Differs from the papers:
  * All wording is the lab's own, so scores cannot be compared with published ones. Every prompt
    ends in the beginning of an answer, as a model without instruction training needs it.
  * Keys and names are made up: three syllables, so that no word is part of another.
  * The needles of one key, and the assignments of the chain that is asked for, stand next to each
    other if a place is given; otherwise each is drawn on its own, as there.
  * A prompt of `KeyValues` ends in the pair that is asked for, up to the opening quotation mark of
    its value; the number of pairs follows from the length.
"""

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cca_lab.tasks.examples import Example, Task

SENTENCES = ("The road goes on past the last house.", "A line is set after a line.",
             "Nothing new is said here.", "The rest of the day is like the first.",
             "Then all of it starts again.")


@dataclass(frozen=True)
class Wording:
    """How needles are told and asked for, and the sentences between them."""

    opening: str
    needle: str  # with {key} and {value}
    question: str  # with {key}; the value follows
    questions: str  # with {key} and {count}; the values follow
    filler: tuple[str, ...]


WORDINGS = (
    Wording("Remember the codes in this text.", "The code for {key} is {value}.",
            "The code for {key} is", "The {count} codes for {key} are", SENTENCES),
    Wording("A guard wrote down what happened at the gate.",
            "At noon {key} came by and showed ticket {value} to the guard.",
            "When the guard was asked about {key}, he read from his notes: ticket",
            "When the guard was asked about {key}, he read {count} tickets from his notes:",
            ("It rained a little, and the wind turned to the west.",
             "Two carts with apples went through without a stop.",
             "A dog slept under the bench until a voice called it.",
             "The clock on the tower was late again.",
             "Some children asked whether the fair had opened yet.",
             "In the evening the lamps were lit, and the street grew quiet.")),
)
CONSONANTS, VOWELS, SYLLABLES = "bdfgklmnprstvz", "aeiou", 3


def words(draw: random.Random, count: int) -> list[str]:
    """Return different made-up words of six letters; fewer of them are the first of more.

    Raises:
        ValueError: if there are not enough such words.
    """
    syllables = [consonant + vowel for consonant in CONSONANTS for vowel in VOWELS]
    most = len(syllables)**SYLLABLES // 2
    if count > most:
        raise ValueError(f"words: got {count} different ones to make, wanted at most {most}; "
                         "choose an easier task, or a shorter length")
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(draw.choices(syllables, k=SYLLABLES))] = None
    return list(made)


def numbers(draw: random.Random, count: int, digits: int) -> list[str]:
    """Return different numbers with as many digits."""
    return [str(number) for number in draw.sample(range(10 ** (digits - 1), 10**digits), count)]


def haystack(sentences: int, inserted: Sequence[tuple[float, str]],
             repeated: Sequence[str] = SENTENCES) -> str:
    """Return filler sentences with others inserted at their depths, 0 (first) to 1 (last)."""
    filler = [repeated[index % len(repeated)] for index in range(sentences)]
    ordered = sorted(inserted, key=lambda pair: pair[0])
    for depth, sentence in ordered[::-1]:  # so that sentences of one depth keep their order
        filler.insert(round(depth * sentences), sentence)
    return " ".join(filler)


class _Needles(Task):
    """Needles for the key that is asked for, and for other keys, in repeated sentences.

    The order of a task's fields is that of its name, which is the seed of its examples.

    Attributes:
        values: needles of the key, all of which are wanted; the paper's setting has 4.
        distractors: other keys, with one needle each; the paper's first setting has 3.
        digits: digits of a value, all of which the model must repeat.
        wording: which of `WORDINGS`: 1 asks a model what it was not trained on.
    """

    values: int = 1
    distractors: int = 0
    digits: int
    wording: int

    def __str__(self) -> str:
        return super().__str__().removesuffix(" wording=0")

    def build(self, draw: random.Random, place: float | None, pieces: int) -> Example:
        """Return an example with `pieces` filler sentences, needles for its key and for others."""
        said = WORDINGS[self.wording]
        key, *others = words(draw, 1 + self.distractors)
        given = numbers(draw, self.values + self.distractors, self.digits)
        depths = sorted(draw.random() for _ in range(self.values)) if place is None \
            else [place] * self.values
        inserted = [(depth, key, value) for depth, value in zip(depths, given, strict=False)]
        inserted += [(draw.random(), other, value)
                     for other, value in zip(others, given[self.values:], strict=True)]
        text = haystack(pieces, [(depth, said.needle.format(key=name, value=value))
                                 for depth, name, value in inserted], said.filler)
        question = said.question if self.values == 1 else said.questions
        return Example(f"{said.opening}\n{text}\n{question.format(key=key, count=self.values)}",
                       tuple(given[:self.values]),
                       depths[0] if place is not None or self.values == 1 else None)


@dataclass(frozen=True)
class NiahSingle(_Needles):
    """One needle."""

    name: ClassVar[str] = "niah_single"
    digits: int = 7
    wording: int = 0


@dataclass(frozen=True)
class NiahMultikey(_Needles):
    """One needle among those of other keys."""

    name: ClassVar[str] = "niah_multikey"
    distractors: int = 3
    digits: int = 7
    wording: int = 0


@dataclass(frozen=True)
class NiahMultivalue(_Needles):
    """Several needles of one key."""

    name: ClassVar[str] = "niah_multivalue"
    values: int = 4
    digits: int = 7
    wording: int = 0


@dataclass(frozen=True)
class VariableTracking(Task):
    """Names set to a number or to an earlier name; all names that hold one number are wanted.

    Attributes:
        hops: assignments from a name to the next one; a chain has one name more. The paper has 4.
        chains: chains with different numbers, one of which is asked for; the paper has 1.
    """

    name: ClassVar[str] = "variable_tracking"
    hops: int = 4
    chains: int = 1

    def build(self, draw: random.Random, place: float | None, pieces: int) -> Example:
        """Return an example with `pieces` filler sentences."""
        each = self.hops + 1
        names, values = words(draw, self.chains * each), numbers(draw, self.chains, 5)
        inserted = []
        for chain, value in enumerate(values):
            linked = names[chain * each:(chain + 1) * each]
            # an assignment stands after the one that it refers to
            depths = sorted(draw.random() for _ in linked)
            if chain == 0 and place is not None:
                depths = [place] * each
            sources = [value, *linked[:-1]]
            inserted += [(depth, f"Set {name} to {source}.")
                         for depth, name, source in zip(depths, linked, sources, strict=True)]
        text = haystack(pieces, inserted)
        return Example(f"Remember what is set in this text.\n{text}\nThe {each} names with the "
                       f"value {values[0]} are", tuple(names[:each]), place)


@dataclass(frozen=True)
class KeyValues(Task):
    """Pairs of random UUIDs; the value of one is wanted.

    Attributes:
        short: keys and values of six hexadecimal digits, for tokenizers with many tokens a UUID.
    """

    name: ClassVar[str] = "key_values"
    short: bool = False

    def build(self, draw: random.Random, place: float | None, pieces: int) -> Example:
        """Return an example with `pieces` pairs beside the one that is asked for."""
        place = draw.random() if place is None else place
        texts: dict[str, None] = {}
        while len(texts) < 2 * (1 + pieces):
            made = f"{draw.getrandbits(24):06x}" if self.short else str(
                uuid.UUID(int=draw.getrandbits(128), version=4))
            texts[made] = None
        key, value, *others = texts
        pairs = list(zip(others[::2], others[1::2], strict=True))
        pairs.insert(round(place * pieces), (key, value))
        lines = ",\n ".join(f"{json.dumps(name)}: {json.dumps(text)}" for name, text in pairs)
        return Example(f"These keys have these values:\n{{{lines}}}\n"
                       f"The pair of one key again:\n{json.dumps(key)}: \"", (value,), place)
