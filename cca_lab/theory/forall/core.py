"""Obligations and their proofs; the package's docstring says how to use this module."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from time import monotonic
from typing import Any

from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall.terms import Truth, checked, implied, integers, solver, truth, ways

LARGEST_SUM = 2**20  # where the search for a counterexample ends
Goals = Truth | Mapping[str, Truth]


@dataclass(frozen=True)
class Obligation:
    """A statement about all integers: what follows from hypotheses, by lemmas on the way."""

    name: str  # what is proved, in a few words
    hypotheses: Sequence[Truth]
    goal: Truth
    lemmas: Sequence[Truth] = ()  # each proved from the hypotheses and the lemmas before it


def demand(name: str, hypotheses: Sequence[Truth],
           statement: Callable[[], Goals]) -> Iterator[Obligation]:
    """Yield an obligation for each path through a statement and each truth that it computes.

    `statement` calls the lab's functions on symbolic integers, and may call `assume` and `lemma`.
    Where the functions refuse the arguments, what has to be proved is that the path is impossible.
    """
    def run() -> Mapping[str, Truth]:
        try:
            goals = statement()
        except (IndexError, ValueError, ZeroDivisionError) as error:
            return {f"refused ({str(error).partition(';')[0]})": Truth(False)}
        return goals if isinstance(goals, Mapping) else {"": goals}

    for way, goals in ways(run, hypotheses):
        for aspect, goal in goals.items():
            yield Obligation(f"{name}: {aspect}" if aspect else name, list(map(Truth, way.known)),
                             truth(goal), tuple(way.lemmas))


@dataclass
class Theorem:
    """A statement about the lab's index arithmetic, for all integers.

    Its `statements` are functions of the symbolic integers that their parameters name; they
    `assume` hypotheses and return what follows.
    """

    name: str  # short and unique
    says: str  # what is proved, in one line
    runs: tuple[str, ...]  # dotted names of the functions that run on symbolic integers
    by_hand: str  # what stands in the theorem by hand instead of coming from the code
    statements: list[Callable[..., Goals]]

    def obligations(self) -> Iterator[Obligation]:
        """Yield what the solver has to prove."""
        for statement in self.statements:
            symbols = integers(" ".join(signature(statement).parameters))
            yield from demand(self.name, [], partial(statement, *symbols))

    def also(self, statement: Callable[..., Goals]) -> Callable[..., Goals]:
        """Add a statement, as a decorator."""
        self.statements.append(statement)
        return statement


def theorem(name: str, *runs: str, by_hand: str = "") -> Callable[[Callable[..., Goals]], Theorem]:
    """Return a decorator that makes a `Theorem` of its first statement, whose docstring it says."""
    def decorated(statement: Callable[..., Goals]) -> Theorem:
        says = " ".join((statement.__doc__ or "").split()).removesuffix(".")
        return Theorem(name, says, runs, by_hand, [statement])

    return decorated


def prove(obligations: Iterable[Obligation], seconds: float = 20.0) -> Outcome:
    """Prove one or more obligations for all integers, with some seconds for each query.

    The evidence counts them; if not all are proved, it names the one that fails at the smallest
    numbers, and these, or says that the solver did not decide.
    """
    problems = [_failure(obligation, seconds) for obligation in obligations]
    failed, count = [problem for problem in problems if problem], len(problems)
    if not count:
        raise ValueError("obligations: got none, wanted one or more; an empty list proves nothing")
    numbers: dict[str, float | int | str] = {"obligations": count, "proved": count - len(failed)}
    if not failed:
        return Outcome(True, f"z3 finds no counterexample to any of {count} obligations, over all "
                       "integers", numbers)
    evidence, values = min(failed,
                           key=lambda problem: (not problem[1], sum(map(abs, problem[1].values()))))
    return Outcome(False, f"{evidence}; {count - len(failed)} of {count} obligations proved",
                   numbers | values)


def _failure(obligation: Obligation, seconds: float) -> tuple[str, dict[str, int]] | None:
    """Return why an obligation is not proved, and the counterexample; None if it is proved."""
    known = [fact.term for fact in obligation.hypotheses]
    for step in [*obligation.lemmas, obligation.goal]:
        if not implied(known, step.term, seconds):
            values = smallest(known, step.term, seconds)
            name = obligation.name
            what = name if step is obligation.goal else f"{name} (a lemma of it)"
            if values is None:
                return f"undecided: {what}", {}
            shown = ", ".join(f"{letter} = {value}" for letter, value in values.items())
            return f"'{what}' fails at {shown}", values
        known.append(step.term)
    return None


def smallest(hypotheses: Sequence[Any], goal: Any, seconds: float) -> dict[str, int] | None:
    """Return the counterexample with the least sum of absolute values; None if z3 cannot tell.

    Of equal sums, the variables' values are the smallest in the order of their names.
    """
    z3 = solver()
    search, end = z3.Solver(), monotonic() + seconds
    search.set("random_seed", 0)
    search.add(*hypotheses, z3.Not(goal))
    names = sorted({str(x) for term in [*hypotheses, goal] for x in _variables(term)})
    values = [z3.Int(name) for name in names]
    sizes = [z3.If(x >= 0, x, -x) for x in values]

    def succeeds(*assumed: Any) -> bool:
        search.push()
        search.set("timeout", max(1, int(1000 * (end - monotonic()))))
        search.add(*assumed)
        answer = checked(search)
        search.pop()
        if answer == z3.unknown:
            raise TimeoutError("the solver cannot tell")
        return bool(answer == z3.sat)

    def bounded(total: int) -> list[Any]:
        return [z3.Sum(sizes) <= total, *(size <= total for size in sizes)]

    def settled(x: Any, total: int) -> int:
        ordered = (sign * size for size in range(total + 1) for sign in ((1, -1) if size else (1,)))
        value = next(value for value in ordered if succeeds(x == value))
        search.add(x == value)
        return value

    low, high = 0, 1
    try:
        while not succeeds(*bounded(high)):
            low, high = high + 1, 2 * high
            if high > LARGEST_SUM:
                return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if succeeds(*bounded(middle)) else (middle + 1, high)
        search.add(*bounded(high))
        return {name: settled(x, high) for name, x in zip(names, values, strict=True)}
    except TimeoutError:
        return None


def _variables(term: Any) -> Iterator[Any]:
    """Yield the integer variables in a z3 term, with repetitions."""
    z3 = solver()
    seen, waiting = set[int](), [term]
    while waiting:
        inner = waiting.pop()
        if inner.get_id() not in seen:
            seen.add(inner.get_id())
            waiting += inner.children()
            if z3.is_const(inner) and z3.is_int(inner) and not z3.is_int_value(inner):
                yield inner
