"""What the reader writes in notebook 03, core tokens; rows and tokens count from 0."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cca_lab.course.exercise import Examples, equals, examples, in_bounds, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property

Pair = tuple[Tensor, Tensor]


# 03.2: the core of one group
def pools(weights_of: Callable[[Tensor, Tensor, float], Tensor]) -> Answer:
    """Return a pooling with other weights."""
    def pool(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Pair:
        weights = weights_of(q, k, scale)
        return weights @ k, weights @ v

    return pool


pooled = pools(lambda q, k, c: (c * k @ q[-1]).softmax(0))  # what is right


def group(draw: Draw, tokens: int, features: int) -> tuple[Any, ...]:
    """Return queries, keys and values of a group, and a scale."""
    return *(draw.normal(tokens, features) for _ in "qkv"), draw.choice([0.5, 1.5])


CORES: dict[str, Answer] = {
    "the first query judges; it is the last one, which has seen the whole group":
        pools(lambda q, k, c: (c * k @ q[0]).softmax(0)),
    "all members judge, each with its own query; only the last one does":
        pools(lambda q, k, c: (c * q @ k.T).softmax(1).mean(0)),
    "nobody judges, and the mean is taken": pools(lambda q, k, c: k.new_ones(len(k)) / len(k)),
    "the scale of the judge's scores is forgotten": pools(lambda q, k, c: (k @ q[-1]).softmax(0)),
    "the weights do not sum to 1: divide the powers by their sum":
        pools(lambda q, k, c: (c * k @ q[-1]).exp()),
    "the keys are scored with themselves; it is the judge's query that asks":
        pools(lambda q, k, c: (c * k @ k[-1]).softmax(0)),
    "values are scored anew; they get the weights of their keys":
        lambda q, k, v, c: (pooled(q, k, v, c)[0], pooled(q, v, v, c)[1]),
    "the weights are powers of 2; a softmax takes powers of e":
        pools(lambda q, k, c: (math.log(2) * c * k @ q[-1]).softmax(0)),
}


# 03.3: what a row reads
def row_reads(row: int, group: int, window: int) -> tuple[int, int]:
    """Return n(i), by counting the groups behind the row's window, and the first raw token."""
    n = sum(1 for p in range(row + 1) if p * group + group - 1 < row + 1 - window)
    return n, n * group


def counts(cores: Callable[[int, int, int], int]) -> Answer:
    """Return an answer with another number of cores; the raw tokens begin behind them."""
    return lambda i, g, s: (cores(i, g, s), cores(i, g, s) * g)


def starts(first: Callable[[int, int, int, int], int]) -> Answer:
    """Return an answer with the right number of cores n, and another first raw token."""
    return lambda i, g, s: (row_reads(i, g, s)[0], first(i, g, s, row_reads(i, g, s)[0]))


