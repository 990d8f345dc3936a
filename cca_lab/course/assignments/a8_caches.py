"""a8: caches for decoding: outputs equal one forward, however tokens come; bytes are exact.

The variant: a cache of sinks, core tokens and a window. Row i reads the cores of the first
n(i) = max(0, floor((i + 1 - sinks - window) / group)) groups; groups begin behind the sinks. A core
is made when the last token of its group comes, and its raw tokens go when no later row reads them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a8_oracles import (
    ChunkedText,
    core_reads,
    corners,
    dense,
    forgetful,
    held,
    need_state,
    pooled,
    rotated,
    stepped,
    texts,
)
from cca_lab.course.compare import (
    describe,
    many,
    need_close,
    need_equal,
    need_items,
    need_same,
    need_tensor,
)
from cca_lab.course.tasks import (
    Answer,
    Assignment,
    CourseTask,
    Draw,
    Mistake,
    Property,
    Share,
    case,
)

# Texts in turns, and outputs

# Outputs of known mistakes, computed only if one is looked for.
Mistaken = Callable[[], dict[str, Tensor]]
SCALE = 0.7
NO_SCALE = "the dot products are not multiplied by scale"


def turned(draw: Draw, single: bool, measure: bool) -> list[list[ChunkedText]]:
    """Return texts, small ones first; chunked ones with another of their shape, to take turns."""
    dtype, again = torch.float32 if measure else torch.float64, Draw(str(draw.getrandbits(60)))
    pairs = [[text] for text in texts(draw, single=single, dtype=dtype, tail=2 * measure)]
    for pair in [] if single else pairs:
        q, k, v = (again.normal(*x.shape, dtype=dtype) for x in (pair[0].q, pair[0].k, pair[0].v))
        pair.append(ChunkedText(q, k, v, pair[0].chunks[::-1]))
    return pairs


def need_output(got: Tensor, wanted: Tensor, text: ChunkedText, measure: bool,
                causes: Mistaken) -> None:
    """Compare an output.

    Where bytes are measured only rows that came as single tokens count, which show what the cache
    holds after a chunk: a mistake inside chunks shall not cost twice.
    """
    sizes = torch.tensor(text.chunks)
    counted = (sizes.repeat_interleave(sizes) == 1)[:, None] if measure else torch.tensor(True)
    need_close(torch.where(counted, got, wanted), wanted, "the output", tolerance=2e-4 if measure
               else 1e-5, causes=lambda: {what: torch.where(counted, other, wanted)
                                          for what, other in causes().items()})


def compare_turns(answer: Answer, pair: list[ChunkedText], sizes: Mapping[str, int],
                  wanted_of: Callable[..., tuple[Tensor, Mistaken]],
                  entries: Callable[..., int] | None) -> None:
    """Compare the outputs of texts in turns, and where bytes are measured, the entries."""
    options = sizes.values()
    count = None if entries is None else lambda tokens: entries(tokens, *options)
    with case(", ".join([str(pair[0]), *(f"{name} {size}" for name, size in sizes.items())])):
        for text, got in zip(pair, stepped(answer, pair, (SCALE, *options), count), strict=True):
            wanted, causes = wanted_of(text, *options)
            need_output(got, wanted, text, entries is not None, causes)


def measured(check: Callable[..., None], answer: Answer, draw: Draw) -> None:
    """Bytes after every step, token by token and in chunks, with right outputs."""
    answer = forgetful(answer, draw)
    for single in (True, False):
        check(answer, draw, single=single, measure=True)


def properties(name: str, check: Callable[..., None], points: tuple[int, int, int],
               *more: Property) -> tuple[Property, ...]:
    """Return the properties of a step: outputs token by token and in chunks, and bytes."""
    single = partial(check, single=True)
    return (Property(f"{name}: single tokens equal one forward", points[0], single),
            Property(f"{name}: chunks equal one forward", points[1], partial(check, single=False)),
            *more, Property(f"{name}: bytes are exact at right outputs", points[2],
                            partial(measured, check)))


# a8.1: by hand

def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check the numbers that were worked out for one example."""
    got = answer()
    wanted: dict[str, object] = {"held": [0, 5, 6], "row 6": [0, 4, 5, 6], "row 6 evicting first":
                                     [0, 5, 6], "row 5 in the chunk": [0, 3, 4, 5],
                                 "first row with a loss": 4, "bytes": 192}
    quoted = ", ".join(repr(key) for key in wanted)
    if not isinstance(got, dict):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {quoted}")
    plain = {key: x.tolist() if isinstance(x, Tensor) else list(x) if isinstance(x, tuple) else x
             for key, x in got.items()}
    wrong = [key for key in wanted if plain.get(key) != wanted[key]]
    message = f"not right yet: {', '.join(repr(key) for key in wrong)}"
    if other := [key for key in plain if key not in wanted]:
        message += f". Nobody asks for {', '.join(map(repr, other))}: the keys are {quoted}"
    return Share(1 - len(wrong) / len(wanted), message) if wrong else None


