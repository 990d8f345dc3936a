"""a1: attention from loops to tiles, with a slope for each head and a sink that takes weight but has no value."""

import torch
from torch import Tensor

from cca_lab.course.assignments.a1_parts import (
    INF,
    by_hand,
    dense,
    many_heads,
    merge_any,
    merge_empty,
    merge_two,
    no_future,
    one_head,
    usual_causes,
)
from cca_lab.course.compare import describe, need_close, need_equal
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Task, case

# a1.4: tiles

TILES = [(1, 1, 1), (2, 1, 1), (3, 2, 2), (7, 3, 2), (6, 2, 4), (12, 5, 7), (4, 9, 9)]  # length, rows, keys of a tile


def tile_sizes(draw: Draw) -> list[tuple[int, int, int]]:
    """Return (length, rows of a tile, keys of a tile)."""
    more = [(draw.randint(1, 25), draw.randint(1, 8), draw.randint(1, 8)) for _ in range(5)] if draw.secret else []
    return [*TILES, *sorted(more)]


def run_tiled(answer: Answer, draw: Draw, size: tuple[int, int, int], large: float = 1.0) -> int:
    """Compare the answer with one matrix; return how many keys it loaded."""
    length, rows, keys = size
    q, k, v = draw.normal(length, 4, scale=large), draw.normal(length, 4), draw.normal(length, 3)
    # Slope and sink are multiples of 1/64: a number times a tensor of integers is float32 in torch, and exact here.
    slope, sink = (round(64 * number) / 64 for number in (draw.random() * large, draw.gauss(0, large)))
    scale = 0.25 + draw.random() / 2
    loaded = 0

    def load(start: int, stop: int) -> tuple[Tensor, Tensor]:
        nonlocal loaded
        start, stop = int(start), int(stop)
        if not 0 <= start < stop <= length or stop - start > keys:
            raise Mistake(f"load({start}, {stop}): wanted 1 to {keys} of the {length} tokens that exist")
        loaded += stop - start
        return k[start:stop], v[start:stop]

    with case(f"length {length}, tiles of {rows} rows and {keys} keys"):
        got = answer(q, load, rows, keys, scale, slope, sink)
        heads = (q[None, None], k[None, None], v[None, None], torch.tensor([slope], dtype=torch.float64),
                 torch.tensor([sink], dtype=torch.float64), scale)
        need_close(got, dense(*heads)[0, 0], "the output",
                   causes={cause: wrong[0, 0] for cause, wrong in usual_causes(*heads).items()})
    return loaded


def tiled_right(answer: Answer, draw: Draw) -> None:
    """The output, for tiles of many sizes."""
    for size in tile_sizes(draw):
        run_tiled(answer, draw, size)


def tiled_large(answer: Answer, draw: Draw) -> None:
    """Scores of ten thousand: the running maximum is needed, from the first tile on."""
    for size in [(1, 1, 1), (3, 2, 2), (12, 5, 7)]:
        for _ in range(3):
            run_tiled(answer, draw, size, 1e4)


