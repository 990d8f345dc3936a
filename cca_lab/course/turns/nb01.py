"""What the reader writes in notebook 01: full attention on four rungs, and a test for leaks."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cca_lab.course.compare import need_close
from cca_lab.course.exercise import equals, examples, holds, in_bounds, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v, (L, D) each -> (L, D)
SEES_ITSELF = "does row 0 see nothing at all? Each row sees at least its own word"


# 01.2 and 01.3: the loops, and the matrix
def by_rows(q: Tensor, k: Tensor, v: Tensor, scale: float, *rest: int, end: int = 1,
            divided: bool = True) -> Tensor:
    """Return causal attention of one head, row by row; row i reads the words before i + end."""
    rows = []
    for i, query in enumerate(q.double()):
        scores = scale * k[: max(0, i + end)].double() @ query
        weights = scores.softmax(0) if divided else scores.exp()
        rows.append(weights @ v[: max(0, i + end)].double())
    return torch.stack(rows).to(q.dtype)


def matrix(weights: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Return attention from a function of the scores and of the mask of the past."""
    def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, *rest: int) -> Tensor:
        q, k, v = (x.double() for x in (q, k, v))
        return weights(scale * q @ k.T, torch.ones(len(q), len(q), dtype=torch.bool).tril()) @ v

    return attend


def hidden(scores: Tensor, seen: Tensor, value: float = -math.inf) -> Tensor:
    """Return weights of what is seen: a softmax in which all other scores are -inf."""
    return scores.masked_fill(~seen, value).softmax(1)


def lowered(n: float, scores: Tensor, seen: Tensor) -> Tensor:
    """Return weights of scores of which a number is subtracted where nothing is to be seen."""
    return (scores - n * ~seen).softmax(1)


NO_SCALE = {"the scale is forgotten": lambda q, k, v, scale, *rest: by_rows(q, k, v, 1.0)}
USUAL: dict[str, Answer] = NO_SCALE | {
    "nothing is hidden: each row reads the future too": matrix(lambda s, past: s.softmax(1)),
    "a row reads only the words before it: each row sees at least its own word":
        partial(by_rows, end=0),
    "each row reads one word of the future": partial(by_rows, end=2),
    "the scores are multiplied by the mask: a score of 0 still has the weight e^0 = 1":
        matrix(lambda s, past: (s * past).softmax(1)),
    "the finished weights are multiplied by the mask: the rows no longer sum to 1":
        matrix(lambda s, past: s.softmax(1) * past),
    "the past is hidden, and the future is read: the other triangle":
        matrix(lambda s, past: hidden(s, past.T)),
    "the softmax runs over the queries; each row is one query's weights":
        matrix(lambda s, past: s.masked_fill(~past, -math.inf).softmax(0)),
    "the weights do not sum to 1: divide by the sum of the powers": partial(by_rows, divided=False),
    "the scores weigh the values as they are: take the softmax first":
        matrix(lambda s, past: s * past),
}


def words(draw: Draw, words: int, features: int, value_features: int) -> tuple[Any, ...]:
    """Return queries, keys, values and a scale."""
    return (*(draw.normal(words, features) for _ in "qk"), draw.normal(words, value_features), 0.7)


def identity(draw: Draw, words: int) -> tuple[Any, ...]:
    """Return inputs whose values are the identity, so that the output is the weights."""
    return (*(draw.normal(words, 5) for _ in "qk"), torch.eye(words, dtype=torch.float64), 0.7)


def large_future(draw: Draw, words: int, last_key: float) -> tuple[Any, ...]:
    """Return inputs with a last key whose scores no fixed number outweighs."""
    q, k, v = (draw.normal(words, 5).abs() for _ in "qkv")
    k[-1] = last_key
    return q, k, v, 1.0


# 01.4: a test for leaks
def by_three(weights: Callable[[Tensor, Tensor], Tensor]) -> Attention:
    """Return attention of queries, keys and values only."""
    return lambda q, k, v: matrix(weights)(q, k, v, q.shape[1] ** -0.5)


FORMS: dict[str, Attention] = {
    "loops over rows": lambda q, k, v: by_rows(q, k, v, q.shape[1] ** -0.5),
    "the causal matrix": by_three(hidden),
    "a window of three": by_three(lambda s, past: hidden(s, past & ~past.tril(-3))),
    "one word ahead": by_three(lambda s, past: hidden(s, torch.ones_like(past).tril(1))),
    "scores times mask": by_three(lambda s, past: (s * past).softmax(1)),
    "weights times mask": by_three(lambda s, past: s.softmax(1) * past),
    "-10000 in the place of -inf": by_three(lambda s, past: (s - 1e4 * ~past).softmax(1)),
    "a mean of all queries": lambda q, k, v: by_three(hidden)(q + q.mean(0), k, v),
}


