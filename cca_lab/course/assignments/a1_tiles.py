"""a1: attention from loops to tiles, with a slope for each head and a sink without a value."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import (
    by_hand,
    describe,
    many,
    need_close,
    need_equal,
    need_items,
    need_keys,
    need_tensor,
    show,
)
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case

# The one matrix behind the checks of a1, and what usual mistakes give.

INF = float("inf")


def need_double(got: Any, wanted: Tensor, what: str,
                causes: Mapping[str, Any] | None = None) -> Tensor:
    """Return a result if it is right and float64; `causes` as for `need_close`."""
    got = need_tensor(got, wanted.shape, what)
    if got.dtype != torch.float64:
        raise Mistake(f"{what} has dtype {got.dtype}, wanted torch.float64: torch.zeros, "
                      "torch.full and torch.tensor make float32 if they get no dtype")
    return need_close(got, wanted, what, causes=causes)


def with_sink(scores: Tensor, sink: Tensor) -> Tensor:
    """Return the weights (..., L, L) of a softmax over scores and one sink, without the sink's."""
    return torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], dim=-1).softmax(-1)[..., :-1]


def dense(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, sinks: Tensor, scale: float, *,
          kv_of: Callable[[int], int] | None = None, past: int = 0, mask: float = -INF,
          weigh: Callable[[Tensor, Tensor], Tensor] = with_sink) -> Tensor:
    """Return outputs (B, H, L, E) by one matrix for each head.

    The options are mistakes: `kv_of` a query head, `past` tokens of the future, the score of a
    masked token, and how masked scores and a sink are weighed.
    """
    share = q.shape[1] // k.shape[1]
    row, column = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    heads = []
    for head in range(q.shape[1]):
        source = kv_of(head) if kv_of else head // share
        scores = scale * q[:, head] @ k[:, source].mT - slopes[head] * (row - column)
        heads.append(weigh(scores.masked_fill(column > row + past, mask),
                           sinks[head]) @ v[:, source])
    return torch.stack(heads, dim=1)


def usual_causes(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, sinks: Tensor,
                 scale: float) -> dict[str, Tensor]:
    """Return what usual mistakes give, by name; nothing for length 1, where many are alike."""
    heads, kv, length = q.shape[1], k.shape[1], q.shape[2]
    if length == 1:
        return {}
    of_kv = torch.arange(heads) // (heads // kv)

    def wrong(a: Tensor = slopes, z: Tensor = sinks, s: float = scale, times: Tensor | float = 1.0,
              **other: Any) -> Tensor:
        return dense(q * times, k, v, a, z, s, **other)

    def plain(scores: Tensor, sink: Tensor) -> Tensor:
        return scores.exp() / (scores.exp().sum(-1, keepdim=True) + sink)

    causes = {"the scale is forgotten": wrong(s=1.0),
              "the sink is forgotten": wrong(z=torch.full_like(sinks, -INF)),
              "the sink z itself is added to the denominator, not e^z": wrong(weigh=plain),
              "the slope is forgotten": wrong(0 * slopes),
              "the slope is added instead of subtracted": wrong(-slopes),
              "the slope is multiplied by the scale too": wrong(scale * slopes),
              # A number added to all scores of a row is one taken from its sink.
              "the distance is i - t + 1, so that the row's own token is one away":
                  wrong(z=sinks + slopes),
              "the distance is i - t - 1, one too short": wrong(z=sinks - slopes),
              "the mask is applied after the softmax: masked tokens then still stand in the "
              "denominator":
                  wrong(past=length, weigh=lambda scores, sink: with_sink(scores, sink).tril()),
              "the future is not masked": wrong(past=length),
              "a row sees one token of the future": wrong(past=1),
              "query head h reads KV head h % Hk": wrong(kv_of=lambda head: head % kv),
              "query head h takes the slope of its KV head's number": wrong(slopes[of_kv]),
              "query head h takes the sink of its KV head's number": wrong(z=sinks[of_kv]),
              "query head h takes slope and sink of its KV head's number":
                  wrong(slopes[of_kv], sinks[of_kv]),
              "the scale is divided by the number of KV heads": wrong(s=scale / kv),
              "the scale is divided by the number of query heads of a KV head":
                  wrong(s=scale * kv / heads),
              "only KV head 0 has the scale":
                  wrong(times=torch.where(of_kv == 0, 1.0, 1 / scale)[:, None, None])}
    if length == 2:  # where all of the future is one token
        causes["a row sees a later token"] = causes.pop("the future is not masked")
        del causes["a row sees one token of the future"]
    return causes


