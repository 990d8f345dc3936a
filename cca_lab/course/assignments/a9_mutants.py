"""a9: tests that pass right implementations and refuse wrong ones, from other exercises' tables."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a1_tiles import ASSIGNMENT as A1
from cca_lab.course.assignments.a1_tiles import merge, part_of
from cca_lab.course.compare import alike, describe
from cca_lab.course.tasks import (
    Answer,
    Assignment,
    CourseTask,
    Draw,
    Mistake,
    Property,
    Share,
    copied,
)
from cca_lab.course.turns import nb03, nb08

CALLS, SIZE, INF = 100, 40, float("inf")  # of one implementation by one test; of a dimension
PAIRS = {True: 3, False: 6}  # on secret inputs: of mutants that a cell shows, and of others
NOTEBOOK = {task.id: task for task in (*nb03.TURNS, *nb08.TURNS)}


# The judge
@dataclass
class Watched:
    """An implementation whose calls are counted and checked, and whose floats round otherwise."""

    implementation: Answer
    right: Answer
    rule: str  # of what is allowed
    legal: Answer  # says whether arguments are
    noise: float
    calls: int = 0
    mistake: Mistake | None = None
    rounds: bool = False  # floats were changed

    def __call__(self, *args: Any) -> Any:
        """Return what the implementation returns."""
        try:
            self.calls += 1
            wanted = self.checked(args)
        except Mistake as mistake:
            self.mistake = self.mistake or mistake
            raise
        try:
            got = self.implementation(*copied(args))
        except Exception:  # a mutant that would stop where the right one does not
            got = mapped(wanted, lambda x: x - 1 if x.dtype == torch.int64 else x + torch.nan)
        return mapped(got, self.rounded)

    def rounded(self, x: Tensor) -> Tensor:
        """Return a tensor whose floats differ in the last bits."""
        if not x.is_floating_point():
            return x
        self.rounds = self.noise > 0
        draw = torch.Generator().manual_seed(self.calls)
        return x * (1 + self.noise * torch.randn(x.shape, generator=draw, dtype=x.dtype))

    def checked(self, args: tuple[Any, ...]) -> Any:
        """Return the right result; raise Mistake if the arguments are not allowed."""
        said = "the test called the implementation"
        if self.calls > CALLS:
            raise Mistake(f"{said} more than {CALLS} times")
        for value in leaves(args):
            if not (value.dtype in (torch.float64, torch.int64) and max((0, *value.shape)) <= SIZE
                    if isinstance(value, Tensor) else type(value) in (int, float)
                    and abs(value) <= 1000):
                more = f", {value.dtype}" if isinstance(value, Tensor) else ""
                raise Mistake(f"{said} with {describe(value)}{more}; wanted tensors of float64 (or "
                              f"int64) with sizes up to {SIZE}, and numbers up to 1000")
        try:
            if not self.legal(*copied(args)):
                raise Mistake(f"{said} with what is not allowed: {self.rule}")
            return self.right(*copied(args))
        except Mistake:
            raise
        except Exception as error:
            raise Mistake(f"{said} with wrong arguments: {type(error).__name__}: {error}") from None


def leaves(value: Any) -> Iterator[Any]:
    """Yield the items of nested tuples and lists."""
    for item in value if isinstance(value, (tuple, list)) else ():
        yield from leaves(item) if isinstance(item, (tuple, list)) else (item,)


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a tensor, or a tuple of tensors, changed."""
    return tuple(map(change, value)) if isinstance(value, tuple) else change(value)


