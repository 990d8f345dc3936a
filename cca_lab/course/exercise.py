"""An exercise as data: what is right, on which inputs, and what is wrong and why.

From it follow the check of an answer, the message that names the mistake, the points, and the
exercise's own tests (`tests/course/test_exercises.py`).
"""

import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from torch import Tensor

from cca_lab.course.compare import NOT_FINITE, describe, need, need_items
from cca_lab.course.tasks import (
    Answer,
    Draw,
    GraderError,
    Mistake,
    Property,
    Range,
    case,
    copied,
    outcome,
)

Examples = Callable[[Draw], Iterable[tuple[str, tuple[Any, ...]]]]


def examples(make: Callable[..., tuple[Any, ...]] | str, *sizes: Any,
             larger: Sequence[Range] = (), count: int = 8) -> Examples:
    """Return inputs of growing size, each with a name for messages, as a function of a `Draw`.

    Args:
        make: gets the draw and the parts of a size, and returns the arguments of the answer. The
            names of its own arguments stand in messages: `make(draw, tokens, group)` gives "tokens
            5, group 2". Where the arguments are the parts themselves, only the names, as one text.
        sizes: those of a cell, in ascending order, the one by hand first.
        larger: the lowest and the highest value of each part of a size, or a list of its values;
            when marks are given, `count` sizes are drawn from them. Without it the sizes are those
            of a cell.
    """
    names = make.split() if isinstance(make, str) else list(inspect.signature(make).parameters)[1:]
    words = [name.replace("_", " ") for name in names]

    def drawn(draw: Draw) -> Iterable[tuple[str, tuple[Any, ...]]]:
        chosen = draw.sizes(count, *larger) if draw.secret and larger else sizes
        for size in chosen:
            parts = size if isinstance(size, tuple) else (size,)
            yield (", ".join(f"{word} {describe(part)}" for word, part
                             in zip(words, parts, strict=False)),
                   parts if isinstance(make, str) else make(draw, *parts))

    return drawn


def equals(fact: str, right: Answer, inputs: Examples, *names: str, wrong: dict[str, Answer],
           points: int = 1, hidden: bool = False, part: int | None = None,
           tolerance: float | None = None, why: str = NOT_FINITE) -> Property:
    """Return the property that an answer returns what `right` does.

    Args:
        fact: the property in a few words, such as "equal to counting".
        right: a plain function that is right.
        inputs: what both are called with: `examples`.
        names: of the parts of the result, for messages.
        wrong: functions that are wrong, by sentences that end "This is what comes out when ...".
        points, hidden: of the property.
        part: of the result, if others are looked at elsewhere.
        tolerance, why: as for `compare.need_close`.
    """
    def look(got: Any, *args: Any) -> None:
        wanted = right(*copied(args))
        if part is not None:
            got, wanted = need_items(got, len(wanted), f"{len(wanted)} items")[part], wanted[part]
        need(got, wanted, names or ("the result",), tolerance=tolerance, why=why)

    return replace(holds(fact, look, inputs, wrong=wrong, points=points, hidden=hidden),
                   right=right, tolerance=tolerance or 0.0)


def holds(fact: str, look: Callable[..., None], inputs: Examples, *, wrong: dict[str, Answer],
          points: int = 1, hidden: bool = False) -> Property:
    """Return the property that `look` finds no mistake in what an answer returns.

    `look` gets the result and the arguments, and raises `Mistake`; the rest is as for `equals`.
    """
    def check(answer: Answer, draw: Draw) -> None:
        given = list(inputs(draw))
        for number, (what, args) in enumerate(given):
            with case(what):
                got = answer(*copied(args))
                try:
                    look(got, *args)
                except Mistake:
                    # which mistake it is, the following examples say
                    for _, more in given[number + 1 :]:
                        if isinstance(outcome(answer, copied(more)), Exception):
                            break
                    raise

    return Property(fact, points, check, hidden, wrong)


def mistakes(answer: Answer, table: dict[str, dict[str, Any]]) -> dict[str, Answer]:
    """Return an answer with the keywords of each sentence: one function, wrong in many ways."""
    return {said: partial(answer, **wrong) for said, wrong in table.items()}


def slips(answer: Answer, table: dict[str, tuple[str, ...]]) -> dict[str, Answer]:
    """Return, by sentence, an answer with a slip: pieces of its source, and what replaces each.

    A piece stands once in the source. The source is read when the answer is first called.
    """
    def slip(pieces: tuple[str, ...]) -> Answer:
        wrong = cache(lambda: changed(answer, *zip(pieces[::2], pieces[1::2], strict=True)))
        return lambda *args: wrong()(*args)

    return {said: slip(pieces) for said, pieces in table.items()}


def changed(function: Any, *pairs: tuple[str, str]) -> Any:
    """Return a function with pieces of its source, each of which occurs once, replaced."""
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    source = source[source.index("def ") :]
    for right, wrong in pairs:
        if source.count(right) != 1:  # a mistake of ours, which no answer may be said to share
            raise GraderError(f"{function.__name__}: {right!r} not once")
        source = source.replace(right, wrong)
    file = f"<{function.__name__}, {pairs[0][1]}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    names: dict[str, Any] = {}
    exec(compile(source, file, "exec"), function.__globals__, names)
    return names[function.__name__]


def forward(answer: Answer) -> Answer:
    """Return an answer whose tables of intervals, (rows, intervals, 2), can be compared.

    An empty interval may stand anywhere, if no interval moves back; here it becomes [0, 0).
    """
    def table(*args: Any) -> Any:
        got = answer(*args)
        if not isinstance(got, Tensor) or got.dim() != 3 or got.shape[-1] != 2:
            return got
        for wrong, what in ((got[..., 0] > got[..., 1], "ends before it starts; an empty one ends "
                             "where it starts"),
                            ((got.diff(dim=0, prepend=got[:1]) < 0).any(-1), "moves back; where it "
                             "is empty, let it wait where it is")):
            if wrong.any():
                row, number = wrong.nonzero()[0].tolist()
                raise Mistake(f"row {row}: interval {number} {what}")
        return got * (got[..., :1] != got[..., 1:])

    return table


def in_bounds(answer: Answer) -> Answer:
    """Return an answer that starts a kernel, run by the lab's interpreter first.

    Where that finds a load or store outside of the arguments, Triton's would end Python.
    """
    from cca_lab.attention.fused import installed, interpreted

    if not interpreted() or hasattr(answer, "forget"):  # compiled, or in another process
        return answer

    def call(*args: Any) -> Any:
        from cca_lab.attention.kernels.tile_interpreter import instead_of_triton

        try:
            with instead_of_triton():
                got = answer(*args)
        except IndexError as error:
            if "outside of" not in str(error):
                raise
            raise Mistake(f"{error}: is the address right? If it is, give the load or the store a "
                          "mask that ends with its argument") from error
        except RuntimeError as error:
            if "must match the size" in str(error):
                error.args = (f"{error}. Is a [:, None] or a [None, :] missing?",)
            raise
        return answer(*args) if installed() else got

    return call
