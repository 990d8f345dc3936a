"""a9: implementations and mutants of merging, of attention in a window, of intervals and cores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a9_judge import (
    Implementation,
    candidates,
    fixed,
    need_floats,
    need_integer,
    plain,
)
from cca_lab.course.compare import many
from cca_lab.course.tasks import Draw, Mistake

INF = float("inf")
Part = tuple[Tensor, Tensor, Tensor]


# The merge of two parts

def legal_parts(*args: Any) -> tuple[Part, Part]:
    """Return two parts of the same rows; arguments as for an implementation."""
    if len(args) != 2 or not all(isinstance(state, (tuple, list)) and len(state) == 3
                                 for state in args):
        raise Mistake("the test called merge with something else than two tuples of maximum, sum "
                      "and accumulator")
    rows, features = need_floats(args[0][2], "an accumulator", None, None).shape
    for top, total, out in args:
        need_floats(top, "a maximum", rows), need_floats(total, "a sum", rows)
        need_floats(out, "an accumulator", rows, features)
        empty = top == -INF
        if not (top < INF).all() or not total.isfinite().all() or not out.isfinite().all():
            raise Mistake("the test called merge with NaN or inf, wanted finite parts (or -inf as "
                          "a maximum)")
        if (empty != (total == 0)).any() or (total < 0).any() or out[empty].any():
            raise Mistake("the test called merge with no part: sums are positive, and where the "
                          "maximum is -inf, and only there, sum and accumulator are 0")
    return tuple(args[0]), tuple(args[1])


def factor(top: Tensor, new: Tensor) -> Tensor:
    """Return e^(top - new), 0 for an empty row."""
    return (top - new).exp().where(top > -INF, 0.0)


def joined(first: Part, second: Part, new: Tensor, f1: Tensor, f2: Tensor) -> Part:
    """Return the parts added with one factor for each row."""
    return new, f1 * first[1] + f2 * second[1], f1[:, None] * first[2] + f2[:, None] * second[2]


def merge(first: Part, second: Part) -> Part:
    """Merge all rows at once."""
    new = torch.maximum(first[0], second[0])
    return joined(first, second, new, factor(first[0], new), factor(second[0], new))


def merge_rows(first: Part, second: Part) -> Part:
    """Merge row by row, the larger part first."""
    rows = [(a, b) if a[0] >= b[0] else (b, a)
            for a, b in zip(zip(*first, strict=True), zip(*second, strict=True), strict=True)]
    shrunk = [0.0 if b[0] == -INF else (b[0] - a[0]).exp() for a, b in rows]
    return (torch.stack([a[0] for a, b in rows]),
            torch.stack([a[1] + f * b[1] for (a, b), f in zip(rows, shrunk, strict=True)]),
            torch.stack([a[2] + f * b[2] for (a, b), f in zip(rows, shrunk, strict=True)]))


def changed_merge(change: Callable[[Part, Part, Tensor], Part]) -> Implementation:
    """Return a merge whose maximum and factors come from `change(first, second, maximum)`."""
    def mutant(first: Part, second: Part) -> Part:
        return joined(first, second, *change(first, second, torch.maximum(first[0], second[0])))
    return mutant


def keep(which: int, columns: int = 0) -> Implementation:
    """Return a merge that does not correct the sum (1) or the accumulator (2) from a column on."""
    def mutant(first: Part, second: Part) -> Part:
        result = list(merge(first, second))
        result[which] = torch.cat([result[which][..., :columns],
                                   (first[which] + second[which])[..., columns:]], dim=-1)
        return result[0], result[1], result[2]
    return mutant


def clipped(draw: Draw) -> Implementation:
    """Return a merge that takes no difference of maxima as larger than a bound."""
    bound = draw.uniform(6, 12)

    def near(top: Tensor, new: Tensor) -> Tensor:
        return factor(top.maximum(new - bound).where(top > -INF, -INF), new)

    return changed_merge(lambda a, b, m: (m, near(a[0], m), near(b[0], m)))


def floored(first: Part, second: Part) -> Part:
    """Return a merge in which the maximum of an empty row is 0, unless both are empty."""
    (m1, s1, a1), (m2, s2, a2) = first, second
    wrong = merge((m1.where(m1 > -INF, 0.0), s1, a1), (m2.where(m2 > -INF, 0.0), s2, a2))
    seen, right = torch.maximum(m1, m2) > -INF, merge(first, second)
    return (wrong[0].where(seen, right[0]), wrong[1].where(seen, right[1]),
            wrong[2].where(seen[:, None], right[2]))


merges = fixed(changed_merge)
MERGE_RIGHT = candidates(merges, {
    "merges all rows at once": plain(merge), "merges row by row": plain(merge_rows),
    "merges in the other order": plain(lambda first, second: merge(second, first))})
MERGE_SHOWN = candidates(merges, {
    "where the two maxima differ":
        dict(change=lambda a, b, m: (m, factor(b[0], m), factor(a[0], m))),
    "where the maxima differ, in the accumulator": plain(keep(2)),
    "where the maxima differ, in the sum": plain(keep(1)),
    "where the second maximum is the larger one": dict(change=lambda a, b, m: (
        a[0].where(a[0] > -INF, m), factor(a[0], m), factor(b[0], m)))})
MERGE_HIDDEN = candidates(merges, {
    "with rows that are empty in both parts": dict(change=lambda a, b, m: (
        m, factor(a[0], m).where(m > -INF, float("nan")), factor(b[0], m))),
    "with large scores": dict(change=lambda a, b, m: (
        m, *((part[0].exp() / m.exp()).where(m > -INF, 0.0) for part in (a, b)))),
    "where rows disagree on which part is larger": dict(change=lambda a, b, m: (
        a[0] if a[0][0] >= b[0][0] else b[0],
        factor(a[0], m) if (a[0] >= b[0]).all() or (a[0] <= b[0]).all() else torch.ones_like(m),
        factor(b[0], m))),
    "where the two maxima are equal": dict(change=lambda a, b, m: (
        m, factor(a[0], m), factor(b[0], m) * (a[0] != b[0]))),
    "in the second column of the accumulator": plain(keep(2, 1)),
    "where the maxima are far apart": clipped,
    "where a row is empty in one part only, and its scores are negative": plain(floored)})


# Attention in a window, heads sharing keys and values

@dataclass(frozen=True)
class Window:
    """Attention row by row with replaceable steps; `first` and `last` get (row, length, window)."""

    first: Callable[[int, int, int], int] = lambda row, length, window: max(0, row + 1 - window)
    last: Callable[[int, int, int], int] = lambda row, length, window: row + 1
    keys_of: Callable[[int, int, int], int] = lambda head, heads, kv: head // (heads // kv)
    values_of: Callable[[int, int, int], int] = lambda head, heads, kv: head // (heads // kv)
    scale: Callable[[int, int], float] = lambda dim, features: dim**-0.5
    weights: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1)
    outside: float | None = None  # added to scores outside the window, which are skipped by default
    before: Callable[[Tensor], Tensor] = lambda x: x

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
        """Return the outputs (B, H, L, E)."""
        q, k, v = self.before(q), self.before(k), self.before(v)
        (heads, length), kv = q.shape[1:3], k.shape[1]
        k = k[:, [self.keys_of(head, heads, kv) for head in range(heads)]]
        v = v[:, [self.values_of(head, heads, kv) for head in range(heads)]]
        scale = self.scale(q.shape[3], v.shape[3])
        rows = []
        for row in range(length):
            first, last = self.first(row, length, window), min(length,
                                                               self.last(row, length, window))
            if self.outside is not None:
                scores = scale * q[:, :, row : row + 1] @ k.mT
                column = torch.arange(length)
                seen = (column >= first) & (column < last)
                scores = scores + torch.where(seen, 0.0, self.outside) if self.outside > -INF \
                    else scores.masked_fill(~seen, -INF)
                rows.append(self.weights(scores) @ v)
            else:
                rows.append(self.weights(scale * q[:, :, row : row + 1] @ k[:, :, first:last].mT)
                            @ v[:, :, first:last])
        return torch.cat(rows, dim=2).double()


def legal_attention(q: Any, k: Any, v: Any, window: Any) -> tuple[Any, ...]:
    """Return queries, keys, values and the window; arguments as for an implementation."""
    need_floats(q, "q", None, None, None, None)
    need_floats(k, "k", q.shape[0], None, *q.shape[2:])
    need_floats(v, "v", *k.shape[:3], None)
    if q.shape[1] % k.shape[1] or max(q.shape[:2]) > 8:
        raise Mistake(f"the test called attention with a batch of {q.shape[0]}, "
                      f"{many(q.shape[1], 'query head')} and {many(k.shape[1], 'KV head')}, "
                      "wanted at most 8 of each, and a multiple of the KV heads")
    if not q.isfinite().all():
        raise Mistake("the test called attention with NaN or inf in q, which is allowed in k and v "
                      "only")
    return q, k, v, need_integer(window, "window", 1, 10**6)


def online(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Return attention key by key, from the row back to its window's start, online."""
    share, length = q.shape[1] // k.shape[1], q.shape[2]
    k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
    top = torch.full(q.shape[:3], -INF, dtype=q.dtype)
    total, out = torch.zeros_like(top), torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    for back in range(min(window, length)):
        rows = slice(back, length)
        scores = (q[:, :, rows] * k[:, :, : length - back]).sum(-1) / q.shape[3] ** 0.5
        new = torch.maximum(top[:, :, rows], scores)
        old, weight = (top[:, :, rows] - new).exp(), (scores - new).exp()
        total[:, :, rows] = total[:, :, rows] * old + weight
        out[:, :, rows] = out[:, :, rows] * old[..., None] + weight[...,
                                                                    None] * v[:, :, : length - back]
        top[:, :, rows] = new
    return out / total[..., None]


