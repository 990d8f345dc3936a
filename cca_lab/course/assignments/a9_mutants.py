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
from cca_lab.course.compare import alike, describe, plain
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

CALLS, SIZE, MOST = 100, 40, 60  # of one implementation; of a dimension, of a number
NOTEBOOK = {task.id: task for task in (*nb03.TURNS, *nb08.TURNS)}


# The judge
@dataclass
class Watched:
    """An implementation whose calls are counted and checked, and whose floats round otherwise."""

    implementation: Answer
    rights: list[Answer]
    look: Answer  # at what is not left open in a result
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
                    and abs(value) <= MOST):
                more = f", {value.dtype}" if isinstance(value, Tensor) else ""
                raise Mistake(f"{said} with {describe(value)}{more}; wanted tensors of float64 (or "
                              f"int64) with sizes up to {SIZE}, and numbers up to {MOST}")
        try:
            results = [right(*copied(args)) for right in self.rights]
        except Exception as error:
            raise Mistake(f"{said} with wrong arguments: {type(error).__name__}: {error}") from None
        if any((x.isnan() | (x == torch.inf)).any() for x in leaves(results)) or not all(
                alike(self.look(results[0]), self.look(other), 1e-9) for other in results):
            raise Mistake(f"{said} with what the statement does not allow: right ones return NaN "
                          "or infinity there, or not all the same")
        return results[0]


def leaves(value: Any) -> Iterator[Any]:
    """Yield the items of nested tuples and lists."""
    for item in value if isinstance(value, (tuple, list)) else ():
        yield from leaves(item) if isinstance(item, (tuple, list)) else (item,)


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a tensor, or a tuple of tensors, changed."""
    return tuple(map(change, value)) if isinstance(value, tuple) else change(value)


def judge(answer: Answer, draw: Draw, rights: dict[str, Answer], mutants: dict[str, Answer],
          look: Answer, shown: bool) -> Share | None:
    """Return the share of mutants caught, less twice the share of right ones called wrong.

    Each mutant comes beside a right implementation, in any order. Before each such pair the answer
    forgets what it has seen: else what most implementations return would be right.
    """
    survived, punished = list[str](), list[str]()
    for number, said in enumerate(draw.sample(list(mutants), len(mutants))):
        if draw.secret and hasattr(answer, "forget"):
            answer.forget()
        about, right = list(rights.items())[number % len(rights)]
        for good, implementation in draw.sample([(True, right), (False, mutants[said])], 2):
            watched = Watched(deepcopy(implementation), list(rights.values()), look,
                              draw.choice((0.0, 1e-12)))
            verdict = verdict_of(answer, watched)
            if good and not verdict:
                punished.append(about + ", and rounds in its own way: compare with `same`"
                                * watched.rounds)
            elif verdict and not good:
                survived.append(said)
    caught, count = len(mutants) - len(survived), len(mutants)
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
        return all(plain(got) == plain(wanted) if exact else alike(got, wanted, 1e-9)
                   for got, wanted in pairs)

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
            mutants: dict[str, Answer], wrong: dict[str, Answer], blind: tuple[Any, ...],
            *more: tuple[Any, ...], look: Answer = lambda got: got) -> tuple[Property, Property]:
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
        "One that survived is wrong: ": few,
        f" of {len(shown)} right ones called wrong": MostSay(look, blind, *more)}
    return (Property(f"wrong {name} are caught, right ones pass", points[0],
                     partial(judge, rights=rights, mutants=shown, look=look, shown=True),
                     wrong=wrong),
            Property(f"wrong {name} of other kinds are caught", points[1],
                     partial(judge, rights=rights, mutants=hidden, look=look, shown=False),
                     hidden=True, wrong={
                "wrong implementations caught, 0 of ": few,
                f" of {len(hidden)} right ones called wrong": MostSay(look, blind, *more)}))


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Return normal numbers, always the same for the same seed."""
    return Draw(str(seed)).normal(*shape)