# a8.2: full cache

def full_wanted(text: ChunkedText) -> tuple[Tensor, Mistaken]:
    """Return the output of full attention, and those of mistakes."""
    row = torch.arange(text.q.shape[2])
    past = row <= row[:, None]
    whole = row < (text.starts + torch.tensor(text.chunks).repeat_interleave(
        torch.tensor(text.chunks)))[:, None]
    qkv = text.q, text.k, text.v
    return dense(*qkv, past, SCALE), lambda: {
        "query head h reads KV head h mod Hk, instead of h // (H / Hk)":
            dense(*qkv, past, SCALE, tiled=True),
        NO_SCALE: dense(*qkv, past, 1.0),
        "the scale is divided by the number of KV heads":
            dense(*qkv, past, SCALE / text.k.shape[1]),
        "the chunk's mask is aligned top left: row 0 of a chunk reads only the first key of the "
        "cache": dense(*qkv, row <= (row - text.starts)[:, None], SCALE),
        "every row reads its whole chunk, later tokens too": dense(*qkv, whole, SCALE),
        "the cache is not read, only the chunk": dense(*qkv, past & (row >= text.starts[:, None]),
                                                       SCALE)}


def full_check(answer: Answer, draw: Draw, *, single: bool, measure: bool = False) -> None:
    """Full attention, chunk by chunk."""
    for pair in turned(draw, single, measure):
        compare_turns(answer, pair, {}, full_wanted, (lambda tokens: tokens) if measure else None)


# a8.3: repair

SIZES, EDGES = ((1, 2), (2, 3), (4, 9)), ((2, 0), (0, 0), (0, 3))  # sinks, recent


def streaming_wanted(text: ChunkedText, sinks: int, recent: int) -> tuple[Tensor, Mistaken]:
    """Return StreamingLLM's output with the positions of the text, and those of mistakes."""
    row = torch.arange(text.q.shape[2])
    token, i, start = row[None], row[:, None], text.starts[:, None]
    q, k, v = rotated(text.q, row), rotated(text.k, row), text.v
    past, sink = token <= i, token < sinks
    right = past & (sink | (i - token <= recent))
    slot = row.clamp(max=sinks + recent)
    twice = right.int() + (right & sink & (i - token <= recent)).int()
    return dense(q, k, v, right, SCALE), lambda: {
        "a token is evicted before the new one has attended":
            dense(q, k, v, past & (sink | (i - token < recent)), SCALE),
        "positions count from the length of the cache, not of the text":
            dense(rotated(text.q, slot), rotated(text.k, slot), v, right, SCALE),
        NO_SCALE: dense(q, k, v, right, 1.0),
        "nothing has a position: rotate queries and keys": dense(text.q, text.k, v, right, SCALE),
        "a row of a chunk reads tokens that would be gone if the chunk had come token by token":
            dense(q, k, v, past & (sink | (token >= start - recent)), SCALE),
        "a sink that is also recent is read twice": dense(q, k, v, twice, SCALE),
        "nothing is ever evicted": dense(q, k, v, past, SCALE)}


def streaming_check(answer: Answer, draw: Draw, *, single: bool, measure: bool = False,
                    sizes: tuple[tuple[int, int], ...] = SIZES) -> None:
    """StreamingLLM, chunk by chunk; bytes with sinks and recent tokens, and without."""
    for some in (((1, 2), (3, 2), (2, 5)), EDGES) if measure else (sizes,):
        for pair, (sinks, recent) in zip(turned(draw, single, measure), some, strict=True):
            if draw.secret:
                sinks, recent = (n + draw.randint(0, 2) if n else 0 for n in (sinks, recent))
            compare_turns(answer, pair, {"sinks": sinks, "recent": recent}, streaming_wanted,
                          (lambda tokens, *most: min(tokens, sum(most))) if measure else None)