def exponentials(scores: Tensor) -> Tensor:
    """Return weights without subtracting a maximum."""
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


def rest_unmasked(draw: Draw) -> Implementation:
    """Return attention whose last tile, if it is not whole, is not masked."""
    tile = draw.randint(3, 6)
    return Window(last=lambda row, length, window: length if row >= length // tile * tile
                  else row + 1)


def far_leak(draw: Draw) -> Implementation:
    """Return attention that reads one later token from some row on."""
    start = draw.randint(20, 30)
    return Window(last=lambda row, length, window: row + 1 + (row >= start))


windows = fixed(Window)
ATTENTION_RIGHT = candidates(windows, {"goes row by row": {}, "goes key by key": plain(online)})
ATTENTION_SHOWN = candidates(windows, {
    "if a later token matters": dict(last=lambda row, length, window: row + 2),
    "if the window is shorter than the text":
        dict(first=lambda row, length, window: max(0, row - window)),
    "if query heads share KV heads": dict(keys_of=lambda head, heads, kv: head % kv,
                                          values_of=lambda head, heads, kv: head % kv),
    "if there is more than one feature": dict(scale=lambda dim, features: 1.0),
    "if a row must read its own token": dict(
        first=lambda row, length, window: max(0, min(row + 1 - window, row - 1)),
        last=lambda row, length, window: max(1, row))})
