"""What the reader writes in notebook 01: a mask, a test for leaks, the online softmax."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need_close, need_items
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v, (L, D) each -> (L, D)
State = tuple[Tensor, Tensor, Tensor]  # maximum, sum and weighted sum so far


def _past(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def _hidden(scores: Tensor, seen: Tensor) -> Tensor:
    """Return weights of what is seen: a softmax in which all other scores are -inf."""
    return scores.masked_fill(~seen, -math.inf).softmax(1)


# 01.2: the causal mask
def check_mask(answer: Answer, draw: Draw) -> None:
    """Against a softmax of each row's own scores."""
    for length in (4, 7, 1):
        scores, past = draw.normal(length, length), _past(length)
        wanted = torch.zeros_like(scores)
        for row in range(length):
            wanted[row, : row + 1] = torch.softmax(scores[row, : row + 1], dim=0)
        causes = {
            "nothing is hidden": scores.softmax(1),
            "the scores are multiplied by the mask: a score of 0 still has the weight e^0 = 1":
                (scores * past).softmax(1),
            "the finished weights are multiplied by the mask: the rows no longer sum to 1":
                scores.softmax(1) * past,
            "the past is hidden, and the future is read: the other triangle":
                _hidden(scores, past.T),
            "the softmax runs over the columns of the matrix; each row is one word's weights":
                scores.masked_fill(~past, -math.inf).softmax(0),
            "each row reads one word of the future":
                _hidden(scores, torch.ones_like(past).tril(1)),
        }
        with case(f"{length} words"):
            need_close(answer(scores), wanted, "the weights", causes=causes,
                       why="does row 0 see nothing at all? Each row sees at least its own word")


def check_large(answer: Answer, draw: Draw) -> None:
    """Future scores that no fixed number outweighs."""
    scores, past = draw.normal(5, 5), _past(5)
    causes = {"a large negative number is added to what is hidden: it is not enough here, -inf is":
              scores.masked_fill(~past, 1e12 - 1e9).softmax(1)}
    with case("scores of 1e12 in the future"):
        need_close(answer(scores.masked_fill(~past, 1e12)), _hidden(scores, past), "the weights",
                   causes=causes,
                   why="e^score overflows; torch.softmax subtracts the largest score first")


# 01.3: a test for leaks
def _masked(weights: Callable[[Tensor, Tensor], Tensor]) -> Attention:
    """Return attention whose weights are a function of the scores and of the mask of the past."""
    return lambda q, k, v: weights(q @ k.T / q.shape[1] ** 0.5, _past(len(q))) @ v


CAUSAL = _masked(_hidden)
RIGHT = {"the causal one": CAUSAL,
         "a window of three": _masked(lambda s, past: _hidden(s, past & ~past.tril(-3)))}
LEAKING: dict[str, tuple[Attention, str]] = {
    "one word ahead": (
        _masked(lambda s, past: _hidden(s, torch.ones_like(past).tril(1))),
        "only the row just before the last one moves: compare that row too"),
    "scores times mask": (
        _masked(lambda s, past: (s * past).softmax(1)),
        "it gives the values of the future an ordinary weight: change the last value"),
    "weights times mask": (
        _masked(lambda s, past: s.softmax(1) * past),
        "future values are gone, but future keys stand in the denominator: change the last key"),
    "-10000 in the place of -inf": (
        _masked(lambda s, past: (s - 1e4 * ~past).softmax(1)),
        "it leaks only when a score comes close to 10000: change the last key by a lot as well"),
    "a mean of all queries": (
        lambda q, k, v: CAUSAL(q + q.mean(0), k, v),
        "it leaks through the queries: change the last query too"),
}


