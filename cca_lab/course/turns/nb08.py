"""What the reader writes in notebook 08_caches_and_decoding."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import CourseTask, Draw


# 08.2: a step of StreamingLLM
def kept(x: Tensor, sinks: int, recent: int) -> Tensor:
    """Keep the first and the last rows, none twice."""
    return x[[row for row in range(len(x)) if row < sinks or row >= len(x) - recent]]


def streaming_step(query: Tensor, key: Tensor, value: Tensor, past_keys: Tensor,
                   past_values: Tensor, sinks: int, recent: int, *, first: bool = False,
                   own: bool = True, power: float = 0.5,
                   keep: Callable[[Tensor, int, int], Tensor] = kept) -> tuple[Tensor, ...]:
    """Return the output, and the keys and values that stay; the keywords are mistakes."""
    keys, values = torch.cat([past_keys, key[None]]), torch.cat([past_values, value[None]])
    read = (keep(keys, sinks, recent), keep(values, sinks, recent)) if first else (keys, values)
    read = read if own or len(read[0]) == 1 else (read[0][:-1], read[1][:-1])
    output = (read[0] @ query / len(query) ** power).softmax(0) @ read[1]
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


# 08.4: the mask of a chunk
def chunk_mask(past: int, chunk: int, *, diagonal: int = 0, top: bool = False,
               future: bool = False, with_past: bool = True, with_chunk: bool = True,
               turned: bool = False) -> Tensor:
    """Return which columns each row of a chunk sees; the keywords are mistakes."""
    column, row = torch.arange(past + chunk), torch.arange(chunk)[:, None]
    seen = (column <= row + diagonal + (0 if top else past)) | future
    seen = seen & ((column >= past) | with_past) & ((column < past) | with_chunk)
    return ~seen if turned else seen


TURNS: tuple[CourseTask, ...] = (
    CourseTask("08.2", "streaming_step", "One step of a StreamingLLM cache", 8, 3, 5, (
        equals("attends first, then evicts", streaming_step, token_by_token, "the output",
               "the keys that stay", "the values that stay", wrong=mistakes(streaming_step, {
            "the token does not attend to itself": {"own": False},
            "eviction comes first, so the row has lost one token": {"first": True},
            "the scores are not divided by sqrt(D)": {"power": 0.0},
            "the scores are not divided by sqrt(D), but by D": {"power": 1.0},
            "nothing is evicted, or one recent token too many is kept":
                {"keep": lambda x, sinks, recent: x},
            "the sinks are dropped": {"keep": lambda x, sinks, recent: last(x, sinks + recent)},
            "while there are few tokens, some are kept twice":
                {"keep": lambda x, sinks, recent: torch.cat([x[:sinks], last(x, recent)])},
            "one recent token too few is kept":
                {"keep": lambda x, sinks, recent: kept(x, sinks, recent - 1)},
            "only the sinks stay": {"keep": lambda x, sinks, recent: x[:sinks]},
            "a slice such as x[-recent:] is taken where there is nothing to drop":
                {"keep": lambda x, sinks, recent: torch.cat([x[:sinks], x])},
            "the new token is not among those that stay":
                {"keep": lambda x, sinks, recent: kept(x[:-1], sinks, recent)}})),)),
    CourseTask("08.4", "chunk_mask", "What the rows of a chunk see", 4, 2, 4, (
        equals("all of the past, and the chunk up to itself", chunk_mask,
               examples(lambda draw, past, chunk: (past, chunk), (2, 3), (0, 4), (5, 1), (3, 2),
                        (4, 6)), "the table", wrong=mistakes(chunk_mask, {
            "the triangle begins at the top left, so the first row sees one token of the past "
            "only": {"top": True},
            "a row does not see its own token": {"diagonal": -1},
            "a row sees one token too many: the next one": {"diagonal": 1},
            "every row sees the whole chunk, its future included": {"future": True},
            "the chunk's own tokens are not seen": {"with_chunk": False},
            "the past is not seen": {"with_past": False},
            "true and false are exchanged": {"turned": True}}) | {
            "the table is one to be added, with 0 and -inf": lambda past, chunk: torch.where(
                chunk_mask(past, chunk), 0.0, -torch.inf)}),)),
)