# a8.4: cores

LATE = {"cores appear one row early": -1, "cores appear one row late": 1}


def cores_wanted(text: ChunkedText, sinks: int, group: int, window: int) -> tuple[Tensor, Mistaken]:
    """Return the output with sinks, cores and a window, and those of mistakes."""
    sizes = text.q.shape[2], sinks, group, window
    right = core_reads(*sizes)

    def output(reads: Tensor = right, scale: float = SCALE, begin: int = sinks,
               judge: str | int = "mean", judged: float = SCALE) -> Tensor:
        return dense(text.q, *pooled(text, begin, group, judged, judge), reads, scale)

    def from_zero(sinks_too: bool) -> Tensor:
        reads = core_reads(sizes[0], 0, group, window)
        groups = reads.shape[1] - sizes[0]
        if sinks_too:
            reads[:, groups : groups + sinks] = torch.ones(sizes[0], sizes[0]).tril()[:, :sinks]
        return output(reads, begin=0)

    scale = SCALE / text.k.shape[1]
    return output(), lambda: {
        **{slip: output(core_reads(*sizes, late)) for slip, late in LATE.items()},
        "nothing is pooled":
            dense(text.q, text.k, text.v, torch.ones(sizes[0], sizes[0]).tril(), SCALE),
        "tokens that a row reads in a core are still read raw":
            output(core_reads(*sizes, twice=True)),
        "a core is the plain mean of its group": output(judged=0.0),
        "the judge's scores are not multiplied by scale": output(judged=1.0),
        NO_SCALE: output(scale=1.0, judged=1.0),
        "the scale is divided by the number of KV heads": output(scale=scale, judged=scale),
        "the judge is the query of the first head only, not the mean of the KV head's query heads":
            output(judge="first head"),
        "each query head judges for itself and the weights are averaged: average the queries, then "
        "one softmax": output(judge="softmaxes"),
        "the queries of a KV head are added, not averaged, before they judge": output(judge="sum"),
        "each row judges the groups with its own query": torch.cat(
            [output(judge=row)[:, :, row : row + 1] for row in range(sizes[0])], dim=2),
        "there are no sinks: groups begin at token 0": from_zero(False),
        "groups begin at token 0, and not behind the sinks": from_zero(True)}


def cores_check(answer: Answer, draw: Draw, *, single: bool, measure: bool = False) -> None:
    """Sinks, cores and window, chunk by chunk."""
    for pair, sizes in zip(turned(draw, single, measure), [(0, 2, 2), (1, 3, 1), (3, 4, 6)],
                           strict=True):
        drawn = (draw.randint(0, most) if draw.secret else 0 for most in (2, 1, 2))
        sinks, group, window = (size + more for size, more in zip(sizes, drawn, strict=True))
        entries = held if measure else None
        compare_turns(answer, pair, {"sinks": sinks, "group": group, "window": window},
                      cores_wanted, entries)


# a8.5: bytes in closed form

def predicted(answer: Answer, size: tuple[int, ...], entry: int, which: int,
              wanted: int) -> None:
    """Check one of the two numbers for (length, sinks, group, window)."""
    with case(f"length {size[0]}, sinks {size[1]}, group {size[2]}, window {size[3]}, {entry} "
              "bytes an entry"):
        got = answer(*size, entry)
        if not isinstance(got,
                          (tuple, list)) or len(got) != 2 or not all(type(x) is int for x in got):
            raise Mistake(f"the result is {describe(got)}, wanted two integers (after, peak): "
                          "divide with //")
        need_equal(got[which], wanted, ("the number of bytes at the end", "the peak")[which])


def small(draw: Draw) -> list[tuple[int, ...]]:
    """Return (length, sinks, group, window), small ones first."""
    if not draw.secret:
        return [(0, 0, 1, 1), (3, 4, 2, 2), (4, 1, 3, 2), (10, 1, 3, 2), (11, 1, 3, 2),
                (29, 4, 6, 3), (40, 0, 5, 9)]
    return draw.sizes(25, (0, 50), (0, 6), (1, 7), (1, 12))


