"""Checks of a1.1 to a1.3, and the one matrix behind them.

The variant: score(i, t) = scale * q_i . k_t - slope * (i - t) for t <= i, and the softmax of a row runs over these
scores and one more number, the head's sink logit. The sink's weight goes to no value.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need_close, need_number, need_tensor, show
from cca_lab.course.tasks import Answer, Draw, Mistake, Share, case

INF = float("inf")


def dense(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, sinks: Tensor, scale: float, *,
          kv_of: Callable[[int], int] | None = None, past: int = 0) -> Tensor:
    """Return the outputs (B, H, L, E) by one matrix for each head.

    Args:
        q, k, v: (B, H, L, D), (B, Hk, L, D), (B, Hk, L, E).
        slopes, sinks: of the heads, (H,) each.
        scale: of the products.
        kv_of: which KV head a query head reads; by default the right one.
        past: how many tokens of the future a row sees, for a wrong result.
    """
    share = q.shape[1] // k.shape[1]
    row, column = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    heads = []
    for head in range(q.shape[1]):
        source = kv_of(head) if kv_of else head // share
        scores = scale * q[:, head] @ k[:, source].mT - slopes[head] * (row - column)
        scores = scores.masked_fill(column > row + past, -INF)
        full = torch.cat([scores, sinks[head].expand(*scores.shape[:2], 1)], dim=-1).softmax(-1)
        heads.append(full[..., :-1] @ v[:, source])
    return torch.stack(heads, dim=1)


def usual_causes(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, sinks: Tensor, scale: float) -> dict[str, Tensor]:
    """Return what usual mistakes give, by what they are."""
    kv = k.shape[1]
    return {"the scale is forgotten": dense(q, k, v, slopes, sinks, 1.0),
            "the sink is forgotten": dense(q, k, v, slopes, torch.full_like(sinks, -INF), scale),
            "the slope is forgotten": dense(q, k, v, 0 * slopes, sinks, scale),
            "the slope is added instead of subtracted": dense(q, k, v, -slopes, sinks, scale),
            "the future is not masked": dense(q, k, v, slopes, sinks, scale, past=q.shape[2]),
            "a row sees one token of the future": dense(q, k, v, slopes, sinks, scale, past=1),
            "query head h reads KV head h % Hk": dense(q, k, v, slopes, sinks, scale, kv_of=lambda head: head % kv)}


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
    wrong = []
    for key, right in wanted.items():
        numbers = got[key] if isinstance(right, list) else [got[key]]
        rights = right if isinstance(right, list) else [right]
        numbers = numbers.tolist() if isinstance(numbers, Tensor) else numbers
        if not isinstance(numbers, (list, tuple)) or len(numbers) != len(rights) or any(
                abs(need_number(one, key) - other) > 1e-6 for one, other in zip(numbers, rights, strict=True)):
            wrong.append(key)
    return Share(1 - len(wrong) / len(wanted), f"not right yet: {', '.join(wrong)}") if wrong else None


# a1.2: loops


def compared(answer: Answer, draw: Draw, sizes: Sequence[tuple[int, int, int, int]]) -> None:
    """Compare the loops with one matrix, for (batch, KV heads, query heads for each, length)."""
    for batch, kv, share, length in sizes:
        given, scale = inputs(draw, batch, kv, share, length), 0.25 + draw.random() / 2
        with case(f"batch {batch}, {kv * share} query heads, {kv} KV heads, length {length}"):
            need_close(answer(*given, scale), dense(*given, scale), "the output", causes=usual_causes(*given, scale))


def one_head(answer: Answer, draw: Draw) -> None:
    """The formula, for one head."""
    lengths = sorted(draw.randint(2, 9) for _ in range(3)) if draw.secret else [2, 3, 5]
    compared(answer, draw, [(1, 1, 1, length) for length in [1, *lengths]])


def many_heads(answer: Answer, draw: Draw) -> None:
    """Heads that share, and a batch."""
    drawn = [(draw.randint(1, 2), draw.randint(2, 3), draw.randint(2, 3), draw.randint(2, 5)) for _ in range(2)]
    compared(answer, draw, [(1, 2, 1, 2), (1, 1, 3, 2), (1, 2, 2, 3), (2, 2, 3, 4), *(drawn if draw.secret else [])])


def no_future(answer: Answer, draw: Draw) -> None:
    """Tokens are changed: earlier rows stay, later rows move."""
    for length, token in [(2, 1), (4, 2), (7, draw.randint(1, 6) if draw.secret else 3)]:
        q, k, v, slopes, sinks = inputs(draw, 1, 1, 1, length)
        slopes = slopes.clamp(max=0.2)
        with case(f"length {length}, key and value {token} changed"):
            before = need_tensor(answer(q, k, v, slopes, sinks, 0.5), (1, 1, length, 3), "the output")
            for changed, what in ((k, "key"), (v, "value")):
                other = changed.clone()
                other[:, :, token:] += 1 + draw.normal(*changed[:, :, token:].shape).abs()
                pair = (other, v) if what == "key" else (k, other)
                after = need_tensor(answer(q, *pair, slopes, sinks, 0.5), (1, 1, length, 3), "the output")
                moved = (after - before).abs().amax(dim=-1)[0, 0]
                if (moved[:token] > 1e-9).any():
                    row = int((moved[:token] > 1e-9).nonzero()[0])
                    raise Mistake(f"row {row} moved when the {what} of token {token} changed, which comes later: is "
                                  "the range of t one too long, or the mask on the wrong side?")
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


def need_part(got: Any, wanted: tuple[Tensor, Tensor, Tensor], causes: Mapping[str, Tensor] | None = None
              ) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three tensors of a part if they are right."""
    if not isinstance(got, (tuple, list)) or len(got) != 3:
        raise Mistake(f"the result is {describe(got)}, wanted a tuple of maximum, sum and accumulator")
    top, right = got[0], wanted[0]
    if not isinstance(top, Tensor) or top.shape != right.shape or not top.is_floating_point():
        raise Mistake(f"the maximum is {describe(top)}, wanted floats of shape {tuple(right.shape)}")
    wrong = ~((top == right) | ((top - right).abs() < 1e-9))
    if wrong.any():
        raise Mistake(show(top, right, wrong, "the maximum"))
    return (top, need_close(got[1], wanted[1], "the sum"),
            need_close(got[2], wanted[2], "the accumulator", causes=causes))


