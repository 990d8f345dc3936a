"""a8: caches for decoding. Outputs equal one forward over the whole text, however it comes, and bytes are exact.

The variant: a cache of sinks, core tokens and a window. Row i reads the cores of the first
n(i) = max(0, floor((i + 1 - sinks - window) / group)) groups; groups begin behind the sinks. A core is made when the
last token of its group comes, and its raw tokens go when no later row reads them.
"""

import torch
from torch import Tensor

from cca_lab.course.assignments import a8_beam as beam
from cca_lab.course.assignments import a8_steps as steps
from cca_lab.course.assignments.a8_oracles import corners, held, many
from cca_lab.course.compare import describe, need_equal, need_tensor
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Share, Task, case

SCALE = steps.SCALE


# a8.1: by hand


def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check the numbers that were worked out for one example."""
    got = answer()
    wanted: dict[str, object] = {"held": [0, 5, 6], "row 6": [0, 4, 5, 6], "row 6 evicting first": [0, 5, 6],
                                 "row 5 in the chunk": [0, 3, 4, 5], "first row with a loss": 4, "bytes": 192}
    quoted = ", ".join(repr(key) for key in wanted)
    if not isinstance(got, dict):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {quoted}")
    plain = {key: x.tolist() if isinstance(x, Tensor) else list(x) if isinstance(x, tuple) else x
             for key, x in got.items()}
    wrong = [key for key in wanted if plain.get(key) != wanted[key]]
    message = f"not right yet: {', '.join(repr(key) for key in wrong)}"
    if other := [key for key in plain if key not in wanted]:
        message += f". Nobody asks for {', '.join(repr(key) for key in other)}: the keys are {quoted}"
    return Share(1 - len(wrong) / len(wanted), message) if wrong else None


# a8.5: bytes in closed form


def predicted(answer: Answer, size: tuple[int, int, int, int], entry: int, which: int, wanted: int) -> None:
    """Check one of the two numbers for (length, sinks, group, window)."""
    with case(f"length {size[0]}, sinks {size[1]}, group {size[2]}, window {size[3]}, {entry} bytes an entry"):
        got = answer(*size, entry)
        if not isinstance(got, (tuple, list)) or len(got) != 2 or not all(type(x) is int for x in got):
            raise Mistake(f"the result is {describe(got)}, wanted two integers (after, peak): divide with //")
        need_equal(got[which], wanted, ("the number of bytes at the end", "the peak")[which])


def small(draw: Draw) -> list[tuple[int, int, int, int]]:
    """Return (length, sinks, group, window), small ones first."""
    if not draw.secret:
        return [(0, 0, 1, 1), (3, 4, 2, 2), (4, 1, 3, 2), (10, 1, 3, 2), (11, 1, 3, 2), (29, 4, 6, 3), (40, 0, 5, 9)]
    return sorted((draw.randint(0, 50), draw.randint(0, 6), draw.randint(1, 7), draw.randint(1, 12)) for _ in range(25))


def bytes_after(answer: Answer, draw: Draw) -> None:
    """At the end, against counting."""
    for size in small(draw):
        predicted(answer, size, 96, 0, 96 * held(*size))


def bytes_peak(answer: Answer, draw: Draw) -> None:
    """The peak, against counting."""
    for size in small(draw):
        predicted(answer, size, 96, 1, 96 * max(held(t, *size[1:]) for t in range(size[0] + 1)))


def bytes_large(answer: Answer, draw: Draw) -> None:
    """A trillion tokens: the peak lies within the last cycle, for every cycle holds one entry more."""
    for sizes in [(4, 16, 1024), (3, 17, 255), (0, 1000, 3)]:
        length = draw.randint(10**11, 10**12)
        peak = max(held(t, *sizes) for t in range(length - 2 * sizes[1], length + 1))
        for which, entries in enumerate((held(length, *sizes), peak)):
            predicted(answer, (length, *sizes), 524288, which, 524288 * entries)


# a8.7: eight bits


Coded = tuple[str, Tensor, Tensor, Tensor, Tensor, Tensor]


def quantised(answer: Answer, draw: Draw, dim: int, scale: float) -> list[Coded]:
    """Return (name, q, k, codes, size, bound) for several keys, among them one of zeros; sizes are right."""
    found = []
    for tokens in (1, 3, 6 + draw.randint(0, 3)):
        q = draw.normal(2, 2, dim)
        k = draw.normal(2, 2, tokens, dim) * 10.0 ** draw.integers(-3, 3, 2, 2, tokens, 1)
        if tokens > 1:
            k[0, 1, 1] = 0.0
        name = many(tokens, "token")
        with case(name):
            got = answer(q, k, scale)
            if not isinstance(got, (tuple, list)) or len(got) != 3:
                raise Mistake(f"the result is {describe(got)}, wanted (codes, size, bound)")
            size, bound = need_tensor(got[1], k.shape[:3], "size"), need_tensor(got[2], k.shape[:3], "bound")
            for where, largest in entries_of(k.abs().amax(-1)):
                if largest > 0 and abs(float(size[where]) - largest / 127) > 1e-6 * largest:
                    raise Mistake(f"size{list(where)} is {float(size[where]):.6g}, wanted {largest / 127:.6g}: the "
                                  f"largest absolute value of this key is {largest:.4g}, and its code is 127 or -127")
        found.append((name, q, k, got[0], size, bound))
    return found


def entries_of(x: Tensor) -> list[tuple[tuple[int, ...], float]]:
    """Return the entries of a tensor with their places."""
    return [(tuple(where), x[tuple(where)].item()) for where in torch.ones_like(x).nonzero().tolist()]


def codes_check(answer: Answer, draw: Draw) -> None:
    """Every number is within half a size of what is decoded."""
    for name, _, k, codes, size, _ in quantised(answer, draw, 6, SCALE):
        with case(name):
            codes = need_tensor(codes, k.shape, "codes", "int")
            if codes.dtype != torch.int8:
                raise Mistake(f"codes have dtype {codes.dtype}, wanted torch.int8")
            for where, largest in entries_of(k.abs().amax(-1)):
                if largest == 0 and (size[where] != 0 or codes[where].any()):
                    raise Mistake(f"size{list(where)} is {float(size[where]):.6g} and the codes are "
                                  f"{codes[where].tolist()}, but the key is 0: its size and its codes are 0")
            off = (codes * size[..., None].double() - k).abs().amax(-1)
            for where, error in entries_of(off):
                if error > 0.5001 * size[where]:
                    sizes = error / max(1e-30, float(size[where]))
                    raise Mistake(f"the decoded key {list(where)} is off by {sizes:.3g} sizes, wanted 0.5 at most: "
                                  "round to the nearest integer")


def bound_check(answer: Answer, draw: Draw) -> None:
    """The bound is never broken, and reached by some key: against all corners."""
    scale = draw.uniform(0.1, 3.0) if draw.secret else SCALE
    for name, q, _, _, size, bound in quantised(answer, draw, 5, scale):
        for where, most in entries_of(corners(q, size, scale)):
            query = [round(x, 2) for x in q[where[:2]].tolist()]
            with case(f"{name}, q {query}, size {float(size[where]):.3g}, scale {scale:.3g}"):
                got = float(bound[where])
                if got < most * (1 - 1e-6):
                    raise Mistake(f"bound{list(where)} is {got:.4g}, but a key within half a size of the "
                                  f"decoded one can have a score that is off by {most:.4g}")
                if got > most * (1 + 1e-6):
                    raise Mistake(f"bound{list(where)} is {got:.4g}, but no key within half a size of the "
                                  f"decoded one has a score that is off by more than {most:.4g}: the query is known")


ASSIGNMENT = Assignment("a8", "caches", "Caches: a decode step whose bytes and outputs are exact", ("13", "05"), (
    Task("a8.1", "by_hand", "Seven tokens by hand", 10, 1, 3, (Property("the numbers of the example", 2, by_hand),)),
    Task("a8.2", "full_step", "A full cache", 20, 2, 4, (
        Property("full cache: single tokens equal one forward", 1, steps.full_single),
        Property("full cache: chunks equal one forward", 1, steps.full_chunks),
        Property("full cache: bytes are exact at right outputs", 1, steps.full_bytes))),
    Task("a8.3", "streaming_step", "Repair a StreamingLLM step", 35, 4, 5, (
        Property("StreamingLLM: single tokens equal one forward", 1, steps.streaming_single),
        Property("StreamingLLM: chunks equal one forward", 1, steps.streaming_chunks),
        Property("StreamingLLM: no sinks, or no recent tokens", 1, steps.streaming_edges),
        Property("StreamingLLM: bytes are exact at right outputs", 1, steps.streaming_bytes))),
    Task("a8.4", "cores_step", "Sinks, cores and a window", 55, 5, 5, (
        Property("cores: single tokens equal one forward", 2, steps.cores_single),
        Property("cores: chunks equal one forward", 1, steps.cores_chunks),
        Property("cores: bytes are exact at right outputs", 2, steps.cores_bytes))),
    Task("a8.5", "cores_bytes", "Its bytes, without running it", 25, 3, 4, (
        Property("the bytes at the end equal counting", 1, bytes_after),
        Property("the peak equals counting", 1, bytes_peak),
        Property("exact for a trillion tokens", 1, bytes_large, hidden=True))),
    Task("a8.6", "beam", "Beam search: rows move with their cache", 20, 3, 3, (
        Property("every survivor continues its own text", 2, beam.beam_tokens),
        Property("one call for each token, of the survivors only", 1, beam.beam_calls))),
    Task("a8.7", "int8_keys", "Keys in eight bits", 15, 3, 3, (
        Property("codes are the nearest ones", 1, codes_check),
        Property("the bound holds and is reached", 1, bound_check))),
))
