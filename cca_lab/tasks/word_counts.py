"""RULER's synthetic tasks that count: the words that stand in a list most often.

Differs from the paper (Hsieh et al., 2024): the wording and the words are the lab's own, as in `ruler`; there is no
solved example before the list; the defaults are smaller, so that they fit 512 tokens of a small tokenizer.
`CommonWords(common=10, often=30, rarely=3)` has the paper's numbers. In `FrequentWords`, the most frequent word is
wanted as well: it is no noise.
"""

import random
from dataclasses import dataclass
from typing import ClassVar

from cca_lab.settings import check_integers, check_numbers
from cca_lab.tasks.examples import Example, Task
from cca_lab.tasks.ruler import MOST, check_counts, words

VARIETY = 30  # different words of `FrequentWords`
LONGEST = 10**6  # words of a list before the rare ones are added


@dataclass(frozen=True)
class CommonWords(Task):
    """A numbered list of words, of which some stand there often; these are wanted.

    Attributes:
        common: number of words that stand there often.
        often: times that each of them stands in the list.
        rarely: times that each other word stands in the list.
    """

    name: ClassVar[str] = "common_words"
    main: ClassVar[str] = "common"
    placed: ClassVar[bool] = False
    common: int = 3
    often: int = 6
    rarely: int = 1

    def __post_init__(self) -> None:
        check_counts(1, common=self.common, often=self.often, rarely=self.rarely)
        if self.often <= self.rarely:
            raise ValueError(f"often: got {self.often}, wanted more than {self.rarely}, the times of the other words; "
                             "choose a larger number")
        if self.common * self.often > LONGEST:
            raise ValueError(f"common, often: got {self.common} and {self.often}, wanted a product of at most "
                             f"{LONGEST}; choose smaller ones")

    def build(self, draw: random.Random, place: float | None, pieces: int) -> Example:
        """Return an example with `pieces` different words beside the common ones."""
        drawn = words(draw, self.common + pieces)
        common, others = drawn[:self.common], drawn[self.common:]
        listed = [*common * self.often, *others * self.rarely]
        draw.shuffle(listed)
        text = " ".join(f"{number}. {word}" for number, word in enumerate(listed, start=1))
        return Example(f"Some words stand in this list more often than others.\n{text}\n"
                       f"The {self.common} words that stand there most often are", tuple(common))


@dataclass(frozen=True)
class FrequentWords(Task):
    """Words with the frequencies of Zipf's law, rank**-alpha; the most frequent ones are wanted.

    Attributes:
        top: number of words that are wanted; the paper has 3.
        alpha: exponent; the larger, the easier. The paper has 2.
    """

    name: ClassVar[str] = "frequent_words"
    main: ClassVar[str] = "top"
    placed: ClassVar[bool] = False
    top: int = 3
    alpha: float = 2.0

    def __post_init__(self) -> None:
        check_integers(1, top=self.top)
        check_numbers(0.5, 10, alpha=self.alpha)
        if self.top >= VARIETY or self.least > MOST:
            raise ValueError(f"top, alpha: got {self.top} and {self.alpha}, wanted at most {VARIETY - 1} words, whose "
                             f"numbers differ in a text of {MOST}; choose smaller ones")

    def shares(self) -> list[float]:
        """Return the share of each word in the text, the most frequent first."""
        weights = [rank**-self.alpha for rank in range(1, VARIETY + 1)]
        return [weight / sum(weights) for weight in weights]

    @property
    def least(self) -> int:
        """The fewest words at which each wanted word is more frequent than the next."""
        shares = self.shares()
        return int(1 / (shares[self.top - 1] - shares[self.top])) + 1

    def build(self, draw: random.Random, place: float | None, pieces: int) -> Example:
        """Return an example with about `pieces` words."""
        vocabulary = words(draw, VARIETY)
        drawn = [word for word, share in zip(vocabulary, self.shares(), strict=True)
                 for _ in range(int(share * pieces))]
        draw.shuffle(drawn)
        return Example(f"Some words stand in this text more often than others.\n{' '.join(drawn)}\n"
                       f"The {self.top} words that stand there most often are", tuple(vocabulary[:self.top]))
