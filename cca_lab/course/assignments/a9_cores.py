"""a9: right implementations and mutants of CCA's intervals and of the cores of groups."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a9_judge import Entry, Implementation, need_floats, need_integer
from cca_lab.course.assignments.a9_softmax import exponentials, plain
from cca_lab.course.tasks import Draw, Mistake

# Which columns a row reads


def cores_of(row: int, length: int, group: int, window: int) -> int:
    """Return how many cores a row reads."""
    return max(0, (row + 1 - window) // group)


@dataclass(frozen=True)
class Table:
    """The intervals row by row; each part can be replaced by a wrong one. Arguments: row, length, group, window."""

    cores: Callable[[int, int, int, int], int] = cores_of
    start: Callable[[int, int, int, int, int], int] = lambda n, row, length, group, window: n * group  # n: cores
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
            place = self.empty(numbers[-1] + length)
            near = [raw + self.start(n, row, length, group, window),
                    raw + min(length, self.stop(row, length, group, window))]
            rows.append([[0, seen] if seen else [place, place], near])
        return torch.tensor(rows)


def legal_sizes(*args: Any) -> tuple[int, int, int]:
    """Return length, group and window; arguments as for an implementation."""
    if len(args) != 3:
        raise Mistake(f"the test called intervals with {len(args)} arguments, wanted length, group, window")
    length, group, window = args
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


TABLE_RIGHT = [Entry("puts empty intervals at 0", plain(Table())),
               Entry("puts empty intervals at the last column", plain(Table(empty=lambda columns: columns))),
               Entry("puts empty intervals at column 1", plain(Table(empty=lambda columns: min(1, columns))))]
TABLE_SHOWN = [
    Entry("in rows in which a group just becomes a core", plain(Table(
        cores=lambda row, length, group, window: cores_of(row + 1, length, group, window)
        if row + 1 >= group else 0))),
    Entry("in rows with cores: a token is never read", plain(Table(
        start=lambda n, row, length, group, window: min(row, n * group + (n > 0))))),
    Entry("in rows with cores: a token is read twice", plain(Table(
        start=lambda n, row, length, group, window: max(0, n * group - 1)))),
    Entry("in rows that are not the last: they read a later token", plain(Table(
        stop=lambda row, length, group, window: row + 2))),
]
TABLE_HIDDEN = [
    Entry("if the window is no multiple of the group", plain(Table(
        cores=lambda row, length, group, window: max(0, (row + 1) // group - window // group)))),
    Entry("by a group that waits too long", plain(Table(
        cores=lambda row, length, group, window: cores_of(max(0, row - 1), length, group, window)))),
    Entry("in rows before the window is full", plain(Table(
        cores=lambda row, length, group, window: (row + 1 - window) // group))),
    Entry("in rows with many cores", few_cores),
    Entry("in the last row, for some lengths", plain(Table(seen=last_row))),
    Entry("in rows in which a second or later group becomes a core", plain(Table(start=twice))),
    Entry("in the columns of raw tokens", plain(Table(offset=lambda last, n: n))),
    Entry("with a window of 1", plain(Table(cores=lambda row, length, group, window: cores_of(
        row, length, group, max(2, window))))),
    Entry("with groups of 1", plain(Table(cores=lambda row, length, group, window: 0 if group == 1 else cores_of(
        row, length, group, window)))),
]


# The cores of groups


@dataclass(frozen=True)
class Pool:
    """Pooling group by group; each part can be replaced by a wrong one. `judge` and `stop`: (core, group, length)."""

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
            weights = self.weights(scale * judge @ k[:, where].mT)                                     # (B, 1, g)
            own = k[:, where], v[:, where]
            key, value = weights @ own[0], self.values(weights) @ own[1]
            if self.rest and (core + 2) * group > length:
                key = key + 0 * k[:, (core + 1) * group :].sum(1, keepdim=True)
                value = value + 0 * v[:, (core + 1) * group :].sum(1, keepdim=True)
            keys, values = torch.cat([keys, key], dim=1), torch.cat([values, value], dim=1)
        return keys.double(), values.double()


def legal_pool(*args: Any) -> tuple[Any, ...]:
    """Return queries, keys, values and the group size; arguments as for an implementation."""
    if len(args) != 4:
        raise Mistake(f"the test called pool with {len(args)} arguments, wanted q, k, v, group")
    q = need_floats(args[0], "q", None, None, None)
    need_floats(args[1], "k", *q.shape)
    need_floats(args[2], "v", *q.shape[:2], None)
    if not q.isfinite().all():
        raise Mistake("the test called pool with NaN or inf in q, which is allowed in k and v only")
    return *args[:3], need_integer(args[3], "group", 1, 1000)


def pool_at_once(q: Tensor, k: Tensor, v: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return all cores by one softmax."""
    cores = q.shape[1] // group
    kept = cores * group
    k, v = (x[:, :kept].reshape(len(x), cores, group, x.shape[2]) for x in (k, v))
    scores = (k * q[:, group - 1 : kept : group, None]).sum(-1) * q.shape[2] ** -0.5                    # (B, C, g)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights[..., None] * k).sum(2), (weights[..., None] * v).sum(2)


def one_judge(q: Tensor, k: Tensor, v: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return cores that are judged by the first sequence's queries."""
    return Pool()(q[:1].expand_as(q), k, v, group)


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


RIGHT_POOL = Pool()
POOL_RIGHT = [Entry("goes group by group", plain(RIGHT_POOL)), Entry("takes all groups at once", plain(pool_at_once))]
POOL_SHOWN = [
    Entry("if the queries of a group differ", plain(replace(
        RIGHT_POOL, judge=lambda core, group, length: core * group))),
    Entry("if the tokens of a group differ", plain(replace(RIGHT_POOL, weights=uniform))),
    Entry("if there is more than one feature", plain(replace(RIGHT_POOL, scale=lambda dim, features: 1.0))),
    Entry("in the cores' values", plain(replace(RIGHT_POOL, values=uniform))),
]
POOL_HIDDEN = [
    Entry("if the length is no multiple of the group: the last core", plain(replace(
        RIGHT_POOL, stop=lambda core, group, length: length if (core + 2) * group > length else (core + 1) * group))),
    Entry("if the length is no multiple of the group: one core more", plain(replace(
        RIGHT_POOL, count=lambda length, group: -(-length // group) if length > group else length // group))),
    Entry("if scores are large", plain(replace(RIGHT_POOL, weights=exponentials))),
    Entry("if sequences differ", plain(one_judge)),
    Entry("if there is NaN in the rest", plain(replace(RIGHT_POOL, rest=True))),
    Entry("if the judge's own key matters", plain(replace(RIGHT_POOL, weights=without_itself))),
    Entry("if keys and values have different numbers of features", plain(replace(
        RIGHT_POOL, scale=lambda dim, features: features**-0.5))),
    Entry("if there are many cores", far_judge),
    Entry("by the rounding of float32", plain(replace(RIGHT_POOL, before=lambda x: x.float()))),
    Entry("if the text is shorter than a group", plain(replace(
        RIGHT_POOL, count=lambda length, group: max(1, length // group)))),
]