def tiled_reads(answer: Answer, draw: Draw) -> None:
    """Each tile of rows loads each tile of keys of its past once, and none of its future."""
    for size in tile_sizes(draw):
        length, rows, keys = size
        loaded = run_tiled(answer, draw, size)
        lasts = [min(first + rows, length) for first in range(0, length, rows)]
        most = sum(min(length, -(-last // keys) * keys) for last in lasts)
        with case(f"length {length}, tiles of {rows} rows and {keys} keys"):
            if loaded > most:
                raise Mistake(f"{loaded} keys were loaded, {most} are enough: are tiles loaded that lie wholly in the "
                              "future, or again for each row of a tile?")
            if loaded < sum(lasts):
                raise Mistake(f"{loaded} keys were loaded, though all tiles of rows together need {sum(lasts)}: is a "
                              "tile of keys kept for the next tile of rows?")


# a1.5: repair


def repaired(answer: Answer, draw: Draw, tiles: tuple[int, ...] | None) -> None:
    """Compare with one matrix: the queries are the last of the text."""
    more = [(draw.randint(2, 12), 2) for _ in range(2)] if draw.secret else []
    for length, rows in [(1, 1), (3, 3), (5, 2), (9, 5), *more]:
        q, k, v = draw.normal(rows, 4, scale=2.0), draw.normal(length, 4, scale=2.0), draw.normal(length, 3)
        row, column = torch.arange(length - rows, length)[:, None], torch.arange(length)
        scores = q @ k.T / 2
        wanted = scores.masked_fill(column > row, -INF).softmax(-1) @ v
        for tile in tiles or (length, length + 3):
            with case(f"{rows} queries, {length} keys, tiles of {tile}"):
                need_close(answer(q, k, v, tile), wanted, "the output",
                           causes={"the future is not masked": scores.softmax(-1) @ v})


def repaired_diagonal(answer: Answer, draw: Draw) -> None:
    """One tile for all keys: only the mask matters."""
    repaired(answer, draw, None)


def repaired_sum(answer: Answer, draw: Draw) -> None:
    """One key in a tile: only the correction matters."""
    repaired(answer, draw, (1,))


# a1.6: costs


def need_costs(answer: Answer, size: tuple[int, int, int], wanted: dict[str, int]) -> None:
    """Compare the three numbers."""
    with case("length {}, {} features, tiles of {}".format(*size)):
        got = answer(*size)
        if not isinstance(got, dict) or set(got) != set(wanted):
            raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(wanted)}")
        for key, right in wanted.items():
            if not isinstance(got[key], int):
                raise Mistake(f"{key} is {describe(got[key])}, wanted an integer: divide with //")
            half = {"a multiplication and an addition count as one": right // 2} if key == "flops" else {}
            need_equal(got[key], right, key, causes=half)


def costs_small(answer: Answer, draw: Draw) -> None:
    """Against counting."""
    more = [(draw.randint(1, 90), draw.randint(1, 9), draw.randint(1, 20)) for _ in range(8)] if draw.secret else []
    for length, dim, tile in [(1, 1, 1), (5, 1, 2), (4, 3, 2), (3, 2, 8), (23, 8, 5), *sorted(more)]:
        lasts = [(first, min(first + tile, length)) for first in range(0, length, tile)]
        pairs = sum((last - first) * last for first, last in lasts)
        keys = sum(last for _, last in lasts)
        need_costs(answer, (length, dim, tile), {"flops": 4 * dim * pairs, "bytes": 4 * dim * (keys + length),
                                                 "scores": min(tile, length) ** 2})


def costs_large(answer: Answer, draw: Draw) -> None:
    """A text at which nobody counts tiles."""
    for length, dim, tile in [(10**12 + 7, 128, 64), (10**11, 64, 128)]:
        length = draw.randint(10**11, 10**12) if draw.secret else length
        whole, rest = divmod(length, tile)
        keys = tile * (whole * whole + whole) // 2
        need_costs(answer, (length, dim, tile),
                   {"flops": 4 * dim * (tile * keys + rest * length),
                    "bytes": 4 * dim * (keys + (length if rest else 0) + length), "scores": tile * tile})


# a1.7: backward


def gradients(answer: Answer, scores: Tensor, sink: Tensor, upstream: Tensor, which: int, what: str) -> None:
    """Compare one of the two gradients with autograd's."""
    x, z = scores.clone().requires_grad_(), sink.clone().requires_grad_()
    weights = torch.cat([x, z[:, None]], dim=-1).softmax(-1)[:, :-1]
    wanted = torch.autograd.grad((weights * upstream).sum(), [x, z])[which]
    weights = weights.detach()
    mean = (weights * upstream).sum(-1, keepdim=True)
    with case(what):
        got = answer(weights, upstream)
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Mistake(f"the result is {describe(got)}, wanted a tuple of two tensors")
        causes = {"the mean of the upstream gradient is not subtracted": weights * upstream,
                  "the mean is taken as if the weights added up to 1":
                  weights * (upstream - mean / weights.sum(-1, keepdim=True).clamp(min=1e-300)),
                  "the factor of the weights is forgotten": upstream - mean}
        signs = {"the sign is wrong": -wanted, "the sink's weight is forgotten": -mean[:, 0]}
        need_close(got[which], wanted, ("the gradient of the scores", "the gradient of the sinks")[which],
                   causes=causes if which == 0 else signs)


def run_backward(answer: Answer, draw: Draw, which: int) -> None:
    """Check one gradient on ordinary rows and on rows with masked keys."""
    more = [(draw.randint(1, 6), draw.randint(2, 9)) for _ in range(4)] if draw.secret else []
    for rows, keys in [(1, 1), (1, 3), (4, 4), (3, 6), *sorted(more)]:
        scores, sink, upstream = draw.normal(rows, keys), draw.normal(rows), draw.normal(rows, keys)
        gradients(answer, scores, sink, upstream, which, f"{rows} rows, {keys} keys")
        masked = scores.masked_fill(torch.arange(keys) > torch.arange(rows)[:, None], -INF)
        gradients(answer, masked, sink, upstream, which, f"{rows} rows, {keys} keys, a causal mask")


def backward_scores(answer: Answer, draw: Draw) -> None:
    """The gradient of the scores."""
    run_backward(answer, draw, 0)


def backward_sinks(answer: Answer, draw: Draw) -> None:
    """The gradient of the sink logits."""
    run_backward(answer, draw, 1)


def backward_extreme(answer: Answer, draw: Draw) -> None:
    """Rows whose weight lies in one place, or whose sink has none: 1 - sum is 0 or rounds below it."""
    keys, rest = draw.normal(40, 4), draw.normal(40)
    first = torch.tensor([1e4, 0, 0, 0], dtype=torch.float64)
    for scores, sink, what in ((keys + first, rest, "all weight lies in key 0"),
                               (keys, rest + 1e4, "all weight lies in the sink"),
                               (keys, rest - 50, "the sink has no weight, to rounding")):
        for which in (0, 1):
            gradients(answer, scores, sink, draw.normal(40, 4), which, what)


ASSIGNMENT = Assignment("a1", "tiles", "Attention from loops to tiles, with a slope and a sink", ("01",), (
    Task("a1.1", "by_hand", "One row by hand", 10, 1, 3, (Property("the numbers of the row", 2, by_hand),)),
    Task("a1.2", "loops", "Attention by loops", 25, 2, 5, (
        Property("one head equals the formula", 1, one_head),
        Property("each query head reads its own KV head", 2, many_heads),
        Property("no row reads a later token", 1, no_future))),
    Task("a1.3", "merge", "Two parts of one softmax", 20, 3, 5, (
        Property("two parts give the whole", 1, merge_two),
        Property("empty parts change nothing", 1, merge_empty),
        Property("any order, and large scores", 1, merge_any, hidden=True))),
    Task("a1.4", "tiled", "Attention in tiles", 30, 4, 5, (
        Property("the output equals one matrix", 2, tiled_right),
        Property("scores of ten thousand do no harm", 1, tiled_large),
        Property("only tiles of the past are loaded", 1, tiled_reads, hidden=True))),
    Task("a1.5", "repaired", "Two bugs to repair", 15, 3, 4, (
        Property("one tile for all keys", 1, repaired_diagonal),
        Property("one key in each tile", 1, repaired_sum))),
    Task("a1.6", "costs", "What tiles cost, without counting", 15, 3, 3, (
        Property("equal to counting", 1, costs_small),
        Property("right for a trillion tokens", 1, costs_large, hidden=True))),
    Task("a1.7", "backward", "The softmax backwards", 20, 4, 4, (
        Property("the gradient of the scores", 1, backward_scores),
        Property("the gradient of the sinks", 1, backward_sinks),
        Property("all of the weight in one place", 1, backward_extreme, hidden=True))),
))
