"""What the reader writes in notebook 03, core tokens; rows and tokens count from 0."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cca_lab.course.compare import need_close, need_equal, need_items, need_number, need_same
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

Pair = tuple[Tensor, Tensor]


def _two(got: Any, what: str) -> tuple[Any, Any]:
    """Return both parts of an answer, or say that two were wanted."""
    if isinstance(got, Tensor) and got.dim() > 1 and len(got) == 2:  # stacked
        got = tuple(got)
    need_items(got, 2, f"two: {what}")
    return got[0], got[1]


# 03.2: the core of one group
def pooled(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Pair:
    """Return the core key and the core value of one group, member by member."""
    powers = [math.exp(scale * float((q[-1] * key).sum())) for key in k]
    weights = [power / sum(powers) for power in powers]
    return (torch.stack([w * key for w, key in zip(weights, k, strict=True)]).sum(0),
            torch.stack([w * value for w, value in zip(weights, v, strict=True)]).sum(0))


def _other_cores(q: Tensor, k: Tensor, v: Tensor, scale: float) -> dict[str, Pair]:
    """Return what usual mistakes make of a group."""
    scores = scale * q @ k.T  # (judges, members)
    every = {
        "the first query judges; it is the last one, which has seen the whole group":
            scores[0].softmax(0),
        "all members judge, each with its own query; only the last one does":
            scores.softmax(1).mean(0),
        "the mean query judges; only the last one does": scores.mean(0).softmax(0),
        "nobody judges: this is the plain mean": torch.full((len(k),), 1 / len(k), dtype=k.dtype),
        "the scale is forgotten": (scores[-1] / scale).softmax(0),
        "the weights do not sum to 1: divide the powers by their sum": scores[-1].exp(),
        "the judge is left out; it is a member of its group":
            torch.cat([scores[-1, :-1].softmax(0), scores.new_zeros(1)]),
        "the keys are scored with themselves; it is the judge's query that asks":
            (scale * k @ k[-1]).softmax(0),
    }
    return {cause: (weights @ k, weights @ v) for cause, weights in every.items()}


def check_core(answer: Answer, draw: Draw) -> None:
    """One group of several sizes, against a loop over its members."""
    for size, width in [(3, 2), (2, 4), (5, 3), (1, 2)]:
        q, k, v = (draw.normal(size, width) for _ in "qkv")
        scale = draw.choice([0.5, 1.5])
        wanted, others = pooled(q, k, v, scale), _other_cores(q, k, v, scale)
        with case(f"a group of {size}, D = {width}"):
            key, value = _two(answer(q, k, v, scale), "the core key and the core value")
            need_close(key, wanted[0], "the core key",
                       causes={cause: other[0] for cause, other in others.items()})
            causes = {cause: other[1] for cause, other in others.items()}
            need_close(value, wanted[1], "the core value", causes=causes | {
                "it is pooled from the keys": wanted[0],
                "values are scored anew; they get the weights of their keys":
                    (scale * v @ q[-1]).softmax(0) @ v})


# 03.3: what a row reads
def check_reads(answer: Answer, draw: Draw) -> None:
    """Every row of a few settings, against counting groups that lie behind the window."""
    settings = [(3, 4), (4, 2), (5, 12), (1, 1), (draw.randint(2, 9), draw.randint(2, 20))]
    rows = [(25, 5, 12)]  # where most mistakes differ from each other
    for row, group, window in rows + [(row, *setting) for setting in settings for row in range(40)]:
        nearest = row + 1 - window  # the first of the nearest tokens
        cores = sum(1 for p in range(row + 1) if p * group + group - 1 < nearest)
        with case(f"row {row}, group {group}, window {window}"):
            got = _two(answer(row, group, window), "how many cores, and the first raw token")
            _need_cores(need_number(got[0], "the number of cores"), cores, row, group, window)
            _need_first(need_number(got[1], "the first raw token"), cores, row, group, window)


def _need_cores(got: float, wanted: int, row: int, group: int, window: int) -> None:
    if got < 0:
        raise Mistake(f"the number of cores is {got:g}: a row that is shorter than the window "
                      "reads no core, so take max(0, ...)")
    older = row + 1 - window
    causes = {
        "this is what comes out of row - window; rows count from 0, so row i has i + 1 tokens up "
        "to its own: take row + 1 - window":
            max(0, (row - window) // group),
        "a negative number is rounded towards zero; // rounds down":
            max(0, int((older - group) / group) + 1),
        "a group counts as soon as one of its tokens is behind the window; all must be":
            max(0, -(-older // group)),
        "the window is forgotten: these are all groups that are complete": (row + 1) // group,
        "tokens are counted, not groups": max(0, older),
    }
    need_equal(got, wanted, "the number of cores", causes=causes)


def _need_first(got: float, cores: int, row: int, group: int, window: int) -> None:
    wanted = cores * group
    causes = {
        "only the nearest tokens are raw; those between the last whole group and the window are "
        "then read by nobody":
            max(0, row + 1 - window),
        "the last token of the last core is read raw too, so it is read twice (this is the k of "
        "Eq. 4 as printed)":
            max(0, wanted - 1),
        "the window takes its extra tokens from (row + 1) mod g; they come from (row + 1 - s) mod "
        "g":
            max(0, row + 1 - window - (row + 1) % group),
        "it is counted from 1": wanted + 1,
        "it is the number of cores; each core stands for g tokens": cores,
        "nothing is left to the cores: they would be read twice": 0,
    }
    need_equal(got, wanted, "the first raw token", causes=causes)


# 03.6: the whole loop
def _members(p: int, group: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    part = slice(p * group, p * group + group)
    return q[part], k[part], v[part]


def cores_before(row: int, group: int, window: int) -> int:
    """Return n(i), by counting the groups that lie entirely behind the row's window."""
    return sum(1 for p in range(row + 1) if p * group + group - 1 < row + 1 - window)


