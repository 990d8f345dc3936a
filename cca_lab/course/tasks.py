"""What a task of the course is: properties with points, each a check that says in a sentence what is wrong.

A check gets the *answer* (a function that the student wrote, or a folder) and a *draw* (the source of its inputs), and
raises `Mistake`. It never runs in the process of the answer when marks are given: see `grading`.
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Answer = Callable[..., Any]


class Mistake(Exception):
    """What is wrong with an answer, in one or two sentences for its author."""


class GraderError(Exception):
    """What went wrong that is not the answer's fault: nobody loses a point for it."""


@dataclass(frozen=True)
class Share:
    """A part of a property's points.

    Attributes:
        earned: from 0 to 1.
        message: what is missing.
    """

    earned: float
    message: str = ""


class Draw(random.Random):
    """Random inputs of one property, always the same for the same seed.

    Attributes:
        secret: the seed is the instructor's; more and larger inputs may be drawn than in a cell.
    """

    def __new__(cls, *seed: str, secret: bool = False) -> "Draw":
        """Make the generator; `random.Random` takes one seed only."""
        return super().__new__(cls)

    def __init__(self, *seed: str, secret: bool = False) -> None:
        super().__init__(int.from_bytes(hashlib.sha256("\n".join(seed).encode()).digest()[:8]))
        self.secret = secret

    def normal(self, *shape: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Tensor:
        """Return independent normal numbers of the given standard deviation."""
        generator = torch.Generator().manual_seed(self.getrandbits(62))
        return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Return independent integers, int64, from `low` up to and without `high`."""
        generator = torch.Generator().manual_seed(self.getrandbits(62))
        return torch.randint(low, high, shape, generator=generator)


@dataclass(frozen=True)
class Property:
    """One thing that is true of a right answer, and what it is worth.

    Attributes:
        name: in a few words, as a fact: "reads no token twice".
        points: earned if the check passes.
        check: called with the answer and a draw; raises `Mistake`, or returns a `Share` of the points, or None for all.
        hidden: is checked only when marks are given.
    """

    name: str
    points: int
    check: Callable[[Answer, Draw], Share | None]
    hidden: bool = False


@dataclass(frozen=True)
class Task:
    """One task of an assignment.

    Attributes:
        id: such as "a5.2"; in cells and pytest marks "a5-2" and "a5_2".
        answer: name of the function that the student writes; or of the folder, if `files`.
        title: a few words.
        minutes: that it takes.
        difficulty, importance: 1 to 5.
        properties: what is checked; empty for a text that a person reads.
        read: points that a person gives.
        files: the answer is a folder beside the notebook, whose path the checks get.
    """

    id: str
    answer: str
    title: str
    minutes: int
    difficulty: int
    importance: int
    properties: tuple[Property, ...]
    read: int = 0
    files: bool = False

    @property
    def points(self) -> int:
        """Return the points that are given by checks."""
        return sum(part.points for part in self.properties)

    @property
    def unseen(self) -> int:
        """Return the points behind checks that only run when marks are given."""
        return sum(part.points for part in self.properties if part.hidden)


@dataclass(frozen=True)
class Assignment:
    """An assignment: a notebook with several tasks.

    Attributes:
        id: "a1" to "a10".
        topic: one word, for the folder.
        title: what the reader rebuilds.
        walkthroughs: numbers of the notebooks that explain it, such as "05".
        tasks: in order.
        seconds: that one call of an answer may take when marks are given.
    """

    id: str
    topic: str
    title: str
    walkthroughs: tuple[str, ...]
    tasks: tuple[Task, ...]
    seconds: float = 10.0

    @property
    def name(self) -> str:
        """Return the name of the folder and the notebook, such as "a5_cca"."""
        return f"{self.id}_{self.topic}"

    @property
    def points(self) -> int:
        """Return the points that are given by checks."""
        return sum(task.points for task in self.tasks)

    @property
    def read(self) -> int:
        """Return the points that a person gives."""
        return sum(task.read for task in self.tasks)

    @property
    def minutes(self) -> int:
        """Return the minutes that all tasks take."""
        return sum(task.minutes for task in self.tasks)


def clean(text: object, most: int = 600) -> str:
    """Return a text from a submission as one printable line of limited length: it goes into reports and terminals."""
    short = str(text)[:most] if isinstance(text, str) else type(text).__name__
    return "".join(sign if sign.isprintable() else " " for sign in short)


@contextmanager
def case(what: str) -> Iterator[None]:
    """Put the example, such as "length 5, group 2", before the message of a mistake."""
    try:
        yield
    except Mistake as mistake:
        raise Mistake(f"{what}: {mistake}") from None
    except Exception as error:
        error.add_note(f"on the example {what}")
        raise