ATTENTION_HIDDEN = candidates(windows, {
    "if keys and values have different numbers of features":
        dict(scale=lambda dim, features: features**-0.5),
    "if sequences differ":
        plain(lambda q, k, v, window: Window()(q, k[:1].expand_as(k), v, window)),
    "if scores are large": dict(weights=exponentials),
    "if there is NaN outside a window": dict(outside=-INF),
    "if a score outside the window is far larger": dict(outside=-1e4),
    "if the window is longer than the text": dict(
        first=lambda row, length, window: max(0, row + 1 - min(window, max(1, length - 1)))),
    "if the length is no multiple of a tile": rest_unmasked,
    "if the text is long": far_leak,
    "by the rounding of float32": dict(before=lambda x: x.float()),
    "if the KV heads of values differ": dict(values_of=lambda head, heads, kv: head % kv)})


# Intervals of columns

def cores_of(row: int, length: int, group: int, window: int) -> int:
    """Return how many cores a row reads."""
    return max(0, (row + 1 - window) // group)


@dataclass(frozen=True)
class Table:
    """The intervals row by row with replaceable steps, which get row, length, group, window."""

    cores: Callable[[int, int, int, int], int] = cores_of
    start: Callable[[int, int, int, int,
                     int], int] = lambda n, row, length, group, window: n * group  # n: cores
    stop: Callable[[int, int, int, int], int] = lambda row, length, group, window: row + 1
    empty: Callable[[int], int] = lambda columns: 0  # where an empty interval stands
    seen: Callable[[int, int, int, int, int], int] = lambda n, row, length, group, window: n
    offset: Callable[[int, int], int] = lambda last, n: last

    def __call__(self, length: int, group: int, window: int) -> Tensor:
        """Return (length, 2, 2)."""
        numbers = [self.cores(row, length, group, window) for row in range(length)]
        rows = []
        for row, n in enumerate(numbers):
            raw, seen = self.offset(numbers[-1], n), self.seen(n, row, length, group, window)
            empty = self.empty(numbers[-1] + length)
            near = [raw + self.start(n, row, length, group, window),
                    raw + min(length, self.stop(row, length, group, window))]
            rows.append([[0, seen] if seen else [empty, empty], near])
        return torch.tensor(rows)


def legal_sizes(length: Any, group: Any, window: Any) -> tuple[int, int, int]:
    """Return length, group and window; arguments as for an implementation."""
    return (need_integer(length, "length", 1, 200), need_integer(group, "group", 1, 1000),
            need_integer(window, "window", 1, 1000))


def few_cores(draw: Draw) -> Implementation:
    """Return intervals with at most so many cores: the window of far rows grows."""
    most = draw.randint(9, 14)
    return Table(cores=lambda *sizes: min(most, cores_of(*sizes)))


def last_row(n: int, row: int, length: int, group: int, window: int) -> int:
    """Return one core less in the last row, if its newest group has just become a core."""
    return n - 1 if n and row == length - 1 and (row + 1 - window) % group == 0 else n


def twice(n: int, row: int, length: int, group: int, window: int) -> int:
    """Return a start one group early, in rows with a new core."""
    return (n - 1) * group if n > 1 and (row + 1 - window) % group == 0 else n * group


tables = fixed(Table)
TABLE_RIGHT = candidates(tables, {
    "puts empty intervals at 0": {},
    "puts empty intervals at the last column": dict(empty=lambda columns: columns),
    "puts empty intervals at column 1": dict(empty=lambda columns: min(1, columns))})
TABLE_SHOWN = candidates(tables, {
    "in rows in which a group just becomes a core": dict(
        cores=lambda row, length, group, window:
        cores_of(row + 1, length, group, window) if row + 1 >= group else 0),
    "in rows with cores: a token is never read": dict(
        start=lambda n, row, length, group, window: min(row, n * group + (n > 0))),
    "in rows with cores: a token is read twice": dict(
        start=lambda n, row, length, group, window: max(0, n * group - 1)),
    "in rows that are not the last: they read a later token": dict(
        stop=lambda row, length, group, window: row + 2)})
TABLE_HIDDEN = candidates(tables, {
    "if the window is no multiple of the group": dict(
        cores=lambda row, length, group, window: max(0, (row + 1) // group - window // group)),
    "by a group that waits too long": dict(
        cores=lambda row, length, group, window: cores_of(max(0, row - 1), length, group, window)),
    "in rows before the window is full": dict(
        cores=lambda row, length, group, window: (row + 1 - window) // group),
    "in rows with many cores": few_cores,
    "in the last row, for some lengths": dict(seen=last_row),
    "in rows in which a second or later group becomes a core": dict(start=twice),
    "in the columns of raw tokens": dict(offset=lambda last, n: n),
    "with a window of 1": dict(
        cores=lambda row, length, group, window: cores_of(row, length, group, max(2, window))),
    "with groups of 1": dict(
        cores=lambda row, length, group, window:
        0 if group == 1 else cores_of(row, length, group, window))})


# The cores of groups

@dataclass(frozen=True)
class Pool:
    """Pooling group by group with replaceable steps; `judge`, `stop`: (core, group, length)."""

    judge: Callable[[int, int, int], int] = lambda core, group, length: (core + 1) * group - 1
    stop: Callable[[int, int, int], int] = lambda core, group, length: (core + 1) * group
    count: Callable[[int, int], int] = lambda length, group: length // group
    scale: Callable[[int, int], float] = lambda dim, features: dim**-0.5
    weights: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1)
    values: Callable[[Tensor], Tensor] = lambda weights: weights
    before: Callable[[Tensor], Tensor] = lambda x: x
    rest: bool = False  # the tokens that are in no group are added with the weight 0

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """Return the cores' keys (B, C, D) and values (B, C, E)."""
        q, k, v = self.before(q), self.before(k), self.before(v)
        length, scale = q.shape[1], self.scale(q.shape[2], v.shape[2])
        keys, values = k[:, :0], v[:, :0]
        for core in range(self.count(length, group)):
            where = slice(core * group, min(length, self.stop(core, group, length)))
            judge = q[:, min(length - 1, self.judge(core, group, length)), None]
            weights = self.weights(scale * judge @ k[:, where].mT)  # (B, 1, g)
            members = k[:, where], v[:, where]
            key, value = weights @ members[0], self.values(weights) @ members[1]
            if self.rest and (core + 2) * group > length:
                key = key + 0 * k[:, (core + 1) * group :].sum(1, keepdim=True)
                value = value + 0 * v[:, (core + 1) * group :].sum(1, keepdim=True)
            keys, values = torch.cat([keys, key], dim=1), torch.cat([values, value], dim=1)
        return keys.double(), values.double()


def legal_pool(q: Any, k: Any, v: Any, group: Any) -> tuple[Any, ...]:
    """Return queries, keys, values and the group size; arguments as for an implementation."""
    need_floats(q, "q", None, None, None)
    need_floats(k, "k", *q.shape)
    need_floats(v, "v", *q.shape[:2], None)
    if not q.isfinite().all():
        raise Mistake("the test called pool with NaN or inf in q, which is allowed in k and v only")
    return q, k, v, need_integer(group, "group", 1, 1000)


def pool_at_once(q: Tensor, k: Tensor, v: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return all cores by one softmax."""
    cores = q.shape[1] // group
    kept = cores * group
    k, v = (x[:, :kept].reshape(len(x), cores, group, x.shape[2]) for x in (k, v))
    scores = (k * q[:, group - 1 : kept : group, None]).sum(-1) * q.shape[2] ** -0.5  # (B, C, g)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights[..., None] * k).sum(2), (weights[..., None] * v).sum(2)


def uniform(weights: Tensor) -> Tensor:
    """Return equal weights."""
    return torch.full_like(weights, 1 / weights.shape[-1])


def without_itself(scores: Tensor) -> Tensor:
    """Return weights in which the judge has none, unless it is alone."""
    if scores.shape[-1] == 1:
        return scores.softmax(-1)
    return torch.cat([scores[..., :-1].softmax(-1), torch.zeros_like(scores[..., -1:])], dim=-1)


def far_judge(draw: Draw) -> Implementation:
    """Return cores of which all from some number on are judged by an earlier group's query."""
    start = draw.randint(4, 7)
    return Pool(judge=lambda core, group, length: (core + 1 - (core >= start)) * group - 1)


pools = fixed(Pool)
POOL_RIGHT = candidates(pools, {"goes group by group": {},
                                "takes all groups at once": plain(pool_at_once)})
POOL_SHOWN = candidates(pools, {
    "if the queries of a group differ": dict(judge=lambda core, group, length: core * group),
    "if the tokens of a group differ": dict(weights=uniform),
    "if there is more than one feature": dict(scale=lambda dim, features: 1.0),
    "in the cores' values": dict(values=uniform)})
POOL_HIDDEN = candidates(pools, {
    "if the length is no multiple of the group: the last core": dict(
        stop=lambda core, group, length:
        length if (core + 2) * group > length else (core + 1) * group),
    "if the length is no multiple of the group: one core more": dict(
        count=lambda length, group: -(-length // group) if length > group else length // group),
    "if scores are large": dict(weights=exponentials),
    "if sequences differ":
        plain(lambda q, k, v, group: Pool()(q[:1].expand_as(q), k, v, group)),
    "if there is NaN in the rest": dict(rest=True),
    "if the judge's own key matters": dict(weights=without_itself),
    "if keys and values have different numbers of features":
        dict(scale=lambda dim, features: features**-0.5),
    "if there are many cores": far_judge,
    "by the rounding of float32": dict(before=lambda x: x.float()),
    "if the text is shorter than a group":
        dict(count=lambda length, group: max(1, length // group))})