def detector(attention: Attention, q: Tensor, k: Tensor, v: Tensor, *, key: float = 1e5,
             value: float = 1e5, query: float = 1e5, rows: slice = slice(None, -1)) -> bool:
    """Return whether some rows change with the last token."""
    edited = [x.clone() for x in (q, k, v)]
    for x, change in zip(edited, (query, key, value), strict=True):
        x[-1] += change
    return not torch.equal(attention(q, k, v)[rows], attention(*edited)[rows])


def form(draw: Draw, attention: str) -> tuple[Any, ...]:
    """Return a form of attention and its inputs."""
    return FORMS[attention], *(draw.normal(8, 4) for _ in "qkv")


# 01.7: one step of the online softmax
def step(top: Tensor, total: Tensor, sums: Tensor, score: Tensor, value: Tensor, *,
         old: str = "right", base: str = "new", last: bool = False) -> tuple[Tensor, ...]:
    """Return maximum, sum and weighted sum after one more key, or after a tile for each row.

    The keywords are mistakes: in the old terms, in what is subtracted, in the new maximum.
    """
    highest = score.amax(1, keepdim=True) if score.dim() else score
    new = highest if last else torch.maximum(top, highest)
    right = (top - new).exp()
    factor = {"none": torch.ones_like(top), "lost": 0 * (-new).exp(),
              "upside down": (new - top).exp()}.get(old, right)
    weight = (score - {"new": new, "old": top, "none": 0 * new}[base]).exp()
    weight = weight * right if old == "both" else weight
    added = ((weight.sum(1, keepdim=True), weight @ value) if score.dim()
             else (weight, weight * value))
    return (new, total * (1.0 if old == "weighted" else factor) + added[0],
            sums * (1.0 if old == "plain" else factor) + added[1])


STEP: dict[str, dict[str, Any]] = {
    "the old terms are not corrected": {"old": "none"},
    "the sum is not corrected, only the weighted sum": {"old": "weighted"},
    "the weighted sum is not corrected, only the sum": {"old": "plain"},
    "the factor is upside down: old terms shrink when the maximum grows": {"old": "upside down"},
    "the new term is corrected too; only the old ones are": {"old": "both"},
    "the new term is taken relative to the old maximum": {"base": "old"},
    "no maximum is subtracted from the new score": {"base": "none"},
    "the old terms are lost": {"old": "lost"},
    "the new maximum is that of the new scores alone": {"last": True}}


