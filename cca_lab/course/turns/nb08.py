"""What the reader writes in notebook 08_caches_and_decoding."""

from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import need_close, need_items, need_same, need_tensor
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


# 08.2: a step of StreamingLLM
def _attended(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    return torch.softmax(scale * (keys @ query), dim=0) @ values


def _kept(x: Tensor, sinks: int, recent: int) -> Tensor:
    """Keep the first and the last rows, none twice."""
    return x[[row for row in range(len(x)) if row < sinks or row >= len(x) - recent]]


def _tail(x: Tensor, count: int) -> Tensor:
    return x[len(x) - min(count, len(x)):]


def streaming(answer: Answer, draw: Draw) -> None:
    """Token by token, the right past each time."""
    for sinks, recent, width in [(1, 2, 4), (2, 3, 3), (0, 2, 4), (3, 1, 5)]:
        keys, values = torch.zeros(2, 0, width, dtype=torch.float64)
        for _ in range(sinks + recent + 4):
            query, key, value = draw.normal(3, width)
            with case(f"{sinks} sinks, {recent} recent, {len(keys)} tokens in the past"):
                got = need_items(answer(query, key, value, keys, values, sinks, recent), 3,
                                 "three things: the output, and the keys and values that stay")
                keys, values = torch.cat([keys, key[None]]), torch.cat([values, value[None]])
                _check_output(got[0], query, keys, values, sinks, recent)
                _check_stay(got[1], keys, sinks, recent, "the keys that stay")
                _check_stay(got[2], values, sinks, recent, "the values that stay")
            keys, values = _kept(keys, sinks, recent), _kept(values, sinks, recent)


def _check_output(output: Any, query: Tensor, keys: Tensor, values: Tensor, sinks: int,
                  recent: int) -> None:
    scale = len(query) ** -0.5
    need_close(output, _attended(query, keys, values, scale), "the output", causes={
        "the token does not attend to itself": _attended(query, keys[:-1], values[:-1], scale),
        "eviction comes first, so the row has lost one token":
            _attended(query, _kept(keys, sinks, recent), _kept(values, sinks, recent), scale),
        "the scores are not divided by sqrt(D)": _attended(query, keys, values, 1.0),
        "the scores are not divided by sqrt(D), but by D":
            _attended(query, keys, values, scale**2)})


def _check_stay(came: Any, long: Tensor, sinks: int, recent: int, what: str) -> None:
    wanted = _kept(long, sinks, recent)
    causes = {
        "nothing is evicted": long,
        "the sinks are dropped": _tail(long, sinks + recent),
        "while there are few tokens, some are kept twice":
            torch.cat([long[:sinks], _tail(long, recent)]),
        "one recent token too many is kept": _kept(long, sinks, recent + 1),
        "one recent token too few is kept": _kept(long, sinks, recent - 1),
        "only the sinks stay": long[:sinks],
        "with recent = 0 or few tokens a slice such as x[-recent:] takes everything":
            torch.cat([long[:sinks], long]),
        "the new token is not among them": _kept(long[:-1], sinks, recent),
    }
    if isinstance(came, Tensor) and came.shape != wanted.shape:
        for cause, other in causes.items():
            if other.shape == came.shape and torch.allclose(came.double(), other):
                raise Mistake(f"{what} are {len(came)}, wanted {len(wanted)}. This is what comes "
                              f"out when {cause}")
    need_close(need_tensor(came, wanted.shape, what), wanted, what, causes=causes)


# 08.4: the mask of a chunk
def chunks(answer: Answer, draw: Draw) -> None:
    """Small tables."""
    for past, chunk in [(2, 3), (0, 4), (5, 1), (3, 2), (draw.randint(1, 6), draw.randint(2, 6))]:
        wanted = torch.tensor([[column <= past + row for column in range(past + chunk)]
                               for row in range(chunk)])
        ones = torch.ones(chunk, past + chunk, dtype=torch.bool)
        with case(f"{past} tokens in the past, a chunk of {chunk}"):
            need_same(answer(past, chunk), wanted, "the table", causes={
                "the triangle begins at the top left, so the first row sees one token of the past "
                "only": ones.tril(),
                "a row does not see its own token": ones.tril(past - 1),
                "a row sees one token too many: the next one": ones.tril(past + 1),
                "every row sees the whole chunk, its future included": ones,
                "the chunk's own tokens are not seen":
                    torch.cat([ones[:, :past], ~ones[:, past:]], dim=1),
                "the past is not seen": ones.tril(past) & (torch.arange(past + chunk) >= past),
                "true and false are exchanged": ~wanted})


TURNS: tuple[CourseTask, ...] = (
    CourseTask("08.2", "streaming_step", "One step of a StreamingLLM cache", 8, 3, 5, (
        Property("attends first, then evicts", 1, streaming),)),
    CourseTask("08.4", "chunk_mask", "What the rows of a chunk see", 4, 2, 4, (
        Property("all of the past, and the chunk up to itself", 1, chunks),)),
)