def judge(answer: Answer, draw: Draw, rights: dict[str, Answer], mutants: dict[str, Answer],
          rule: tuple[str, Answer], shown: bool) -> Share | None:
    """Return the share of mutants caught, less twice the share of right ones called wrong.

    Each mutant comes beside a right implementation, in any order. Before each such pair the answer
    forgets what it has seen: else what most implementations return would be right.
    """
    survived, punished = list[str](), list[str]()
    chosen = draw.sample(list(mutants), PAIRS[shown]) if draw.secret else list(mutants)
    for number, said in enumerate(chosen):
        if draw.secret and hasattr(answer, "forget"):
            answer.forget()
        about, right = list(rights.items())[number % len(rights)]
        for good, implementation in draw.sample([(True, right), (False, mutants[said])], 2):
            watched = Watched(deepcopy(implementation), next(iter(rights.values())), *rule,
                              draw.choice((0.0, 1e-12)))
            verdict = verdict_of(answer, watched)
            if good and not verdict:
                punished.append(about + ", and rounds in its own way: compare with `same`"
                                * watched.rounds)
            elif verdict and not good:
                survived.append(said)
    caught, count = len(chosen) - len(survived), len(chosen)
    words = [f"{caught} of {count} wrong implementations caught, {len(punished)} of {count} right "
             "ones called wrong"]
    words += [f"One that survived is wrong: {said}" for said in survived[:1] if shown]
    words += [f"A right one that was called wrong {about}" for about in punished[:1]]
    return None if not survived and not punished else Share(
        (caught - 2 * len(punished)) / count, ". ".join(words))


def verdict_of(answer: Answer, watched: Watched) -> bool:
    """Return True if the test calls the implementation right; raise `Mistake` if it is broken."""
    try:
        got = answer(watched)
    except NotImplementedError:
        raise
    except Exception as error:
        if watched.mistake is not None:
            raise watched.mistake from None
        # In another process an exception arrives as a sentence.
        if not isinstance(error, AssertionError) and not re.match(r"\w+ raised AssertionError\b",
                                                                  str(error)):
            raise Mistake("the test itself is broken: "
                          f"{type(error).__name__}: {error}") from None
        got = False
    if watched.mistake is not None:
        raise watched.mistake
    if isinstance(got, Tensor) and got.dtype == torch.bool and got.numel() == 1:
        got = bool(got)
    if not isinstance(got, bool):
        raise Mistake(f"the test returned {describe(got)}, wanted True (right) or False (wrong)")
    return got


# Tests that are wrong
def compared(right: Answer, *inputs: tuple[Any, ...], exact: bool = False,
             look: Answer = lambda got: got) -> Answer:
    """Return a test that compares with what is right on these inputs, and on no others."""
    def test(implementation: Answer) -> bool:
        pairs = [(look(implementation(*args)), look(right(*args))) for args in inputs]
        return all(torch.equal(one, other) for pair in pairs for one, other in zip(
            *map(tuple, pair), strict=True)) if exact else all(
                alike(*pair, 1e-9) for pair in pairs)

    return test


class MostSay:
    """A test that calls right what most implementations return; it knows nothing of the task."""

    def __init__(self, look: Answer, *inputs: tuple[Any, ...]) -> None:
        self.look, self.inputs, self.seen = look, inputs, list[Any]()

    def __call__(self, implementation: Answer) -> bool:
        """Say for each input whether the most frequent result so far is this one's."""
        self.seen.append([self.look(implementation(*args)) for args in self.inputs])
        counts = [[sum(alike(one, other, 1e-9) for other in results) for one in results]
                  for results in zip(*self.seen, strict=True)]
        return all(same[-1] == max(same) for same in counts)

    def forget(self) -> None:
        """Begin anew, as the process does."""
        self.seen = []


