"""Checks of a1.1 to a1.3."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a1_dense import INF, dense, need_double, number, usual_causes
from cca_lab.course.compare import describe, need_number, show
from cca_lab.course.tasks import Answer, Draw, Mistake, Share, case

DIGITS = 5e-3  # a number of a1.1 that is this near was rounded by hand


def inputs(draw: Draw, batch: int, kv: int, share: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return q, k, v, slopes and sinks with 4 features and values of 3."""
    heads = kv * share
    return (draw.normal(batch, heads, length, 4), draw.normal(batch, kv, length, 4), draw.normal(batch, kv, length, 3),
            draw.normal(heads).abs(), draw.normal(heads))


# a1.1: by hand


def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check the numbers of row 3."""
    got = answer()
    wanted: dict[str, Any] = {"powers": [1, 0.5, 0.5, 4], "sink": 0.25, "output": 4, "without": 16 / 3}
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(wanted)}")
    wrong, rounded = [], []
    for key, right in wanted.items():
        numbers = got[key] if isinstance(right, list) else [got[key]]
        rights = right if isinstance(right, list) else [right]
        numbers = numbers.tolist() if isinstance(numbers, Tensor) else numbers
        if not isinstance(numbers, (list, tuple)) or len(numbers) != len(rights):
            wrong.append(key)
            continue
        far = max(abs(need_number(one, key) - other) for one, other in zip(numbers, rights, strict=True))
        if far > 1e-6:
            (rounded if far < DIGITS else wrong).append(key)
    said = ([f"not right yet: {', '.join(wrong)}"] if wrong else []) + (
        [f"right to about 3 digits: {', '.join(rounded)}: write a fraction, do not round"] if rounded else [])
    return Share(1 - len(wrong + rounded) / len(wanted), ". ".join(said)) if said else None


# a1.2: loops


def compared(answer: Answer, draw: Draw, sizes: Sequence[tuple[int, int, int, int]]) -> None:
    """Compare the loops with one matrix, for (batch, KV heads, query heads for each, length)."""
    for batch, kv, share, length in sizes:
        given, scale = inputs(draw, batch, kv, share, length), 0.25 + draw.random() / 2
        with case(f"batch {batch}, {number(kv * share, 'query head')}, {number(kv, 'KV head')}, length {length}"):
            need_double(answer(*given, scale), dense(*given, scale), "the output", usual_causes(*given, scale))


def one_head(answer: Answer, draw: Draw) -> None:
    """The formula, for one head."""
    lengths = sorted(draw.randint(2, 9) for _ in range(3)) if draw.secret else [2, 3, 5]
    compared(answer, draw, [(1, 1, 1, length) for length in [*lengths, 1]])  # at length 1 mistakes look alike


def many_heads(answer: Answer, draw: Draw) -> None:
    """Heads that share, and a batch."""
    drawn = [(draw.randint(1, 2), draw.randint(2, 3), draw.randint(2, 3), draw.randint(2, 5)) for _ in range(2)]
    compared(answer, draw, [(1, 2, 1, 2), (1, 1, 3, 2), (1, 2, 2, 3), (2, 2, 3, 4), *(drawn if draw.secret else [])])


def need_output(got: Any, length: int) -> Tensor:
    """Return outputs of one head if they have the right shape and dtype, whatever their values."""
    return need_double(got, got if isinstance(got, Tensor) and got.shape == (1, 1, length, 3)
                       else torch.zeros(1, 1, length, 3, dtype=torch.float64), "the output")


def no_future(answer: Answer, draw: Draw) -> None:
    """Tokens are changed: earlier rows stay, later rows move."""
    for length, token in [(2, 1), (4, 2), (7, draw.randint(1, 6) if draw.secret else 3)]:
        q, k, v, slopes, sinks = inputs(draw, 1, 1, 1, length)
        slopes = slopes.clamp(max=0.2)
        with case(f"length {length}, key and value {token} changed"):
            before = need_output(answer(q, k, v, slopes, sinks, 0.5), length)
            for changed, what in ((k, "key"), (v, "value")):
                other = changed.clone()
                other[:, :, token:] += 1 + draw.normal(*changed[:, :, token:].shape).abs()
                pair = (other, v) if what == "key" else (k, other)
                after = need_output(answer(q, *pair, slopes, sinks, 0.5), length)
                moved = (after - before).abs().amax(dim=-1)[0, 0]
                if (moved[:token] > 1e-9).any():
                    row = int((moved[:token] > 1e-9).nonzero()[0])
                    raise Mistake(f"row {row} moved when the {what} of token {token} changed, which comes later: is "
                                  "the range of t one too long, the mask on the wrong side, or is the mask applied "
                                  "after the softmax?")
                if (moved[token:] < 1e-9).any():
                    row = token + int((moved[token:] < 1e-9).nonzero()[0])
                    raise Mistake(f"row {row} did not move when the {what} of token {token} changed: it must read all "
                                  "tokens up to its own")


# a1.3: merge


def part_of(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return maximum (R,), sum (R,) and accumulator (R, E) of scores (R, N) and values (N, E); N may be 0."""
    if not scores.shape[1]:
        return torch.full((len(scores),), -INF, dtype=scores.dtype), scores.sum(-1), scores @ values
    top = scores.amax(-1)
    weights = (scores - top[:, None]).exp().where(top[:, None] > -INF, 0.0)
    return top, weights.sum(-1), weights @ values


