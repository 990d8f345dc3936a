"""a1: attention from loops to tiles, with a slope for each head and a sink that takes weight but has no value."""

import torch
from torch import Tensor

from cca_lab.course.assignments.a1_costs import (
    backward_extreme,
    backward_scores,
    backward_sinks,
    costs_large,
    costs_small,
)
from cca_lab.course.assignments.a1_dense import INF, dense, need_double, number, uncorrected, usual_causes
from cca_lab.course.assignments.a1_parts import (
    by_hand,
    many_heads,
    merge_any,
    merge_empty,
    merge_two,
    no_future,
    one_head,
)
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Task, case

# a1.4: tiles

# Length, rows, keys of a tile. At length 1 mistakes look alike, so it is not the first.
TILES = [(2, 1, 1), (1, 1, 1), (3, 2, 2), (7, 3, 2), (6, 2, 4), (12, 5, 7), (4, 9, 9)]
Given = tuple[Tensor, Tensor, Tensor, float, float, float]  # q, k, v, scale, slope, sink


def tile_sizes(draw: Draw) -> list[tuple[int, int, int]]:
    """Return (length, rows of a tile, keys of a tile)."""
    more = [(draw.randint(1, 25), draw.randint(1, 8), draw.randint(1, 8)) for _ in range(5)] if draw.secret else []
    return [*TILES, *sorted(more)]


def given_for(draw: Draw, length: int, large: float = 0.0) -> Given:
    """Return inputs; if `large` is given, products and sink up to it, of either sign, and a slope up to it."""
    q, k, v = draw.normal(length, 4), draw.normal(length, 4), draw.normal(length, 3)
    scale = 0.25 + draw.random() / 2
    slope, sink = draw.random(), draw.gauss(0, 1)
    if large:
        q = q * (large / (scale * (q @ k.T).abs().max()))
        slope, sink = slope * large, draw.uniform(-large, large)
    # Multiples of 1/64: a number times a tensor of integers is float32 in torch, and exact here.
    return q, k, v, scale, round(64 * slope) / 64, round(64 * sink) / 64


def causes_of(given: Given, heads: tuple, keys: int) -> dict[str, Tensor]:
    """Return what usual mistakes in tiles give."""
    (q, k, v, scale, slope, sink), length = given, len(given[0])
    step = torch.arange(length)[:, None] - torch.arange(length)
    scores = (scale * q @ k.T - slope * step).masked_fill(step < 0, -INF)
    wrong = {"the accumulator does not shrink when the maximum grows": uncorrected(scores, v, keys, sink)[None, None],
             "the maximum starts at the sink z and the sum at e^z: it has to be 1 then":
             dense(*heads[:4], 2 * heads[4], scale)}
    return wrong | usual_causes(*heads) if length > 1 else {}


def run_tiled(answer: Answer, given: Given, rows: int, keys: int, what: str = "") -> int:
    """Compare the answer with one matrix; return how many keys it loaded. Inputs that `what` names are large."""
    (q, k, v, scale, slope, sink), length = given, len(given[0])
    loaded = 0

    def load(start: int, stop: int) -> tuple[Tensor, Tensor]:
        nonlocal loaded
        start, stop = int(start), int(stop)
        if not 0 <= start < stop <= length or stop - start > keys:
            raise Mistake(f"load({start}, {stop}): wanted 1 to {keys} of the {length} tokens that exist")
        if start % keys or stop - start < keys and stop % rows and stop < length:
            raise Mistake(f"load({start}, {stop}): tiles of keys start at multiples of {keys} and have {keys} keys; "
                          "only the last one of a tile of rows may have fewer")
        loaded += stop - start
        return k[start:stop], v[start:stop]

    with case(f"length {length}, tiles of {number(rows, 'row')} and {number(keys, 'key')}{what}"):
        got = answer(q, load, rows, keys, scale, slope, sink)
        heads = (q[None, None], k[None, None], v[None, None], torch.tensor([slope], dtype=torch.float64),
                 torch.tensor([sink], dtype=torch.float64), scale)
        causes = causes_of(given, heads, keys) if not what else {
            "masked scores are -10000 instead of minus infinity": dense(*heads, mask=-1e4)}
        need_double(got, dense(*heads)[0, 0], "the output", {cause: wrong[0, 0] for cause, wrong in causes.items()})
    return loaded


