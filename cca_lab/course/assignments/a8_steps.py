"""Checks of a8's decode steps: a full cache, StreamingLLM, and sinks with cores and a window."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from cca_lab.course.assignments.a8_oracles import (
    Text,
    core_reads,
    dense,
    forgetful,
    held,
    pooled,
    rotated,
    stepped,
    texts,
)
from cca_lab.course.compare import need_close
from cca_lab.course.tasks import Answer, Draw, case

Mistaken = Callable[[], dict[str, Tensor]]  # outputs of known mistakes, computed only if one is looked for
SCALE = 0.7
NO_SCALE = "the dot products are not multiplied by scale"


def turned(draw: Draw, single: bool, measure: bool) -> list[list[Text]]:
    """Return texts, small ones first; if they come in chunks, each with another one of its shape, to take turns.

    Bytes are measured in float32, and after chunks and single tokens in turn.
    """
    dtype, again = torch.float32 if measure else torch.float64, Draw(str(draw.getrandbits(60)))
    return [[text] if single else
            [text, Text(*(again.normal(*x.shape, dtype=dtype) for x in (text.q, text.k, text.v)), text.chunks[::-1])]
            for text in texts(draw, single=single, dtype=dtype, tail=2 * measure)]


def need_output(got: Tensor, wanted: Tensor, text: Text, measure: bool, causes: Mistaken) -> None:
    """Compare an output.

    Where bytes are measured, only the rows that came as single tokens count: they show what the cache holds after a
    chunk. The rows inside chunks have a property of their own, and a mistake shall not cost twice.
    """
    sizes = torch.tensor(text.chunks)
    counted = (sizes.repeat_interleave(sizes) == 1)[:, None] if measure else torch.tensor(True)
    need_close(torch.where(counted, got, wanted), wanted, "the output", tolerance=2e-4 if measure else 1e-5,
               causes=lambda: {what: torch.where(counted, other, wanted) for what, other in causes().items()})


def measured(check: Callable[..., None], answer: Answer, draw: Draw) -> None:
    """Bytes after every step, token by token and in chunks, with right outputs."""
    answer = forgetful(answer, draw)
    for single in (True, False):
        check(answer, draw, single=single, measure=True)


# a8.2: full cache


def full_wanted(text: Text) -> tuple[Tensor, Mistaken]:
    """Return the output of full attention, and those of mistakes."""
    row = torch.arange(text.q.shape[2])
    past = row <= row[:, None]
    whole = row < (text.starts + torch.tensor(text.chunks).repeat_interleave(torch.tensor(text.chunks)))[:, None]
    parts = text.q, text.k, text.v
    return dense(*parts, past, SCALE), lambda: {
        "query head h reads KV head h mod Hk, instead of h // (H / Hk)": dense(*parts, past, SCALE, tiled=True),
        NO_SCALE: dense(*parts, past, 1.0),
        "the chunk's mask is aligned top left: row 0 of a chunk reads only the first key of the cache":
            dense(*parts, row <= (row - text.starts)[:, None], SCALE),
        "every row reads its whole chunk, later tokens too": dense(*parts, whole, SCALE),
        "the cache is not read, only the chunk": dense(*parts, past & (row >= text.starts[:, None]), SCALE)}


def full_check(answer: Answer, draw: Draw, *, single: bool, measure: bool = False) -> None:
    """Full attention, chunk by chunk."""
    for pair in turned(draw, single, measure):
        with case(str(pair[0])):
            for text, got in zip(pair, stepped(answer, pair, (SCALE,), (lambda t: t) if measure else None),
                                 strict=True):
                wanted, causes = full_wanted(text)
                need_output(got, wanted, text, measure, causes)


full_single, full_chunks = partial(full_check, single=True), partial(full_check, single=False)
full_bytes = partial(measured, full_check)


# a8.3: repair

SIZES, EDGES = [(1, 2), (2, 3), (4, 9)], [(2, 0), (0, 0), (0, 3)]  # sinks, recent


def streaming_wanted(text: Text, sinks: int, recent: int) -> tuple[Tensor, Mistaken]:
    """Return StreamingLLM's output with the positions of the text, and those of mistakes."""
    row = torch.arange(text.q.shape[2])
    token, i, start = row[None], row[:, None], text.starts[:, None]
    q, k, v = rotated(text.q, row), rotated(text.k, row), text.v
    past, sink = token <= i, token < sinks
    right = past & (sink | (i - token <= recent))
    place = row.clamp(max=sinks + recent)
    twice = right.int() + (right & sink & (i - token <= recent)).int()
    return dense(q, k, v, right, SCALE), lambda: {
        "a token is evicted before the new one has attended":
            dense(q, k, v, past & (sink | (i - token < recent)), SCALE),
        "positions count from the length of the cache, not of the text":
            dense(rotated(text.q, place), rotated(text.k, place), v, right, SCALE),
        NO_SCALE: dense(q, k, v, right, 1.0),
        "nothing has a position: rotate queries and keys": dense(text.q, text.k, v, right, SCALE),
        "a row of a chunk reads tokens that would be gone if the chunk had come token by token":
            dense(q, k, v, past & (sink | (token >= start - recent)), SCALE),
        "a sink that is also recent is read twice": dense(q, k, v, twice, SCALE),
        "nothing is ever evicted": dense(q, k, v, past, SCALE)}