def bytes_small(answer: Answer, draw: Draw, which: int) -> None:
    """At the end, or the peak, against counting."""
    for size in small(draw):
        counts = [held(tokens, *size[1:]) for tokens in range(size[0] + 1)]
        predicted(answer, size, 96, which, 96 * (counts[-1], max(counts))[which])


def bytes_large(answer: Answer, draw: Draw) -> None:
    """A trillion tokens: each cycle holds one entry more, so the peak lies in the last one."""
    for sizes in [(4, 16, 1024), (3, 17, 255), (0, 1000, 3)]:
        length = draw.randint(10**11, 10**12)
        peak = max(held(t, *sizes) for t in range(length - 2 * sizes[1], length + 1))
        for which, entries in enumerate((held(length, *sizes), peak)):
            predicted(answer, (length, *sizes), 524288, which, 524288 * entries)


# a8.6: beam search

class Writer:
    """A tiny model of one attention layer with a cache, for beam search; counts rows of calls."""

    def __init__(self, draw: Draw, words: int, dim: int = 4) -> None:
        self.tables = [2 * draw.normal(words, dim) for _ in range(4)]
        self.rows: list[int] = []

    def start(self) -> dict[str, Any]:
        """Return the state of one row without tokens."""
        return {"key": torch.zeros(1, 0, 4, dtype=torch.float64), "seen": 0,
                "value": torch.zeros(1, 0, 4, dtype=torch.float64)}

    def step(self, state: Any, tokens: Any) -> tuple[Tensor, dict[str, Any]]:
        """Read a token for each row; return log-probabilities (rows, words) and the state."""
        q, k, v, out = self.tables
        if not isinstance(tokens, Tensor) or tokens.dim() != 1 or tokens.is_floating_point() or len(
                tokens) > 1000:
            raise Mistake(f"step got {describe(tokens)} as tokens, wanted int64 of shape (rows,)")
        if len(tokens) and (tokens.min() < 0 or tokens.max() >= len(q)):
            raise Mistake(f"step got token {int(tokens.max())}; there are {len(q)} words, counted "
                          "from 0")
        state = need_state(state)
        if set(state) != {"key", "value", "seen"}:
            raise Mistake(f"step got a state with {', '.join(state) or 'nothing'}, wanted what the "
                          "last call returned, with other rows: key, seen, value")
        seen = state["seen"]
        shape = (len(tokens), seen, 4)
        for name in ("key", "value"):
            need_tensor(state[name], shape, f"for {len(tokens)} new tokens and {seen} seen, "
                                            f"{name!r} in the state")
        self.rows.append(len(tokens))
        key = torch.cat([state["key"], k[tokens.long()][:, None]], dim=1)
        value = torch.cat([state["value"], v[tokens.long()][:, None]], dim=1)
        weights = (key @ q[tokens.long()][..., None])[..., 0].softmax(-1)
        scores = ((weights[:, None] @ value)[:, 0] @ out.T).log_softmax(-1)
        return scores, {"key": key, "value": value, "seen": seen + 1}

    def next_scores(self, text: Sequence[int]) -> Tensor:
        """Return the log-probabilities (words,) of the token after a text, without a cache."""
        q, k, v, out = self.tables
        weights = (k[list(text)] @ q[text[-1]]).softmax(-1)
        return (weights @ v[list(text)] @ out.T).log_softmax(-1)

    def best(self, start: int, width: int, length: int) -> Tensor:
        """Return the survivors of beam search, (width, length), reading every text anew."""
        beams: list[tuple[float, list[int]]] = [(0.0, [start])]
        for _ in range(length):
            longer = [(total + score, [*text, word]) for total, text in beams
                      for word, score in enumerate(self.next_scores(text).tolist())]
            beams = sorted(longer, reverse=True)[:width]
        return torch.tensor([text[1:] for _, text in beams])

    def mistaken(self, start: int, width: int, length: int, moved: Collection[str],
                 sums: bool) -> Tensor:
        """Return what beam search finds if only some things move with their rows, or no sums."""
        totals, tokens = torch.zeros(1, dtype=torch.float64), torch.tensor([start])
        texts, state = torch.zeros(1, 0, dtype=torch.int64), self.start()
        calls = len(self.rows)
        for _ in range(length):
            scores, state = self.step(state, tokens)
            totals, chosen = (sums * totals[:, None] + scores).flatten().topk(width)
            rows, tokens = chosen // scores.shape[1], chosen % scores.shape[1]
            stay = torch.arange(width).clamp(max=len(scores) - 1)
            texts = torch.cat([texts[rows if "texts" in moved else stay], tokens[:, None]], dim=1)
            state |= {name: state[name][rows if name in moved else stay]
                      for name in ("key", "value")}
        del self.rows[calls:]
        return texts


