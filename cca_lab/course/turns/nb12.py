"""What the reader writes in notebook 12; rows and tokens count from 0, layers from 1."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need_equal
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case
from cca_lab.theory import base_two

# 12.2: layers until a token is inside a row

Reach = list[list[bool]]


def _layers(reach: Reach, row: int, token: int) -> int:
    """Count layers by boolean matrices: what is inside every row, layer after layer."""
    length = len(reach)
    step = torch.tensor(reach) | torch.eye(length, dtype=torch.bool)
    inside = torch.eye(length)
    for layers in range(1, length + 1):
        inside = (step.float() @ inside > 0).float()
        if inside[row, token]:
            return layers
    return 0


def _compare(answer: Answer, reach: Reach, what: str) -> None:
    """Compare all pairs of a row and a token; one cause must explain all wrong ones."""
    length = len(reach)
    pairs = [(row, token) for row in range(length) for token in range(length)]
    got = {pair: answer(reach, *pair) for pair in pairs}
    turned = [list(column) for column in zip(*reach, strict=True)]
    causes: dict[str, Callable[[int, int], int]] = {
        "row and token are exchanged: reach[i][t] says that row i reads token t":
            lambda i, t: _layers(turned, i, t),
        "only one layer is looked at": lambda i, t: int(reach[i][t]),
        "the rows in between are counted, not the layers: a token that is read at once takes one "
        "layer": lambda i, t: max(0, _layers(reach, i, t) - 1),
        "a row does not keep its own input":
            lambda i, t: 0 if i == t and not reach[i][i] else _layers(reach, i, t),
        "a row's own input takes no layer; after one layer it is inside":
            lambda i, t: _layers(reach, i, t) * (i != t),
    }
    for row, token in pairs:
        wanted = _layers(reach, row, token)
        if got[row, token] != wanted:
            explained = {cause: rule(row, token) for cause, rule in causes.items()
                         if all(rule(*pair) == got[pair] for pair in pairs)}
            with case(f"{what}, row {row}, token {token}"):
                need_equal(got[row, token], wanted, "the number of layers", causes=explained)


def chains(answer: Answer, draw: Draw) -> None:
    """The words of the notebook, and random mechanisms."""
    words = [[sign == "x" for sign in row] for row in ("x....", "xx...", "xxx..", "x.xx.", "x..xx")]
    _compare(answer, words, "the five words")
    _compare(answer, [[t == row - 1 for t in range(7)] for row in range(7)],
             "each row reads only the token before it")
    for _ in range(4):
        length = draw.randint(5, 9)
        reach = [[token <= row and draw.random() < 0.3 for token in range(length)]
                 for row in range(length)]
        _compare(answer, reach, "a random mechanism")


# 12.5: a detector of leaks

Attend = Callable[[Tensor], Tensor]


def _mean(text: Tensor) -> Tensor:
    return text.cumsum(0) / torch.arange(1, len(text) + 1)[:, None]


def _attention(text: Tensor) -> Tensor:
    past = torch.ones(len(text), len(text), dtype=torch.bool).tril()
    return (text @ text.T).masked_fill(~past, float("-inf")).softmax(1) @ text


def _in_pairs(text: Tensor) -> Tensor:
    whole = len(text) // 2 * 2
    return torch.cat([text[:whole].unflatten(0, (-1, 2)).mean(1).repeat_interleave(2, 0),
                      text[whole:]])


def _after_softmax(text: Tensor) -> Tensor:
    return (text @ text.T).softmax(1).tril() @ text


def _largest(text: Tensor) -> Tensor:
    """Rows after the second read a token chosen from the text; only the choice looks ahead."""
    start = text[:2].sum(1).argmax() if text[2:, 0].sum() > 0 else text[:2].sum(1).argmin()
    return _mean(text) + text[start] * (torch.arange(len(text)) >= 2)[:, None]


def _faint(text: Tensor) -> Tensor:
    return _mean(text) + 1e-9 * text.sum(0)


def _ahead(text: Tensor) -> Tensor:
    """The first row reads the third token; nothing else looks ahead."""
    return _mean(text) + text[2] * (torch.arange(len(text)) == 0)[:, None]


LEAKING: dict[str, tuple[Attend, str]] = {
    "the mean of each pair of tokens": (
        _in_pairs, "both tokens of a pair read each other: the future may begin at every token, "
        "not only at the end or in the middle"),
    "a mask after the softmax": (
        _after_softmax, "later tokens stand in the normaliser of every row"),
    "the first row reads the third token": (_ahead, "replace all tokens from each place on"),
    "a choice that later tokens make": (
        _largest, "its derivative is 0: only a large edit shows it"),
    "a mean with 1e-9 of all tokens": (
        _faint, "the change is small and real: compare with torch.equal"),
}
ACCUSED = "rows that are themselves replaced may change: compare only the rows before them"
CAUSAL = {"the mean of the past": (_mean, ACCUSED), "causal attention": (_attention, ACCUSED)}


def detects(answer: Answer, draw: Draw) -> None:
    """Mechanisms that read the future, and some that do not."""
    for name, (attend, why) in {**CAUSAL, **LEAKING}.items():
        for _ in range(3):
            text = draw.normal(7, 3)
            text[:, 0] = -text[:, 0].abs()
            other = text[:1].abs() + draw.normal(7, 3, scale=2.0).abs()
            got = answer(attend, text, other)
            got = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
            if not isinstance(got, bool):
                raise Mistake(f"{name}: the result is {describe(got)}, wanted True or False")
            if got and name in CAUSAL:
                raise Mistake(f"{name} is causal, and is accused: {why}")
            if not got and name in LEAKING:
                raise Mistake(f"{name} is missed: {why}")


# 12.6: a change of values that one attention sees and another does not

Row = list[Fraction]


def _moved(row: Row, change: Any) -> Fraction:
    return sum((weight * by for weight, by in zip(row, change, strict=True)), Fraction(0))


def _smallest(kept: Row, full: Row) -> int | None:
    """Return the least sum of sizes of such a change, none for rows that have none."""
    return min((sum(map(abs, change)) for change in product(range(-2, 3), repeat=len(full))
                if _moved(kept, change) == 0 != _moved(full, change)), default=None)


def _weights(draw: Draw, length: int) -> Row:
    return base_two.softmax([draw.randint(0, 2) for _ in range(length)])


def unseen(answer: Answer, draw: Draw) -> None:
    """Rows with and without such a change, of two to four tokens."""
    half, third = Fraction(1, 2), Fraction(1, 3)
    rows = [("two equal weights", [half, half], [third, 1 - third]),
            ("the same weights twice", [half, half], [half, half])]
    for length in (2, 3, 4) * 2:
        kept, full = _weights(draw, length), _weights(draw, length)
        rows.append((f"{length} tokens", kept, full))
    for what, kept, full in rows:
        wanted = _smallest(kept, full)
        with case(f"{what}, weights {', '.join(map(str, kept))} and {', '.join(map(str, full))}"):
            _look(answer(list(kept), list(full)), kept, full, wanted)


def _look(got: Any, kept: Row, full: Row, wanted: int | None) -> None:
    if got is None:
        if wanted is not None:
            raise Mistake("the search found nothing; there is one: does it try negative numbers?")
        return
    if (not isinstance(got, (list, tuple)) or len(got) != len(full)
            or not all(isinstance(by, int) and abs(by) <= 2 for by in got)):
        raise Mistake(f"the result is {describe(got)}, wanted a whole number from -2 to 2 for each "
                      "token, or None")
    if _moved(kept, got) != 0:
        raise Mistake(f"{list(got)} moves the first output too, by {_moved(kept, got)}")
    if _moved(full, got) == 0:
        raise Mistake(f"{list(got)} moves neither output: the second has to move")
    if sum(map(abs, got)) != wanted:
        raise Mistake(f"{list(got)} has the size {sum(map(abs, got))}; there is one of {wanted}: "
                      "try small changes first")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("12.2", "layers_until", "Layers until a token is inside a row", 6, 3, 4, (
        Property("equal to products of matrices", 1, chains),)),
    CourseTask("12.5", "reads_future", "A detector of leaks", 8, 3, 5, (
        Property("finds the leaks, and accuses no causal mechanism", 1, detects),)),
    CourseTask("12.6", "unseen_change", "A change that one row sees and another does not", 8, 3, 5, (
        Property("the smallest one, or none", 1, unseen),)),
)