def refuses(name: str, points: tuple[int, int], rights: dict[str, Answer],
            mutants: dict[str, Answer], rule: tuple[str, Answer], wrong: dict[str, Answer],
            blind: tuple[Any, ...], *more: tuple[Any, ...],
            look: Answer = lambda got: got) -> tuple[Property, Property]:
    """Return the properties of a test: a cell shows every third mutant, and no others.

    `wrong` holds wrong tests. Others look at the inputs `blind` only, or at what most mutants
    return for those and for `more`.
    """
    shown = {said: mutants[said] for said in list(mutants)[::3]}
    hidden = {said: mutants[said] for said in mutants if said not in shown}
    few = compared(next(iter(rights.values())), blind, look=look)
    wrong = wrong | {
        f"0 of {len(shown)} wrong implementations caught": lambda mutant: True,
        f"{len(shown)} of {len(shown)} right ones called wrong": lambda mutant: False,
        "One that survived is wrong: ": few, " of 3 right ones called wrong": MostSay(
            look, blind, *more)}
    return (Property(f"wrong {name} are caught, right ones pass", points[0],
                     partial(judge, rights=rights, mutants=shown, rule=rule, shown=True),
                     wrong=wrong),
            Property(f"wrong {name} of other kinds are caught", points[1],
                     partial(judge, rights=rights, mutants=hidden, rule=rule, shown=False),
                     hidden=True, wrong={
                         "wrong implementations caught, 0 of 6 right ones": few,
                         " of 6 right ones called wrong": MostSay(look, blind, *more)}))


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Return normal numbers, always the same for the same seed."""
    return Draw(str(seed)).normal(*shape)


# a9.1: merges
def by_rows(one: tuple[Tensor, ...], two: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Merge row by row, the larger part first."""
    rows = [(a, b) if a[0] >= b[0] else (b, a)
            for a, b in zip(zip(*one, strict=True), zip(*two, strict=True), strict=True)]
    shrunk = [0.0 if b[0] == -INF else (b[0] - a[0]).exp() for a, b in rows]
    return (torch.stack([a[0] for a, b in rows]), *(torch.stack([
        a[n] + f * b[n] for (a, b), f in zip(rows, shrunk, strict=True)]) for n in (1, 2)))


def legal_parts(*parts: Any) -> bool:
    """Say whether these are two parts of the same rows."""
    rows = [len(x) for part in parts for x in part]
    return len(parts) == 2 and len(rows) == 6 and len(set(rows)) == 1 and all(
        bool((top < INF).all() and total.isfinite().all() and out.isfinite().all()
             and (total >= 0).all() and ((top == -INF) == (total == 0)).all()
             and not out[total == 0].any()) for top, total, out in parts)


SCORES, VALUES = normal(4, 5), normal(5, 3, seed=1)
SMALL = part_of(SCORES[:, :2], VALUES[:2]), part_of(SCORES[:, 2:], VALUES[2:])
EVEN = part_of(0 * SCORES[:, :2], VALUES[:2]), part_of(0 * SCORES[:, 2:], VALUES[2:])


# a9.2: attention over a table of intervals
def in_tiles(wrong: Answer = nb03.in_blocks, rows: int = 5, columns: int = 3) -> Answer:
    """Return attention in tiles of one size."""
    return lambda *args: wrong(*args, rows, columns)


def legal_table(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, scale: float) -> bool:
    """Say whether every row reads something, by intervals that move forward and are in order."""
    ends = table.flatten(1)
    column = torch.arange(len(keys))
    inside = ((column >= table[0, :, :1]) & (column < table[-1, :, 1:])).any(0)
    return bool(table.shape == (len(q), table.shape[1], 2) and q.shape[1:] == keys.shape[1:]
                and (ends.diff(dim=1, prepend=0 * ends[:, :1]) >= 0).all()
                and (ends.diff(dim=0) >= 0).all() and (ends <= len(keys)).all()
                and (table[..., 0] < table[..., 1]).any(1).all() and q.isfinite().all()
                and keys[inside].isfinite().all() and values[inside].isfinite().all())


ATTENTIONS = NOTEBOOK["03.9"].wrong | {
    said: in_tiles(wrong) for said, wrong in (
        NOTEBOOK["03.14"].wrong | NOTEBOOK["03.11"].properties[1].wrong).items()
    if "-1e9" not in said}  # such scores are not allowed here