def tiled_right(answer: Answer, draw: Draw) -> None:
    """The output, for tiles of many sizes."""
    for length, rows, keys in tile_sizes(draw):
        run_tiled(answer, given_for(draw, length), rows, keys)


def tiled_large(answer: Answer, draw: Draw) -> None:
    """Scores of ten thousand: the running maximum is needed, from the first tile on, and a mask below all scores."""
    for length, rows, keys in [(2, 1, 1), (3, 2, 2), (12, 5, 7)]:
        for _ in range(3):
            run_tiled(answer, given_for(draw, length, 1e4), rows, keys, ", large numbers")
    for length, rows, keys in [(3, 3, 3), (5, 2, 3)]:
        q, k = torch.full((length, 4), -5000.0).double(), torch.ones(length, 4).double()
        v = torch.arange(1, length + 1).double()[:, None]
        run_tiled(answer, (q, k, v, 0.5, 0.0, -1e4), rows, keys, ", all products and the sink -10000, slope 0")


def tiled_reads(answer: Answer, draw: Draw) -> None:
    """Each tile of rows loads each tile of keys of its past once, and none of its future."""
    for size in tile_sizes(draw):
        length, rows, keys = size
        loaded = run_tiled(answer, given_for(draw, length), rows, keys)
        lasts = [min(first + rows, length) for first in range(0, length, rows)]
        most = sum(min(length, -(-last // keys) * keys) for last in lasts)
        with case(f"length {length}, tiles of {number(rows, 'row')} and {number(keys, 'key')}"):
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
        masked = scores.masked_fill(column > row, -INF)
        causes = {"the future is not masked": scores.softmax(-1) @ v,
                  "the rows are counted from 0: query 0 is token L - N":
                  scores.masked_fill(column > torch.arange(rows)[:, None], -INF).softmax(-1) @ v}
        for tile in tiles or (length, length + 3):
            stuck = {"the accumulator does not shrink when the maximum grows": uncorrected(masked, v, tile)}
            with case(f"{rows} {'query' if rows == 1 else 'queries'}, {number(length, 'key')}, tiles of {tile}"):
                need_double(answer(q, k, v, tile), masked.softmax(-1) @ v, "the output",
                            causes | stuck if length > 1 else {})


def repaired_diagonal(answer: Answer, draw: Draw) -> None:
    """One tile for all keys: only the mask matters."""
    repaired(answer, draw, None)


def repaired_sum(answer: Answer, draw: Draw) -> None:
    """One key in a tile: only the correction matters."""
    repaired(answer, draw, (1,))


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
    Task("a1.4", "tiled", "Attention in tiles", 40, 4, 5, (
        Property("the output equals one matrix", 2, tiled_right),
        Property("scores of ten thousand do no harm", 1, tiled_large),
        Property("only tiles of the past are loaded", 1, tiled_reads, hidden=True))),
    Task("a1.5", "repaired", "Two bugs to repair", 15, 2, 4, (
        Property("one tile for all keys", 1, repaired_diagonal),
        Property("one key in each tile", 1, repaired_sum))),
    Task("a1.6", "costs", "What tiles cost, without counting", 20, 3, 3, (
        Property("equal to counting", 1, costs_small),
        Property("right for a trillion tokens", 1, costs_large, hidden=True))),
    Task("a1.7", "backward", "The softmax backwards", 20, 4, 4, (
        Property("the gradient of the scores", 1, backward_scores),
        Property("the gradient of the sinks", 1, backward_sinks),
        Property("all of the weight in one place", 1, backward_extreme, hidden=True))),
))