# a9.1: merges
SCORES, VALUES = normal(4, 5), normal(5, 3, seed=1)
SMALL = part_of(SCORES[:, :2], VALUES[:2]), part_of(SCORES[:, 2:], VALUES[2:])
EVEN = part_of(0 * SCORES[:, :2], VALUES[:2]), part_of(0 * SCORES[:, 2:], VALUES[2:])


# a9.2: attention over a table of intervals
def in_tiles(wrong: Answer = nb03.in_blocks, rows: int = 5, columns: int = 3) -> Answer:
    """Return attention in tiles of one size."""
    return lambda *args: wrong(*args, rows, columns)


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


POOLS = {said: pooled_by(wrong) for said, wrong in nb03.CORES.items()} | NOTEBOOK["03.13"].wrong | {
    "no maximum is subtracted, and a large power overflows": pooled_by(nb03.pools(
        lambda q, k, scale: (scale * k @ q[-1]).exp() / (scale * k @ q[-1]).exp().sum()))}


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


def past(tokens: int, sinks: int, recent: int) -> tuple[Any, ...]:
    """Return the arguments of a step with so many tokens in the past."""
    return *normal(3, 4), *normal(2, tokens, 4, seed=1), sinks, recent


ASSIGNMENT = Assignment("a9", "mutants", "Kill the mutants: write the tests", ("01", "03", "08"), (
    CourseTask("a9.1", "merge_is_right", "A test for the merge of two parts", 20, 2, refuses(
        "merges", (1, 2), {"merges": merge,
                           "merges in the other order": lambda one, two: merge(two, one)},
        A1.tasks[1].wrong, {
            "the test itself is broken": lambda merge: merge(*SMALL)[3],
            "wanted True (right) or False (wrong)": lambda merge: merge(*SMALL)[0],
            "with wrong arguments": lambda merge: merge(*SMALL, 1),
            "what the statement does not allow": lambda merge: bool(merge(SMALL[0], (
                *SMALL[1][:2], SMALL[1][2] / 0)))}, EVEN, SMALL)),
    CourseTask("a9.2", "attention_is_right", "A test for attention over a table", 40, 3, refuses(
        "attentions", (1, 4), {"goes row by row": nb03.right, "goes tile by tile": in_tiles(),
                               "goes in other tiles": in_tiles(rows=8, columns=4)},
        ATTENTIONS, {
            "compare with `same`": compared(nb03.right, columns(7, 3), exact=True),
            f"more than {CALLS} times": lambda attention: [
                attention(*columns(5, 2)) for _ in range(CALLS + 1)]}, columns(1, 1),
        columns(9, 3), columns(9, 3, 3000.0))),
    CourseTask("a9.3", "intervals_are_right", "A test for intervals of columns", 20, 2, refuses(
        "tables", (1, 2), {"puts empty intervals at 0": nb03.table_of,
                           "puts empty intervals elsewhere": elsewhere},
        TABLES, {
            "A right one that was called wrong puts empty intervals elsewhere":
                compared(nb03.table_of, (9, 2, 3), (14, 3, 2))}, (4, 3, 4), (12, 3, 2), (9, 2, 5),
        look=lambda table: table.diff(dim=-1))),
    CourseTask("a9.4", "pool_is_right", "A test for the cores of groups", 25, 3, refuses(
        "cores", (1, 3), {"pads each group": nb03.by_programs, "goes group by group": pooled_by(
            nb03.pools(lambda q, k, scale: (scale * k @ q[-1]).softmax(0)))},
        POOLS, {
            "compare with `same`": compared(
                nb03.by_programs, (*normal(3, 7, 4), 3, 0.5), exact=True)},
        (*normal(3, 5, 4), 1, 1.0), (*normal(3, 7, 4), 3, 0.5))),
    CourseTask("a9.5", "step_is_right", "A test for a step of a cache", 40, 4, refuses(
        "caches", (1, 4), {"attends, then evicts": nb08.streaming_step},
        NOTEBOOK["08.2"].wrong | {
            "the past of the call before is taken, whatever it gets": OneText()}, {
            "compare with `same`": compared(nb08.streaming_step, past(2, 1, 2), exact=True)},
        past(0, 1, 3), past(3, 1, 2), past(5, 2, 3))),
), seconds=40.0)
