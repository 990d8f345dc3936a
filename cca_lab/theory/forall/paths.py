"""Running a function on symbolic integers, once for each way through its branches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from cca_lab.theory.forall import terms
from cca_lab.theory.forall.solving import implied, variables
from cca_lab.theory.forall.terms import Symbol, Truth, number, solver

Result = TypeVar("Result")
MOST_PATHS, MOST_FORKS = 256, 32  # ways through a function, and open branches on one of them
ENDLESS = "too many ways through the function, as in a loop of symbolic length; prove one pass of its loop instead"
SECONDS = 2.0  # for one branch; a branch that is not excluded in that time is taken, which costs time, not truth


class Run:
    """One way through the branches of a function, and what is known on it.

    Answers are first those of `prefix`, then what follows from what is known, then True wherever both are possible.

    Args:
        hypotheses: what is assumed.
        prefix: the first answers.
    """

    def __init__(self, hypotheses: Sequence[Truth], prefix: Sequence[bool]) -> None:
        self.known = [one.term for one in hypotheses]
        self.prefix = list(prefix)
        self.names = 0
        self.answers: list[bool] = []
        self.settled: dict[int, tuple[Any, bool]] = {}  # the answers by condition, which is kept so that its id is
        self.divisors: dict[int, tuple[Any, bool]] = {}
        self.lemmas: list[Truth] = []
        self.others: list[tuple[bool, ...]] = []  # prefixes of runs that are still to be made
        self.asked: dict[str, dict[int, tuple[Symbol, Symbol]]] = {}  # arguments and values of unknown functions
        self.growth: list[tuple[set[str], Any]] = []  # what is known of two such values, with the variables in it

    def __call__(self, condition: Truth) -> bool:
        """Return the answer to a branch."""
        plain = solver().simplify(condition.term, som=True)
        if plain.get_id() in self.settled:
            return self.settled[plain.get_id()][1]
        known = self.about(condition)
        if len(self.answers) < len(self.prefix):
            answer = self.prefix[len(self.answers)]
        elif implied(known, condition.term, SECONDS):
            answer = True
        elif implied(known, (~condition).term, SECONDS):
            answer = False
        else:
            answer = True
            self.others.append((*self.answers, False))
            if len(self.others) > MOST_FORKS:
                raise RuntimeError(ENDLESS)
        if answer or not _only_new(condition, self.known):
            self.known.append(condition.term if answer else (~condition).term)
        self.answers.append(answer)
        self.settled[plain.get_id()] = plain, answer
        return answer

    def positive(self, divisor: Any) -> bool:
        """Return whether a divisor, a z3 term, is known to be 1 or more."""
        if divisor.get_id() not in self.divisors:
            self.divisors[divisor.get_id()] = divisor, implied(self.about(), divisor >= 1, SECONDS)
        return self.divisors[divisor.get_id()][1]

    def about(self, *statements: Truth) -> list[Any]:
        """Return what is known that has to do with some statements, as z3 terms."""
        names = variables([*self.known, *(statement.term for statement in statements)])
        return [*self.known, *(fact for inside, fact in self.growth if inside <= names)]

    def value(self, name: str, argument: Symbol, most: int | None) -> Symbol:
        """Return a value of an unknown function that never falls, and grows by at most `most` a step."""
        z3 = solver()
        x = Symbol(z3.simplify(argument.term, som=True))
        asked = self.asked.setdefault(name, {})
        if x.term.get_id() not in asked:
            value = Symbol(z3.Function(name, z3.IntSort(), z3.IntSort())(x.term))
            for y, other in asked.values():
                inside = variables([x.term, y.term])
                for a, at_a, b, at_b in ((x, value, y, other), (y, other, x, value)):
                    grown = (at_a <= at_b) if most is None else (at_a <= at_b) & (at_b <= at_a + most * (b - a))
                    self.growth.append((inside, (a <= b).implies(grown).term))
            asked[x.term.get_id()] = x, value
        return asked[x.term.get_id()][1]


def _only_new(condition: Truth, known: list[Any]) -> bool:
    """Return whether a condition is about a variable of which nothing is known: no later question is about it."""
    return not variables([condition.term]) <= variables(known)


def paths(function: Callable[[], Result], hypotheses: Sequence[Truth]) -> Iterator[tuple[Run, Result]]:
    """Run a function once for each way through its branches.

    Yields:
        The run, which says what is known on it, and the result.

    Raises:
        RuntimeError: if there are too many ways, such as in a loop of symbolic length.
    """
    waiting: list[tuple[bool, ...]] = [()]
    for _ in range(MOST_PATHS):
        if not waiting:
            return
        run = Run(hypotheses, waiting.pop())
        terms.BRANCH.append(run)
        try:
            result = function()
        finally:
            terms.BRANCH.pop()
        waiting += run.others
        yield run, result
    if waiting:
        raise RuntimeError(ENDLESS)


def fresh(name: str) -> Symbol:
    """Return a new variable of the current run; the same run makes the same names again."""
    run = current()
    run.names += 1
    return Symbol(solver().Int(f"{name}_{run.names}"))


def assume(*facts: Truth) -> None:
    """Add facts that define new variables to what the current run knows."""
    current().known += [fact.term for fact in facts]


def known(statement: Truth) -> bool:
    """Return whether a statement follows from what the current run knows."""
    return implied(current().about(statement), statement.term, SECONDS)


def unknown(name: str, argument: Any, most: int | None = None) -> Symbol:
    """Return a value of an unknown function of whole numbers that never falls; see `Run.value`."""
    return current().value(name, number(argument), most)


def current() -> Run:
    """Return the current run; RuntimeError outside of `paths`."""
    if not terms.BRANCH:
        raise RuntimeError("symbolic tensors of symbolic sizes need `demand` around them")
    run = terms.BRANCH[-1]
    assert isinstance(run, Run)
    return run