def uncorrected(scores: Tensor, values: Tensor, tile: int, sink: float = -INF) -> Tensor:
    """Return outputs (R, E) of masked scores (R, N) if accumulators never shrink with a maximum."""
    ends = (torch.arange(len(values)) // tile * tile + tile - 1).clamp(max=len(values) - 1)
    running = scores.cummax(-1).values.clamp(min=sink)
    top = running[:, -1:]
    total = (scores - top).exp().sum(-1, keepdim=True) + (sink - top).exp()
    return (scores - running[:, ends]).exp() @ values / total


# What the checks draw

def inputs(draw: Draw, batch: int, kv: int, share: int,
           length: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return q, k, v, slopes and sinks with 4 features and values of 3."""
    heads = kv * share
    return (draw.normal(batch, heads, length, 4), draw.normal(batch, kv, length, 4),
            draw.normal(batch, kv, length, 3), draw.normal(heads).abs(), draw.normal(heads))


# a1.2: loops

def compared(answer: Answer, draw: Draw, sizes: Sequence[tuple[int, ...]]) -> None:
    """Compare the loops with one matrix, for (batch, KV heads, query heads for each, length)."""
    for batch, kv, share, length in sizes:
        given, scale = inputs(draw, batch, kv, share, length), 0.25 + draw.random() / 2
        with case(f"batch {batch}, {many(kv * share, 'query head')}, {many(kv, 'KV head')}, "
                  f"length {length}"):
            need_double(answer(*given, scale), dense(*given, scale), "the output",
                        usual_causes(*given, scale))


def one_head(answer: Answer, draw: Draw) -> None:
    """The formula, for one head."""
    lengths = sorted(draw.randint(2, 9) for _ in range(3)) if draw.secret else [2, 3, 5]
    # At length 1 mistakes look alike.
    compared(answer, draw, [(1, 1, 1, length) for length in [*lengths, 1]])


def many_heads(answer: Answer, draw: Draw) -> None:
    """Heads that share, and a batch."""
    drawn = draw.sizes(2, (1, 2), (2, 3), (2, 3), (2, 5))
    compared(answer, draw, [(1, 2, 1, 2), (1, 1, 3, 2), (1, 2, 2, 3), (2, 2, 3, 4),
                            *(drawn if draw.secret else [])])


def no_future(answer: Answer, draw: Draw) -> None:
    """Tokens are changed: earlier rows stay, later rows move."""
    def need_output(got: Any) -> Tensor:  # of any values
        right = isinstance(got, Tensor) and got.shape == (1, 1, length, 3)
        return need_double(got, got if right else torch.zeros(1, 1, length, 3).double(),
                           "the output")

    for length, token in [(2, 1), (4, 2), (7, draw.randint(1, 6) if draw.secret else 3)]:
        q, k, v, slopes, sinks = inputs(draw, 1, 1, 1, length)
        slopes = slopes.clamp(max=0.2)
        with case(f"length {length}, key and value {token} changed"):
            before = need_output(answer(q, k, v, slopes, sinks, 0.5))
            for changed, what in ((k, "key"), (v, "value")):
                other = changed.clone()
                other[:, :, token:] += 1 + draw.normal(*changed[:, :, token:].shape).abs()
                pair = (other, v) if what == "key" else (k, other)
                after = need_output(answer(q, *pair, slopes, sinks, 0.5))
                moved = (after - before).abs().amax(dim=-1)[0, 0]
                if (moved[:token] > 1e-9).any():
                    row = int((moved[:token] > 1e-9).nonzero()[0])
                    raise Mistake(f"row {row} moved when the {what} of token {token} changed, "
                                  "which comes later: is the range of t one too long, the mask on "
                                  "the wrong side, or is the mask applied after the softmax?")
                if (moved[token:] < 1e-9).any():
                    row = token + int((moved[token:] < 1e-9).nonzero()[0])
                    raise Mistake(f"row {row} did not move when the {what} of token {token} "
                                  "changed: it must read all tokens up to its own")


# a1.3: merge

def part_of(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return maximum, sum (R,) and accumulator (R, E) of scores (R, N), where N may be 0."""
    if not scores.shape[1]:
        return torch.full((len(scores),), -INF, dtype=scores.dtype), scores.sum(-1), scores @ values
    top = scores.amax(-1)
    weights = (scores - top[:, None]).exp().where(top[:, None] > -INF, 0.0)
    return top, weights.sum(-1), weights @ values


def need_part(got: Any, wanted: tuple[Tensor, Tensor, Tensor],
              causes: Mapping[str, tuple[Tensor, Tensor]] | None = None) -> None:
    """Compare the three tensors of a part; `causes` have a wrong sum and accumulator each."""
    need_items(got, 3, "a tuple of maximum, sum and accumulator")
    top, right = got[0], wanted[0]
    if not isinstance(top, Tensor) or top.shape != right.shape or top.dtype != right.dtype:
        kind = f" of {top.dtype}" if isinstance(top, Tensor) else ""
        raise Mistake(f"the maximum is {describe(top)}{kind}, wanted float64 of shape "
                      f"{tuple(right.shape)}")
    wrong = ~((top == right) | ((top - right).abs() < 1e-9))
    if wrong.any():
        raise Mistake(show(top, right, wrong, "the maximum"))
    for at, what in ((1, "the sum"), (2, "the accumulator")):
        need_double(got[at], wanted[at], what,
                    {cause: both[at - 1] for cause, both in (causes or {}).items()})


def merged(answer: Answer, draw: Draw, size: tuple[int, ...], scale: float = 1.0) -> None:
    """Cut rows of scores in two and merge the parts."""
    rows, first, second = size
    scores, values = draw.normal(rows, first + second, scale=scale), draw.normal(first + second, 2)
    halves = part_of(scores[:, :first], values[:first]), part_of(scores[:, first:], values[first:])
    (m1, s1, a1), (m2, s2, a2) = halves
    top = torch.maximum(m1, m2)
    e1, e2 = ((m - top).exp() for m in (m1, m2))
    b1, b2 = ((m - top).exp2() for m in (m1, m2))

    def both(f1: Tensor, f2: Tensor) -> tuple[Tensor, Tensor]:
        return f1 * s1 + f2 * s2, f1[:, None] * a1 + f2[:, None] * a2

    right, added = both(e1, e2), both(torch.ones_like(e1), torch.ones_like(e2))
    with case(f"{many(rows, 'row')}, parts of {many(first, 'key')} and "
              f"{many(second, 'key')}"):
        need_part(answer(*halves), part_of(scores, values),
                  {"the two factors are swapped": both(e2, e1),
                   "powers of 2 are taken instead of e": both(b1, b2),
                   "the accumulators are only added": (right[0], added[1]),
                   "sums and accumulators are only added": added})


def merge_two(answer: Answer, draw: Draw) -> None:
    """Two parts that both have keys."""
    more = draw.sizes(4, (1, 5), (1, 6), (1, 6)) if draw.secret else []
    for size in [(1, 1, 1), (2, 1, 3), (3, 4, 2), *more]:
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
    for what, size, shift in (("of about 1", 1.0, 0.0),
                              ("of about 10000, of either sign", 1e4, 0.0),
                              ("of about -30000", 1.0, -3e4), ("of about -900000", 1.0, -9e5)):
        scores, values = (draw.normal(4, 9, scale=size) + shift).clamp(max=1e4), draw.normal(9, 2)
        scores[0], scores[1] = scores[0].sort().values, scores[1].sort(descending=True).values
        first, second, third = (part_of(scores[:, at : at + 3], values[at : at + 3])
                                for at in (0, 3, 6))
        whole = part_of(scores, values)
        for order, got in (("(one, two), three", lambda a, b, c: answer(tuple(answer(a, b)), c)),
                           ("one, (two, three)", lambda a, b, c: answer(a, tuple(answer(b, c)))),
                           ("(three, one), two", lambda a, b, c: answer(tuple(answer(c, a)), b))):
            with case(f"scores {what}, merged as {order}"):
                need_part(got(first, second, third), whole)


# a1.4: tiles

# Length, rows, keys of a tile. At length 1 mistakes look alike, so it is not the first.
TILES: list[tuple[int, ...]] = [(2, 1, 1), (1, 1, 1), (3, 2, 2), (7, 3, 2), (6, 2, 4),
                                (12, 5, 7), (4, 9, 9), (8, 2, 4), (8, 4, 2)]
Given = tuple[Tensor, Tensor, Tensor, float, float, float]  # q, k, v, scale, slope, sink


def tile_sizes(draw: Draw) -> list[tuple[int, ...]]:
    """Return (length, rows of a tile, keys of a tile)."""
    return TILES + (draw.sizes(5, (1, 25), (1, 8), (1, 8)) if draw.secret else [])


def given_for(draw: Draw, length: int, large: float = 0.0) -> Given:
    """Return inputs; `large` bounds products and sink, of either sign, and the slope."""
    q, k, v = draw.normal(length, 4), draw.normal(length, 4), draw.normal(length, 3)
    scale = 0.25 + draw.random() / 2
    slope, sink = draw.random(), draw.gauss(0, 1)
    if large:
        q = q * (large / (scale * (q @ k.T).abs().max()))
        slope, sink = slope * large, draw.uniform(-large, large)
    # Multiples of 1/64: a number times a tensor of integers is float32 in torch, and exact here.
    return q, k, v, scale, round(64 * slope) / 64, round(64 * sink) / 64


def run_tiled(answer: Answer, given: Given, rows: int, keys: int, what: str = "") -> int:
    """Compare with one matrix; return how many keys were loaded. `what` names large inputs."""
    (q, k, v, scale, slope, sink), length = given, len(given[0])
    loaded = 0

    def load(start: int, stop: int) -> tuple[Tensor, Tensor]:
        nonlocal loaded
        start, stop = int(start), int(stop)
        if not 0 <= start < stop <= length or stop - start > keys:
            raise Mistake(f"load({start}, {stop}): wanted at most {many(keys, 'token')} of the "
                          f"{length} that exist, and one at least")
        if start % keys or stop - start < keys and stop % rows and stop < length:
            raise Mistake(f"load({start}, {stop}): tiles of keys start at multiples of {keys} and "
                          f"have {many(keys, 'key')}; only the last one of a tile of rows may have "
                          "fewer")
        loaded += stop - start
        return k[start:stop], v[start:stop]

    with case(f"length {length}, tiles of {many(rows, 'row')} and {many(keys, 'key')}{what}"):
        got = answer(q, load, rows, keys, scale, slope, sink)
        heads = (q[None, None], k[None, None], v[None, None],
                 torch.tensor([slope], dtype=torch.float64),
                 torch.tensor([sink], dtype=torch.float64), scale)
        step = torch.arange(length)[:, None] - torch.arange(length)
        scores = (scale * q @ k.T - slope * step).masked_fill(step < 0, -INF)
        causes = {"masked scores are -10000 instead of minus infinity": dense(*heads, mask=-1e4)}
        if not what:
            lasts = (torch.arange(length) // rows * rows + rows).clamp(max=length)
            tiles = -(-lasts // keys)  # that a row's tile of rows reads
            per_tile = {f"the sink is added with each tile of keys{also}":
                            with_sink(scores, sink + (tiles + more).double().log()[:, None]) @ v
                        for more, also in ((0, ", not once"), (1, ", and once more"))}
            causes = {} if length == 1 else {
                "the accumulator does not shrink when the maximum grows":
                    uncorrected(scores, v, keys, sink)[None, None],
                "the maximum starts at the sink z and the sum at e^z: it has to be 1 then":
                    dense(*heads[:4], 2 * heads[4], scale)} | usual_causes(*heads) | per_tile
        need_double(got, dense(*heads)[0, 0], "the output",
                    {cause: wrong.view(length, -1) for cause, wrong in causes.items()})
    return loaded


def tiled_right(answer: Answer, draw: Draw) -> None:
    """The output, for tiles of many sizes."""
    for length, rows, keys in tile_sizes(draw):
        run_tiled(answer, given_for(draw, length), rows, keys)


def tiled_large(answer: Answer, draw: Draw) -> None:
    """Scores of ten thousand need the running maximum from the first tile on."""
    for length, rows, keys in [(2, 1, 1), (3, 2, 2), (12, 5, 7)]:
        for _ in range(3):
            run_tiled(answer, given_for(draw, length, 1e4), rows, keys, ", large numbers")
    for length, rows, keys in [(3, 3, 3), (5, 2, 3)]:
        q, k = torch.full((length, 4), -5000.0).double(), torch.ones(length, 4).double()
        v = torch.arange(1, length + 1).double()[:, None]
        run_tiled(answer, (q, k, v, 0.5, 0.0, -1e4), rows, keys,
                  ", all products and the sink -10000, slope 0")


def tiled_reads(answer: Answer, draw: Draw) -> None:
    """Each tile of rows loads each tile of keys of its past once, and none of its future."""
    for size in tile_sizes(draw):
        length, rows, keys = size
        loaded = run_tiled(answer, given_for(draw, length), rows, keys)
        lasts = [min(first + rows, length) for first in range(0, length, rows)]
        most = sum(min(length, -(-last // keys) * keys) for last in lasts)
        with case(f"length {length}, tiles of {many(rows, 'row')} and {many(keys, 'key')}"):
            if loaded > most:
                raise Mistake(f"{loaded} keys were loaded, {most} are enough: are tiles loaded "
                              "that lie wholly in the future, or again for each row of a tile?")
            if loaded < sum(lasts):
                raise Mistake(f"{many(loaded, 'key')} loaded, though all tiles of rows together "
                              f"need {sum(lasts)}: is a tile of keys kept for the next tile of "
                              "rows?")


# a1.5: repair

def repaired(answer: Answer, draw: Draw, tiles: tuple[int, ...] | None) -> None:
    """Compare with one matrix: the queries are the last of the text."""
    more = [(draw.randint(2, 12), 2) for _ in range(2)] if draw.secret else []
    for length, rows in [(1, 1), (3, 3), (5, 2), (9, 5), *more]:
        q, k, v = draw.normal(rows, 4, scale=2.0), draw.normal(length, 4,
                                                               scale=2.0), draw.normal(length, 3)
        row, column = torch.arange(length - rows, length)[:, None], torch.arange(length)
        scores = q @ k.T / 2
        masked = scores.masked_fill(column > row, -INF)
        causes = {"the future is not masked": scores.softmax(-1) @ v,
                  "the rows are counted from 0: query 0 is token L - N":
                      scores.masked_fill(column > torch.arange(rows)[:, None],
                                         -INF).softmax(-1) @ v}
        for tile in tiles or (length, length + 3):
            stuck = {"the accumulator does not shrink when the maximum grows":
                         uncorrected(masked, v, tile)}
            with case(f"{rows} {'query' if rows == 1 else 'queries'}, {many(length, 'key')}, "
                      f"tiles of {tile}"):
                need_double(answer(q, k, v, tile), masked.softmax(-1) @ v, "the output",
                            causes | stuck if length > 1 else {})


# a1.6: costs

def need_costs(answer: Answer, size: tuple[int, int, int], wanted: dict[str, int]) -> None:
    """Compare the three numbers."""
    length, dim, tile = size
    causes = {"flops": {"a multiplication and an addition count as one": wanted["flops"] // 2,
                        "only the causal pairs are counted": 2 * dim * length * (length + 1),
                        "tiles that lie wholly in the future are counted too":
                            4 * dim * length * length},
              "bytes": {"the keys and values are read once, not once for each tile of rows":
                            8 * dim * length,
                        "a number has one byte, not two": wanted["bytes"] // 2},
              "scores": {"the tile is larger than the text, and not cut off": tile * tile}}
    with case(f"length {length}, {many(dim, 'feature')}, tiles of {tile}"):
        got = answer(*size)
        need_keys(got, wanted)
        for key, right in wanted.items():
            if not isinstance(got[key], int):
                raise Mistake(f"{key} is {describe(got[key])}, wanted an integer: divide with //")
            need_equal(got[key], right, key, causes=causes[key])


def costs_small(answer: Answer, draw: Draw) -> None:
    """Against counting."""
    more = draw.sizes(8, (1, 90), (1, 9), (1, 20)) if draw.secret else []
    for length, dim, tile in [(1, 1, 1), (5, 1, 2), (4, 3, 2), (3, 2, 8), (23, 8, 5), *more]:
        lasts = [(first, min(first + tile, length)) for first in range(0, length, tile)]
        pairs = sum((last - first) * last for first, last in lasts)
        keys = sum(last for _, last in lasts)
        need_costs(answer, (length, dim, tile),
                   {"flops": 4 * dim * pairs, "bytes": 4 * dim * (keys + length),
                    "scores": min(tile, length) ** 2})


def costs_large(answer: Answer, draw: Draw) -> None:
    """A text at which nobody counts tiles."""
    for length, dim, tile in [(10**12 + 7, 128, 64), (10**11, 64, 128)]:
        length = draw.randint(10**11, 10**12) if draw.secret else length
        whole, rest = divmod(length, tile)
        keys = tile * (whole * whole + whole) // 2
        need_costs(answer, (length, dim, tile),
                   {"flops": 4 * dim * (tile * keys + rest * length),
                    "bytes": 4 * dim * (keys + (length if rest else 0) + length),
                    "scores": tile * tile})


# a1.7: backward

def gradients(answer: Answer, scores: Tensor, sink: Tensor, upstream: Tensor, which: int,
              what: str) -> None:
    """Compare one of the two gradients with autograd's."""
    x, z = scores.clone().requires_grad_(), sink.clone().requires_grad_()
    weights = torch.cat([x, z[:, None]], dim=-1).softmax(-1)[:, :-1]
    wanted = torch.autograd.grad((weights * upstream).sum(), [x, z])[which]
    weights = weights.detach()
    rest = 1 - weights.sum(-1)
    mean, total = (weights * upstream).sum(-1, keepdim=True), upstream.sum(-1, keepdim=True)
    name = ("the gradient of the scores", "the gradient of the sinks")[which]
    with case(what):
        got = answer(weights, upstream)
        need_items(got, 2, "a tuple of two tensors")
        if isinstance(got[which], Tensor) and got[which].isnan().any():
            raise Mistake(f"{name} has a NaN: is it the logarithm of the sink's weight, which may "
                          "be 0 or rounded to less than 0, or a division by a weight that is 0?")
        causes = {"the mean of the upstream gradient is not subtracted": weights * upstream,
                  "the plain sum of the upstream gradient is subtracted, not its sum with the "
                  "weights": weights * (upstream - total),
                  "the mean is taken as if the weights added up to 1":
                      weights * (upstream - mean / weights.sum(-1, keepdim=True).clamp(min=1e-300)),
                  "the factor of the weights is forgotten": upstream - mean}
        signs = {"the sign is wrong": -wanted, "the sink's weight is forgotten": -mean[:, 0],
                 "the upstream gradient is summed without the weights": -rest * total[:, 0]}
        need_double(got[which], wanted, name, (causes, signs)[which] if scores.shape[1] > 1 else {})


def run_backward(answer: Answer, draw: Draw, which: int) -> None:
    """Check one gradient: ordinary rows, masked keys, and a sum of weights that is rounded up."""
    more = draw.sizes(4, (1, 6), (2, 9)) if draw.secret else []
    for rows, keys in [(1, 2), (1, 1), (1, 3), (4, 4), (3, 6), *more]:
        scores, sink, upstream = draw.normal(rows, keys), draw.normal(rows), draw.normal(rows, keys)
        what = f"{many(rows, 'row')}, {many(keys, 'key')}"
        gradients(answer, scores, sink, upstream, which, what)
        masked = scores.masked_fill(torch.arange(keys) > torch.arange(rows)[:, None], -INF)
        gradients(answer, masked, sink, upstream, which, f"{what}, a causal mask")
    scores = draw.normal(400, 4)
    over = scores[scores.softmax(-1).sum(-1) > 1][:8]
    gradients(answer, over, torch.full((len(over),), -60.0).double(), draw.normal(len(over), 4),
              which, f"{many(len(over), 'row')}, 4 keys, weights that add up to a little more "
                     "than 1 by rounding")


def backward_extreme(answer: Answer, draw: Draw) -> None:
    """Rows with all weight in one key, or none in the sink: 1 - sum is 0 or rounds below."""
    keys, rest = draw.normal(40, 4), draw.normal(40)
    first = torch.tensor([1e4, 0, 0, 0], dtype=torch.float64)
    for scores, sink, what in ((keys + first, rest, "all weight lies in key 0"),
                               (keys, rest + 1e4, "all weight lies in the sink"),
                               (keys, rest - 50, "the sink has no weight, to rounding")):
        for which in (0, 1):
            gradients(answer, scores, sink, draw.normal(40, 4), which, what)


ASSIGNMENT = Assignment("a1", "tiles", "Attention from loops to tiles, with a slope and a sink",
                        ("01",), (
    CourseTask("a1.1", "by_hand", "One row by hand", 10, 1, 3, (
        Property("the numbers of the row", 2, by_hand(
            {"powers": [1, 0.5, 0.5, 4], "sink": 0.25, "output": 4, "without": 16 / 3}, 1e-6,
            rounded=5e-3)),)),
    CourseTask("a1.2", "loops", "Attention by loops", 25, 2, 5, (
        Property("one head equals the formula", 1, one_head),
        Property("each query head reads its own KV head", 2, many_heads),
        Property("no row reads a later token", 1, no_future))),
    CourseTask("a1.3", "merge", "Two parts of one softmax", 20, 3, 5, (
        Property("two parts give the whole", 1, merge_two),
        Property("empty parts change nothing", 1, merge_empty),
        Property("any order, and large scores", 1, merge_any, hidden=True))),
    CourseTask("a1.4", "tiled", "Attention in tiles", 40, 4, 5, (
        Property("the output equals one matrix", 2, tiled_right),
        Property("scores of ten thousand do no harm", 1, tiled_large),
        Property("only tiles of the past are loaded", 1, tiled_reads, hidden=True))),
    CourseTask("a1.5", "repaired", "Two bugs to repair", 15, 2, 4, (
        Property("one tile for all keys", 1, partial(repaired, tiles=None)),
        Property("one key in each tile", 1, partial(repaired, tiles=(1,))))),
    CourseTask("a1.6", "costs", "What tiles cost, without counting", 20, 3, 3, (
        Property("equal to counting", 1, costs_small),
        Property("right for a trillion tokens", 1, costs_large, hidden=True))),
    CourseTask("a1.7", "backward", "The softmax backwards", 20, 4, 4, (
        Property("the gradient of the scores", 1, partial(run_backward, which=0)),
        Property("the gradient of the sinks", 1, partial(run_backward, which=1)),
        Property("all of the weight in one place", 1, backward_extreme, hidden=True))),
))
