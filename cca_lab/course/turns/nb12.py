"""What the reader writes in notebook 12; rows and tokens count from 0, layers from 1."""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe
from cca_lab.course.exercise import equals, examples, holds, mistakes
from cca_lab.course.tasks import CourseTask, Draw, Mistake
from cca_lab.theory import base_two

# 12.2: layers until a token is inside a row
Reach = list[list[bool]]


def layers_until(reach: Reach, row: int, token: int, *, keeps: bool = True) -> int:
    """Count layers by boolean matrices: what is inside every row, layer after layer."""
    length = len(reach)
    eye = torch.eye(length, dtype=torch.bool)
    step, inside = torch.tensor(reach) | eye, eye.float()
    for layers in range(1, length + 1):
        inside = (step.float() @ inside > 0).float()
        if inside[row, token]:
            return 0 if not keeps and row == token and not reach[row][row] else layers
    return 0


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


# 12.5: a detector of leaks
Attend = Callable[[Tensor], Tensor]


def mean(text: Tensor) -> Tensor:
    """Return the mean of the past."""
    return text.cumsum(0) / torch.arange(1, len(text) + 1)[:, None]


def attention(text: Tensor) -> Tensor:
    """Return causal attention."""
    past = torch.ones(len(text), len(text), dtype=torch.bool).tril()
    return (text @ text.T).masked_fill(~past, float("-inf")).softmax(1) @ text


def in_pairs(text: Tensor) -> Tensor:
    """Return the mean of each pair: both tokens of a pair read each other."""
    whole = len(text) // 2 * 2
    return torch.cat([text[:whole].unflatten(0, (-1, 2)).mean(1).repeat_interleave(2, 0),
                      text[whole:]])


def after_softmax(text: Tensor) -> Tensor:
    """Return attention whose mask comes too late: later tokens stand in every normaliser."""
    return (text @ text.T).softmax(1).tril() @ text


def largest(text: Tensor) -> Tensor:
    """Rows after the second read a token chosen from the text; only the choice looks ahead."""
    start = text[:2].sum(1).argmax() if text[2:, 0].sum() > 0 else text[:2].sum(1).argmin()
    return mean(text) + text[start] * (torch.arange(len(text)) >= 2)[:, None]


FORMS: dict[str, Attend] = {
    "the mean of the past": mean, "causal attention": attention,
    "the mean of each pair of tokens": in_pairs, "a mask after the softmax": after_softmax,
    "the first row reads the third token":
        lambda text: mean(text) + text[2] * (torch.arange(len(text)) == 0)[:, None],
    "a choice that later tokens make": largest,
    "a mean with 1e-9 of all tokens": lambda text: mean(text) + 1e-9 * text.sum(0)}


def form(draw: Draw, mechanism: str) -> tuple[Any, ...]:
    """Return a mechanism, a text, and another one."""
    text = draw.normal(7, 3)
    text[:, 0] = -text[:, 0].abs()
    return FORMS[mechanism], text, text[:1].abs() + draw.normal(7, 3, scale=2.0).abs()


def replaced(text: Tensor, other: Tensor, t: int) -> Tensor:
    """Return the text with all tokens from t on those of the other."""
    return torch.cat([text[:t], other[t:]])


def reads_future(attend: Attend, text: Tensor, other: Tensor, *,
                 places: Callable[[int], list[int]] = lambda length: list(range(1, length)),
                 equal: Callable[[Tensor, Tensor], bool] = torch.equal,
                 rows: Callable[[int], slice] = slice,
                 edit: Callable[[Tensor, Tensor, int], Tensor] = replaced) -> bool:
    """Return whether a row changes when later tokens do; the keywords are mistakes."""
    return any(not equal(attend(edit(text, other, t))[rows(t)], attend(text)[rows(t)])
               for t in places(len(text)))


# 12.6: a change of values that one attention sees and another does not
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
    rows = [([half, half], [third, 1 - third]), ([half, half], [half, half])]
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
            raise Mistake("the search found nothing; there is one: does it try negative numbers?")
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
    CourseTask("12.2", "layers_until", "Layers until a token is inside a row", 6, 3, 4, (
        equals("equal to products of matrices", layers_until, pairs, "the number of layers",
               wrong=mistakes(layers_until, {"a row does not keep its own input":
                                             {"keeps": False}}) | {
            "row and token are exchanged: reach[i][t] says that row i reads token t": exchanged,
            "only one layer is looked at": lambda reach, i, t: int(reach[i][t]),
            "the rows in between are counted, not the layers: a token that is read at once takes "
            "one layer": lambda reach, i, t: max(0, layers_until(reach, i, t) - 1),
            "a row's own input takes no layer; after one layer it is inside":
                lambda reach, i, t: layers_until(reach, i, t) * (i != t)}),)),
    CourseTask("12.5", "reads_future", "A detector of leaks", 8, 3, 5, (
        equals("finds the leaks, and accuses no causal mechanism", reads_future,
               examples(form, *FORMS), "the result", wrong=mistakes(reads_future, {
            "rows that are themselves replaced are compared; they may change":
                {"rows": lambda t: slice(None)},
            "only the last token is replaced; the future may begin at every token":
                {"places": lambda length: [length - 1]},
            "small changes are tolerated; one that is small and real is a leak: compare with "
            "torch.equal": {"equal": lambda a, b: torch.allclose(a, b, atol=1e-6)},
            "the edit is tiny; a choice that later tokens make shows in a large one only":
                {"edit": lambda text, other, t: text + 1e-6 * (
                    torch.arange(len(text)) == t)[:, None]}})),)),
    CourseTask("12.6", "unseen_change", "A change that one row sees and another does not",
               8, 3, 5, (
        holds("the smallest one, or none", look, two_rows, wrong={
            "the search found nothing; there is one": lambda kept, full: None,
            "wanted a whole number from -2 to 2": lambda kept, full: [0.5] * len(full)} | mistakes(
                unseen_change, {
            "does it try negative numbers": {"values": range(3)},
            "moves neither output": {"moves": False},
            "moves the first output too": {"still": False},
            "try small changes first": {"smallest": False}})),)),
)