def beams(draw: Draw) -> list[tuple[int, int, int]]:
    """Return (words, width, length), small ones first."""
    more = draw.sizes(8, (4, 9), (2, 4),
                      (3, 9)) if draw.secret else [(5, 3, 4), (6, 4, 8), (7, 3, 9)]
    return [(3, 1, 3), (3, 2, 3), *more]


ALL = ("texts", "key", "value")


# Each cause with what moves, and whether sums are kept.
MISTAKES: tuple[tuple[str, list[tuple[Collection[str], bool]]], ...] = (
    ("the rows of the cache, or of some of its tensors, stay where they are: row r of the state "
     "must be the row of the text that survivor r continues",
     [(("texts",), True), (("texts", "key"), True), (("texts", "value"), True)]),
    ("the cache moves, but the texts so far stay where they are", [(("key", "value"), True)]),
    ("neither the cache nor the texts so far move with their survivors", [((), True)]),
    ("the sums are forgotten, and only the newest log-probability counts", [(ALL, False)]))


def need_survivors(got: Any, writer: Writer, width: int, length: int) -> None:
    """Compare the survivors; what known mistakes give is computed only if they are wrong."""
    wanted = writer.best(0, width, length)
    try:
        need_same(got, wanted, "the table of survivors")
    except Mistake:
        for cause, ways in MISTAKES:
            for others in (writer.mistaken(0, width, length, *way) for way in ways):
                if isinstance(got, Tensor) and torch.equal(got.long(), others):
                    need_same(got, wanted, "the table of survivors", causes={cause: others})
        raise


def beam_tokens(answer: Answer, draw: Draw) -> None:
    """The survivors, in order."""
    for words, width, length in beams(draw):
        writer = Writer(draw, words)
        with case(f"{words} words, width {width}, length {length}"):
            need_survivors(answer(writer.step, writer.start(), 0, width, length), writer, width,
                           length)


def beam_calls(answer: Answer, draw: Draw) -> None:
    """Right survivors from one call for each new token, of the rows that survive."""
    for words, width, length in beams(draw):
        writer = Writer(draw, words)
        with case(f"{words} words, width {width}, length {length}"):
            got = answer(writer.step, writer.start(), 0, width, length)
            wanted = [1] + [width] * (length - 1)
            if len(writer.rows) != length:
                raise Mistake(f"step was called {many(len(writer.rows), 'time')}, wanted {length}: "
                              "once for each new token. What the last token would be followed by "
                              "is not asked for")
            if writer.rows != wanted:
                raise Mistake(f"the calls of step had {writer.rows} rows, wanted {wanted}: first "
                              "the one row that there is, then the survivors and no others")
            need_survivors(got, writer, width, length)


# a8.7: eight bits


Coded = tuple[str, Tensor, Tensor, Tensor, Tensor, Tensor]


def quantised(answer: Answer, draw: Draw, dim: int, scale: float) -> list[Coded]:
    """Return (name, q, k, codes, size, bound) for keys, one of them of zeros; sizes are right."""
    examples = []
    for tokens in (1, 3, 6 + draw.randint(0, 3)):
        q = draw.normal(2, 2, dim)
        k = draw.normal(2, 2, tokens, dim) * 10.0 ** draw.integers(-3, 3, 2, 2, tokens, 1)
        if tokens > 1:
            k[0, 1, 1] = 0.0
        name = many(tokens, "token")
        with case(name):
            got = answer(q, k, scale)
            need_items(got, 3, "(codes, size, bound)")
            size, bound = need_tensor(got[1], k.shape[:3],
                                      "size"), need_tensor(got[2], k.shape[:3], "bound")
            for where, largest in entries_of(k.abs().amax(-1)):
                if largest > 0 and abs(float(size[where]) - largest / 127) > 1e-6 * largest:
                    raise Mistake(f"size{list(where)} is {float(size[where]):.6g}, wanted "
                                  f"{largest / 127:.6g}: the largest absolute value of this key is "
                                  f"{largest:.4g}, and its code is 127 or -127")
        examples.append((name, q, k, got[0], size, bound))
    return examples


