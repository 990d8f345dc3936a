"""a9: right implementations and mutants of the merge of two parts, of attention in a window, and of a group's core."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a9_judge import Entry, Implementation, need_floats, need_integer
from cca_lab.course.tasks import Draw, Mistake

INF = float("inf")
Part = tuple[Tensor, Tensor, Tensor]


def plain(implementation: Implementation) -> Callable[[Draw], Implementation]:
    """Return a maker of an implementation without constants."""
    return lambda draw: implementation


# The merge of two parts


def legal_parts(*args: Any) -> tuple[Part, Part]:
    """Return two parts of the same rows; arguments as for an implementation."""
    if len(args) != 2 or not all(isinstance(part, (tuple, list)) and len(part) == 3 for part in args):
        raise Mistake("the test called merge with something else than two tuples of maximum, sum and accumulator")
    rows, features = need_floats(args[0][2], "an accumulator", None, None).shape
    for top, total, out in args:
        need_floats(top, "a maximum", rows), need_floats(total, "a sum", rows)
        need_floats(out, "an accumulator", rows, features)
        empty = top == -INF
        if not (top < INF).all() or not total.isfinite().all() or not out.isfinite().all():
            raise Mistake("the test called merge with NaN or inf, wanted finite parts (or -inf as a maximum)")
        if (empty != (total == 0)).any() or (total < 0).any() or out[empty].any():
            raise Mistake("the test called merge with no part: sums are positive, and where the maximum is -inf, and "
                          "only there, sum and accumulator are 0")
    return tuple(args[0]), tuple(args[1])


def factor(top: Tensor, new: Tensor) -> Tensor:
    """Return e^(top - new), 0 for an empty row."""
    return (top - new).exp().where(top > -INF, 0.0)


def joined(one: Part, two: Part, new: Tensor, f1: Tensor, f2: Tensor) -> Part:
    """Return the parts added with one factor for each row."""
    return new, f1 * one[1] + f2 * two[1], f1[:, None] * one[2] + f2[:, None] * two[2]


def merge(one: Part, two: Part) -> Part:
    """Merge all rows at once."""
    new = torch.maximum(one[0], two[0])
    return joined(one, two, new, factor(one[0], new), factor(two[0], new))


def merge_rows(one: Part, two: Part) -> Part:
    """Merge row by row, the larger part first."""
    rows = [(a, b) if a[0] >= b[0] else (b, a) for a, b in zip(zip(*one, strict=True), zip(*two, strict=True),
                                                               strict=True)]
    shrunk = [0.0 if b[0] == -INF else (b[0] - a[0]).exp() for a, b in rows]
    return (torch.stack([a[0] for a, b in rows]),
            torch.stack([a[1] + f * b[1] for (a, b), f in zip(rows, shrunk, strict=True)]),
            torch.stack([a[2] + f * b[2] for (a, b), f in zip(rows, shrunk, strict=True)]))


def changed_merge(change: Callable[[Part, Part, Tensor], tuple[Tensor, Tensor, Tensor]]) -> Implementation:
    """Return a merge whose maximum and two factors come from `change`, given the parts and the right maximum."""
    def mutant(one: Part, two: Part) -> Part:
        return joined(one, two, *change(one, two, torch.maximum(one[0], two[0])))
    return mutant


def keep(which: int, columns: int = 0) -> Implementation:
    """Return a merge that does not correct the sum (1) or the accumulator (2) from some column on."""
    def mutant(one: Part, two: Part) -> Part:
        result = list(merge(one, two))
        result[which] = torch.cat([result[which][..., :columns], (one[which] + two[which])[..., columns:]], dim=-1)
        return tuple(result)
    return mutant


def clipped(draw: Draw) -> Implementation:
    """Return a merge that takes no difference of maxima as larger than a bound."""
    bound = draw.uniform(6, 12)
    return changed_merge(lambda a, b, m: (m, factor(a[0].maximum(m - bound).where(a[0] > -INF, -INF), m),
                                          factor(b[0].maximum(m - bound).where(b[0] > -INF, -INF), m)))


def as_zero(part: Part) -> Part:
    """Return a part whose empty rows have the maximum 0."""
    return part[0].where(part[0] > -INF, 0.0), *part[1:]


MERGE_RIGHT = [Entry("merges all rows at once", plain(merge)), Entry("merges row by row", plain(merge_rows)),
               Entry("merges in the other order", plain(lambda one, two: merge(two, one)))]
MERGE_SHOWN = [
    Entry("where the two maxima differ", plain(changed_merge(
        lambda a, b, m: (m, factor(b[0], m), factor(a[0], m))))),
    Entry("where the maxima differ, in the accumulator", plain(keep(2))),
    Entry("where the maxima differ, in the sum", plain(keep(1))),
    Entry("where the second maximum is the larger one", plain(changed_merge(
        lambda a, b, m: (a[0].where(a[0] > -INF, m), factor(a[0], m), factor(b[0], m))))),
]
MERGE_HIDDEN = [
    Entry("with rows that are empty in both parts", plain(changed_merge(
        lambda a, b, m: (m, factor(a[0], m).where(m > -INF, float("nan")), factor(b[0], m))))),
    Entry("with large scores", plain(changed_merge(
        lambda a, b, m: (m, *((part[0].exp() / m.exp()).where(m > -INF, 0.0) for part in (a, b)))))),
    Entry("where rows disagree on which part is larger", plain(changed_merge(
        lambda a, b, m: (a[0] if a[0][0] >= b[0][0] else b[0],
                         *([factor(a[0], m), factor(b[0], m)] if (a[0] >= b[0]).all() or (a[0] <= b[0]).all()
                           else [torch.ones_like(m), factor(b[0], m)]))))),
    Entry("where the two maxima are equal", plain(changed_merge(
        lambda a, b, m: (m, factor(a[0], m), factor(b[0], m) * (a[0] != b[0]))))),
    Entry("in the second column of the accumulator", plain(keep(2, 1))),
    Entry("where the maxima are far apart", clipped),
    Entry("where a row is empty in one part only, and its scores are negative", plain(
        lambda one, two: tuple(x.where((one[0] > -INF)[(...,) + (None,) * (x.dim() - 1)]
                                       | (two[0] > -INF)[(...,) + (None,) * (x.dim() - 1)], y)
                               for x, y in zip(merge(as_zero(one), as_zero(two)), merge(one, two), strict=True)))),
]


# Attention in a window, heads sharing keys and values


@dataclass(frozen=True)
class Window:
    """Attention row by row; each part can be replaced by a wrong one. `first` and `last`: (row, length, window)."""

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
            first, last = self.first(row, length, window), min(length, self.last(row, length, window))
            if self.outside is not None:
                scores = scale * q[:, :, row : row + 1] @ k.mT
                column = torch.arange(length)
                seen = (column >= first) & (column < last)
                scores = scores + torch.where(seen, 0.0, self.outside) if self.outside > -INF \
                    else scores.masked_fill(~seen, -INF)
                rows.append(self.weights(scores) @ v)
            else:
                rows.append(self.weights(scale * q[:, :, row : row + 1] @ k[:, :, first:last].mT) @ v[:, :, first:last])
        return torch.cat(rows, dim=2).double()


def legal_attention(*args: Any) -> tuple[Any, ...]:
    """Return queries, keys, values and the window; arguments as for an implementation."""
    if len(args) != 4:
        raise Mistake(f"the test called attention with {len(args)} arguments, wanted q, k, v, window")
    q = need_floats(args[0], "q", None, None, None, None)
    k = need_floats(args[1], "k", q.shape[0], None, *q.shape[2:])
    need_floats(args[2], "v", *k.shape[:3], None)
    if q.shape[1] % k.shape[1] or max(q.shape[:2]) > 8:
        raise Mistake(f"the test called attention with a batch of {q.shape[0]}, {q.shape[1]} query heads and "
                      f"{k.shape[1]} KV heads, wanted at most 8 of each, and a multiple of the KV heads")
    if not q.isfinite().all():
        raise Mistake("the test called attention with NaN or inf in q, which is allowed in k and v only")
    return *args[:3], need_integer(args[3], "window", 1, 10**6)


def online(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Return attention key by key with a running maximum; steps back from the row to the start of its window."""
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
        out[:, :, rows] = out[:, :, rows] * old[..., None] + weight[..., None] * v[:, :, : length - back]
        top[:, :, rows] = new
    return out / total[..., None]