def need_part(got: Any, wanted: tuple[Tensor, Tensor, Tensor],
              causes: Mapping[str, tuple[Tensor, Tensor]] | None = None) -> None:
    """Compare the three tensors of a part; `causes` have a wrong sum and a wrong accumulator each."""
    if not isinstance(got, (tuple, list)) or len(got) != 3:
        raise Mistake(f"the result is {describe(got)}, wanted a tuple of maximum, sum and accumulator")
    top, right = got[0], wanted[0]
    if not isinstance(top, Tensor) or top.shape != right.shape or top.dtype != right.dtype:
        kind = f" of {top.dtype}" if isinstance(top, Tensor) else ""
        raise Mistake(f"the maximum is {describe(top)}{kind}, wanted float64 of shape {tuple(right.shape)}")
    wrong = ~((top == right) | ((top - right).abs() < 1e-9))
    if wrong.any():
        raise Mistake(show(top, right, wrong, "the maximum"))
    for at, what in ((1, "the sum"), (2, "the accumulator")):
        need_double(got[at], wanted[at], what, {cause: both[at - 1] for cause, both in (causes or {}).items()})


def merged(answer: Answer, draw: Draw, size: tuple[int, int, int], scale: float = 1.0) -> None:
    """Cut rows of scores in two and merge the parts."""
    rows, first, second = size
    scores, values = draw.normal(rows, first + second, scale=scale), draw.normal(first + second, 2)
    parts = part_of(scores[:, :first], values[:first]), part_of(scores[:, first:], values[first:])
    (m1, s1, a1), (m2, s2, a2) = parts
    top = torch.maximum(m1, m2)
    e1, e2 = ((m - top).exp() for m in (m1, m2))
    b1, b2 = ((m - top).exp2() for m in (m1, m2))

    def both(f1: Tensor, f2: Tensor) -> tuple[Tensor, Tensor]:
        return f1 * s1 + f2 * s2, f1[:, None] * a1 + f2[:, None] * a2

    right, added = both(e1, e2), both(torch.ones_like(e1), torch.ones_like(e2))
    with case(f"{number(rows, 'row')}, parts of {number(first, 'key')} and {number(second, 'key')}"):
        need_part(answer(*parts), part_of(scores, values),
                  {"the two factors are swapped": both(e2, e1), "powers of 2 are taken instead of e": both(b1, b2),
                   "the accumulators are only added": (right[0], added[1]),
                   "sums and accumulators are only added": added})


def merge_two(answer: Answer, draw: Draw) -> None:
    """Two parts that both have keys."""
    more = [(draw.randint(1, 5), draw.randint(1, 6), draw.randint(1, 6)) for _ in range(4)] if draw.secret else []
    for size in [(1, 1, 1), (2, 1, 3), (3, 4, 2), *sorted(more)]:
        merged(answer, draw, size)


def merge_empty(answer: Answer, draw: Draw) -> None:
    """Empty parts, on either side, on both, and rows that are empty beside rows that are not."""
    for size in [(1, 2, 0), (1, 0, 2), (2, 0, 0)]:
        merged(answer, draw, size)
    scores, values = draw.normal(3, 4), draw.normal(4, 2)
    scores[0, :2], scores[1, 2:], scores[2] = -INF, -INF, -INF
    with case("row 0 is empty in the first part, row 1 in the second, row 2 in both"):
        need_part(answer(part_of(scores[:, :2], values[:2]), part_of(scores[:, 2:], values[2:])),
                  part_of(scores, values))


def merge_any(answer: Answer, draw: Draw) -> None:
    """Three parts of large scores, in both bracketings and another order."""
    for what, size, shift in (("of about 1", 1.0, 0.0), ("of about 10000, of either sign", 1e4, 0.0),
                              ("of about -30000", 1.0, -3e4), ("of about -900000", 1.0, -9e5)):
        scores, values = (draw.normal(4, 9, scale=size) + shift).clamp(max=1e4), draw.normal(9, 2)
        scores[0], scores[1] = scores[0].sort().values, scores[1].sort(descending=True).values
        one, two, three = (part_of(scores[:, at : at + 3], values[at : at + 3]) for at in (0, 3, 6))
        whole = part_of(scores, values)
        for order, got in (("(one, two), three", lambda a, b, c: answer(tuple(answer(a, b)), c)),
                           ("one, (two, three)", lambda a, b, c: answer(a, tuple(answer(b, c)))),
                           ("(three, one), two", lambda a, b, c: answer(tuple(answer(c, a)), b))):
            with case(f"scores {what}, merged as {order}"):
                need_part(got(one, two, three), whole)