def streaming_check(answer: Answer, draw: Draw, *, sizes: list[tuple[int, int]], single: bool, measure: bool = False
                    ) -> None:
    """StreamingLLM, chunk by chunk."""
    for pair, (sinks, recent) in zip(turned(draw, single, measure), sizes, strict=True):
        if draw.secret:
            sinks, recent = (n + draw.randint(0, 2) if n else 0 for n in (sinks, recent))
        with case(f"{pair[0]}, sinks {sinks}, recent {recent}"):
            entries = (lambda t, most=sinks + recent: min(t, most)) if measure else None
            for text, got in zip(pair, stepped(answer, pair, (SCALE, sinks, recent), entries), strict=True):
                wanted, causes = streaming_wanted(text, sinks, recent)
                need_output(got, wanted, text, measure, causes)


def streaming_both(answer: Answer, draw: Draw, *, single: bool, measure: bool) -> None:
    """StreamingLLM with sinks and recent tokens, and without."""
    for sizes in ([(1, 2), (3, 2), (2, 5)], EDGES):
        streaming_check(answer, draw, sizes=sizes, single=single, measure=measure)


streaming_single = partial(streaming_check, sizes=SIZES, single=True)
streaming_chunks = partial(streaming_check, sizes=SIZES, single=False)
streaming_edges = partial(streaming_check, sizes=EDGES, single=True)
streaming_bytes = partial(measured, streaming_both)


# a8.4: cores


def cores_wanted(text: Text, sinks: int, group: int, window: int) -> tuple[Tensor, Mistaken]:
    """Return the output with sinks, cores and a window, and those of mistakes."""
    sizes = text.q.shape[2], sinks, group, window
    right = core_reads(*sizes)

    def output(reads: Tensor = right, scale: float = SCALE, begin: int = sinks, judge: str = "mean",
               judged: float = SCALE) -> Tensor:
        return dense(text.q, *pooled(text, begin, group, judged, judge), reads, scale)

    def from_zero(sinks_too: bool) -> Tensor:
        reads = core_reads(sizes[0], 0, group, window)
        groups = reads.shape[1] - sizes[0]
        if sinks_too:
            reads[:, groups : groups + sinks] = torch.ones(sizes[0], sizes[0]).tril()[:, :sinks]
        return output(reads, begin=0)

    return output(), lambda: {
        "cores appear one row early": output(core_reads(*sizes, -1)),
        "cores appear one row late": output(core_reads(*sizes, 1)),
        "nothing is pooled": dense(text.q, text.k, text.v, torch.ones(sizes[0], sizes[0]).tril(), SCALE),
        "tokens that a row reads in a core are still read raw": output(core_reads(*sizes, twice=True)),
        "a core is the plain mean of its group": output(judged=0.0),
        "the judge's scores are not multiplied by scale": output(judged=1.0),
        NO_SCALE: output(scale=1.0, judged=1.0),
        "the judge is the query of the first head only, not the mean of the KV head's query heads":
            output(judge="first head"),
        "each query head judges for itself and the weights are averaged: average the queries, then one softmax":
            output(judge="softmaxes"),
        "there are no sinks: groups begin at token 0": from_zero(False),
        "groups begin at token 0, and not behind the sinks": from_zero(True)}


def cores_check(answer: Answer, draw: Draw, *, single: bool, measure: bool = False) -> None:
    """Sinks, cores and window, chunk by chunk."""
    for pair, (sinks, group, window) in zip(turned(draw, single, measure), [(0, 2, 2), (1, 3, 1), (3, 4, 6)],
                                            strict=True):
        if draw.secret:
            sinks, group, window = sinks + draw.randint(0, 2), group + draw.randint(0, 1), window + draw.randint(0, 2)
        sizes = sinks, group, window
        with case(f"{pair[0]}, sinks {sinks}, group {group}, window {window}"):
            entries = (lambda t, sizes=sizes: held(t, *sizes)) if measure else None
            for text, got in zip(pair, stepped(answer, pair, (SCALE, *sizes), entries), strict=True):
                wanted, causes = cores_wanted(text, *sizes)
                need_output(got, wanted, text, measure, causes)


cores_single, cores_chunks = partial(cores_check, single=True), partial(cores_check, single=False)
cores_bytes = partial(measured, cores_check)