def exponentials(scores: Tensor) -> Tensor:
    """Return weights without subtracting a maximum."""
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


def one_sequence(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Return attention in which all sequences read the keys of the first one."""
    return Window()(q, k[:1].expand_as(k), v, window)


def rest_unmasked(draw: Draw) -> Implementation:
    """Return attention whose last tile, if it is not whole, is not masked."""
    tile = draw.randint(3, 6)
    return Window(last=lambda row, length, window: length if row >= length // tile * tile else row + 1)


def far_leak(draw: Draw) -> Implementation:
    """Return attention that reads one later token from some row on."""
    start = draw.randint(20, 30)
    return Window(last=lambda row, length, window: row + 1 + (row >= start))


RIGHT_WINDOW = Window()
ATTENTION_RIGHT = [Entry("goes row by row", plain(RIGHT_WINDOW)), Entry("goes key by key", plain(online))]
ATTENTION_SHOWN = [
    Entry("if a later token matters", plain(replace(RIGHT_WINDOW, last=lambda row, length, window: row + 2))),
    Entry("if the window is shorter than the text", plain(replace(
        RIGHT_WINDOW, first=lambda row, length, window: max(0, row - window)))),
    Entry("if query heads share KV heads", plain(replace(
        RIGHT_WINDOW, keys_of=lambda h, heads, kv: h % kv, values_of=lambda h, heads, kv: h % kv))),
    Entry("if there is more than one feature", plain(replace(RIGHT_WINDOW, scale=lambda dim, features: 1.0))),
    Entry("if a row must read its own token", plain(replace(
        RIGHT_WINDOW, first=lambda row, length, window: max(0, min(row + 1 - window, row - 1)),
        last=lambda row, length, window: max(1, row)))),
]
ATTENTION_HIDDEN = [
    Entry("if keys and values have different numbers of features", plain(replace(
        RIGHT_WINDOW, scale=lambda dim, features: features**-0.5))),
    Entry("if sequences differ", plain(one_sequence)),
    Entry("if scores are large", plain(replace(RIGHT_WINDOW, weights=exponentials))),
    Entry("if there is NaN outside a window", plain(replace(RIGHT_WINDOW, outside=-INF))),
    Entry("if a score outside the window is far larger", plain(replace(RIGHT_WINDOW, outside=-1e4))),
    Entry("if the window is longer than the text", plain(replace(
        RIGHT_WINDOW, first=lambda row, length, window: max(0, row + 1 - min(window, max(1, length - 1)))))),
    Entry("if the length is no multiple of a tile", rest_unmasked),
    Entry("if the text is long", far_leak),
    Entry("by the rounding of float32", plain(replace(RIGHT_WINDOW, before=lambda x: x.float()))),
    Entry("if the KV heads of values differ", plain(replace(RIGHT_WINDOW, values_of=lambda h, heads, kv: h % kv))),
]
