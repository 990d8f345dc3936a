"""What the reader writes in notebook 08_caches_and_decoding."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, mistakes
from cca_lab.course.tasks import CourseTask, Draw
from cca_lab.course.turns.nb06 import kept_places


# 08.2: a step of StreamingLLM
def kept(x: Tensor, sinks: int, recent: int) -> Tensor:
    """Keep the first and the last rows, none twice."""
    return x[[row for row in range(len(x)) if row < sinks or row >= len(x) - recent]]


def streaming_step(query: Tensor, key: Tensor, value: Tensor, past_keys: Tensor,
                   past_values: Tensor, sinks: int, recent: int, *, first: bool = False,
                   own: bool = True, power: float = 0.5, weighed: int = 1,
                   keep: Callable[[Tensor, int, int], Tensor] = kept) -> tuple[Tensor, ...]:
    """Return the output, and the keys and values that stay; the keywords are mistakes."""
    keys, values = torch.cat([past_keys, key[None]]), torch.cat([past_values, value[None]])
    read = (keep(keys, sinks, recent), keep(values, sinks, recent)) if first else (keys, values)
    read = read if own or len(read[0]) == 1 else (read[0][:-1], read[1][:-1])
    output = (read[0] @ query / len(query) ** power).softmax(0) @ read[weighed]
    return output, keep(keys, sinks, recent), keep(values, sinks, recent)


def last(x: Tensor, count: int) -> Tensor:
    """Return the last rows, as many as there are."""
    return x[len(x) - min(count, len(x)) :]


def token_by_token(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the next token of each length of the past, as it is right."""
    for sinks, recent, width in [(1, 2, 4), (2, 3, 3), (0, 2, 4), (3, 1, 5)]:
        keys, values = torch.zeros(2, 0, width, dtype=torch.float64)
        for _ in range(sinks + recent + 4):
            step = (*draw.normal(3, width), keys, values, sinks, recent)
            yield f"{sinks} sinks, {recent} recent, {len(keys)} tokens in the past", step
            keys, values = streaming_step(*step)[1:]


# 08.4: a step of H2O
def h2o_step(query: Tensor, key: Tensor, value: Tensor, past_keys: Tensor, past_values: Tensor,
             received: Tensor, keep: Callable[[list[float]], list[int]], *, first: bool = False,
             power: float = 0.5, old: bool = True, new: bool = True, late: bool = False,
             cut: bool = True) -> tuple[Tensor, ...]:
    """Return the output, and the keys, values and scores that stay; the keywords are mistakes."""
    keys, values = torch.cat([past_keys, key[None]]), torch.cat([past_values, value[None]])
    before = torch.cat([received, received.new_zeros(1)])
    read = keep(before.tolist()) if first else list(range(len(keys)))
    weights = torch.zeros_like(before)
    weights[read] = (keys[read] @ query / len(query) ** power).softmax(0)
    scores = before * old + weights * new
    places = keep((before if late else scores).tolist())
    return (weights @ values, keys[places], values[places],
            scores[places] if cut else scores[: len(places)])


def scored(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the next token of pasts whose scores fall, or are all 0 so that this row decides."""
    for count, width, most in [(0, 3, 1), (3, 4, 3), (4, 4, 3), (6, 5, 3), (6, 4, 0), (9, 4, 0)]:
        past = torch.linspace(most, most / 3, count, dtype=torch.float64)
        yield (f"{count} tokens in the past", (
            *draw.normal(3, width, scale=2.0), *draw.normal(2, count, width), past,
            partial(kept_places, heavy=2, recent=2)))


TURNS: tuple[CourseTask, ...] = (
    CourseTask("08.2", "streaming_step", "One step of a StreamingLLM cache", 8, 3, (
        equals("attends first, then evicts", streaming_step, token_by_token, "the output",
               "the tensor of kept keys", "the tensor of kept values", wrong=mistakes(
                   streaming_step, {
            "the token does not attend to itself": {"own": False},
            "eviction comes first, so the row has lost one token": {"first": True},
            "the scores are not divided by sqrt(D)": {"power": 0.0},
            "the scores are divided by D, and not by its root": {"power": 1.0},
            "the keys are weighed, and not the values": {"weighed": 0},
            "sinks and recent are exchanged":
                {"keep": lambda x, sinks, recent: kept(x, recent, sinks)},
            "nothing is evicted, or one recent token too many is kept":
                {"keep": lambda x, sinks, recent: x},
            "the sinks are dropped": {"keep": lambda x, sinks, recent: last(x, sinks + recent)},
            "some tokens are kept twice while there are few":
                {"keep": lambda x, sinks, recent: torch.cat([x[:sinks], last(x, recent)])},
            "one recent token too few is kept":
                {"keep": lambda x, sinks, recent: kept(x, sinks, recent - 1)},
            "the new token is not among those that stay":
                {"keep": lambda x, sinks, recent: kept(x[:-1], sinks, recent)}})),)),
    CourseTask("08.4", "h2o_step", "One step of an H2O cache", 8, 3, (
        equals("attends, adds the weights, then evicts", h2o_step, scored, "the output",
               "the tensor of kept keys", "the tensor of kept values", "the tensor of kept scores",
               wrong=mistakes(h2o_step, {
            "eviction comes first, so the row has lost a token": {"first": True},
            "the scores are not divided by sqrt(D)": {"power": 0.0},
            "the tokens that stay are chosen before the weights of this row are added":
                {"late": True},
            "the weights take the place of the old scores; they are added to them": {"old": False},
            "the weights of this row are not added to the scores": {"new": False},
            "the scores that stay are the first ones, and not those of the tokens that stay":
                {"cut": False}})),)),
)