def check_leaks(answer: Answer, draw: Draw) -> None:
    """The right forms pass, each wrong one is caught."""
    for _ in range(3):
        q, k, v = (draw.normal(8, 4) for _ in "qkv")
        for name, attention in RIGHT.items():
            if _verdict(answer, attention, q, k, v):
                raise Mistake(f"it says that {name} leaks: the last row itself may move, so "
                              "compare only the rows before it; and take no NaN or infinity, for 0 "
                              "times NaN is NaN")
        for name, (attention, why) in LEAKING.items():
            if not _verdict(answer, attention, q, k, v):
                raise Mistake(f"it does not notice {name!r}: {why}")


def _verdict(answer: Answer, attention: Attention, q: Tensor, k: Tensor, v: Tensor) -> bool:
    got = answer(attention, q, k, v)
    if isinstance(got, Tensor) and got.numel() == 1:
        got = got.item()
    if not isinstance(got, (bool, int)):
        raise Mistake(f"the result is {describe(got)}, wanted True or False")
    return bool(got)


# 01.6: one step of the online softmax
def check_step(answer: Answer, draw: Draw) -> None:
    """Each step against the definition, from the right state before it."""
    for length, width, large in [(6, 2, 1.0), (5, 3, 2000.0)]:
        scores, values = large * draw.normal(length), draw.normal(length, width)
        scores[3] = scores.max() + 1  # a new maximum in the middle
        zero = torch.zeros(()).double()
        states: list[State] = [(zero - math.inf, zero, torch.zeros(width).double())]
        for n in range(length):
            powers = (scores[: n + 1] - scores[: n + 1].max()).exp()
            states.append((scores[: n + 1].max(), powers.sum(), powers @ values[: n + 1]))
        for n in (3, *range(1, length), 0):  # the first key last: there -inf hides what is wrong
            grows = "a new maximum" if scores[n] > states[n][0] else "the maximum stays"
            with case(f"key {n + 1} of {length}, {grows if n else 'the first key'}"):
                got = answer(*states[n], scores[n], values[n])
                _need_state(got, states[n + 1], _causes(states[n], scores[n], values[n]))


def _causes(state: State, score: Tensor, value: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return sum and weighted sum with a mistake each."""
    top, total, sums = state
    new = torch.maximum(top, score)
    factor, weight = (top - new).exp(), (score - new).exp()
    upside_down = (new - top).exp()
    return {
        "the old terms are not corrected": (total + weight, sums + weight * value),
        "the factor is upside down: old terms shrink when the maximum grows":
            (total * upside_down + weight, sums * upside_down + weight * value),
        "the new term is corrected too; only the old ones are":
            ((total + weight) * factor, (sums + weight * value) * factor),
        "the new term is taken relative to the old maximum":
            (total * factor + (score - top).exp(), sums * factor + (score - top).exp() * value),
        "no maximum is subtracted from the new score":
            (total * factor + score.exp(), sums * factor + score.exp() * value),
        "the old terms are lost": (weight, weight * value),
    }


def _need_state(got: Any, wanted: State, causes: dict[str, tuple[Tensor, Tensor]]) -> None:
    need_items(got, 3, "three: the maximum, the sum, the weighted sum")
    why = ("is the first key's old maximum, -inf, subtracted from itself, or an exp taken without "
           "a maximum?")
    need_close(got[0], wanted[0], "the maximum", why=why)
    need_close(got[1], wanted[1], "the sum", why=why, causes={c: x[0] for c, x in causes.items()})
    need_close(got[2], wanted[2], "the weighted sum", why=why,
               causes={c: x[1] for c, x in causes.items()})


TURNS: tuple[CourseTask, ...] = (
    CourseTask("01.2", "causal_weights", "Scores to weights, without the future", 5, 2, 5, (
        Property("equal to a softmax of each row's past", 1, check_mask),
        Property("no score of the future is large enough to count", 1, check_large))),
    CourseTask("01.3", "leaks", "A test that finds leaks", 10, 3, 5, (
        Property("right forms pass, wrong ones are caught", 1, check_leaks),)),
    CourseTask("01.6", "online_step", "One step of the online softmax", 8, 3, 5, (
        Property("the state after every key", 1, check_step),)),
)
