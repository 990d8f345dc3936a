"""Obligations and their proofs; the package's docstring says how to use this module."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cca_lab.settings import LARGEST
from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall.calls import symbolic_torch
from cca_lab.theory.forall.paths import current, paths
from cca_lab.theory.forall.solving import divisors, implied, plainly_implied, smallest
from cca_lab.theory.forall.terms import (
    Symbol,
    Truth,
    every,
    integers,
    is_fresh,
    least,
    most,
    number,
    solver,
    some,
    truth,
    where,
)

__all__ = ["Obligation", "Symbol", "Truth", "demand", "every", "integers", "least", "lemma", "most", "number", "prove",
           "sizes", "solver", "some", "truth", "where"]


@dataclass(frozen=True)
class Obligation:
    """A statement about all integers.

    Attributes:
        name: what is proved, in a few words.
        hypotheses: what is assumed of the variables.
        goal: what follows.
        lemmas: statements on the way, each proved from the hypotheses and the lemmas before it.
    """

    name: str
    hypotheses: Sequence[Truth]
    goal: Truth
    lemmas: Sequence[Truth] = field(default=())


def sizes(least: int = 1, **values: Symbol) -> list[Truth]:
    """Return the hypotheses that these are integers which the lab accepts: `least` to 2**62."""
    return [bound for value in values.values() for bound in (value >= least, value <= LARGEST)]


def demand(name: str, hypotheses: Sequence[Truth],
           statement: Callable[[], Truth | Mapping[str, Truth]]) -> Iterator[Obligation]:
    """Yield what has to be proved so that a statement computed by real functions holds on every path through them.

    Args:
        name: of the statement.
        hypotheses: on the symbolic integers that `statement` uses.
        statement: computes a `Truth`, or several by name, calling the lab's functions. It may call `lemma`.

    Yields:
        An obligation for each path and each truth. Where the lab refuses the arguments, that the path is impossible.
    """
    def run() -> Mapping[str, Truth]:
        with symbolic_torch():
            try:
                found = statement()
            except (IndexError, ValueError, ZeroDivisionError) as error:
                return {f"refused ({str(error).partition(';')[0]})": Truth(False)}
            goals = found if isinstance(found, Mapping) else {"": found}
            return {part: truth(goal) for part, goal in goals.items()}

    for way, goals in paths(run, hypotheses):
        for part, goal in goals.items():
            known = [Truth(fact) for fact in way.about(goal, *way.lemmas)]
            yield Obligation(f"{name}: {part}" if part else name, known, goal, tuple(way.lemmas))


def lemma(*statements: Truth) -> None:
    """Name statements, inside of `demand`, that are to be proved in this order before the goals, and then used."""
    current().lemmas += statements


def prove(obligations: Iterable[Obligation], seconds: float = 20.0) -> Outcome:
    """Prove obligations for all integers.

    Args:
        obligations: at least one.
        seconds: for each query to the solver.

    Returns:
        `holds` if all are proved. The evidence counts them; if not all are, it names the one that fails at the
        smallest numbers, and these, or says that the solver did not decide.

    Raises:
        ModuleNotFoundError: without z3.
        ValueError: for no obligations, or a divisor of which the hypotheses do not say that it is positive.
    """
    problems = [_failure(one, seconds) for one in obligations]
    failed, count = [problem for problem in problems if problem], len(problems)
    if not count:
        raise ValueError("obligations: got none, wanted one or more; an empty list proves nothing")
    numbers: dict[str, float | int | str] = {"obligations": count, "proved": count - len(failed)}
    if not failed:
        return Outcome(True, f"z3 finds no counterexample to any of {count} obligations, over all integers", numbers)
    evidence, values = min(failed, key=lambda problem: (not problem[1], sum(map(abs, problem[1].values()))))
    return Outcome(False, f"{evidence}; {count - len(failed)} of {count} obligations proved", numbers | values)


def _failure(one: Obligation, seconds: float) -> tuple[str, dict[str, int]] | None:
    """Return why an obligation is not proved, and the counterexample; None if it is proved."""
    known, goal = [truth(fact).term for fact in one.hypotheses], truth(one.goal).term
    lemmas = [truth(lemma).term for lemma in one.lemmas]
    given = {fact.get_id() for fact in known}
    for divisor in divisors([*known, *lemmas, goal]):
        positive = (Symbol(divisor) >= 1).term
        if positive.get_id() not in given and not implied(known, positive, seconds):
            raise ValueError(f"{one.name}: divides by {divisor}; add a hypothesis that says it is 1 or more")
    for step in [*lemmas, goal]:
        if not implied(known, step, seconds) and not plainly_implied(known, step, min(seconds, 1.0)):
            found = smallest(known, step, seconds)
            what = one.name if step is goal else f"{one.name} (a lemma of it)"
            if found is None:
                return f"undecided: {what}", {}
            named = {name: value for name, value in found.items() if not is_fresh(name)}
            return f"'{what}' fails at {', '.join(f'{name} = {value}' for name, value in named.items())}", named
        known.append(step)
    return None