def entries_of(x: Tensor) -> list[tuple[tuple[int, ...], float]]:
    """Return the entries of a tensor with their places."""
    return [(tuple(where), x[tuple(where)].item())
            for where in torch.ones_like(x).nonzero().tolist()]


def codes_check(answer: Answer, draw: Draw) -> None:
    """Every number is within half a size of what is decoded."""
    for name, _, k, codes, size, _ in quantised(answer, draw, 6, SCALE):
        with case(name):
            codes = need_tensor(codes, k.shape, "codes", why="is it 0/0, for a key of zeros?")
            if (codes != codes.round()).any() or codes.abs().max() > 127:
                raise Mistake("codes are not whole numbers from -127 to 127: round to the nearest "
                              "integer")
            for where, largest in entries_of(k.abs().amax(-1)):
                if largest == 0 and (size[where] != 0 or codes[where].any()):
                    raise Mistake(f"size{list(where)} is {float(size[where]):.6g} and the codes "
                                  f"are {codes[where].tolist()}, but the key is 0: its size and "
                                  "its codes are 0")
            off = (codes.double() * size[..., None].double() - k).abs().amax(-1)
            for where, error in entries_of(off):
                if error > 0.5001 * size[where]:
                    sizes = error / max(1e-30, float(size[where]))
                    raise Mistake(f"the decoded key {list(where)} is off by {sizes:.3g} sizes, "
                                  "wanted 0.5 at most: round to the nearest integer")


def bound_check(answer: Answer, draw: Draw) -> None:
    """The bound is never broken, and reached by some key: against all corners."""
    scale = draw.uniform(0.1, 3.0) if draw.secret else SCALE
    for name, q, _, _, size, bound in quantised(answer, draw, 5, scale):
        for where, most in entries_of(corners(q, size, scale)):
            query = [round(x, 2) for x in q[where[:2]].tolist()]
            with case(f"{name}, q {query}, size {float(size[where]):.3g}, scale {scale:.3g}"):
                got = float(bound[where])
                if got < most * (1 - 1e-6):
                    raise Mistake(f"bound{list(where)} is {got:.4g}, but a key within half a size "
                                  f"of the decoded one can have a score that is off by {most:.4g}")
                if got > most * (1 + 1e-6):
                    raise Mistake(f"bound{list(where)} is {got:.4g}, but no key within half a size "
                                  "of the decoded one has a score that is off by more than "
                                  f"{most:.4g}: the query is known")


ASSIGNMENT = Assignment("a8", "caches", "Caches: a decode step whose bytes and outputs are exact",
                        ("08", "03"), (
    CourseTask("a8.1", "by_hand", "Seven tokens by hand", 10, 1, 3,
         (Property("the numbers of the example", 2, by_hand),)),
    CourseTask("a8.2", "full_step", "A full cache", 20, 2, 4,
               properties("full cache", full_check, (1, 1, 1))),
    CourseTask("a8.3", "streaming_step", "Repair a StreamingLLM step", 35, 4, 5, properties(
        "StreamingLLM", streaming_check, (1, 1, 1),
        Property("StreamingLLM: no sinks, or no recent tokens", 1,
                 partial(streaming_check, single=True, sizes=EDGES)))),
    CourseTask("a8.4", "cores_step", "Sinks, cores and a window", 55, 5, 5,
               properties("cores", cores_check, (2, 1, 2))),
    CourseTask("a8.5", "cores_bytes", "Its bytes, without running it", 25, 3, 4, (
        Property("the bytes at the end equal counting", 1, partial(bytes_small, which=0)),
        Property("the peak equals counting", 1, partial(bytes_small, which=1)),
        Property("exact for a trillion tokens", 1, bytes_large, hidden=True))),
    CourseTask("a8.6", "beam", "Beam search: rows move with their cache", 20, 3, 3, (
        Property("every survivor continues its own text", 2, beam_tokens),
        Property("one call for each token, of the survivors only", 1, beam_calls))),
    CourseTask("a8.7", "int8_keys", "Keys in eight bits", 15, 3, 3, (
        Property("codes are the nearest ones", 1, codes_check),
        Property("the bound holds and is reached", 1, bound_check))),
))