def columns(rows: int, intervals: int, size: float = 1.0) -> tuple[Any, ...]:
    """Return the arguments of attention over a causal table."""
    return nb03.over_table(Draw("a9.2"), nb03.some_table(rows, intervals), size)


# a9.3: intervals of columns
def table_by(wrong: Answer) -> Answer:
    """Return the table of columns, without the columns."""
    none, core = torch.zeros(60, 1).double(), torch.zeros(1).double()

    def table(length: int, group: int, window: int) -> Tensor:
        return wrong(*(none[:length] for _ in "qkv"), group, window, 1.0,
                     make=lambda *args: (core, core))[2]

    return table


def elsewhere(length: int, group: int, window: int) -> Tensor:
    """Return a right table whose empty intervals stand at the last token's number."""
    table = nb03.table_of(length, group, window)
    table[table[..., 0] == table[..., 1]] = length
    return table


TABLES = {said: table_by(wrong) for said, wrong in nb03.COLUMNS.items() if said in nb03.READS or
          isinstance(wrong, partial) and {"every", "own", "behind"} & set(wrong.keywords)}


# a9.4: cores
def pooled_by(make: Answer) -> Answer:
    """Return the cores of all groups, of one function for one group."""
    def pool(q: Tensor, k: Tensor, v: Tensor, group: int, scale: float) -> tuple[Tensor, ...]:
        starts = range(0, len(k) // group * group, group)
        cores = [make(*(x[p : p + group] for x in (q, k, v)), scale) for p in starts]
        return torch.stack([core[0] for core in cores]), torch.stack([core[1] for core in cores])

    return pool


def legal_pool(q: Tensor, k: Tensor, v: Tensor, group: int, scale: float) -> bool:
    """Say whether there is a group, and what is in groups is finite."""
    kept = len(k) // group * group
    return bool(q.shape == k.shape == v.shape and kept and q.isfinite().all()
                and k[:kept].isfinite().all() and v[:kept].isfinite().all())


POOLS = {said: pooled_by(wrong) for said, wrong in nb03.CORES.items()} | NOTEBOOK["03.13"].wrong | {
    "no maximum is subtracted, and a large power overflows": pooled_by(nb03.pooled)}


# a9.5: a step of a cache
class OneText:
    """A step that keeps the text of its last call, whatever past it gets."""

    def __init__(self) -> None:
        self.past: tuple[Tensor, ...] = ()

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor,
                 *sizes: int) -> tuple[Tensor, ...]:
        """Return the output, and the keys and values that stay."""
        if self.past and len(keys) and self.past[0].shape == keys.shape:
            keys, values = self.past
        got = nb08.streaming_step(query, key, value, keys, values, *sizes)
        self.past = got[1:]
        return got


def by_list(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, sinks: int,
            recent: int) -> tuple[Tensor, ...]:
    """Return a step that takes one token out of a list."""
    pasts = [[*keys, key], [*values, value]]
    powers = [torch.exp((query @ x - torch.stack(pasts[0]).mv(query).max()) / len(query) ** 0.5)
              for x in pasts[0]]
    output = sum(power * x for power, x in zip(powers, pasts[1], strict=True)) / sum(powers)
    for past in pasts:
        while len(past) > sinks + recent:
            del past[sinks]
    return output, *(torch.stack(past) if past else keys[:0] for past in pasts)


def legal_past(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, sinks: int,
               recent: int) -> bool:
    """Say whether the past is not longer than what stays."""
    return bool(keys.shape == values.shape and query.shape == key.shape == value.shape
                == keys.shape[1:] and len(keys) <= sinks + recent and sinks >= 0 and recent > 0
                and all(x.isfinite().all() for x in (query, key, value, keys, values)))


def past(tokens: int, sinks: int, recent: int) -> tuple[Any, ...]:
    """Return the arguments of a step with so many tokens in the past."""
    return *normal(3, 4), *normal(2, tokens, 4, seed=1), sinks, recent