def attended(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Return one row of attention: one softmax over all the keys that it gets."""
    return (scale * keys @ query).softmax(0) @ values


def by_rows(q: Tensor, k: Tensor, v: Tensor, group: int, window: int, scale: float, *,
            cores_of: Callable[[int], int] | None = None,
            raw_of: Callable[[int, int], slice] = lambda i, first: slice(first, i + 1),
            make: Callable[..., Pair] = pooled,
            join: Callable[..., Tensor] | None = None) -> Tensor:
    """Return CCA-Attention of one head, (L, D), row by row.

    Each keyword is one decision, to be taken wrongly: how many cores a row reads, which raw tokens
    (a function of the row and of the right first one), how a core is made, and how a row joins both
    (a function of its query, its cores' keys and values, and the raw ones).
    """
    cores = [make(*_members(p, group, q, k, v), scale) for p in range(len(k) // group)]
    rows = []
    for i in range(len(k)):
        n = cores_before(i, group, window)
        raw = raw_of(i, group * n)
        seen = cores[: n if cores_of is None else cores_of(i)]
        sides = [torch.stack([core[side] for core in seen]) if seen else k[:0] for side in (0, 1)]
        rows.append(join(q[i], *sides, k[raw], v[raw]) if join else
                    attended(q[i], torch.cat([sides[0], k[raw]]), torch.cat([sides[1], v[raw]]),
                             scale))
    return torch.stack(rows)


def _loop_causes(q: Tensor, k: Tensor, v: Tensor, group: int, window: int,
                 scale: float) -> dict[str, Tensor]:
    """Return what usual mistakes make of the whole head."""
    made = partial(by_rows, q, k, v, group, window, scale)

    def two_softmaxes(query: Tensor, *sides: Tensor, half: bool = False) -> Tensor:
        core_keys, core_values, raw_keys, raw_values = sides
        near = attended(query, raw_keys, raw_values, scale)
        if not len(core_keys):
            return near
        both = near + attended(query, core_keys, core_values, scale)
        return both / 2 if half else both

    def key_for_value(query: Tensor, *sides: Tensor) -> Tensor:
        return attended(query, torch.cat([sides[0], sides[2]]), torch.cat([sides[0], sides[3]]),
                        scale)

    return {
        "cores and raw tokens have a softmax each, and the results are added: put all keys in one":
            made(join=two_softmaxes),
        "cores and raw tokens have a softmax each, and the mean is taken: put all keys in one":
            made(join=partial(two_softmaxes, half=True)),
        "every row reads the cores of all groups, those of the future too":
            made(cores_of=lambda i: len(k)),
        "a row reads every core that is complete: what is inside its window it reads twice":
            made(cores_of=lambda i: (i + 1) // group),
        "no row reads a core: this is the window alone": made(cores_of=lambda i: 0),
        "a row does not read its own token: a slice ends before its second number, so take i + 1":
            made(raw_of=lambda i, first: slice(min(first, i), max(i, 1))),
        "a row reads all its past raw, and the cores on top: the older tokens are read twice":
            made(raw_of=lambda i, first: slice(0, i + 1)),
        "only the `window` nearest tokens are raw; those between them and the last core are lost":
            made(raw_of=lambda i, first: slice(max(0, i + 1 - window), i + 1)),
        "the raw tokens begin one early: the last token of the last core is read twice (this is "
        "the k of Eq. 4 as printed)":
            made(raw_of=lambda i, first: slice(max(0, first - 1), i + 1)),
        "the first query of a group judges; it is the last one":
            made(make=lambda a, b, c, x: pooled(a[:1], b, c, x)),
        "the scale is missing in the cores: the judge's scores have it too":
            made(make=lambda a, b, c, x: pooled(a, b, c, 1.0)),
        "the scale is missing in the rows; it belongs to every score":
            made(join=lambda query, *sides: attended(query, torch.cat(sides[::2]),
                                                     torch.cat(sides[1::2]), 1.0)),
        "the core keys stand in the place of the core values": made(join=key_for_value),
    }


def check_loop(answer: Answer, draw: Draw) -> None:
    """Several lengths, sizes and scales, against row after row."""
    for length, group, window in [(12, 2, 2), (17, 3, 4), (11, 4, 2), (5, 3, 4), (6, 1, 1)]:
        q, k, v = (draw.normal(length, 4) for _ in "qkv")
        scale = draw.choice([0.5, 0.7])
        with case(f"{length} tokens, group {group}, window {window}"):
            need_close(answer(q, k, v, group, window, scale),
                       by_rows(q, k, v, group, window, scale), "the output",
                       causes=partial(_loop_causes, q, k, v, group, window, scale),
                       why="does row 0 read nothing at all? It reads itself, raw")


# 03.8: the columns, all cores at once
class _Calls(TorchFunctionMode):
    """Count the calls of torch inside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def table_of(length: int, group: int, window: int) -> Tensor:
    """Return the two intervals of columns of every row, (L, 2, 2), by counting."""
    counts = [cores_before(i, group, window) for i in range(length)]
    cores = counts[-1]
    return torch.tensor([[[0, n], [cores + group * n, cores + i + 1]]
                         for i, n in enumerate(counts)])


def columns_of(q: Tensor, k: Tensor, v: Tensor, group: int, window: int,
               scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the keys and values of all columns, (C + L, D) each, and the table of intervals."""
    count = cores_before(len(k) - 1, group, window)
    cores = [pooled(*_members(p, group, q, k, v), scale) for p in range(count)]
    keys, values = (torch.stack([*(core[side] for core in cores), *x])
                    for side, x in enumerate((k, v)))
    return keys, values, table_of(len(k), group, window)


def check_columns(answer: Answer, draw: Draw) -> None:
    """Keys, values and table of several sizes."""
    for length, group, window in [(12, 2, 2), (17, 3, 4), (11, 4, 2), (5, 3, 4)]:
        q, k, v = (draw.normal(length, 4) for _ in "qkv")
        wanted = columns_of(q, k, v, group, window, 0.7)
        count = len(wanted[0]) - length
        with case(f"{length} tokens, group {group}, window {window}"):
            got = need_items(answer(q, k, v, group, window, 0.7), 3,
                             "three: keys, values, the table of intervals")
            if isinstance(got[0], Tensor) and got[0].dim() == 2 and len(got[0]) != len(wanted[0]):
                raise Mistake(
                    f"there are {len(got[0])} columns, wanted {count} cores and {length} tokens: "
                    "only the groups that the last row reads as a core become columns")
            for side, what in enumerate(("the keys", "the values")):
                others = [_other_cores(*_members(p, group, q, k, v), 0.7) for p in range(count)]
                causes = {cause: torch.cat([torch.stack([other[cause][side] for other in others]),
                                            (k, v)[side]]) for cause in (others or [{}])[0]}
                causes["the raw tokens stand first; the cores do"] = wanted[side].roll(
                    -count, dims=0)
                need_close(got[side], wanted[side], what, causes=causes)
            _need_table(got[2], wanted[2], count, group, window)


def _need_table(got: Any, wanted: Tensor, count: int, group: int, window: int) -> None:
    def moved(start: int, end: int) -> Tensor:
        return torch.stack([wanted[:, 0], wanted[:, 1] + torch.tensor([start, end])], dim=1)

    row = torch.arange(len(wanted))
    late = ((row - window) // group).clamp(min=0)
    if isinstance(got, Tensor) and got.shape == wanted.shape and (got < 0).any():
        raise Mistake("the table has negative entries: a row that is shorter than the window "
                      "reads no core, so clamp n(i) at 0")
    causes = {
        "the raw tokens are counted as tokens; as columns they stand behind the cores, so add C":
            moved(-count, -count),
        "the interval of a row ends before its own token: an end is one past the last, so i + 1":
            moved(0, -1),
        "n(i) comes from row - window; rows count from 0, so take row + 1 - window":
            torch.stack([torch.stack([0 * row, late], 1),
                         torch.stack([count + group * late, count + row + 1], 1)], 1),
        "the raw tokens start with the window; they start where the last core ends":
            torch.stack([wanted[:, 0], torch.stack([count + (row + 1 - window).clamp(min=0),
                                                    count + row + 1], 1)], 1),
        "every row has the cores of the last one":
            torch.stack([wanted[-1:, 0].expand(len(wanted), 2), wanted[:, 1]], 1),
        "the raw tokens come first; the first interval is that of the cores": wanted.flip(1),
    }
    need_same(got, wanted, "the table", causes=causes)


def check_at_once(answer: Answer, draw: Draw) -> None:
    """A text four times as long takes as many calls of torch."""
    counts = []
    for length in (24, 96):
        q, k, v = (draw.normal(length, 4) for _ in "qkv")
        with case(f"{length} tokens"), _Calls() as calls:
            answer(q, k, v, 3, 4, 0.7)
        counts.append(calls.count)
    if counts[1] > 1.5 * counts[0]:
        raise Mistake(f"24 tokens take {counts[0]} calls of torch, 96 tokens {counts[1]}: there is "
                      "still a loop over groups or rows. Reshape the tokens to (groups, g, D), and "
                      "pool all groups in one product")


# 03.9: one softmax over the columns of a table
def seen_by(table: Tensor, columns: int) -> Tensor:
    """Return the mask of a table of intervals, (L, columns)."""
    column = torch.arange(columns)
    starts, ends = table[..., :1], table[..., 1:]
    return ((column >= starts) & (column < ends)).any(1)


def masked(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Return attention under a mask, as one matrix."""
    return (scale * q @ keys.T).masked_fill(~seen, -math.inf).softmax(1) @ values


def tables(draw: Draw) -> list[tuple[str, int, Tensor]]:
    """Return tables of intervals whose ends never move back, with their number of columns."""
    made = []
    for length, group, window in [(12, 2, 2), (23, 3, 4), (14, 2, 10)]:
        table = table_of(length, group, window)
        made.append((f"CCA, {length} tokens, group {group}, window {window}",
                     int(table[-1, 1, 1]), table))
    row, near = torch.arange(20), draw.randint(3, 6)
    first = (row + 1 - near).clamp(min=0)
    made.append((f"two first tokens and the {near} nearest", 20, torch.stack([
        torch.stack([0 * row, first.clamp(max=2)], 1), torch.stack([first, row + 1], 1)], 1)))
    return made


def _dense_causes(q: Tensor, keys: Tensor, values: Tensor, table: Tensor,
                  scale: float) -> dict[str, Tensor]:
    columns = len(keys)
    seen, column = seen_by(table, columns), torch.arange(len(keys))
    made = partial(masked, q, keys, values)
    scores = scale * q @ keys.T
    parts = [seen_by(table[:, n : n + 1], columns) for n in range(table.shape[1])]
    apart = torch.stack([torch.nan_to_num(made(part, scale)) for part in parts]).sum(0)
    return {
        "nothing is hidden: every row reads every column": made(torch.ones_like(seen), scale),
        "the last column of an interval counts one too many: its end is not part of it, so <":
            made(((column >= table[..., :1]) & (column <= table[..., 1:])).any(1), scale),
        "only the ends are compared; a column must also be at the start or behind it":
            made((column < table[..., 1:]).any(1), scale),
        "only the first interval is read": torch.nan_to_num(made(parts[0], scale)),
        "only the second interval is read": made(parts[-1], scale),
        "each interval has a softmax of its own: all columns of a row share one": apart,
        "the finished weights are multiplied by the mask: the rows no longer sum to 1":
            (scores.softmax(1) * seen) @ values,
        "the scores are multiplied by the mask: a score of 0 still has the weight e^0 = 1":
            (scores * seen).softmax(1) @ values,
        "the scale is forgotten": made(seen, 1.0),
    }


def check_dense(answer: Answer, draw: Draw) -> None:
    """Tables of CCA and of a window with two first tokens, against a mask."""
    for what, columns, table in tables(draw):
        q, keys, values = draw.normal(len(table), 4), *(draw.normal(columns, 4) for _ in "kv")
        with case(what):
            need_close(answer(q, keys, values, table, 0.7),
                       masked(q, keys, values, seen_by(table, columns), 0.7), "the output",
                       causes=_dense_causes(q, keys, values, table, 0.7),
                       why="does a row hide every column? A column is read if it lies in the one "
                       "interval OR in the other")


# 03.11: the inner loop of the blocked form
def in_blocks(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, scale: float, *,
              rows: int = 8, columns: int = 4, starts_seen: bool = True, ends_seen: bool = True,
              old_sum: bool = True, old_out: bool = True, reset: bool = False) -> Tensor:
    """Return attention over a table, block of rows by block, tile of columns by tile.

    The keywords are mistakes: one end of the mask is left out, the old sum or the old output is not
    corrected when the maximum grows, or each tile begins with nothing.
    """
    blocks = []
    for begin in range(0, len(q), rows):
        mine, bounds = q[begin : begin + rows], table[begin : begin + rows]
        nothing = (q.new_full((len(mine), 1), -math.inf), q.new_zeros(len(mine), 1),
                   q.new_zeros(len(mine), values.shape[1]))
        top, total, out = nothing
        for starts, ends in bounds.permute(1, 2, 0)[..., None]:
            for left in range(int(starts[0]), int(ends[-1]), columns):
                tile = torch.arange(left, min(left + columns, int(ends[-1])))
                top, total, out = nothing if reset else (top, total, out)
                seen = (tile >= starts) | (not starts_seen)
                seen = seen & ((tile < ends) | (not ends_seen))
                scores = (scale * mine @ keys[tile].T).masked_fill(~seen, -math.inf)
                new = torch.maximum(top, scores.amax(1, keepdim=True))
                safe = new.clamp(min=torch.finfo(q.dtype).min)
                factor, powers = (top - safe).exp(), (scores - safe).exp()
                total = (factor if old_sum else 1) * total + powers.sum(1, keepdim=True)
                out = (factor if old_out else 1) * out + powers @ values[tile]
                top = new
        blocks.append(out / total)
    return torch.cat(blocks)


EMPTY = ("a row that has read nothing yet has the maximum -inf, and -inf - (-inf) is NaN: subtract "
         "something finite there")


def _block_causes(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, scale: float,
                  rows: int, columns: int) -> dict[str, Tensor]:
    made = partial(in_blocks, q, keys, values, table, scale, rows=rows, columns=columns)
    return {
        "nothing is hidden inside a tile: the rows of a block read different columns":
            made(starts_seen=False, ends_seen=False),
        "only the ends are compared: a row also reads what only an earlier row may still read":
            made(starts_seen=False),
        "only the starts are compared: a row also reads what only a later row may read":
            made(ends_seen=False),
        "the old terms are not corrected when the maximum grows": made(old_sum=False,
                                                                       old_out=False),
        "the old weighted sum is not corrected when the maximum grows": made(old_out=False),
        "the old sum is not corrected when the maximum grows": made(old_sum=False),
        "each tile forgets those before it": made(reset=True),
        "the scale is forgotten": in_blocks(q, keys, values, table, 1.0, rows=rows,
                                            columns=columns),
    }


def check_blocks(answer: Answer, draw: Draw) -> None:
    """The same tables, against a mask."""
    for what, columns, table in tables(draw):
        q, keys, values = (2 * draw.normal(n, 4) for n in (len(table), columns, columns))
        with case(what):
            need_close(answer(q, keys, values, table, 0.7),
                       masked(q, keys, values, seen_by(table, columns), 0.7), "the output",
                       causes=_block_causes(q, keys, values, table, 0.7, 8, 4), why=EMPTY)


def check_blocks_large(answer: Answer, draw: Draw) -> None:
    """Scores of several thousands."""
    (what, columns, table), *_ = tables(draw)
    q, keys, values = (draw.normal(n, 4) for n in (len(table), columns, columns))
    with case(f"{what}, scores of several thousands"):
        need_close(answer(3000 * q, keys, values, table, 1.0),
                   masked(3000 * q, keys, values, seen_by(table, columns), 1.0), "the output",
                   why="e^score overflows: subtract the largest score so far before each exp")


# 03.13: the cores of all groups, by a kernel
def _by_programs(q: Tensor, k: Tensor, v: Tensor, group: int, scale: float, *,
                 score: float | None = -math.inf, masked: bool = True,
                 judge: int | None = None) -> Pair:
    """Return the cores, (groups, D) each, as a right kernel makes them, or with a mistake.

    The padding's scores are replaced by `score` unless it is None, its keys and values by 0 if
    `masked`; query `judge` of a group judges, or the last.
    """
    size, cores_of = 1 << (group - 1).bit_length(), []
    inside = torch.arange(size) < group
    queries, keys, values = (torch.cat([x, torch.zeros(size, x.shape[1])]) for x in (q, k, v))
    for first in range(0, len(k) // group * group, group):
        members, others = (x[first : first + size] for x in (keys, values))
        if masked:
            members, others = (torch.where(inside[:, None], x, 0.0) for x in (members, others))
        scores = scale * members @ queries[first + (group - 1 if judge is None else judge)]
        if score is not None:
            scores = torch.where(inside, scores, torch.tensor(score))
        cores_of.append(torch.stack([scores.softmax(0) @ members, scores.softmax(0) @ others]))
    cores = torch.stack(cores_of, dim=1)
    return cores[0], cores[1]


def check_kernel(answer: Answer, draw: Draw) -> None:
    """All groups of a text whose length no group size divides."""
    for group, length in [(3, 23), (5, 39), (4, 21)]:
        q, k, v = (draw.normal(length, 16, dtype=torch.float32) for _ in "qkv")  # wider than high
        made = partial(_by_programs, q, k, v, group)
        size = 1 << (group - 1).bit_length()
        wanted = made(1.5)
        others = {
            "the padding of the tile has the score 0, and exp(0) is 1: its score must be -inf":
                made(1.5, score=None),
            "the tile is not masked: the first tokens of the next group are pooled too":
                made(1.5, score=None, masked=False),
            "the scale is forgotten": made(1.0),
            "the first query of a group judges; it is the last one": made(1.5, judge=0),
            "the last query of the tile judges, which is not the group's":
                made(1.5, judge=size - 1),
        }
        with case(f"{length} tokens, groups of {group}, tiles of {size}"):
            got = _two(answer(q, k, v, group, 1.5), "core keys and core values")
            for side, what in enumerate(("core keys", "core values")):
                causes = {cause: other[side] for cause, other in others.items()}
                need_close(got[side], wanted[side], what, causes=causes)


def check_padding(answer: Answer, draw: Draw) -> None:
    """What stands behind a group must not be read: NaN there changes nothing in its core."""
    for group in (3, 5):
        q, k, v = (draw.normal(3 * group + 8, 16, dtype=torch.float32) for _ in "qkv")
        wanted = _by_programs(q, k, v, group, 1.0)
        for x in (q, k, v):
            x[group:] = math.nan
        with case(f"groups of {group}, and NaN behind group 0"):
            with np.errstate(invalid="ignore"):  # of the other groups, in Triton's interpreter
                got = _two(answer(q, k, v, group, 1.0), "core keys and core values")
            for side, what in enumerate(("core key", "core value")):
                need_close(got[side][0], wanted[side][0], f"{what} 0",
                           why="a weight of 0 times NaN is NaN, so the padding may not be read at "
                           "all: give the tl.load of keys and values a mask, and other=0.0")


# 03.14: attention over a table, by a kernel
def check_intervals(answer: Answer, draw: Draw) -> None:
    """Tables of CCA and of a window with two first tokens; lengths that no tile divides."""
    for what, columns, table in [
            *((f"{length} tokens, group {group}, window {window}", None,
               table_of(length, group, window)) for length, group, window in [(40, 3, 5),
                                                                              (70, 4, 24)]),
            tables(draw)[-1]]:
        columns = columns or int(table[-1, 1, 1])
        q, keys, values = (2 * draw.normal(n, 16, dtype=torch.float32)
                           for n in (len(table), columns, columns))
        double = q.double(), keys.double(), values.double()
        seen = seen_by(table, columns)
        causes = _block_causes(*double, table, 0.25, 16, 16) | {
            "exp2 gets scores for e: 2^x = e^(x ln 2), so the scale needs the factor log2(e)":
                masked(*double, seen, 0.25 * math.log(2)),
            "only the last interval is read, the raw tokens: the loop over the intervals is "
            "missing": masked(*double, seen_by(table[:, 1:], columns), 0.25),
            "every row reads all columns up to its own, as in the causal kernel":
                masked(*double, torch.arange(columns) < table[:, 1, 1:], 0.25),
        }
        with case(what):
            need_close(answer(q, keys, values, table, 0.25), masked(*double, seen, 0.25),
                       "the output", causes=causes, why=EMPTY)


def check_unread(answer: Answer, draw: Draw) -> None:
    """Columns that no row reads hold NaN."""
    table = table_of(40, 3, 5)
    q, keys, values = (draw.normal(n, 16, dtype=torch.float32) for n in (40, 60, 60))
    last = int(table[-1, 1, 1])
    wanted = masked(q.double(), keys[:last].double(), values[:last].double(),
                    seen_by(table, last), 0.25)
    keys[last:] = values[last:] = math.nan
    with case("NaN in the columns behind the last token"), np.errstate(invalid="ignore"):
        need_close(answer(q, keys, values, table, 0.25), wanted, "the output",
                   why="a weight of 0 times NaN is NaN, so what lies behind the last column of an "
                   "interval may not be loaded: give the tl.load of keys and values a mask, and "
                   "other=0.0")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("03.2", "core_token", "The core of one group", 8, 2, 5, (
        Property("equal to a sum over the members", 1, check_core),)),
    CourseTask("03.3", "row_reads", "Which tokens a row reads", 6, 2, 5, (
        Property("equal to counting, row by row", 1, check_reads),)),
    CourseTask("03.6", "cca_loop", "CCA-Attention, row by row", 12, 3, 5, (
        Property("every row, by one softmax over cores and raw tokens", 1, check_loop),)),
    CourseTask("03.8", "cca_columns", "All cores at once, and a table", 12, 3, 5, (
        Property("keys, values and table of every size", 1, check_columns),
        Property("no loop over groups or rows", 1, check_at_once))),
    CourseTask("03.9", "by_mask", "The dense form", 8, 2, 5, (
        Property("every row, by one matrix and one softmax", 1, check_dense),)),
    CourseTask("03.11", "in_tiles", "The inner loop of the blocked form", 12, 3, 5, (
        Property("equal to one matrix", 1, check_blocks),
        Property("large scores do no harm", 1, check_blocks_large))),
    CourseTask("03.13", "pool_by_kernel", "A kernel that pools groups", 12, 3, 4, (
        Property("the cores of all groups", 1, check_kernel),
        Property("reads nothing behind its group", 1, check_padding))),
    CourseTask("03.14", "by_kernel", "A kernel over a table of intervals", 15, 4, 5, (
        Property("equal to one matrix", 1, check_intervals),
        Property("loads nothing behind an interval", 1, check_unread))),
)
