"""What the reader writes in notebook 01: full attention on four rungs, and a test for leaks."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cca_lab.course.compare import describe, need_close, need_items
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v, (L, D) each -> (L, D)
State = tuple[Tensor, Tensor, Tensor]  # maximum, sum and weighted sum so far
SEES_ITSELF = "does row 0 see nothing at all? Each row sees at least its own word"


def _past(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def _hidden(scores: Tensor, seen: Tensor) -> Tensor:
    """Return weights of what is seen: a softmax in which all other scores are -inf."""
    return scores.masked_fill(~seen, -math.inf).softmax(1)


def _by_rows(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return causal attention of one head, row by row: the specification."""
    return torch.stack([(scale * k[: i + 1] @ q[i]).softmax(0) @ v[: i + 1]
                        for i in range(len(q))])


def _need_rows(got: Any, q: Tensor, k: Tensor, v: Tensor, scale: float,
               causes: dict[str, Tensor] | None = None, *, why: str = SEES_ITSELF,
               tolerance: float | None = None) -> None:
    """Compare an output with the rows of the definition; the usual mistakes are named."""
    scores, past = scale * q @ k.T, _past(len(q))
    usual = {
        "nothing is hidden: each row reads the future too": scores.softmax(1) @ v,
        "a row reads only the words before it: each row sees at least its own word":
            torch.cat([torch.zeros_like(v[:1]), _hidden(scores[1:, :-1], past[:-1, :-1]) @ v[:-1]]),
        "each row reads one word of the future":
            _hidden(scores, torch.ones_like(past).tril(1)) @ v,
        "the scale is forgotten": _hidden(scores / scale, past) @ v,
        "the scores are multiplied by the mask: a score of 0 still has the weight e^0 = 1":
            (scores * past).softmax(1) @ v,
        "the finished weights are multiplied by the mask: the rows no longer sum to 1":
            (scores.softmax(1) * past) @ v,
        "the past is hidden, and the future is read: the other triangle":
            _hidden(scores, past.T) @ v,
        "the softmax runs over the queries; each row is one query's weights":
            scores.masked_fill(~past, -math.inf).softmax(0) @ v,
        "the weights do not sum to 1: divide by the sum of the powers":
            (scores.exp() * past) @ v,
        "the scores weigh the values as they are: take the softmax first": (scores * past) @ v,
    }
    need_close(got, _by_rows(q, k, v, scale), "the output", causes=usual | (causes or {}), why=why,
               tolerance=tolerance)


# 01.2: the loops
def check_loops(answer: Answer, draw: Draw) -> None:
    """One head of several lengths, features of values of their own."""
    for length, width, features in ((4, 2, 3), (7, 4, 4), (1, 2, 2)):
        q, k = (draw.normal(length, width) for _ in "qk")
        v = draw.normal(length, features)
        with case(f"{length} words, q and k of {width} features, v of {features}"):
            _need_rows(answer(q, k, v, 0.7), q, k, v, 0.7)


# 01.3: the matrix
def check_mask(answer: Answer, draw: Draw) -> None:
    """Against the rows of the definition; with the identity as values the output is the weights."""
    for length in (4, 7, 1):
        q, k = (draw.normal(length, 5) for _ in "qk")
        v = torch.eye(length, dtype=q.dtype)
        with case(f"{length} words, the identity as values"):
            _need_rows(answer(q, k, v, 0.7), q, k, v, 0.7)


def check_large(answer: Answer, draw: Draw) -> None:
    """Future scores that no fixed number outweighs."""
    q, k, v = (draw.normal(5, 5).abs() for _ in "qkv")
    k[-1] = 1e12
    scores, past = q @ k.T, _past(5)
    causes = {f"{-n:g} is added to what is hidden: it is not enough here, -inf is":
              (scores - n * ~past).softmax(1) @ v for n in (1e4, 1e9)}
    with case("scores of 1e12 in the future"):
        need_close(answer(q, k, v, 1.0), _hidden(scores, past) @ v, "the output", causes=causes,
                   why="e^score overflows; torch.softmax subtracts the largest score first, and "
                   "what is hidden needs the score -inf")


# 01.4: a test for leaks
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


