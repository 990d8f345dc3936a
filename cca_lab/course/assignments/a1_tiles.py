"""a1: attention in tiles that pass by, with a slope and a sink without a value."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import by_hand, need_items, need_tensor
from cca_lab.course.exercise import equals, examples, slips
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property

INF = float("inf")
EXACT = 1e-9  # float64 all the way
SINGLE = "computed in single precision on the way"
near = partial(equals, tolerance=EXACT)


def with_sink(scores: Tensor, sink: Tensor) -> Tensor:
    """Return the weights (..., N) of a softmax over scores and one sink, without the sink's."""
    return torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], dim=-1).softmax(-1)[..., :-1]


# a1.2: merge
def part_of(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return maximum, sum (R,) and accumulator (R, E) of scores (R, N), where N may be 0."""
    none = torch.full((len(scores), 1), -INF, dtype=scores.dtype)
    top = torch.cat([none, scores], dim=1).amax(-1)
    weights = (scores - top[:, None]).exp().where(top[:, None] > -INF, 0.0)
    return top, weights.sum(-1), weights @ values


def parts(draw: Draw, rows: int, first: int, second: int, shift: float = 0.0) -> tuple[Any, ...]:
    """Return the parts of rows of scores that are cut in two; row 0 is empty in the second."""
    scores = draw.normal(rows, first + second) + shift * torch.tensor([[1.0]]).double()
    if rows > 2:
        scores[0, first:], scores[1, :first], scores[2] = -INF, -INF, -INF
    values = draw.normal(first + second, 2)
    return part_of(scores[:, :first], values[:first]), part_of(scores[:, first:], values[first:])


def far_parts(draw: Draw, rows: int, first: int, second: int, scores_about: int) -> tuple[Any, ...]:
    """Return parts of scores that are large, of either sign, or all very low."""
    one, two = parts(draw, rows, first, second, scores_about)
    if scores_about > 0:
        one = (-one[0], *one[1:])
    return one, two


def merge(one: tuple[Tensor, ...], two: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the part of all keys of two parts."""
    top = torch.maximum(one[0], two[0])
    shrink = [(part[0] - top).exp().where(part[0] > -INF, 0.0) for part in (one, two)]
    total = shrink[0] * one[1] + shrink[1] * two[1]
    out = shrink[0][:, None] * one[2] + shrink[1][:, None] * two[2]
    return top, total, out


# a1.3: tiles that pass by
def passing(answer: Answer) -> Answer:
    """Return attention of a text, of which the answer sees one tile of keys after the other."""
    def attend(q: Tensor, k: Tensor, v: Tensor, rows: int, keys: int, backwards: int,
               *numbers: float) -> Tensor:
        outs = []
        for first in range(0, len(q), rows):
            tile, state, out = q[first : first + rows], None, None
            starts = range(0, first + len(tile), keys)
            for start in reversed(starts) if backwards else starts:
                got = answer(state, tile, first, k[start : start + keys], v[start : start + keys],
                             start, *numbers)
                state, out = need_items(got, 2, "two: the state and the output")
                held = state if isinstance(state, (tuple, list)) else [state]
                if not all(isinstance(x, Tensor) for x in held):
                    raise Mistake("the state is no tuple of tensors")
                most, size = len(tile) * (v.shape[1] + 2), sum(x.numel() for x in held)
                if size > most:
                    raise Mistake(f"the state of {len(tile)} rows holds {size} numbers, {most} are "
                                  "enough: what has passed is not kept")
            outs.append(need_tensor(out, (len(tile), v.shape[1]), "the output"))
        return torch.cat(outs)

    return attend


def fold(state: Any, q: Tensor, first: int, keys: Tensor, values: Tensor, start: int, scale: float,
         slope: float, sink: float) -> tuple[Any, Tensor]:
    """Return the state and the output of rows after one more tile."""
    row = first + torch.arange(len(q))[:, None]
    step = row - start - torch.arange(len(keys))
    scores = scale * q @ keys.T - slope * step.double()
    scores = scores.masked_fill(step < 0, -INF)
    low = torch.full((len(q), 1), sink, dtype=q.dtype)
    begin = low, torch.ones_like(low), q.new_zeros(len(q), values.shape[1])
    top, total, out = state or begin
    new = torch.maximum(top, scores.amax(-1, keepdim=True))
    shrink, weights = (top - new).exp(), (scores - new).exp()
    total = shrink * total + weights.sum(-1, keepdim=True)
    out = shrink * out + weights @ values
    return (new, total, out), out / total


def whole(q: Tensor, k: Tensor, v: Tensor, rows: int, keys: int, backwards: int, scale: float,
          slope: float, sink: float) -> Tensor:
    """Return the outputs (L, E) by one matrix."""
    step = torch.arange(len(q))[:, None] - torch.arange(len(k))
    scores = (scale * q @ k.T - slope * step.double()).masked_fill(step < 0, -INF)
    return with_sink(scores, torch.tensor(sink, dtype=torch.float64)) @ v


def text(draw: Draw, length: int, rows: int, keys: int, backwards: int,
         large: float = 0.0) -> tuple[Any, ...]:
    """Return inputs; `large` bounds products and sink, of either sign, and the slope."""
    q, k, v = draw.normal(length, 4), draw.normal(length, 4), draw.normal(length, 3)
    slope, sink = draw.random(), draw.gauss(0, 1)
    if large and length % 2:  # all scores of a row are very low, and it is not empty
        q, k, slope, sink = 0 * q - large / 2, 0 * k + 1, 0.0, -large
    elif large:
        q, slope, sink = q * large / (q @ k.T).abs().max(), slope * large / 9, large * sink / 4
    # Multiples of 1/64: a number times a tensor of integers is float32 in torch, and exact here.
    slope, sink = round(64 * slope) / 64, round(64 * sink) / 64
    return q, k, v, rows, keys, backwards, 0.5 if large else 0.25 + draw.random() / 2, slope, sink


TILES = ((2, 1, 1), (3, 2, 2), (7, 3, 2), (6, 2, 4), (12, 5, 7), (4, 9, 9), (8, 2, 4), (1, 1, 1))
LARGER = ((1, 14), (1, 5), (1, 5))


# a1.4: backward
def backward(weights: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of scores and sinks."""
    total = weights.sum(-1, keepdim=True)
    mean = (weights * upstream).sum(-1, keepdim=True)
    left = (1 - total).clamp(min=0)
    return weights * (upstream - mean), -(left * mean)[:, 0]


def by_logarithms(weights: Tensor, upstream: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients by autograd, from scores that are logarithms of the weights."""
    scores = weights.log().requires_grad_()
    sink = (1 - weights.sum(-1)).log().requires_grad_()
    full = torch.cat([scores, sink[:, None]], -1).softmax(-1)[:, :-1]
    return torch.autograd.grad((full * upstream).sum(), [scores, sink])


def weighed(draw: Draw, rows: int, keys: int, masked: int,
            shift: tuple[float, float] = (0.0, 0.0)) -> tuple[Tensor, Tensor]:
    """Return weights, of shifted scores of key 0 and sinks, and the gradient of the loss."""
    scores, sink = draw.normal(rows, keys), draw.normal(rows)[:, None]
    scores[:, 0] += shift[0]
    scores = scores.masked_fill((torch.arange(keys) > torch.arange(rows)[:, None]) & bool(masked),
                                -INF)
    return with_sink(scores, sink + shift[1]), draw.normal(rows, keys)


def extreme(draw: Draw, rows: int, key_0: float, sink: float) -> tuple[Tensor, Tensor]:
    """Return weights that all lie in one key or in the sink, or add up to 1 or a little more."""
    return weighed(draw, rows, 4, 0, (key_0, sink))


def gradient(part: int, name: str, wrong: dict[str, Answer]) -> Property:
    """Return the property that one of the two gradients is right."""
    return near(name, backward, examples(weighed, (1, 2, 0), (1, 1, 0), (4, 4, 1), (3, 6, 0),
                                         larger=((1, 6), (2, 9), (0, 1))), name, part=part,
                wrong=wrong)


ADDED = "shrink[0][:, None] *", "", "shrink[1][:, None] *", ""
ASSIGNMENT = Assignment("a1", "tiles", "Attention in tiles, with a slope and a sink", ("01",), (
    CourseTask("a1.1", "by_hand", "One row by hand", 10, 1, (
        by_hand("the numbers of the row",
                {"powers": [1, 0.5, 0.5, 4], "sink": 0.25, "output": 4, "without": 16 / 3},
                {"output": 16 / 3}, {"without": 5.33}, {"powers": [8, 2, 1, 4]}, near=1e-6,
                rounded=5e-3),)),
    CourseTask("a1.2", "merge", "Two parts of one softmax", 20, 3, (
        near("two parts give the whole", merge, examples(
            parts, (1, 1, 1), (2, 1, 3), (2, 4, 2), larger=((1, 2), (1, 6), (1, 6))),
            "the maximum", "the sum", "the accumulator", wrong=slips(merge, {
            "the two factors are swapped": ("for part in (one, two)", "for part in (two, one)"),
            "powers of 2 are taken instead of e": ("exp()", "exp2()"),
            "the accumulators are only added": ADDED,
            "the sums are only added": ("shrink[0] *", "", "shrink[1] *", ""),
            "sums and accumulators are only added": (*ADDED, "shrink[0] *", "", "shrink[1] *", ""),
            "the smaller maximum is taken": ("maximum", "minimum"),
            "no maximum is taken, but 0": (
                "torch.maximum(one[0], two[0])", "0 * one[0].clamp(min=-1.0)"),
            SINGLE: ("top, total, out", "top.float(), total.float(), out.float()")})),
        near("empty parts change nothing", merge, examples(
            parts, (1, 2, 0), (1, 0, 2), (2, 0, 0), (3, 2, 2), larger=((3, 5), (0, 3), (0, 3))),
            "the maximum", "the sum", "the accumulator", wrong=slips(merge, {
            "an empty row beside an empty row gives -inf - (-inf), which is NaN":
                (".where(part[0] > -INF, 0.0)", "")})),
        near("very low scores are not empty", merge, examples(
            far_parts, (1, 2, 2, -900), (2, 2, 3, 9000), (2, 3, 2, -900_000), (2, 2, 2, -30_000),
            larger=((1, 2), (1, 4), (1, 4), (-900_000, 9000))), "the maximum", "the sum",
            "the accumulator", hidden=True, wrong=slips(merge, {
            "a part whose maximum is below -100000 is taken to be empty": ("-INF", "-1e5"),
            "the maximum is not let below -10000 in the powers":
                ("- top)", "- top.clamp(min=-1e4))")})))),
    CourseTask("a1.3", "fold", "Tiles that pass by", 35, 4, (
        near("the output equals one matrix", whole, examples(
            partial(text, backwards=0), *TILES, larger=LARGER),
             "the output", points=2, wrong=slips(fold, {
            "the accumulator does not shrink when the maximum grows": ("shrink * out", "out"),
            "the sum does not shrink when the maximum grows": ("shrink * total", "total"),
            "neither the sum nor the accumulator shrinks when the maximum grows":
                ("shrink * out", "out", "shrink * total", "total"),
            "the maximum starts at the sink z and the sum at e^z: it has to be 1 then":
                ("torch.ones_like(low)", "low.exp()"),
            "the sink is forgotten in the tiles":
                ("low, torch.ones_like(low)", "low - INF, 0 * low"),
            "the sink is added with each tile of keys, not once":
                ("shrink * total", "shrink * total + ((low - new).exp() if state else 0)"),
            "the tile of rows is taken to start at row 0": ("row = first", "row = 0"),
            "the tile of keys is taken to start at token 0": ("row - start", "row - 0"),
            "the scores are not scaled": ("scale * q", "q"),
            "no slope is subtracted": ("slope * step", "0 * step"),
            "the slope is added": ("- slope", "+ slope"),
            "the slope is multiplied by the scale too": ("slope * step", "scale * slope * step"),
            "the distance is i - t + 1, so that the row's own token is one away":
                ("step.double()", "(step + 1).double()"),
            "the distance is i - t - 1, one too short": ("step.double()", "(step - 1).double()"),
            "no token of the future is masked": ("step < 0", "step < -99"),
            "each row sees one token of the future": ("step < 0", "step < -1"),
            "the row's own token is masked": ("step < 0", "step < 1"),
            "what has passed is not kept": (
                "= state or begin", "= (state or begin)[:3]",
                "(new, total, out)", "(new, total, out, *(state or ())[3:], keys, values)"),
            SINGLE: ("out / total", "(out / total).float()")})),
        near("scores of ten thousand do no harm", whole, examples(
            partial(text, backwards=0, large=1e4), *TILES[:5], larger=LARGER),
            "the output", wrong=slips(fold, {
            "masked scores are -10000 instead of minus infinity": ("-INF", "-1e4"),
            "exp is taken without the maximum subtracted": (
                "low, torch.ones_like(low)", "0 * low, low.exp()",
                "torch.maximum(top, scores.amax(-1, keepdim=True))", "top")})),
        near("the tiles may come in any order", whole, examples(
            text, *((*size, 1) for size in TILES), larger=((8, 14), *LARGER[1:], (1, 1))),
            "the output", hidden=True, wrong={
            "the row's own tile is taken to be the last one":
                lambda state, q, first, keys, values, start, *numbers: fold(
                    state if start else None, q, first, keys, values, start, *numbers)})),
        drive=passing),
    CourseTask("a1.4", "backward", "The softmax backwards", 20, 4, (
        gradient(0, "the gradient of the scores", slips(backward, {
            "the mean of the upstream gradient is not subtracted":
                ("(upstream - mean)", "upstream"),
            "the plain sum of the upstream gradient is subtracted, not its sum with the weights":
                ("upstream - mean", "upstream - upstream.sum(-1, keepdim=True)"),
            "the mean is taken as if the weights added up to 1":
                ("upstream - mean", "upstream - mean / total.clamp(min=1e-300)"),
            "the factor of the weights is forgotten": ("weights * (upstream - mean)",
                                                       "upstream - mean"),
            SINGLE: ("(upstream - mean)", "(upstream - mean).float()")})),
        gradient(1, "the gradient of the sinks", slips(backward, {
            "the sign of the sink is wrong": ("-(left", "(left"),
            "the sink's weight is forgotten": ("left * mean", "mean"),
            "the upstream gradient is summed without the weights":
                ("left * mean", "left * upstream.sum(-1, keepdim=True)")})),
        near("all of the weight in one place", backward, examples(
            extreme, (9, 1e4, 0.0), (9, 0.0, 1e4), (40, 0.0, -60.0)), "the gradient of the scores",
            "the gradient of the sinks", hidden=True, wrong={
            "the logarithm of a weight is taken, which may be 0": by_logarithms}
            | slips(backward, {"a sum of weights that may be 0 is divided by": (
                "(weights * upstream).sum(-1, keepdim=True)",
                "(weights / total * upstream).sum(-1, keepdim=True) * total")})))),
))
