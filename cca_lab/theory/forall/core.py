"""Obligations and their proofs; the package's docstring says how to use this module."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall.terms import Truth, answered, implied, integers, solver, truth, ways

LARGEST_SUM = 200  # where the search for a counterexample ends
Goals = Truth | Mapping[str, Truth]
Place = tuple[int, ...]  # of an inequality in a term: the number of the child, at each step down


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
    runs: tuple[str, ...]  # dotted names of the functions that run on symbolic integers
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


def theorem(name: str, *runs: str) -> Callable[[Callable[..., Goals]], Theorem]:
    """Return a decorator that makes a `Theorem` of its first statement."""
    def decorated(statement: Callable[..., Goals]) -> Theorem:
        return Theorem(name, runs, [statement])

    return decorated


def prove(obligations: Iterable[Obligation], steps: int = 4 * 10**7) -> Outcome:
    """Prove one or more obligations for all integers, with some steps of the solver for each query.

    Each inequality that they conclude must be attained: with a bound that is one stricter, the
    solver has to refute some obligation of that name.

    The evidence counts them; if not all are proved, it names the one that fails at the smallest
    numbers, and these, or the bound that is never attained, or says that the solver did not decide.
    """
    listed = list(obligations)
    failed = [problem for problem in (_failure(each, steps) for each in listed) if problem]
    count = len(listed)
    if not count:
        raise ValueError("obligations: got none, wanted one or more; an empty list proves nothing")
    numbers: dict[str, float | int | str] = {"obligations": count, "proved": count - len(failed)}
    if failed:
        evidence, values = min(failed, key=lambda problem: (not problem[1],
                                                            sum(map(abs, problem[1].values()))))
        return Outcome(False, f"{evidence}; {count - len(failed)} of {count} obligations proved",
                       numbers | values)
    bounds = attained(listed, steps)
    if loose := [name for (name, _), reached in bounds.items() if not reached]:
        return Outcome(False, f"a bound of '{loose[0]}' is never attained", numbers)
    said = f" and attains {len(bounds)} bounds" * bool(bounds)
    return Outcome(True, f"z3 finds no counterexample to any of {count} obligations{said}, over "
                   "all integers", numbers)


def attained(obligations: Iterable[Obligation], steps: int) -> dict[tuple[str, Place], bool]:
    """Return which inequalities that obligations conclude are attained, by name and place.

    One is if the conclusion can be false, on some path of its name, with a bound one stricter.
    """
    found: dict[tuple[str, Place], bool] = {}
    for obligation in obligations:
        known = [fact.term for fact in [*obligation.hypotheses, *obligation.lemmas]]
        for place, term in stricter(obligation.goal.term):
            key = obligation.name, place
            if not found.get(key):
                answer = answered([*known, solver().Not(term)], steps)
                found[key] = bool(answer == solver().sat)
    return found


def stricter(term: Any, positive: bool = True) -> Iterator[tuple[Place, Any]]:
    """Yield a term with one of the inequalities that it concludes made one stricter, for each.

    They are clauses, parts of "and" and "or", what "if" concludes, and their negations. Inside of
    an equation or a number, as in a count of how often a token is read, no bound is concluded.
    """
    z3, kind, parts = solver(), term.decl().kind(), term.children()
    if kind in (z3.Z3_OP_LE, z3.Z3_OP_LT, z3.Z3_OP_GE, z3.Z3_OP_GT):
        step = 1 if positive == (kind in (z3.Z3_OP_GE, z3.Z3_OP_GT)) else -1
        yield (), term.decl()(parts[0], parts[1] + step)
    rebuilt = {z3.Z3_OP_AND: z3.And, z3.Z3_OP_OR: z3.Or, z3.Z3_OP_NOT: z3.Not,
               z3.Z3_OP_IMPLIES: z3.Implies}.get(kind)
    if rebuilt is None:
        return
    for at, part in enumerate(parts):
        if kind != z3.Z3_OP_IMPLIES or at:
            for place, inner in stricter(part, positive != (kind == z3.Z3_OP_NOT)):
                yield (at, *place), rebuilt(*parts[:at], inner, *parts[at + 1:])


def _failure(obligation: Obligation, steps: int) -> tuple[str, dict[str, int]] | None:
    """Return why an obligation is not proved, and the counterexample; None if it is proved."""
    known = [fact.term for fact in obligation.hypotheses]
    for step in [*obligation.lemmas, obligation.goal]:
        if not implied(known, step.term, steps):
            values = smallest(known, step.term, steps // 10)
            name = obligation.name
            what = name if step is obligation.goal else f"{name} (a lemma of it)"
            if values is None:
                return f"undecided: {what}", {}
            shown = ", ".join(f"{letter} = {value}" for letter, value in values.items())
            return f"'{what}' fails at {shown}", values
        known.append(step.term)
    return None


def smallest(hypotheses: Sequence[Any], goal: Any, steps: int) -> dict[str, int] | None:
    """Return the counterexample with the least sum of absolute values; None if z3 cannot tell.

    Of equal sums, the variables' values are the smallest in the order of their names.
    """
    z3 = solver()
    known = [*hypotheses, z3.Not(goal)]
    names = sorted({str(x) for term in known for x in _variables(term)})
    sizes = [z3.If(z3.Int(name) >= 0, z3.Int(name), -z3.Int(name)) for name in names]

    def first(candidates: Iterable[int], *facts: Callable[[int], Any]) -> int:
        for candidate in candidates:
            added = [fact(candidate) for fact in facts]
            answer = answered([*known, *added], steps)
            if answer == z3.unknown:
                break
            if answer == z3.sat:
                known.extend(added)
                return candidate
        raise TimeoutError

    try:
        total = first(range(LARGEST_SUM), lambda total: z3.Sum(z3.IntVal(0), *sizes) == total,
                      lambda total: z3.And(*(size <= total for size in sizes)))
        values = sorted(range(-total, total + 1), key=lambda value: (abs(value), -value))
        return {name: first(values, z3.Int(name).__eq__) for name in names}
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