def merged(answer: Answer, draw: Draw, size: tuple[int, int, int], scale: float = 1.0) -> None:
    """Cut rows of scores in two and merge the parts."""
    rows, first, second = size
    scores, values = draw.normal(rows, first + second, scale=scale), draw.normal(first + second, 2)
    parts = part_of(scores[:, :first], values[:first]), part_of(scores[:, first:], values[first:])
    (m1, _, a1), (m2, _, a2) = parts
    top = torch.maximum(m1, m2)
    swapped = a1 * (m2 - top).exp()[:, None] + a2 * (m1 - top).exp()[:, None]
    with case(f"{rows} rows, parts of {first} and {second} keys"):
        need_part(answer(*parts), part_of(scores, values),
                  {"the two factors are swapped": swapped, "the accumulators are only added": a1 + a2})


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
    for scale in (1.0, 1e4):
        scores, values = draw.normal(4, 9, scale=scale), draw.normal(9, 2)
        scores[0], scores[1] = scores[0].sort().values, scores[1].sort(descending=True).values
        one, two, three = (part_of(scores[:, at : at + 3], values[at : at + 3]) for at in (0, 3, 6))
        whole = part_of(scores, values)
        for what, got in (("(one, two), three", lambda a, b, c: answer(tuple(answer(a, b)), c)),
                          ("one, (two, three)", lambda a, b, c: answer(a, tuple(answer(b, c)))),
                          ("(three, one), two", lambda a, b, c: answer(tuple(answer(c, a)), b))):
            with case(f"scores of about {scale:g}, merged as {what}"):
                need_part(got(one, two, three), whole)