# 01.7: one step of the online softmax
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


# 01.10: tiles
def _in_tiles(q: Tensor, k: Tensor, v: Tensor, scale: float, rows: int, keys: int, *,
              corrected: bool = True, masked: bool = True, all_tiles: bool = True,
              at_end: bool = True) -> Tensor:
    """Return causal attention in tiles, right or with one mistake."""
    out = []
    for first in range(0, len(q), rows):
        tile = torch.arange(first, min(first + rows, len(q)))
        top = torch.full((len(tile), 1), -math.inf, dtype=q.dtype)
        total, sums = torch.zeros_like(top), q.new_zeros(len(tile), v.shape[1])
        end = min(len(k), first + len(tile) if all_tiles else max(keys, first))
        for start in range(0, end, keys):
            columns = torch.arange(start, min(start + keys, end))
            scores = scale * q[tile] @ k[columns].T
            if masked:
                scores = scores.masked_fill(columns > tile[:, None], -math.inf)
            new = torch.maximum(top, scores.amax(1, keepdim=True))
            factor = (top - new).exp() if corrected else torch.ones_like(top)
            powers = (scores - new).exp()
            total, top = factor * total + powers.sum(1, keepdim=True), new
            sums = factor * sums + powers @ v[columns]
        out.append(sums / total if at_end else sums)
    return torch.cat(out)


