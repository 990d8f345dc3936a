"""a8: caches for decoding: outputs equal one forward, however tokens come; bytes are exact.

The variant: a cache of sinks, core tokens and a window. Row i reads the cores of the first
n(i) = max(0, floor((i + 1 - sinks - window) / group)) groups; groups begin behind the sinks. A core
is made when the last token of its group comes, and its raw tokens go when no later row reads them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a5_cca import cores_of
from cca_lab.course.compare import by_hand, describe, many, need, need_items, need_tensor
from cca_lab.course.exercise import Examples, equals, examples, holds, mistakes, slips
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case

SCALE = 0.7
ALL = 10**9  # sinks: every token stays, as in a full cache
BESIDE = 512  # bytes of counts and names in a state, fewer than half of a text has


# a8.2 and a8.3: texts in turns, and what their states hold
def text(draw: Draw, batch: int, kv_heads: int, query_heads_each: int, chunk: int, tokens: int,
         sinks: int, group: int, window: int) -> tuple[Any, ...]:
    """Return a text that comes as one token, two chunks and single tokens, and the sizes.

    With the inputs comes the call at which the process of the answer begins anew, or 0.
    """
    chunks = (1, chunk, chunk, *(tokens - 1 - 2 * chunk) * (1,))
    q, k, v = (draw.normal(batch, heads, tokens, 8, dtype=torch.float32)
               for heads in (kv_heads * query_heads_each, kv_heads, kv_heads))
    restart = draw.randrange(len(chunks) // 2, len(chunks)) if draw.secret else 0
    return 1.5 * q, k, v, chunks, restart, SCALE, *((sinks, group, window) if sinks < ALL else ())


def in_turns(answer: Answer) -> Answer:
    """Return attention over two texts of one shape, whose chunks the answer gets in turns.

    The texts differ in the sign of their values. The result is a pair of outputs, the bytes that
    the states of the first text keep alive, and how many bytes beside tensors are too many.
    """
    def attend(q: Tensor, k: Tensor, v: Tensor, chunks: Sequence[int], restart: int,
               *numbers: Any) -> tuple[Any, ...]:
        states: list[dict[str, Any]] = [{}, {}]
        outputs: tuple[list[Tensor], list[Tensor]] = [], []
        held, beside = [], 0
        for number, stop in enumerate(accumulate(chunks)):
            if restart and number == restart and hasattr(answer, "forget"):
                answer.forget()
            now = slice(stop - chunks[number], stop)
            for which, values in enumerate((v, -v)):
                with case(f"rows {now.start} to {stop - 1}"):
                    got = answer(states[which], *(x[:, :, now].clone() for x in (q, k, values)),
                                 *numbers)
                    output, states[which] = need_items(got, 2, "(output, state)")
                    outputs[which].append(need_tensor(output, q[:, :, now].shape, "the output"))
                    need_state(states[which])
            held.append(sum(alive(x) for x in states[0].values() if isinstance(x, Tensor)))
            beside = max(beside, sum(len(str(key).encode()) + 8 * (
                x.dim() if isinstance(x, Tensor) else 1) for key, x in states[0].items()))
        return tuple(torch.cat(parts, 2) for parts in outputs), held, max(0, beside - BESIDE)

    return attend


def need_state(state: Any) -> None:
    """Raise Mistake unless a state is a dict of tensors and integers."""
    if not isinstance(state, dict):
        raise Mistake(f"the state is {describe(state)}, wanted a dict of tensors and integers")
    for key, value in state.items():
        integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
        if not isinstance(value, Tensor) and not integer:
            raise Mistake(f"the state holds {describe(value)} as {key!r}, wanted only tensors and "
                          "Python integers")


def alive(x: Tensor) -> int:
    """Return the bytes of memory that a tensor keeps: those of all that it is a view of."""
    return int(getattr(x, "kept_bytes", x.untyped_storage().nbytes()))


def entry_of(k: Tensor) -> int:
    """Return the bytes of a key and a value of all KV heads and rows of the batch."""
    return 2 * k[:, :, 0].numel() * k.element_size()


def held(tokens: int, sinks: int, group: int, window: int, *, ready: bool = True, late: int = 0,
         begin: bool = True) -> int:
    """Return the entries: sinks, cores, and raw tokens of the next row; keywords are mistakes."""
    first = sinks if begin else 0
    read, behind = cores_of(tokens - late, first, group, window), max(0, tokens - first)
    return min(tokens, first) + (behind // group if ready else read) + behind - group * read


def whole(q: Tensor, k: Tensor, v: Tensor, chunks: Sequence[int], restart: int, scale: float,
          *numbers: int) -> tuple[Any, ...]:
    """Return both outputs by one forward, the bytes by the rule, and 0."""
    output, sizes = step({}, q, k, v, scale, *numbers)[0], numbers or (ALL, 1, 1)
    return (output, -output), [held(tokens, *sizes) * entry_of(k)
                               for tokens in accumulate(chunks)], 0


def step(state: dict[str, Any], q: Tensor, k: Tensor, v: Tensor, scale: float, sinks: int = ALL,
         group: int = 1, window: int = 1) -> tuple[Tensor, dict[str, Any]]:
    """Return the output and the state after one more chunk."""
    begin, start, new = sinks, state.get("seen", 0), torch.stack([k, v])
    first, stop = state.get("first", begin), start + k.shape[2]
    tokens = torch.tensor([t for t in range(stop) if t < sinks or t >= first])
    raw = torch.cat([state["raw"], new], dim=3) if state else new
    made = state["cores"] if state else new[:, :, :, :0].clone()
    for last in range(max(begin, start), stop):
        if (last + 1 - begin) % group == 0:
            members = raw[:, :, :, (tokens > last - group) & (tokens <= last)]
            judge = q[:, :, last - start].unflatten(1, (k.shape[1], -1)).mean(2, keepdim=True)
            weights = (scale * judge @ members[0].mT).softmax(-1)
            made = torch.cat([made, weights @ members], dim=3)
    rows = torch.arange(start, stop)[:, None]
    visible = torch.tensor([[cores_of(row, begin, group, window)] for row in range(start, stop)])
    read = (tokens <= rows) & ((tokens < sinks) | (tokens >= begin + group * visible))
    seen = torch.cat([torch.arange(made.shape[3]) < visible, read], 1)
    heads = torch.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    key, value = torch.cat([made, raw], dim=3)[:, :, heads]
    out = (scale * q @ key.mT).masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0) @ value
    first = begin + group * min(made.shape[3], cores_of(stop, begin, group, window))
    raw = raw[:, :, :, (tokens < sinks) | (tokens >= first)]
    return out, {"raw": raw, "cores": made, "seen": stop, "first": first}


class Elsewhere:
    """A step whose text lives in the process, and whose state is zeros of the wanted bytes."""

    def __init__(self) -> None:
        self.texts, self.count = dict[int, dict[str, Any]](), 0

    def __call__(self, state: dict[str, Any], *args: Any) -> tuple[Tensor, dict[str, Any]]:
        """Return the output and a state of zeros."""
        self.count += 1
        number = state.get("number", self.count)
        output, self.texts[number] = step(self.texts.get(number, {}), *args)
        size = sum(x.nbytes for x in self.texts[number].values() if isinstance(x, Tensor))
        return output, {"number": number, "zeros": torch.zeros(size, dtype=torch.uint8)}

    def forget(self) -> None:
        """Begin anew, as the process does."""
        self.texts = {}


def same_bytes(got: Any, *args: Any) -> None:
    """The bytes are exact after each step, and rows that came alone are right."""
    chunks, (outputs, sizes, _) = torch.tensor(args[3]), whole(*args)
    alone = (chunks.repeat_interleave(chunks) == 1)[:, None]
    need(torch.where(alone, got[0][0], outputs[0]), outputs[0], ("the output",))
    if got[2]:
        raise Mistake(f"the state holds {got[2] + BESIDE} bytes beside the numbers in its tensors "
                      "(8 for each integer and each axis, and the letters of the keys), wanted at "
                      f"most {BESIDE}: what is kept of the text belongs into tensors")
    for tokens, came, wanted in zip(accumulate(args[3]), got[1], sizes, strict=True):
        if came != wanted:
            entries = many(wanted // entry_of(args[1]), "entry", "entries")
            raise Mistake(f"after {many(tokens, 'token')} the state keeps {came} bytes alive, "
                          f"wanted {wanted}: {entries} of {entry_of(args[1])} bytes",
                          ". Is something stored twice, in another dtype, or a view?")


def steps(name: str, points: tuple[int, int, int], single: Examples, chunks: Examples,
          *wrong: dict[str, Answer]) -> tuple[Property, ...]:
    """Return the properties of a step: outputs token by token and in chunks, and bytes."""
    names = "the output", "the output of the text beside it"
    return (equals(f"{name}: single tokens equal one forward", whole, single, *names, part=0,
                   wrong=wrong[0], points=points[0], tolerance=2e-4),
            equals(f"{name}: chunks equal one forward", whole, chunks, *names, part=0,
                   wrong=wrong[1], points=points[1], tolerance=2e-4),
            replace(holds(f"{name}: bytes are exact at right outputs", same_bytes, chunks,
                          wrong=wrong[2] | slips(step, STORED) | {
                "the text is kept outside of the state, which is zeros": Elsewhere()},
                          points=points[2]), right=whole, tolerance=2e-4))


STORED: dict[str, tuple[str, ...]] = {
    "what is stored is a view of something larger: copy it with clone()": (
        "(tokens >= first)]",
        "(tokens >= first)]; raw = torch.cat([raw, raw], dim=3)[:, :, :, : raw.shape[3]]"),
    "positions are stored as int64": ('"first": first}', '"first": first, "tokens": tokens}')}
SCALES: dict[str, tuple[str, ...]] = {
    "the dot products are not multiplied by scale": ("scale * q", "q", "scale * judge", "judge"),
    "the scale is divided by the number of KV heads": (
        "scale * q", "scale / k.shape[1] * q", "scale * judge", "scale / k.shape[1] * judge")}
LATER, NEVER = ("tokens <= rows", "tokens <= stop"), ("cores_of(stop", "cores_of(-1")
FULL, LARGER = partial(text, sinks=ALL, group=1, window=1), ((1, 2), (2, 2), (2, 3))
SINGLE, CHUNKS = ((1, 1), (10, 13)), ((3, 4), (10, 13))
SIZES = ((1, 2), (2, 3), (1, 3))


# a8.4: bytes in closed form
def bytes_of(length: int, sinks: int, group: int, window: int, entry: int, *,
             most: Callable[..., int] = max, cycle: bool = True, single: bool = False,
             **wrong: Any) -> tuple[int, int]:
    """Return the bytes at the end, and the peak; the keywords are mistakes."""
    start = max(0, length - group + 1) if cycle else length
    entries = [held(tokens, sinks, group, window, **wrong) for tokens in range(start, length + 1)]
    return int((float(entry) if single else entry) * entries[-1]), entry * most(entries)


def by_steps(length: int, sinks: int, group: int, window: int, entry: int) -> tuple[int, int]:
    """Return the same, by the bytes after each number of tokens."""
    sizes = [entry * held(tokens, sinks, group, window) for tokens in range(length + 1)]
    return sizes[-1], max(sizes)


SIZED = "length sinks group window bytes_of_an_entry"
SMALL = examples(SIZED, (0, 0, 1, 1, 96), (3, 4, 2, 2, 96), (4, 1, 3, 2, 96), (10, 1, 3, 2, 96),
                 (11, 1, 3, 2, 96), (29, 4, 6, 3, 96), (40, 0, 5, 9, 64),
                 larger=((0, 50), (0, 6), (1, 7), (1, 12), (1, 99)), count=25)


# a8.5: eight bits
def coded(q: Tensor, k: Tensor, scale: float) -> tuple[Tensor, ...]:
    """Return codes, sizes and bounds."""
    size = k.abs().amax(-1) / 127
    codes = (k / torch.where(size > 0, size, 1.0)[..., None]).round()
    return codes, size, scale * 0.5 * size * q.abs().sum(-1)[..., None]


def keys(draw: Draw, tokens: int) -> tuple[Any, ...]:
    """Return queries, keys of several lengths, one of them zeros, and a scale."""
    k = draw.normal(2, 3, tokens, 6) * 4.0 ** draw.integers(-2, 3, 2, 3, tokens, 1)
    k[0, 1, tokens // 2] = 0.0
    return draw.normal(2, 3, 6), k, SCALE


KEYS = examples(keys, 1, 3, 6, larger=((1, 9),))
ASSIGNMENT = Assignment("a8", "caches", "Caches: a decode step whose bytes and outputs are exact",
                        ("08", "03"), (
    CourseTask("a8.1", "by_hand", "Seven tokens by hand", 10, 1, (
        by_hand("the numbers of the example",
                {"held": [0, 5, 6], "row 6": [0, 4, 5, 6], "row 6 evicting first": [0, 5, 6],
                 "row 5 in the chunk": [0, 3, 4, 5], "first row with a loss": 4, "bytes": 192},
                {"row 6": [0, 5, 6]}, {"held": [0, 4, 5, 6], "first row with a loss": 3},
                {"bytes": 96}),)),
    CourseTask("a8.2", "full_step", "A full cache", 20, 2, steps(
        "full cache", (1, 2, 2),
        examples(FULL, (1, 1, 2, 1, 4), (2, 1, 3, 1, 7), (1, 2, 2, 1, 9), larger=(
            *LARGER, *SINGLE), count=2),
        examples(FULL, (1, 1, 2, 2, 6), (2, 1, 3, 4, 10), (1, 2, 2, 3, 12), larger=(
            *LARGER, *CHUNKS), count=2),
        slips(step, SCALES | {
            "query head h reads KV head h mod Hk, instead of h // (H / Hk)":
                ("// (q.shape[1] // k.shape[1])", "% k.shape[1]"),
            "the chunk's mask is aligned top left: row 0 of a chunk reads only the first key of "
            "the cache": ("tokens <= rows", "torch.arange(len(tokens)) <= rows - start"),
            "the cache is not read, only the chunk":
                ("(tokens <= rows)", "(tokens <= rows) & (tokens >= start)")}) | {
            "wanted only tensors and Python integers": lambda state, *args: (
                step(state, *args)[0], step(state, *args)[1] | {"shape": [1, 2]})},
        slips(step, {"every row reads its whole chunk, later tokens too": LATER}),
        slips(step, {"keys are stored for every query head, not once for each KV head": (
            "    begin, start", "    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) "
                            "for x in (k, v))\n    begin, start")})), drive=in_turns),
    CourseTask("a8.3", "cores_step", "Sinks, cores and a window", 55, 5, steps(
        "cores", (2, 2, 3),
        examples(text, (1, 1, 2, 1, 8, 1, 2, 2), (2, 1, 3, 1, 9, 0, 3, 1),
                 (1, 2, 2, 1, 15, 3, 4, 3), larger=(*LARGER, *SINGLE, *SIZES), count=2),
        examples(text, (1, 1, 2, 2, 8, 1, 2, 2), (2, 1, 3, 5, 13, 0, 3, 1),
                 (1, 2, 2, 6, 16, 3, 4, 3), larger=(*LARGER, *CHUNKS, *SIZES), count=2),
        slips(step, SCALES | {
            "cores appear one row early":
                ("cores_of(row", "cores_of(row + 1", "cores_of(stop", "cores_of(stop + 1"),
            "cores appear one row late":
                ("cores_of(row", "cores_of(row - 1", "cores_of(stop", "cores_of(stop - 1"),
            "the window is forgotten: a core is read as soon as its group is complete":
                ("window)]", "0)]", "window))", "0))"),
            "tokens that a row reads in a core are still read raw": (
                "& ((tokens < sinks) | (tokens >= begin + group * visible))", "", *NEVER),
            "a core is the plain mean of its group": ("scale * judge", "0 * judge"),
            "the judge's scores are not multiplied by scale": ("scale * judge", "judge"),
            "the judge is the query of the first head only, not the mean of the KV head's query "
            "heads": (".mean(2, keepdim=True)", "[:, :, :1]"),
            "each query head judges for itself and the weights are averaged: average the queries, "
            "then one softmax": (".mean(2, keepdim=True)", "",
                                 "members[0].mT).softmax(-1)",
                                 "members[0].mT).softmax(-1).mean(2, keepdim=True)"),
            "the queries of a KV head are added, not averaged, before they judge":
                (".mean(2", ".sum(2"),
            "groups begin at token 0, and not behind the sinks": ("= sinks, state", "= 0, state")}
            ) | {
            "nothing is pooled": lambda *args: step(*args[:5]),
            "there are no sinks: groups begin at token 0":
                lambda state, q, k, v, scale, sinks, group, window: step(
                    state, q, k, v, scale, 0, group, window)},
        slips(step, {
            "the last query of the chunk judges all groups that end in it": ("last - start", "-1"),
            "all rows of a chunk read what its first row reads":
                ("cores_of(row", "cores_of(start"),
            "all rows of a chunk read what its last row reads":
                ("cores_of(row", "cores_of(stop - 1"),
            "a row reads the later tokens of its chunk": LATER}),
        slips(step, {
            "raw tokens are never dropped": NEVER,
            "what the last row has read stays, and not only what the next one reads":
                ("cores_of(stop", "cores_of(stop - 1"),
            "a whole chunk stays until the next step": ("cores_of(stop", "cores_of(start"),
            "an empty slice is not copied, and keeps its whole tensor": (".clone()", "")})),
        drive=in_turns),
    CourseTask("a8.4", "cores_bytes", "Its bytes, without running it", 25, 3, (
        replace(equals("the bytes at the end equal counting", by_steps, SMALL,
                       "the number of bytes at the end", part=0, wrong=mistakes(bytes_of, {
            "a core counts only when the next row reads it": {"ready": False},
            "what the last row has read is counted, not what the next one reads": {"late": 1},
            "the sinks are counted as members of the groups": {"begin": False}})), right=bytes_of),
        equals("the peak equals counting", by_steps, SMALL, "the peak", part=1,
               wrong=mistakes(bytes_of, {
            "the peak is taken to be the end": {"cycle": False},
            "the smallest number of the last cycle is taken": {"most": min}})),
        equals("exact for a trillion tokens", bytes_of, examples(
            SIZED, (10**9, 4, 16, 1024, 999_983), larger=(
                (10**11, 10**12), (0, 6), (5, 40), (90, 1100), [999_983])),
               "the number of bytes at the end", "the peak", points=2, hidden=True,
               wrong=mistakes(bytes_of, {
            "a float is computed on the way: divide with //": {"single": True}})))),
    CourseTask("a8.5", "int8_keys", "Keys in eight bits", 15, 3, (
        equals("codes are the nearest ones", coded, KEYS, "codes", part=0, points=2,
               tolerance=1e-6, why="is it 0/0, for a key of zeros?", wrong=slips(coded, {
            "codes are cut off, not rounded": (".round()", ".trunc()"),
            "codes are rounded down": (".round()", ".floor()"),
            "codes are not rounded": (".round()", ""),
            "the largest value has the code 128; it has 127": ("127", "128"),
            "all tokens of a head share one size":
                ("/ 127", "/ 127 * 0 + k.abs().amax((-1, -2))[..., None] / 127"),
            "is it 0/0, for a key of zeros?": ("torch.where(size > 0, size, 1.0)", "size"),
            "wanted floats": (".round()", ".round().to(torch.int8)"),
            "the codes of a key of zeros are not 0":
                (".round()", ".round() + (size == 0)[..., None]")})),
        equals("the bound holds and is reached", coded, KEYS, "bound", part=2, points=2,
               tolerance=1e-6, wrong=slips(coded, {
            "an error of a whole size is allowed; it is half a size": ("0.5 *", "1.0 *"),
            "the length of the query is taken: each number's error has the worst sign, so its "
            "absolute values are summed": ("q.abs().sum(-1)", "q.norm(dim=-1)"),
            "the absolute value of the sum is taken, not the sum of the absolute values":
                ("q.abs().sum(-1)", "q.sum(-1).abs()")})))),
))