READS: dict[str, Answer] = {
    "row - window is taken; row i has i + 1 tokens up to its own: take row + 1 - window":
        counts(lambda i, g, s: max(0, (i - s) // g)),
    "a row shorter than the window has a negative number of cores: take max(0, ...)":
        counts(lambda i, g, s: (i + 1 - s) // g),
    "a group counts as soon as one of its tokens is behind the window; all must be":
        counts(lambda i, g, s: max(0, -(-(i + 1 - s) // g))),
    "the window is forgotten: these are all groups that are complete":
        counts(lambda i, g, s: (i + 1) // g),
    "tokens are counted, not groups": counts(lambda i, g, s: max(0, i + 1 - s)),
    "only the nearest tokens are raw; those between the last core and the window are then read "
    "by nobody": starts(lambda i, g, s, n: max(0, i + 1 - s)),
    "the last token of the last core is read raw too, so it is read twice (this is the k of Eq. 4 "
    "as printed)": starts(lambda i, g, s, n: max(0, g * n - 1)),
    "the window takes its extra tokens from (row + 1) mod g; they come from (row + 1 - s) mod g":
        starts(lambda i, g, s, n: max(0, i + 1 - s - (i + 1) % g)),
    "the first raw token is counted from 1": starts(lambda i, g, s, n: g * n + 1),
}
ROWS = [(row, *sizes) for sizes in ((3, 4), (4, 2), (5, 12), (1, 1)) for row in range(40)]


# 03.6: the whole loop
def attended(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Return one row of attention: one softmax over all the keys that it gets."""
    return (scale * keys @ query).softmax(0) @ values


def joined(query: Tensor, cores: Pair, raw: Pair, scale: float) -> Tensor:
    """Return a row over cores and raw tokens, in one softmax."""
    return attended(query, torch.cat([cores[0], raw[0]]), torch.cat([cores[1], raw[1]]), scale)


def apart(query: Tensor, cores: Pair, raw: Pair, scale: float, half: float = 1.0) -> Tensor:
    """Return a row with a softmax for each of the two."""
    near = attended(query, *raw, scale)
    return half * (near + attended(query, *cores, scale)) if len(cores[0]) else near


def by_rows(q: Tensor, k: Tensor, v: Tensor, group: int, window: int, scale: float, *,
            reads: Answer = row_reads, make: Answer = pooled, join: Answer = joined,
            own: int = 1) -> Tensor:
    """Return CCA-Attention of one head, (L, D), row by row.

    Each keyword is one decision, to be taken wrongly: what a row reads, how a core is made, how a
    row joins both, and where its raw tokens end.
    """
    cores = [make(*(x[p : p + group] for x in (q, k, v)), scale)
             for p in range(0, len(k) // group * group, group)]
    rows = []
    for i in range(len(k)):
        count, first = reads(i, group, window)
        seen, near = cores[:count], slice(first, max(i + own, 1))
        sides = tuple(torch.stack([core[side] for core in seen]) if seen else k[:0]
                      for side in (0, 1))
        rows.append(join(q[i], sides, (k[near], v[near]), scale))
    return torch.stack(rows)


OTHER_READS = READS | {
    "every row reads the cores of all groups, those of the future too":
        lambda i, g, s: (10**6, row_reads(i, g, s)[1]),
    "a row reads every core that is complete: what is inside its window it reads twice":
        lambda i, g, s: ((i + 1) // g, row_reads(i, g, s)[1]),
    "the raw tokens begin at token 0, so what is in a core is read twice":
        lambda i, g, s: (row_reads(i, g, s)[0], 0),
    "no row reads a core: this is the window alone": lambda i, g, s: (0, row_reads(i, g, s)[1])}
LOOPS = ({said: partial(by_rows, make=wrong) for said, wrong in CORES.items()}
         | {said: partial(by_rows, reads=wrong) for said, wrong in OTHER_READS.items()}
         | mistakes(by_rows, {
    "cores and raw tokens have a softmax each, and the results are added: put all keys in one":
        {"join": apart},
    "cores and raw tokens have a softmax each, and the mean is taken: put all keys in one":
        {"join": partial(apart, half=0.5)},
    "a row does not read its own token: a slice ends before its second number, so take i + 1":
        {"own": 0},
    "the judge's scores are scaled twice": {"make": lambda q, k, v, c: pooled(q, k, v, c * c)},
    "the scale is missing in the rows; it belongs to every score":
        {"join": lambda query, cores, raw, c: joined(query, cores, raw, 1.0)}}))


def head(draw: Draw, tokens: int, group: int, window: int) -> tuple[Any, ...]:
    """Return queries, keys and values of a text, the sizes, and a scale."""
    return *(draw.normal(tokens, 4) for _ in "qkv"), group, window, draw.choice([0.5, 0.7])


# 03.8: the columns, all cores at once
def columns_of(q: Tensor, k: Tensor, v: Tensor, group: int, window: int, scale: float, *,
               reads: Answer = row_reads, make: Answer = pooled, every: bool = False,
               own: int = 1, behind: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the keys and values of all columns, (C + L, D) each, and the table, by loops.

    Keywords are mistakes: what rows read, how a core is made, all groups become columns, where an
    interval ends, and raw tokens are not counted behind the cores.
    """
    rows = [reads(i, group, window) for i in range(len(k))]
    count = len(k) // group if every else max(0, rows[-1][0])
    cores = [make(*(x[p * group : p * group + group] for x in (q, k, v)), scale)
             for p in range(count)]
    keys, values = (torch.stack([*(core[side] for core in cores), *x])
                    for side, x in enumerate((k, v)))
    begin = count if behind else 0
    return keys, values, torch.tensor([[[0, n], [begin + first, begin + i + own]]
                                       for i, (n, first) in enumerate(rows)])


def table_of(length: int, group: int, window: int) -> Tensor:
    """Return the two intervals of columns of every row, (L, 2, 2), by counting."""
    nothing = torch.zeros(length, 1, dtype=torch.float64)
    return columns_of(nothing, nothing, nothing, group, window, 1.0)[2]


def over_groups(q: Tensor, k: Tensor, v: Tensor, group: int, window: int,
                scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return columns whose cores share a softmax for each place in a group."""
    keys, values, table = columns_of(q, k, v, group, window, scale)
    count = len(keys) - len(k)
    queries, old_keys, old_values = (x[: count * group].unflatten(0, (count, group))
                                     for x in (q, k, v))
    phi = torch.einsum("cgd,cd->cg", scale * old_keys, queries[:, -1]).softmax(0)
    cores = [torch.einsum("cg,cgd->cd", phi, x) for x in (old_keys, old_values)]
    return torch.cat([cores[0], k]), torch.cat([cores[1], v]), table


def changed(change: Callable[..., Any], *args: Any) -> tuple[Tensor, ...]:
    """Return the right columns with their cores, tokens or table changed."""
    keys, values, table = columns_of(*args)
    return change(keys, values, table, len(keys) - len(args[1]))


COLUMNS: dict[str, Answer] = (
    {said: partial(columns_of, make=wrong) for said, wrong in CORES.items()}
    | {said: partial(columns_of, reads=wrong) for said, wrong in READS.items()}
    | mistakes(columns_of, {
    "every complete group becomes a column; only those do that the last row reads as a core":
        {"every": True},
    "the raw tokens are counted as tokens; as columns they stand behind the cores, so add C":
        {"behind": False},
    "the interval of a row ends before its own token: an end is one past the last, so i + 1":
        {"own": 0}}) | {
    "the softmax runs over the groups; it runs over the members of a group, dim=1": over_groups,
    "the raw tokens stand first; the cores do": partial(
        changed, lambda keys, values, table, count: (
            keys.roll(-count, 0), values.roll(-count, 0), table)),
    "the raw tokens' interval comes first; the first interval is that of the cores": partial(
        changed, lambda keys, values, table, count: (keys, values, table.flip(1)))})


class Called(TorchFunctionMode):
    """Count the calls of torch inside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def at_once(answer: Answer, draw: Draw) -> None:
    """A text four times as long takes as many calls of torch."""
    counted = []
    for length in (24, 96):
        with Called() as calls:
            answer(*head(draw, length, 3, 4))
        counted.append(calls.count)
    if counted[1] > 1.5 * counted[0]:
        raise Mistake(f"24 tokens take {counted[0]} calls of torch, 96 tokens {counted[1]}: there "
                      "is still a loop over groups or rows. Reshape the tokens to (groups, g, D), "
                      "and pool all groups in one product")


# 03.9: one softmax over the columns of a table
def inside(column: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Return which columns lie in one of the intervals."""
    return ((column >= starts) & (column < ends)).any(1)


def seen_by(table: Tensor, columns: int) -> Tensor:
    """Return the mask of a table of intervals, (L, columns)."""
    return inside(torch.arange(columns), table[..., :1], table[..., 1:])


def right(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, scale: float,
          *tile: int) -> Tensor:
    """Return attention over a table; what a row does not read is not touched."""
    wide = [x.double() for x in (q, keys, values)]
    rows = [attended(query, wide[1][seen], wide[2][seen], scale)
            for query, seen in zip(wide[0], seen_by(table, len(keys)), strict=True)]
    return torch.stack(rows).to(q.dtype)


def masked(seen_of: Callable[..., Tensor] = inside,
           weights_of: Callable[[Tensor, Tensor], Tensor] = lambda scores, seen:
               scores.masked_fill(~seen, -math.inf).softmax(1)) -> Answer:
    """Return attention as one matrix, with another mask or other weights."""
    def dense(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, scale: float,
              *tile: int) -> Tensor:
        q, keys, values = (x.double() for x in (q, keys, values))
        seen = seen_of(torch.arange(len(keys)), table[..., :1], table[..., 1:])
        return weights_of(scale * q @ keys.T, seen) @ values

    return dense


def softmax_each(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, scale: float) -> Tensor:
    """Return the sum of attention over each interval by itself."""
    each = [masked()(q, keys, values, table[:, n : n + 1], scale) for n in range(table.shape[1])]
    return torch.stack(each).nan_to_num().sum(0)


DENSE: dict[str, Answer] = {
    "nothing is hidden: every row reads every column":
        masked(lambda column, a, b: (column >= 0).expand(len(a), -1)),
    "the last column of an interval counts one too many: its end is not part of it, so <":
        masked(lambda column, a, b: ((column >= a) & (column <= b)).any(1)),
    "only the ends are compared; a column must also be at the start or behind it":
        masked(lambda column, a, b: (column < b).any(1)),
    "only the first interval is read":
        masked(lambda column, a, b: inside(column, a[:, :1], b[:, :1])),
    "only two intervals are read; a table may have any number of them":
        masked(lambda column, a, b: inside(column, a[:, :2], b[:, :2])),
    "a column must lie in all intervals; it is read if it lies in the one OR in the other":
        masked(lambda column, a, b: ((column >= a) & (column < b)).all(1)),
    "each interval has a softmax of its own: all columns of a row share one": softmax_each,
    "the finished weights are multiplied by the mask: the rows no longer sum to 1":
        masked(weights_of=lambda scores, seen: scores.softmax(1) * seen),
    "the scores are multiplied by the mask: a score of 0 still has the weight e^0 = 1":
        masked(weights_of=lambda scores, seen: (scores * seen).softmax(1)),
    "the scale is forgotten": lambda q, k, v, table, scale: masked()(q, k, v, table, 1.0),
}


def some_table(rows: int, intervals: int) -> Tensor:
    """Return a table of causal rows: some first tokens, a gap, some more, and the nearest."""
    i = torch.arange(rows)
    near = (i + 1 - 4).clamp(min=0)
    spans = [torch.stack([near, i + 1], 1)]
    for part in range(intervals - 1):
        low = near.clamp(max=4 * part)
        spans.insert(part, torch.stack([low, near.clamp(max=4 * part + 2)], 1))
    return torch.stack(spans, 1)


def over_table(draw: Draw, table: Tensor, size: float = 1.0, width: int = 4, scale: float = 0.7,
               dtype: torch.dtype = torch.float64) -> tuple[Any, ...]:
    """Return queries, columns, their table and a scale."""
    columns = int(table.max())
    q, keys, values = (draw.normal(n, width, dtype=dtype, scale=size)
                       for n in (len(table), columns, columns))
    return q, keys, values, table, scale


def by_cca(draw: Draw, tokens: int, group: int, window: int) -> tuple[Any, ...]:
    """Return inputs for the table of CCA."""
    return over_table(draw, table_of(tokens, group, window))


def by_table(draw: Draw, rows: int, intervals: int) -> tuple[Any, ...]:
    """Return inputs for a table with some intervals."""
    return over_table(draw, some_table(rows, intervals))


def both(one: Examples, other: Examples) -> Examples:
    """Return the examples of both, one after the other."""
    return lambda draw: [*one(draw), *other(draw)]


def in_sizes(inputs: Examples, *sizes: tuple[int, int]) -> Examples:
    """Return the examples, each with the rows and columns of a tile, which differ."""
    def made(draw: Draw) -> Any:
        for number, (what, args) in enumerate(inputs(draw)):
            rows, columns = sizes[number % len(sizes)]
            yield f"{what}, tiles of {rows} x {columns}", (*args, rows, columns)

    return made


TABLES = both(examples(by_cca, (12, 2, 2), (23, 3, 4), (14, 2, 10)),
              examples(by_table, (7, 1), (20, 2), (22, 3)))


# 03.11: the inner loop of the blocked form
def in_blocks(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, scale: float, rows: int,
              columns: int, *, after: bool = True, before: bool = True, old_sum: bool = True,
              old_out: bool = True, reset: bool = False, safe: bool = True, running: bool = True,
              hidden: float = -math.inf, begin: int | None = None, cut: bool = True) -> Tensor:
    """Return attention over a table, block of rows by block, tile of columns by tile.

    The keywords are mistakes: a comparison of the mask is left out, an old sum is not corrected,
    each tile begins with nothing, nothing finite is subtracted, there is no maximum, what is hidden
    has another score, loops begin elsewhere or tiles do not end.
    """
    blocks = []
    q, keys, values = (x.double() for x in (q, keys, values))
    for start in range(0, len(q), rows):
        mine, bounds = q[start : start + rows], table[start : start + rows]
        nothing = (q.new_full((len(mine), 1), -math.inf if running else 0.0),
                   q.new_zeros(len(mine), 1), q.new_zeros(len(mine), values.shape[1]))
        top, total, out = nothing
        for starts, ends in bounds.permute(1, 2, 0)[..., None]:
            last = int(ends[-1])
            for left in range(int(starts[0]) if begin is None else begin, last, columns):
                tile = torch.arange(left, min(left + columns, last if cut else len(keys)))
                top, total, out = nothing if reset else (top, total, out)
                seen = ((tile >= starts) | (not after)) & ((tile < ends) | (not before))
                scores = (scale * mine @ keys[tile].T).masked_fill(~seen, hidden)
                new = torch.maximum(top, scores.amax(1, keepdim=True)) if running else top
                still = new.masked_fill(new == -math.inf, 0.0) if safe else new
                factor, powers = (top - still).exp(), (scores - still).exp()
                total = (factor if old_sum else 1) * total + powers.sum(1, keepdim=True)
                out = (factor if old_out else 1) * out + powers @ values[tile]
                top = new
        blocks.append(out / total)
    return torch.cat(blocks)


BLOCKED = mistakes(in_blocks, {
    "nothing is hidden inside a tile: the rows of a block read different columns":
        {"after": False, "before": False},
    "only the ends are compared: a row also reads what only an earlier row may still read":
        {"after": False},
    "only the starts are compared: a row also reads what only a later row may read":
        {"before": False},
    "the old terms are not corrected when the maximum grows": {"old_sum": False, "old_out": False},
    "the old weighted sum is not corrected when the maximum grows": {"old_out": False},
    "each tile forgets those before it": {"reset": True},
    "a row that has read nothing yet has the maximum -inf, and -inf - (-inf) is NaN: subtract "
    "something finite there": {"safe": False},
}) | {"the scale is forgotten":
     lambda q, k, v, table, scale, *tile: in_blocks(q, k, v, table, 1.0, *tile)}


def large(draw: Draw, scores: float) -> tuple[Any, ...]:
    """Return inputs with large scores; all are negative if `scores` is."""
    q, keys, values, table, _ = by_cca(draw, 12, 2, 2)
    return abs(scores) * q.abs(), keys if scores > 0 else -keys.abs(), values, table, 1.0


# 03.13: the cores of all groups, by a kernel
def by_programs(q: Tensor, k: Tensor, v: Tensor, group: int, scale: float, *,
                score: float | None = -math.inf, loads: bool = True,
                judge: Callable[[int, int], int] = lambda group, tile: group - 1,
                power: float = 1.0, top: bool = True) -> Pair:
    """Return the cores, (groups, D) each, as a right kernel makes them, or with a mistake.

    The padding's scores are replaced by `score` unless it is None; its keys and values are not
    loaded, if `loads`; another query judges; scores are multiplied by `power` before the exp, and
    `top`, the largest one, is not subtracted.
    """
    tile, cores = 1 << (group - 1).bit_length(), []
    member = torch.arange(tile) < group
    queries, keys, values = (torch.cat([x, x.new_zeros(tile, x.shape[1])]) for x in (q, k, v))
    for first in range(0, len(k) // group * group, group):
        mine, others = (x[first : first + tile] for x in (keys, values))
        if loads:
            mine, others = (torch.where(member[:, None], x, 0.0) for x in (mine, others))
        scores = power * scale * (mine @ queries[first + judge(group, tile)])
        if score is not None:
            scores = torch.where(member, scores, torch.tensor(score))
        powers = (scores - top * scores.max()).exp()
        weights = powers / powers.sum()
        cores.append(torch.stack([weights @ mine, weights @ others]))
    return tuple(torch.stack(cores, 1))  # type: ignore[return-value]


def groups(draw: Draw, tokens: int, group: int, scale: float) -> tuple[Any, ...]:
    """Return the arguments of the pooling kernel; tiles are wider than high."""
    return *(draw.normal(tokens, 16, dtype=torch.float32) for _ in "qkv"), group, scale


def one_group(draw: Draw, group: int) -> tuple[Any, ...]:
    """Return a group with NaN behind it."""
    q, k, v = (draw.normal(2 * group - 1, 16, dtype=torch.float32) for _ in "qkv")
    for x in (q, k, v):
        x[group:] = math.nan
    return q, k, v, group, 1.0


# 03.14: attention over a table, by a kernel; rows, columns and features of a tile all differ
def for_kernel(draw: Draw, table: Tensor) -> tuple[Any, ...]:
    """Return inputs in float32."""
    return over_table(draw, table, 1.4, width=64, scale=0.125, dtype=torch.float32)


def unread(draw: Draw, first_row: int, intervals: int, behind: int) -> tuple[Any, ...]:
    """Return the last rows of a text, and NaN in all columns that none of them reads."""
    table = some_table(60, intervals)[first_row:]
    q, keys, values, _, scale = for_kernel(draw, table)
    keys, values = (torch.cat([x, x.new_zeros(behind, x.shape[1])]) for x in (keys, values))
    nobody = ~seen_by(table, len(keys)).any(0)
    keys[nobody] = values[nobody] = math.nan
    return q, keys, values, table, scale


KERNEL = BLOCKED | {
    "the scores are not multiplied by scale_log2":
        lambda q, k, v, table, scale, *tile: masked()(q, k, v, table, math.log(2)),
    "exp2 gets scores for e: 2^x = e^(x ln 2), so the scale needs the factor log2(e)":
        lambda q, k, v, table, scale, *tile: masked()(q, k, v, table, scale * math.log(2)),
    "exp gets scores for exp2, which were multiplied by log2(e): take exp2":
        lambda q, k, v, table, scale, *tile: masked()(q, k, v, table, scale / math.log(2)),
    "only the last interval is read, the raw tokens: the loop over the intervals is missing":
        lambda q, k, v, table, scale, *tile: masked()(q, k, v, table[:, -1:], scale),
    "every row reads all columns up to its own, as in the causal kernel":
        masked(lambda column, a, b: column < b[:, -1]),
}

TURNS: tuple[CourseTask, ...] = (
    CourseTask("03.2", "core_token", "The core of one group", 8, 2, (
        equals("equal to a sum over the members", pooled,
               examples(group, (3, 2), (2, 4), (5, 3), (1, 2)),
               "the core key", "the core value", wrong=CORES),)),
    CourseTask("03.3", "row_reads", "Which tokens a row reads", 6, 2, (
        equals("equal to counting, row by row", row_reads,
               examples("row group window", *ROWS),
               "the number of cores", "the first raw token", wrong=READS),)),
    CourseTask("03.6", "cca_loop", "CCA-Attention, row by row", 12, 3, (
        equals("every row, by one softmax over cores and raw tokens", by_rows,
               examples(head, (12, 2, 2), (17, 3, 4), (11, 4, 2), (5, 3, 4), (6, 1, 1)),
               "the output", wrong=LOOPS,
               why="does row 0 read nothing at all? It reads itself, raw"),)),
    CourseTask("03.8", "cca_columns", "All cores at once, and a table", 12, 3, (
        equals("keys, values and table of every size", columns_of,
               examples(head, (12, 2, 2), (17, 3, 4), (11, 4, 2), (5, 3, 4)),
               "the keys", "the values", "the table", wrong=COLUMNS),
        Property("no loop over groups or rows", 1, at_once, wrong={
            "there is still a loop over groups or rows": columns_of}))),
    CourseTask("03.9", "by_mask", "The dense form", 8, 2, (
        equals("every row, by one matrix and one softmax", right, TABLES, "the output", wrong=DENSE,
               why="does a row hide every column? A column is read if it lies in the one interval "
               "OR in the other"),)),
    CourseTask("03.11", "in_tiles", "The inner loop of the blocked form", 12, 3, (
        equals("equal to one matrix", right, in_sizes(TABLES, (8, 4), (5, 3)), "the output",
               wrong=BLOCKED),
        equals("large scores do no harm", right,
               in_sizes(examples(large, (3000.0,), (-1e11,)), (8, 4)), "the output",
               wrong={"no maximum is subtracted, and e^score overflows, or all powers are 0: "
                      "subtract the largest score so far before each exp":
                      partial(in_blocks, running=False),
                      "what is hidden has the score -1e9, and a row's own scores may be lower: "
                      "-inf is not": partial(in_blocks, hidden=-1e9)}))),
    CourseTask("03.13", "pool_by_kernel", "A kernel that pools groups", 12, 3, (
        equals("the cores of all groups", by_programs,
               examples(groups, (23, 3, 1.5), (39, 5, 1.5), (21, 4, 100.0)), "the core keys",
               "the core values", wrong={
            "the padding of the tile has the score 0, and exp(0) is 1: its score must be -inf":
                partial(by_programs, score=None),
            "the tile is not masked: the first tokens of the next group are pooled too":
                partial(by_programs, score=None, loads=False),
            "the scale is forgotten":
                lambda q, k, v, group, scale: by_programs(q, k, v, group, 1.0),
            "the first query of a group judges; it is the last one":
                partial(by_programs, judge=lambda group, tile: 0),
            "the last query of the tile judges, which is not the group's":
                partial(by_programs, judge=lambda group, tile: tile - 1),
            "exp2 is taken of scores for e: take exp, or multiply by log2(e)":
                partial(by_programs, power=math.log(2)),
            "no maximum is subtracted, and e^score overflows": partial(by_programs, top=False)}),
        equals("reads nothing behind its group", by_programs, examples(one_group, 3, 5),
               "the core keys", "the core values", wrong={
            "what lies behind the group is loaded, and a weight of 0 times NaN is NaN: give the "
            "tl.load of keys and values a mask, and other=0.0": partial(by_programs, loads=False)})
    ), drive=in_bounds),
    CourseTask("03.14", "by_kernel", "A kernel over a table of intervals", 15, 4, (
        equals("equal to one matrix", right, in_sizes(both(
            examples(lambda draw, tokens, group, window: for_kernel(
                draw, table_of(tokens, group, window)), (40, 3, 5), (70, 4, 24)),
            examples(lambda draw, rows, intervals: for_kernel(
                draw, some_table(rows, intervals)), (20, 1), (37, 2), (50, 3))), (16, 32),
               (32, 16)), "the output", wrong=KERNEL),
        equals("loads only what a row reads", right,
               in_sizes(examples(unread, (0, 1, 9), (40, 2, 0)), (16, 32)), "the output", wrong={
            "the loop over the tiles begins at column 0, so that columns are loaded that no row "
            "reads; begin at the smallest start": partial(in_blocks, begin=0),
            "what lies behind the last column of an interval is loaded, and a weight of 0 times "
            "NaN is NaN: give the tl.load of keys and values a mask, and other=0.0":
                partial(in_blocks, cut=False)})), drive=in_bounds),
)
