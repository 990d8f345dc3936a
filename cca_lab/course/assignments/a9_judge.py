"""How a9 judges a test: on implementations that are right and on mutants, in random order."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe
from cca_lab.course.tasks import Answer, Draw, Mistake, Share

CALLS = 200  # of one implementation by one test
RIGHT = 6  # trials of right implementations

Implementation = Callable[..., Any]
Maker = Callable[[Draw], Implementation]


@dataclass(frozen=True)
class Candidate:
    """An implementation, made anew for each trial from a draw.

    What is said about a mutant ends "is wrong only"; of a right one it is what it does.
    """

    about: str
    make: Maker


def plain(implementation: Implementation) -> Maker:
    """Return a maker of an implementation without constants."""
    return lambda draw: implementation


def fixed(make: Callable[..., Implementation]) -> Callable[..., Maker]:
    """Return what makes makers of implementations without constants."""
    return lambda **changed: plain(make(**changed))


def candidates(make: Callable[..., Maker],
               table: Mapping[str, Mapping[str, Any] | Maker]) -> list[Candidate]:
    """Return candidates by what is said about them, from makers or what is changed in one."""
    return [Candidate(about, changed if callable(changed) else make(**changed))
            for about, changed in table.items()]


def judge(answer: Answer, draw: Draw, legal: Callable[..., tuple[Any, ...]],
          right: Sequence[Candidate], mutants: Sequence[Candidate], shown: bool) -> Share | None:
    """Return the share of mutants caught, less twice the share of right ones called wrong.

    `legal` returns the arguments of a call in plain types, or raises `Mistake`. If `shown`, the
    message says with which inputs a surviving mutant is wrong.
    """
    # Half of the right ones round in another way, and as many mutants: rounding says nothing about
    # who is right.
    trials = [(right[number % len(right)], True, 1e-12 * (number >= RIGHT // 2))
              for number in range(RIGHT)]
    trials += [(entry, False, draw.choice((0.0, 1e-12))) for entry in mutants]
    draw.shuffle(trials)
    survived: list[str] = []
    # What it does, whether it rounds in its own way, by an assert.
    punished: list[tuple[str, bool, bool]] = []
    for entry, good, noise in trials:
        watched = Watched(entry.make(draw), legal, noise, draw.getrandbits(62))
        verdict = verdict_of(answer, watched)
        if good and not verdict:
            punished.append((entry.about, noise > 0, watched.asserted))
        elif verdict and not good:
            survived.append(entry.about)
    if not survived and not punished:
        return None
    caught = len(mutants) - len(survived)
    said = (f"{caught} of {len(mutants)} wrong implementations caught, {len(punished)} of {RIGHT} "
            "right ones called wrong")
    if survived and shown:
        said += f". One that survived is wrong only {survived[0]}"
    if punished:
        said += f". A right one that was called wrong {why(punished)}"
    return Share(max(0.0, caught / len(mutants) - 2 * len(punished) / RIGHT), said)


def why(punished: Sequence[tuple[str, bool, bool]]) -> str:
    """Say what may be wrong with a test, from (what it does, rounds its own way, asserted)."""
    exact = {about for about, noisy, _ in punished if not noisy}
    # Only the last bits tell these from one that passed.
    bits = [entry for entry in punished if entry[0] not in exact]
    about, _, asserted = (bits or sorted(punished, key=lambda entry: entry[1]))[0]
    said = about
    if bits:
        said = "differs from one that passed only in the last bits: compare with `same`"
    if asserted:
        said += " (an AssertionError in the test counts as False: one was raised here)"
    if len(punished) == RIGHT:
        said += ("" if said.endswith("?") else ".") + (
            " All were called wrong: does the test ask for more than the statement, such as "
            "equality to the last bit?")
    return said


def verdict_of(answer: Answer, watched: "Watched") -> bool:
    """Return True if the test calls the implementation right; raise `Mistake` if it is broken."""
    try:
        got = answer(watched)
    except NotImplementedError:
        raise
    except Exception as error:
        if watched.mistake is not None:
            raise watched.mistake from None
        # In another process an exception arrives as a sentence.
        if not isinstance(error, AssertionError) and not re.match(r"\w+ raised AssertionError\b",
                                                                  str(error)):
            raise Mistake(f"the test itself is broken: {type(error).__name__}: {error}"
                          if not isinstance(error, Mistake)
                          else f"the test itself is broken: {error}") from None
        got, watched.asserted = False, True
    if watched.mistake is not None:
        raise watched.mistake
    if isinstance(got, Tensor) and got.dtype == torch.bool and got.numel() == 1:
        got = bool(got)
    if not isinstance(got, bool):
        raise Mistake(f"the test returned {describe(got)}, wanted True (right) or False (wrong)")
    return got


class Watched:
    """An implementation whose calls are counted and checked, and whose floats round otherwise."""

    def __init__(self, implementation: Implementation, legal: Callable[..., tuple[Any, ...]],
                 noise: float, seed: int) -> None:
        self.implementation, self.legal, self.noise = implementation, legal, noise
        self.generator = torch.Generator().manual_seed(seed)
        self.calls = 0
        self.mistake: Mistake | None = None
        self.asserted = False

    def __call__(self, *args: Any) -> Any:
        """Return what the implementation returns."""
        try:
            self.calls += 1
            if self.calls > CALLS:
                raise Mistake(f"the test called the implementation more than {CALLS} times")
            return self._rounded(self.implementation(*self.legal(*args)))
        except Mistake as mistake:
            self.mistake = self.mistake or mistake
            raise
        except TypeError as error:
            said = str(error).removeprefix("legal_")
            self.mistake = Mistake("the test called the implementation with wrong arguments: "
                                   f"{said}")
            raise self.mistake from None

    def _rounded(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value * (1 + self.noise * torch.randn(value.shape, generator=self.generator,
                                                         dtype=value.dtype))
        if isinstance(value, tuple):
            return tuple(self._rounded(item) for item in value)
        return {key: self._rounded(item)
                for key, item in value.items()} if isinstance(value, dict) else value


def need_floats(value: Any, what: str, *shape: int | None) -> Tensor:
    """Return a float64 tensor of this shape, in which None is any size from 1 to 40."""
    if not isinstance(value, Tensor) or value.dtype != torch.float64 or value.dim() != len(shape):
        got = f"{describe(value)} of {value.dtype}" if isinstance(value,
                                                                  Tensor) else describe(value)
        raise Mistake(f"the test called the implementation with {what} = {got}, wanted a float64 "
                      f"tensor with {len(shape)} dimensions")
    if any(size != wanted if wanted is not None else not 1 <= size <= 40
           for size, wanted in zip(value.shape, shape, strict=True)):
        wanted = " x ".join("(1 to 40)" if size is None else str(size) for size in shape)
        came = " x ".join(str(size) for size in value.shape)
        raise Mistake(f"the test called the implementation with {what} of shape {came}, wanted "
                      f"{wanted}")
    return value


def need_integer(value: Any, what: str, low: int, high: int) -> int:
    """Return an integer of this range, both ends included."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Mistake(f"the test called the implementation with {what} = {describe(value)}, wanted "
                      f"an integer from {low} to {high}")
    return value