ASSIGNMENT = Assignment("a9", "mutants", "Kill the mutants: write the tests", ("01", "03", "08"), (
    CourseTask("a9.1", "merge_is_right", "A test for the merge of two parts", 20, 2, 4, refuses(
        "merges", (1, 2), {"merges all rows at once": merge, "merges row by row": by_rows},
        A1.tasks[1].wrong, (
            "maxima are below inf and the rest is finite; sums are positive, and where the maximum "
            "is -inf, and only there, sum and accumulator are 0", legal_parts), {
            "the test itself is broken": lambda merge: merge(*SMALL)[3],
            "wanted True (right) or False (wrong)": lambda merge: merge(*SMALL)[0],
            "with wrong arguments": lambda merge: merge(*SMALL, 1),
            "what is not allowed": lambda merge: bool(merge(SMALL[0], (
                *SMALL[1][:2], SMALL[1][2] / 0)))}, EVEN, SMALL)),
    CourseTask("a9.2", "attention_is_right", "A test for attention over a table", 40, 3, 5, refuses(
        "attentions", (1, 4), {"goes row by row": nb03.right, "goes tile by tile": in_tiles(),
                               "goes in other tiles": in_tiles(rows=8, columns=4)},
        ATTENTIONS, (
            "every row reads a column, its intervals stand in order, and none moves back from a "
            "row to the next; what may be NaN or infinite lies before an interval of the first "
            "row, or behind that of the last one", legal_table), {
            "compare with `same`": compared(nb03.right, columns(7, 3), exact=True),
            f"more than {CALLS} times": lambda attention: [
                attention(*columns(5, 2)) for _ in range(CALLS + 1)]}, columns(1, 1),
        columns(9, 3), columns(9, 3, 3000.0))),
    CourseTask("a9.3", "intervals_are_right", "A test for intervals of columns", 20, 2, 5, refuses(
        "tables", (1, 2), {"puts empty intervals at 0": nb03.table_of,
                           "puts empty intervals elsewhere": elsewhere},
        TABLES, ("length, group and window are 1 to 60", lambda *sizes: all(
            type(size) is int and 1 <= size <= 60 for size in sizes)), {
            "A right one that was called wrong puts empty intervals elsewhere":
                compared(nb03.table_of, (9, 2, 3), (14, 3, 2))}, (4, 3, 4), (12, 3, 2), (9, 2, 5),
        look=lambda table: table.diff(dim=-1))),
    CourseTask("a9.4", "pool_is_right", "A test for the cores of groups", 25, 3, 4, refuses(
        "cores", (1, 3), {"pads each group": nb03.by_programs, "goes group by group": pooled_by(
            nb03.pools(lambda q, k, scale: (scale * k @ q[-1]).softmax(0)))},
        POOLS, ("one shape, at least one whole group, and finite numbers in groups", legal_pool), {
            "compare with `same`": compared(
                nb03.by_programs, (*normal(3, 7, 4), 3, 0.5), exact=True)},
        (*normal(3, 5, 4), 1, 1.0), (*normal(3, 7, 4), 3, 0.5))),
    CourseTask("a9.5", "step_is_right", "A test for a step of a cache", 40, 4, 5, refuses(
        "caches", (1, 4), {"evicts by a slice": nb08.streaming_step, "evicts from a list": by_list},
        NOTEBOOK["08.2"].wrong | {
            "the past of the call before is taken, whatever it gets": OneText()},
        ("keys and values have one shape, recent is 1 or more, and the past is what a step with "
         "these sinks and recent tokens can leave", legal_past), {
            "compare with `same`": compared(nb08.streaming_step, past(2, 1, 2), exact=True)},
        past(0, 1, 3), past(3, 1, 2), past(5, 2, 3))),
), seconds=40.0)
