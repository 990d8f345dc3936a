"""What a task of the course is: properties with points, each with a check of an answer.

A check gets the *answer* (a function that the student wrote, or a folder) and a *draw* (the source
of its inputs), and raises `Mistake`. It never runs in the process of the answer when marks are
given: see `grading`.
"""

import errno
import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Answer = Callable[..., Any]
Range = tuple[int, int] | list[int]  # the lowest and the highest number, or all of them


class Mistake(Exception):
    """What is wrong with an answer, in one or two sentences for its author.

    `guess` is the end of the text: where such a mistake usually comes from, if no table knows it.
    """

    def __init__(self, text: str, guess: str = "") -> None:
        super().__init__(text + guess)
        self.text, self.guess = text, guess


class GraderError(Exception):
    """What went wrong that is not the answer's fault: nobody loses a point for it."""


@dataclass(frozen=True)
class Share:
    """A part of a property's points, from 0 to 1, and what is missing."""

    earned: float
    message: str = ""


class Draw(random.Random):
    """Random inputs of one property, always the same for the same seed.

    If it is `secret`, the instructor's, more and larger inputs may be drawn than in a cell.
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

    def sizes(self, count: int, *ranges: Range) -> list[tuple[Any, ...]]:
        """Return `count` examples in ascending order, a number of each range (ends included)."""
        return sorted(tuple(self.choice(ends) if isinstance(ends, list) else self.randint(*ends)
                            for ends in ranges) for _ in range(count))


Check = Callable[[Answer, Draw], Share | None]


@dataclass(frozen=True)
class Property:
    """One thing that is true of a right answer, and what it is worth.

    `wrong` holds functions that lack it, each under the sentence that says what is wrong with it,
    such as "the window is forgotten". An answer that returns the same is told the sentence.
    """

    name: str  # a fact in a few words: "reads no token twice"
    points: int  # earned if the check passes
    check: Check  # raises `Mistake`, or returns a `Share` of the points, or None for all
    hidden: bool = False  # checked only when marks are given
    wrong: dict[str, Answer] = field(default_factory=dict)
    right: Answer | None = None  # if only one result is right: a function of what checks give it
    tolerance: float = 0.0  # of results that are the same


@dataclass(frozen=True)
class CourseTask:
    """One task of an assignment."""

    id: str  # such as "a5.2"; in cells and pytest marks "a5-2" and "a5_2"
    answer: str  # name of the function that the student writes; or of the folder, if `files`
    title: str
    minutes: int
    difficulty: int  # 1 to 5
    properties: tuple[Property, ...]  # empty for a text that a person reads
    read: int = 0  # points that a person gives
    files: bool = False  # the answer is a folder beside the notebook, whose path the checks get
    shared: bool = False  # a turn whose inputs are objects, such as a model, and no copies
    # How checks call the answer: a function that makes another one of it, such as one that calls it
    # tile after tile, or runs a kernel with its addresses checked.
    drive: Callable[[Answer], Answer] = lambda answer: answer

    @property
    def wrong(self) -> dict[str, Answer]:
        """Return the wrong answers of all properties by what is wrong with them."""
        return {said: answer for prop in self.properties for said, answer in prop.wrong.items()}

    @property
    def right(self) -> Answer | None:
        """Return the right answer of the first property that has one."""
        return next((prop.right for prop in self.properties if prop.right), None)

    @property
    def points(self) -> int:
        """Return the points that are given by checks."""
        return sum(prop.points for prop in self.properties)

    @property
    def unseen(self) -> int:
        """Return the points behind checks that only run when marks are given."""
        return sum(prop.points for prop in self.properties if prop.hidden)


@dataclass(frozen=True)
class Assignment:
    """An assignment: a notebook with several tasks."""

    id: str  # "a1" to "a10"
    topic: str  # one word, for the folder
    title: str  # what the reader rebuilds
    walkthroughs: tuple[str, ...]  # numbers of the notebooks that explain it, such as "05"
    tasks: tuple[CourseTask, ...]
    seconds: float = 10.0  # that one call of an answer may take when marks are given

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
    """Return a submission's text as one printable line of limited length, for reports."""
    short = str(text)[:most] if isinstance(text, str) else type(text).__name__
    return "".join(sign if sign.isprintable() else " " for sign in short)


@contextmanager
def case(what: str) -> Iterator[None]:
    """Put the example, such as "length 5, group 2", before the message of a mistake."""
    try:
        yield
    except Mistake as mistake:
        raise Mistake(f"{what}: {mistake.text}", mistake.guess) from None
    except Exception as error:
        error.add_note(f"on the example {what}")
        raise


PUBLIC = "shown"  # the seed of the inputs that a cell uses


