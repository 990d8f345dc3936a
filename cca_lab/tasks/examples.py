"""Questions as text: an example, how it becomes tokens, and how a task fills it up to a length.

Prompts end where the answer begins, so that any language model continues them. The tokens of a
prompt are those that generation reads, and its answer is tokenized behind it.
"""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from cca_lab.settings import check_bools, check_integers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SPARE = 8  # tokens that a model may generate beyond those of the answer
OPEN = re.compile(r"""(^|\s)["'(\[{]?$""")  # the end of a prompt that a space must not follow
TAIL = 24  # characters of the prompt that are tokenized together with an answer
FIRST_GUESS = 16  # pieces of filler that are tried first


@dataclass(frozen=True)
class Example:
    """A prompt and its answers.

    Attributes:
        prompt: text that ends where the answer begins.
        answers: the references, all of which are wanted.
        place: where the answer stands in the prompt, 0 (beginning) to 1 (end); None if it has no
            single place.
    """

    prompt: str
    answers: tuple[str, ...]
    place: float | None = None

    @property
    def continuation(self) -> str:
        """The text that answers the prompt: it holds all answers."""
        return ("" if OPEN.search(self.prompt) else " ") + ", ".join(self.answers)


def prompt_ids(tokenizer: "PreTrainedTokenizerBase", prompt: str) -> list[int]:
    """Return the token ids of a prompt as generation reads them, with a tokenizer's first token."""
    return tokenizer.encode(prompt, verbose=False)  # a length over its limit is the caller's matter


def answer_ids(tokenizer: "PreTrainedTokenizerBase", prompt: str, continuation: str) -> list[int]:
    """Return the token ids of a continuation behind a prompt whose own tokens are fixed."""
    tail = tokenizer.encode(prompt[-TAIL:], add_special_tokens=False)
    both = tokenizer.encode(prompt[-TAIL:] + continuation, add_special_tokens=False)
    # some tokenizers put a space before any text that begins anew; others join letters
    if both[:len(tail)] == tail:
        return both[len(tail):]
    return tokenizer.encode(continuation, add_special_tokens=False)


def answer_room(tokenizer: "PreTrainedTokenizerBase", example: Example) -> int:
    """Return how many tokens a model may generate: those of the answer and `SPARE` more."""
    return SPARE + len(answer_ids(tokenizer, example.prompt, example.continuation))


def tokens_of(tokenizer: "PreTrainedTokenizerBase", example: Example) -> int:
    """Return the tokens of an example: its prompt and the room for its answer."""
    return len(prompt_ids(tokenizer, example.prompt)) + answer_room(tokenizer, example)


def fill(build: Callable[[int], Example], tokenizer: "PreTrainedTokenizerBase", length: int, *,
         name: str) -> Example:
    """Return the example with the most pieces of filler that has at most `length` tokens.

    Args:
        build: returns the example with a number of pieces; each adds tokens.
        tokenizer: counts the tokens.
        length: tokens of the prompt and of the room for its answer, at most.
        name: name of the task, for the error message.

    Raises:
        ValueError: if not even the example without filler fits.
    """
    best = build(0)
    if (fewest := tokens_of(tokenizer, best)) > length:
        raise ValueError(f"length: got {length}, wanted at least {fewest} tokens for {name} in "
                         "this tokenizer; give a longer one, or an easier task")
    low, high = 0, FIRST_GUESS  # pieces of an example that fits, and of one that does not
    while tokens_of(tokenizer, example := build(high)) <= length:
        low, high, best = high, 2 * high, example
    while high - low > 1:
        middle = (low + high) // 2
        if tokens_of(tokenizer, example := build(middle)) <= length:
            low, best = middle, example
        else:
            high = middle
    return best


@dataclass(frozen=True)
class Task(ABC):
    """A kind of question; its fields are its difficulty.

    Attributes:
        name: the name that commands take.
        placed: whether the place of the answer can be chosen.
        filled: whether examples are filled up to the length, so that a longer one is harder.
    """

    name: ClassVar[str]
    placed: ClassVar[bool] = True
    filled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            default = getattr(type(self), name)
            if isinstance(default, bool):
                check_bools(**{name: value})
            else:
                check_integers(min(1, default), **{name: value})

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in vars(self).items())])

    @abstractmethod
    def build(self, draw: random.Random, place: float | None, pieces: int) -> Example:
        """Return an example with a number of pieces of filler; everything random is from `draw`."""

    def examples(self, tokenizer: "PreTrainedTokenizerBase", count: int, *, length: int, seed: int,
                 place: float | None = None) -> list[Example]:
        """Return examples, each filled up to at most `length` tokens.

        An example depends on the task, the seed and its number alone, so that the same is asked at
        every place and length.

        Args:
            tokenizer: counts the tokens.
            count: number of examples.
            length: tokens of a prompt and of the room for its answer, at most.
            seed: seed of every draw.
            place: where the answer stands, 0 (beginning) to 1 (end); None draws it for each.

        Raises:
            ValueError: for a length that is too short.
        """
        def build(number: int, pieces: int) -> Example:
            return self.build(random.Random(f"{self} {seed} {number}"), place, pieces)

        return [fill(partial(build, number), tokenizer, length, name=str(self))
                for number in range(count)]