def check_tiles(answer: Answer, draw: Draw) -> None:
    """Tiles that divide the length and tiles that do not, smaller and larger than it."""
    for length, rows, keys in ((8, 4, 4), (12, 4, 3), (7, 3, 2), (5, 2, 8), (3, 8, 8)):
        q, k, v = (draw.normal(length, 4) for _ in "qkv")
        k[length // 2] *= 4  # the maximum moves in the middle
        causes = {
            "the old terms are not corrected when the maximum moves":
                _in_tiles(q, k, v, 0.7, rows, keys, corrected=False),
            "tiles on the diagonal need a mask: hide the columns behind each row":
                _in_tiles(q, k, v, 0.7, rows, keys, masked=False),
            "the tiles on the diagonal are left out":
                _in_tiles(q, k, v, 0.7, rows, keys, all_tiles=False),
            "nothing is divided by the sums at the end":
                _in_tiles(q, k, v, 0.7, rows, keys, at_end=False),
        }
        with case(f"{length} words, tiles of {rows} rows and {keys} keys"):
            _need_rows(answer(q, k, v, 0.7, rows, keys), q, k, v, 0.7, causes,
                       why="is the last, smaller tile of rows or keys computed, and once only?")


def check_low_scores(answer: Answer, draw: Draw) -> None:
    """Scores so low that their powers vanish unless the maximum is that of the row."""
    q, v = torch.full((6, 4), 30.0).double(), draw.normal(6, 4)
    with case("6 words, all scores -3600"):
        need_close(answer(q, -q, v, 1.0, 2, 3), _by_rows(q, -q, v, 1.0), "the output",
                   why="e^-3600 is 0 for the machine, and 0 / 0 no number: the running maximum "
                   "begins at -inf, not at 0")


def check_memory(answer: Answer, draw: Draw) -> None:
    """No tensor of L x L numbers is made, and no tile in the future is computed."""
    q, k, v = (draw.normal(64, 4) for _ in "qkv")
    k[40:], v[40:] = math.nan, math.nan  # rows before 32 must not touch it
    with _Largest() as largest:
        got = answer(q, k, v, 0.5, 8, 8)
    if largest.numbers >= 64 * 64:
        raise Mistake(f"a tensor of {largest.numbers} numbers is made for 64 words, as many as all "
                      "scores: compute them for one tile of rows and one tile of keys at a time")
    if not got[:32].isfinite().all():
        raise Mistake("rows 0 to 31 change with keys that begin at word 40: stop before the tiles "
                      "in the future, since even a weight of 0 times NaN is NaN")


class _Largest(TorchDispatchMode):
    """While it is active: the numbers in the largest tensor that an operation returned."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        returned = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return returned


# 01.13: the kernel
def check_kernel(answer: Answer, draw: Draw) -> None:
    """Lengths that no tile divides, in float32, against the rows of the definition in float64."""
    for length in (32, 21, 40, 1):
        q, k, v = (draw.normal(length, 16, dtype=torch.float32) for _ in "qkv")
        k[length // 2] *= 3
        wide_q, wide_k, wide_v = (x.double() for x in (q, k, v))
        scale = 0.5
        # a dot product of 16 terms and a sum of `length` weights, each rounded once, add up to
        # (16 + length) units of float32; a score of up to 4 and a value scale them
        tolerance = 4 * (16 + length) * torch.finfo(torch.float32).eps * v.abs().max().item()
        scores, past = scale * wide_q @ wide_k.T, _past(length)
        causes = {
            "exp is taken of scores that were multiplied by log2(e): take exp2":
                _hidden(scores * math.log2(math.e), past) @ wide_v,
            "exp2 is taken of scores that were not multiplied by log2(e)":
                _hidden(scores * math.log(2), past) @ wide_v,
            "the old terms are not corrected when the maximum moves":
                _in_tiles(wide_q, wide_k, wide_v, scale, 16, 16, corrected=False),
            "tiles on the diagonal need a mask: hide the columns behind each row":
                _in_tiles(wide_q, wide_k, wide_v, scale, 16, 16, masked=False),
        }
        with case(f"{length} rows, D = 16, tiles of 16 rows and 16 keys"):
            got = answer(q, k, v, scale)
            _need_rows(got, wide_q, wide_k, wide_v, scale, causes, tolerance=tolerance)


def check_reads(answer: Answer, draw: Draw) -> None:
    """Programs of early rows do not touch later tiles: NaN there changes nothing."""
    q, k, v = (draw.normal(48, 16, dtype=torch.float32) for _ in "qkv")
    clean = _by_rows(q.double(), k.double(), v.double(), 0.5)
    k[32:], v[32:] = math.nan, math.nan
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # later rows are NaN, as they should be
        got = answer(q, k, v, 0.5)
    if not got[:32].isfinite().all():
        raise Mistake("rows 0 to 31 change with keys 32 to 47: end the loop over key tiles where "
                      "the program's last row ends, at first + BLOCK_M")
    need_close(got[:32], clean[:32], "the rows before", tolerance=1e-4)


def check_addresses(answer: Answer, draw: Draw) -> None:
    """No program touches a place outside of the arguments; only where kernels are interpreted."""
    from cca_lab.attention.fused import interpreted

    if not interpreted():
        return
    from cca_lab.attention.kernels.tracing import traced

    q, k, v = (draw.normal(21, 16, dtype=torch.float32) for _ in "qkv")
    with traced() as trace:
        answer(q, k, v, 0.5)
    for flaw in trace.flaws():
        if "outside" in flaw:
            raise Mistake(f"21 rows: {flaw}: give the load or the store a mask that ends at L")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("01.2", "attend_loops", "Attention as loops", 8, 2, 5, (
        Property("equal to the definition, row by row", 1, check_loops),)),
    CourseTask("01.3", "attend_dense", "Attention as a matrix", 6, 2, 5, (
        Property("equal to each row's own softmax", 1, check_mask),
        Property("no score of the future is large enough to count", 1, check_large))),
    CourseTask("01.4", "leaks", "A test that finds leaks", 10, 3, 5, (
        Property("right forms pass, wrong ones are caught", 1, check_leaks),)),
    CourseTask("01.7", "online_step", "One step of the online softmax", 8, 3, 5, (
        Property("the state after every key", 1, check_step),)),
    CourseTask("01.10", "attend_tiles", "Attention in tiles", 15, 4, 5, (
        Property("equal to the rows, for tiles of any size", 1, check_tiles),
        Property("a running maximum that begins at -inf", 1, check_low_scores),
        Property("holds one tile at a time, and reads no future", 1, check_memory))),
    CourseTask("01.13", "attend_kernel", "Attention as a kernel", 20, 5, 5, (
        Property("equal to the rows, in float32", 1, check_kernel),
        Property("early rows do not touch later tiles", 1, check_reads),
        Property("no place outside of the arguments", 1, check_addresses))),
)