@dataclass(frozen=True)
class Mark:
    """What one property earned."""

    property: Property
    earned: float
    message: str = ""  # what is wrong, for the author of the answer
    shown: bool = True  # the message came from inputs that a cell shows too
    error: BaseException | None = field(default=None, compare=False)  # of the answer itself

    @property  # type: ignore[operator]  # the field is no decorator; the class holds no such name
    def full(self) -> bool:
        """Return True if all points were earned."""
        return self.earned >= self.property.points


def marks_of(task: CourseTask, answer: Answer, secret: str | None = None) -> Iterator[Mark]:
    """Yield what each property earned on what a cell shows; with a seed, on its inputs too.

    With the instructor's seed, the less of both counts.
    """
    known = shown(task, answer)
    return iter(known.values()) if secret is None else unseen(task, answer, secret, known)


def shown(task: CourseTask, answer: Answer) -> dict[str, Mark]:
    """Return, by name, what each property that is not hidden earned on the inputs of a cell."""
    return {prop.name: _check(task, prop, answer, Draw(PUBLIC, task.id, prop.name))
            for prop in task.properties if not prop.hidden}


def unseen(task: CourseTask, answer: Answer, secret: str, known: dict[str, Mark]) -> Iterator[Mark]:
    """Yield what each property earned, secret inputs included; `known` is what `shown` returned."""
    for prop in task.properties:
        mark = known.get(prop.name)
        if mark is None or mark.earned > 0:
            other = _check(task, prop, answer, Draw(secret, task.id, prop.name, secret=True),
                           shown=False)
            mark = other if mark is None or other.earned < mark.earned else mark
        yield mark


# Of a machine that is full, or out of order; other errors of files may be the answer's.
MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN,
           errno.EIO, errno.EROFS}


def is_ours(error: Exception, task: CourseTask, answer: Answer) -> bool:
    """Return True for an error of this machine; only those of this process can be told.

    An answer in another process, which has `forget`, raises `Mistake` for all that goes wrong.
    """
    if hasattr(answer, "forget"):
        return isinstance(error, (OSError, MemoryError))
    return task.files and (isinstance(error, MemoryError)
                           or isinstance(error, OSError) and error.errno in MACHINE)


class Calls:
    """An answer that notes the arguments and the outcome of each call."""

    def __init__(self, answer: Answer, drive: Callable[[Answer], Answer]) -> None:
        self.answer, self.noted = drive(answer), list[tuple[tuple[Any, ...], Any]]()
        if hasattr(answer, "forget"):
            self.forget = answer.forget

    def __call__(self, *args: Any) -> Any:
        """Call the answer."""
        kept = copied(args)
        self.noted.append((kept, got := outcome(self.answer, args)))
        if isinstance(got, Exception):
            raise got
        return got


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a copy of arguments, into which an answer may write."""
    try:
        return deepcopy(args)
    except (TypeError, RuntimeError):  # such as an open file, or a tensor with a gradient
        return args


def outcome(answer: Answer, args: tuple[Any, ...]) -> Any:
    """Return what an answer returns, or the exception that it raises."""
    try:
        return answer(*args)
    except Exception as error:
        return error


def explained(task: CourseTask, prop: Property, calls: Calls, mistake: Mistake) -> str:
    """Return a message, ending with the sentence of the wrong answer that does the same.

    It must do the same in every call, and in one of them something else than the right answer.
    """
    from cca_lab.course.compare import alike

    for said, wrong in (prop.wrong | task.wrong).items():
        if said in mistake.text:
            break
        differs = False
        for args, got in calls.noted:
            other = outcome(task.drive(wrong), copied(args))
            if not alike(got, other, prop.tolerance):
                break
            right = prop.right or task.right
            differs = differs or right is None or not alike(
                other, outcome(right, copied(args)), prop.tolerance)
        else:
            if differs:
                return f"{mistake.text}. This is what comes out when {said}"
    return str(mistake)


def _check(task: CourseTask, prop: Property, answer: Answer, draw: Draw,
           shown: bool = True) -> Mark:
    calls = Calls(answer, task.drive)
    try:
        share = prop.check(calls if task.wrong else calls.answer, draw)
    except Mistake as mistake:
        return Mark(prop, 0.0, clean(explained(task, prop, calls, mistake), 1200), shown)
    except GraderError:
        raise
    except NotImplementedError as error:
        return Mark(prop, 0.0, f"{task.answer} is not written yet", shown, error)
    except Exception as error:  # the answer's own, or ours
        if is_ours(error, task, answer):
            raise GraderError(f"{task.id}: {type(error).__name__}: {error}") from error
        raised = Mistake(clean(f"{task.answer} raised {type(error).__name__}: {error}"))
        return Mark(prop, 0.0, clean(explained(task, prop, calls, raised), 1200), shown, error)
    if share is None:
        return Mark(prop, float(prop.points))
    return Mark(prop, round(prop.points * min(max(share.earned, 0.0), 1.0), 2),
                clean(share.message, 1200), shown)