def steps(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield states and a key more; the first key last: there -inf hides what is wrong."""
    for length, width, large in [(6, 2, 1.0), (5, 3, 2000.0)]:
        scores, values = large * draw.normal(length), draw.normal(length, width)
        scores[3] = scores.max() + 1  # a new maximum in the middle
        states: list[tuple[Tensor, ...]] = [(torch.tensor(-math.inf).double(),
                                             torch.tensor(0.0).double(),
                                             torch.zeros(width).double())]
        for n in range(length):
            powers = (scores[: n + 1] - scores[: n + 1].max()).exp()
            states.append((scores[: n + 1].max(), powers.sum(), powers @ values[: n + 1]))
        for n in (3, *range(1, length), 0):
            grows = "a new maximum" if scores[n] > states[n][0] else "the maximum stays"
            yield (f"key {n + 1} of {length}, {grows if n else 'the first key'}",
                   (*states[n], scores[n], values[n]))


# 01.10 and 01.17: tiles
def in_tiles(q: Tensor, k: Tensor, v: Tensor, scale: float, rows: int, keys: int, *,
             corrected: bool = True, masked: bool = True, divided: bool = True,
             within: bool = False, shared: bool = False, start: float = -math.inf,
             end: Callable[[int, int], int] = lambda first, rows: first + rows) -> Tensor:
    """Return causal attention in tiles; the keywords are mistakes."""
    out, kind = [], q.dtype
    q, k, v = (x.double() for x in (q, k, v))
    for first in range(0, len(q), rows):
        tile = torch.arange(first, min(first + rows, len(q)))
        top = torch.full((len(tile), 1), start, dtype=q.dtype)
        total, sums = torch.zeros_like(top), q.new_zeros(len(tile), v.shape[1])
        for left in range(0, min(len(q), end(first, rows)), keys):
            columns = torch.arange(left, min(left + keys, len(q)))
            scores = scale * q[tile] @ k[columns].T
            if masked:
                later = columns - within * left > tile[:, None] - within * first
                scores = scores.masked_fill(later, -math.inf)
            new = torch.maximum(top, scores.amax() if shared else scores.amax(1, keepdim=True))
            factor = (top - new).exp() if corrected else torch.ones_like(top)
            powers = (scores - new).exp()
            total, top = factor * total + powers.sum(1, keepdim=True), new
            sums = factor * sums + powers @ v[columns]
        out.append(sums / total if divided else sums)
    return torch.cat(out).to(kind)


TILES = mistakes(in_tiles, {
    "the old terms are not corrected when the maximum moves": {"corrected": False},
    "tiles on the diagonal need a mask: hide the columns behind each row": {"masked": False},
    "the mask counts rows and columns from the corner of the tile; add where the tile begins":
        {"within": True},
    "the tiles on the diagonal are left out": {"end": lambda first, rows: max(1, first)},
    "nothing is divided by the sums at the end": {"divided": False}})


def in_parts(draw: Draw, words: int, tile_rows: int, tile_keys: int) -> tuple[Any, ...]:
    """Return inputs whose maximum moves in the middle, and the sizes of a tile."""
    q, k, v = (draw.normal(words, 4) for _ in "qkv")
    k[words // 2] *= 4
    return q, k, v, 0.7, tile_rows, tile_keys


def low_scores(draw: Draw, words: int) -> tuple[Any, ...]:
    """Return inputs with scores -3600, -7200 ...: powers vanish without the row's maximum."""
    k = torch.full((words, 4), -30.0).double()
    return -k * torch.arange(1, words + 1)[:, None], k, draw.normal(words, 4), 1.0, 2, 3


def memory(answer: Answer, draw: Draw) -> None:
    """No tensor of L x L numbers is made, and no tile in the future is computed."""
    q, k, v = (draw.normal(64, 4) for _ in "qkv")
    with Largest() as largest:
        usual = answer(q, k, v, 0.5, 8, 8)
    if largest.numbers >= 64 * 64:
        raise Mistake(f"a tensor of {largest.numbers} numbers is made for 64 words, as many as all "
                      "scores: compute them for one tile of rows and one tile of keys at a time")
    k[40:], v[40:] = math.nan, math.nan  # rows before 32 must not touch it
    if usual.isfinite().all() and not answer(q, k, v, 0.5, 8, 8)[:32].isfinite().all():
        raise Mistake("rows 0 to 31 change with keys that begin at word 40: stop before the tiles "
                      "in the future, since even a weight of 0 times NaN is NaN")


class Largest(TorchDispatchMode):
    """While it is active: the numbers in the largest tensor that an operation returned."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        returned = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return returned


# 01.11 to 01.15: four small kernels
def softmax_32(scores: Tensor, width: int = 0, score: float = 0.0) -> Tensor:
    """Return the softmax of each row over `width` columns; those that are missing have a score."""
    padding = scores.new_full((len(scores), max(0, width - scores.shape[1])), score)
    return torch.cat([scores, padding], 1).softmax(1)[:, : scores.shape[1]]


def two_tiles(scores: Tensor, values: Tensor, **wrong: Any) -> Tensor:
    """Return the mean of the values by the softmax of each row, in two steps; see `step`."""
    (first, second), sides = scores.chunk(2, 1), values[:, None].chunk(2)
    top = first.amax(1, keepdim=True)
    powers = (first - top).exp()
    _, total, sums = step(top, powers.sum(1, keepdim=True), powers @ sides[0], second, sides[1],
                          **wrong)
    return (sums / total)[:, 0]


def copied_up_to(end: Callable[[int, int], int]) -> Answer:
    """Return a copy with zeros from some place on."""
    return lambda x, block: torch.where(torch.arange(len(x)) < end(len(x), block), x, 0.0)


# 01.17: the kernel; rows, keys and features of a tile all differ
def for_kernel(draw: Draw, words: int, features: int, tile_rows: int,
               tile_keys: int) -> tuple[Any, ...]:
    """Return inputs in float32, and the sizes of a tile."""
    q, k, v = (draw.normal(words, features, dtype=torch.float32) for _ in "qkv")
    k[words // 2] *= 3
    return q, k, v, 0.3, tile_rows, tile_keys


def late_nan(draw: Draw, words: int) -> tuple[Any, ...]:
    """Return inputs whose keys and values are NaN from row 32 on."""
    q, k, v, *rest = for_kernel(draw, words, 64, 16, 32)
    k[32:], v[32:] = math.nan, math.nan
    return q, k, v, *rest


def early_rows(got: Any, *args: Any) -> None:
    """Programs of early rows do not touch later tiles."""
    need_close(got[:32], by_rows(*args)[:32], "row by row, the output")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("01.2", "attend_loops", "Attention as loops", 8, 2, (
        equals("equal to the definition, row by row", by_rows,
               examples(words, (4, 2, 3), (7, 4, 4), (1, 2, 2)), "the output", why=SEES_ITSELF,
               wrong=USUAL),)),
    CourseTask("01.3", "attend_dense", "Attention as a matrix", 6, 2, (
        equals("equal to each row's own softmax", by_rows, examples(identity, 4, 7, 1),
               "the output", why=SEES_ITSELF, wrong=USUAL),
        equals("no score of the future is large enough to count", by_rows,
               examples(large_future, (5, 1e6), (5, 1e12)), "the output",
               why="e^score overflows; torch.softmax subtracts the largest score first, and what "
               "is hidden needs the score -inf", wrong={
            f"{-n:g} is added to what is hidden: it is not enough here, -inf is":
                matrix(partial(lowered, n)) for n in (1e4, 1e9)}))),
    CourseTask("01.4", "leaks", "A test that finds leaks", 10, 3, (
        equals("right forms pass, wrong ones are caught", detector, examples(form, *FORMS),
               "the result", wrong=mistakes(detector, {
            "the last row is compared too, which may move: compare only the rows before it":
                {"rows": slice(None)},
            "only the first rows are compared: the row just before the last one may be all that "
            "moves": {"rows": slice(0, 3)},
            "the last key changes little: a score close to 10000 is needed to see some leaks":
                {"key": 3.0},
            "only the last value changes: future keys may stand in the denominator":
                {"key": 0.0, "query": 0.0},
            "only the last key changes: an unchanged value may hide what its weight does":
                {"value": 0.0, "query": 0.0},
            "the last query does not change: some forms leak through the queries": {"query": 0.0},
            "NaN is put in: 0 times NaN is NaN, so right forms seem to leak":
                {"key": math.nan, "value": math.nan}})),)),
    CourseTask("01.7", "online_step", "One step of the online softmax", 8, 3, (
        equals("the state after every key", step, steps, "the maximum", "the sum",
               "the weighted sum", wrong=mistakes(step, STEP),
               why="is the first key's old maximum, -inf, subtracted from itself, or an exp taken "
               "without a maximum?"),)),
    CourseTask("01.10", "attend_tiles", "Attention in tiles", 15, 4, (
        equals("equal to the rows, for tiles of any size", by_rows,
               examples(in_parts, (8, 4, 4), (12, 4, 3), (7, 3, 2), (5, 2, 8), (3, 8, 8)),
               "the output", wrong=TILES | USUAL, why=SEES_ITSELF),
        equals("a running maximum that begins at -inf", by_rows, examples(low_scores, 6),
               "the output", wrong=mistakes(in_tiles, {
            "the running maximum begins at 0 and not at -inf: e^-3600 is 0 for the machine, and "
            "0 / 0 no number": {"start": 0.0},
            "a tile has one maximum for all its rows: each row needs its own": {"shared": True}})),
        Property("holds one tile at a time, and reads no future", 1, memory, wrong=mistakes(
            in_tiles, {"stop before the tiles in the future": {"end": lambda first, rows: 10**6}})
            | {"as many as all scores": matrix(hidden)}))),
    CourseTask("01.11", "copy_in_tiles", "A kernel that copies", 5, 1, (
        equals("all numbers, and nothing behind them", lambda x, block: x,
               examples(lambda draw, numbers, block: (draw.normal(numbers, dtype=torch.float32),
                                                      block), (8, 4), (10, 4), (37, 8)), "the copy",
               wrong={
            "the tile of program p begins at p; it begins at p * BLOCK":
                copied_up_to(lambda n, block: -(-n // block) - 1 + block),
            "every program copies the first tile": copied_up_to(lambda n, block: block),
            "nothing is stored in OUT": copied_up_to(lambda n, block: 0),
            "the places are stored, not the numbers": lambda x, block: torch.arange(len(x)) + 0.0,
            "the last tile, which is not full, is left out":
                copied_up_to(lambda n, block: n // block * block)}),), drive=in_bounds),
    CourseTask("01.13", "softmax_of_rows", "A kernel for the softmax", 5, 2, (
        equals("each row's softmax", softmax_32,
               examples(lambda draw, rows, columns, scale: (scale * draw.normal(
                   rows, columns, dtype=torch.float32).abs(),),
                        (3, 4, 1.0), (5, 12, 1.0), (2, 21, 300.0), (2, 21, -1e8)),
               "the weights", wrong={
            "the padding of the tile has the score 0, and e^0 is 1: load it as -inf":
                lambda scores: softmax_32(scores, 1 << (scores.shape[1] - 1).bit_length()),
            "the padding has the score -10000, and a row's own scores may be lower: -inf is not":
                lambda scores: softmax_32(scores, 1 << (scores.shape[1] - 1).bit_length(), -1e4),
            "no maximum is subtracted, and e^score overflows":
                lambda scores: scores.exp() / scores.exp().sum(1, keepdim=True),
            "the powers are not divided by their sum":
                lambda scores: (scores - scores.amax(1, keepdim=True)).exp(),
            "every program computes row 0":
                lambda scores: softmax_32(scores[:1]).expand_as(scores),
            "every program stores its weights in row 0": lambda scores: torch.cat([
                softmax_32(scores[-1:]), torch.zeros_like(scores[1:])]),
            "the powers are those of 2; take tl.exp":
                lambda scores: softmax_32(scores * math.log(2))}),), drive=in_bounds),
    CourseTask("01.14", "scores_of_a_tile", "A kernel with one product", 5, 2, (
        equals("a row for each query, a column for each key",
               lambda q, k, scale: scale * q @ k.T,
               examples(lambda draw, queries, keys, features: (
                   draw.normal(queries, features, dtype=torch.float32),
                   draw.normal(keys, features, dtype=torch.float32), 0.5),
                        (16, 32, 64), (32, 64, 16)), "the scores", wrong={
            "the scale is forgotten": lambda q, k, scale: q @ k.T,
            "queries and keys are both multiplied by the scale": lambda q, k, scale:
                scale**2 * q @ k.T,
            "rows and columns of the result are exchanged": lambda q, k, scale:
                (scale * k @ q.T).reshape(len(q), len(k)),
            "the queries are loaded from K": lambda q, k, scale: scale * k[: len(q)] @ k.T}),),
        drive=in_bounds),
    CourseTask("01.15", "mean_in_two_tiles", "A kernel with an online softmax", 5, 3, (
        equals("equal to one softmax over both tiles", two_tiles,
               examples(lambda draw, rows, columns, scale: (draw.normal(
                   rows, columns, dtype=torch.float32, scale=scale), draw.normal(
                   columns, dtype=torch.float32)), (3, 8, 2.0), (5, 32, 2.0), (4, 16, 300.0)),
               "the mean", wrong=mistakes(two_tiles, STEP) | {
            "the second tile is left out": lambda scores, values:
                scores.chunk(2, 1)[0].softmax(1) @ values.chunk(2)[0],
            "the first tile of scores is read twice": lambda scores, values:
                two_tiles(scores.chunk(2, 1)[0].repeat(1, 2), values),
            "the first tile of values is read twice": lambda scores, values:
                two_tiles(scores, values.chunk(2)[0].repeat(2))}),), drive=in_bounds),
    CourseTask("01.17", "attend_kernel", "Attention as a kernel", 20, 5, (
        equals("equal to the rows, in float32", by_rows,
               examples(for_kernel, (21, 16, 16, 32), (70, 64, 32, 16), (32, 64, 16, 32),
                                    (1, 32, 32, 16)), "the output",
               why=SEES_ITSELF, wrong=TILES | {
            "exp is taken of scores that were multiplied by log2(e): take exp2":
                lambda q, k, v, scale, *tile: by_rows(q, k, v, scale * math.log2(math.e)),
            "the scores are not multiplied by scale_log2":
                lambda q, k, v, scale, *tile: by_rows(q, k, v, math.log(2)),
            "exp2 is taken of scores that were not multiplied by log2(e)":
                lambda q, k, v, scale, *tile: by_rows(q, k, v, scale * math.log(2))}),
        holds("early rows do not touch later tiles", early_rows, examples(late_nan, 48),
              wrong=mistakes(in_tiles, {
            "the loop over key tiles does not end where the program's last row ends, at first + "
            "BLOCK_M": {"end": lambda first, rows: 10**6}}))), drive=in_bounds),
)
