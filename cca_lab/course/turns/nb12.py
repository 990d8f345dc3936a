"""What the reader writes in notebook 12; rows and tokens count from 0, layers from 1."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import torch

from cca_lab.course.compare import describe
from cca_lab.course.exercise import equals, holds, mistakes
from cca_lab.course.tasks import CourseTask, Draw, Mistake
from cca_lab.theory import base_two
from cca_lab.theory.reachability.depth import layers_needed

# 12.2: layers until a token is inside a row
Reach = list[list[bool]]


def layers_until(reach: Reach, row: int, token: int) -> int:
    """Return what the package's matrix of layers says."""
    return int(layers_needed(torch.tensor(reach))[row, token])


def exchanged(reach: Reach, row: int, token: int) -> int:
    """Return the layers if reach[i][t] said that row t reads token i."""
    return layers_until([list(column) for column in zip(*reach, strict=True)], row, token)


def pairs(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield all pairs of the words of the notebook, and of random mechanisms."""
    texts = {"the five words": [[sign == "x" for sign in row]
                                for row in ("x....", "xx...", "xxx..", "x.xx.", "x..xx")],
             "each row reads only the token before it": [[t == row - 1 for t in range(7)]
                                                         for row in range(7)]}
    for length in (5, 6, 8):
        texts[f"a random mechanism, {length} tokens"] = [
            [token <= row and draw.random() < 0.3 for token in range(length)]
            for row in range(length)]
    for what, reach in texts.items():
        for row in range(len(reach)):
            for token in range(len(reach)):
                yield f"{what}, row {row}, token {token}", (reach, row, token)


# 12.5: a change of values that one attention sees and another does not
Row = list[Fraction]


def moved(row: Row, change: Any) -> Fraction:
    """Return by how much an output moves."""
    return sum((weight * by for weight, by in zip(row, change, strict=True)), Fraction(0))


def unseen_change(kept: Row, full: Row, *, values: Iterable[int] = range(-2, 3),
                  still: bool = True, moves: bool = True,
                  smallest: bool = True) -> tuple[int, ...] | None:
    """Return the smallest change that only the second row sees; the keywords are mistakes."""
    found = [change for change in product(values, repeat=len(full))
             if (moved(kept, change) == 0 or not still) and (moved(full, change) != 0 or not moves)]
    return min(found, key=lambda change: sum(map(abs, change)) * smallest, default=None)


def two_rows(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield rows with and without such a change, of two to four tokens."""
    half, third = Fraction(1, 2), Fraction(1, 3)
    rows = [([half, half], [third, 1 - third]), ([half, half], [half, half]),
            ([Fraction(n, 16) for n in (5, 7, 4)], [third] * 3)]  # (2, -2, 1), nothing smaller
    for length in (2, 3, 4) * 2:
        kept, full = (base_two.softmax([draw.randint(0, 2) for _ in range(length)]) for _ in "kf")
        rows.append((kept, full))
    for kept, full in rows:
        yield f"weights {', '.join(map(str, kept))} and {', '.join(map(str, full))}", (kept, full)


def look(got: Any, kept: Row, full: Row) -> None:
    """Look at a change: whole numbers, unseen by the first row only, and none is smaller."""
    least = unseen_change(kept, full)
    if got is None:
        if least is not None:
            raise Mistake("the search found nothing; there is one: does it try all from -2 to 2?")
        return
    if (not isinstance(got, (list, tuple)) or len(got) != len(full)
            or not all(isinstance(by, int) and abs(by) <= 2 for by in got)):
        raise Mistake(f"the result is {describe(got)}, wanted a whole number from -2 to 2 for each "
                      "token, or None")
    if moved(kept, got) != 0:
        raise Mistake(f"{list(got)} moves the first output too, by {moved(kept, got)}")
    if moved(full, got) == 0:
        raise Mistake(f"{list(got)} moves neither output: the second has to move")
    size, right = (sum(map(abs, change)) for change in (got, least or ()))
    if size != right:
        raise Mistake(f"{list(got)} has the size {size}; there is one of {right}: try small "
                      "changes first")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("12.2", "layers_until", "Layers until a token is inside a row", 6, 3, (
        equals("equal to products of matrices", layers_until, pairs, "the number of layers", wrong={
            "a row does not keep its own input": lambda reach, i, t: (
                0 if i == t and not reach[i][t] else layers_until(reach, i, t)),
            "row and token are exchanged: reach[i][t] says that row i reads token t": exchanged,
            "only one layer is looked at": lambda reach, i, t: int(reach[i][t]),
            "the rows in between are counted, not the layers: a token that is read at once takes "
            "one layer": lambda reach, i, t: max(0, layers_until(reach, i, t) - 1),
            "a row's own input takes no layer; after one layer it is inside":
                lambda reach, i, t: layers_until(reach, i, t) * (i != t)}),)),
    CourseTask("12.5", "unseen_change", "A change that one row sees and another does not",
               8, 3, (
        holds("the smallest one, or none", look, two_rows, wrong={
            "the search found nothing; there is one": lambda kept, full: None,
            "wanted a whole number from -2 to 2": lambda kept, full: [0.5] * len(full)} | mistakes(
                unseen_change, {
            "does it try all from -2 to 2": {"values": range(-2, 2)},
            "moves neither output": {"moves": False},
            "moves the first output too": {"still": False},
            "try small changes first": {"smallest": False}})),)),
)
