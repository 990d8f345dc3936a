"""Symbolic integers and truths: Python's operators on z3 terms, and the ways through a function."""

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

Result = TypeVar("Result")
MOST = 256  # ways through a function, and open branches on one of them
ENDLESS = ("too many ways through the function, as in a loop of symbolic length; prove one pass of "
           "its loop instead")
STEPS = 10**6  # of the solver, for one branch; one not excluded is taken, which costs no truth


@cache
def solver() -> Any:
    """Return the module z3; ModuleNotFoundError names the extra that installs it."""
    try:
        return import_module("z3")
    except ModuleNotFoundError as error:
        message = "z3: is not installed; run `pip install 'cca-lab[proofs]'`"
        raise ModuleNotFoundError(message, name="z3") from error


def answered(terms: Sequence[Any], steps: int) -> Any:
    """Return the solver's answer, `unknown` after so many of its steps with each of three seeds.

    Steps, not seconds, and a context of its own: the answer does not depend on a busy machine, nor
    on what was asked before. Ctrl-C is seen after the query.
    """
    for seed in range(3):
        context = solver().Context()
        query = solver().Solver(ctx=context)
        query.set(random_seed=seed, rlimit=steps, ctrl_c=False)
        query.add(*(term.translate(context) for term in terms))
        if (answer := query.check()) != solver().unknown:
            break
    return answer


def implied(hypotheses: Sequence[Any], goal: Any, steps: int) -> bool:
    """Return whether it was shown that hypotheses (z3 terms) imply a goal for all integers."""
    return bool(answered([*hypotheses, solver().Not(goal)], steps) == solver().unsat)


class Truth:
    """A statement about symbolic integers; `term` is z3's. As a number it is 0 or 1."""

    def __init__(self, term: Any) -> None:
        self.term = solver().BoolVal(term) if isinstance(term, bool) else term

    def implies(self, other: Any) -> "Truth":
        """Return "if this, then that"."""
        return Truth(solver().Implies(self.term, truth(other).term))

    def iff(self, other: Any) -> "Truth":
        """Return "this exactly if that"."""
        return Truth(self.term == truth(other).term)

    def __and__(self, other: Any) -> "Truth":
        return every(self, other)

    def __or__(self, other: Any) -> "Truth":
        return some(self, other)

    def __invert__(self) -> "Truth":
        return Truth(solver().Not(self.term))

    def __bool__(self) -> bool:
        plain = solver().simplify(self.term)
        if solver().is_true(plain) or solver().is_false(plain):
            return bool(solver().is_true(plain))
        if not _RUNS:
            raise TypeError(f"{self.term}: has no value outside of `demand`; join truths with &, | "
                            "and ~")
        return _RUNS[-1].branch(self)

    def __int__(self) -> int:
        return int(bool(self))

    def __add__(self, other: Any) -> "Symbol":
        return number(self) + other

    def __mul__(self, other: Any) -> "Symbol":
        return where(self, other, 0)

    __rand__, __ror__, __radd__, __rmul__ = __and__, __or__, __add__, __mul__


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: Symbol(operation(self.term, number(other).term))


def _comparison(operation: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: Truth(operation(self.term, number(other).term))


class Symbol:
    """A symbolic integer; `term` is z3's."""

    def __init__(self, term: Any) -> None:
        self.term = term

    __add__ = __radd__ = _arithmetic(operator.add)
    __mul__ = __rmul__ = _arithmetic(operator.mul)
    __sub__, __rsub__ = _arithmetic(operator.sub), _arithmetic(lambda a, b: b - a)
    __floordiv__ = _arithmetic(lambda a, b: a / _divisor(b))  # z3's `/` of integers is Euclid's
    __mod__ = _arithmetic(lambda a, b: a % _divisor(b))
    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)
    __eq__, __ne__ = _comparison(operator.eq), _comparison(operator.ne)

    def __divmod__(self, other: Any) -> tuple["Symbol", "Symbol"]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple["Symbol", "Symbol"]:
        return divmod(number(other), self)

    def __neg__(self) -> "Symbol":
        return Symbol(-self.term)

    __hash__ = None  # type: ignore[assignment]  # equality is a statement: no cache can look it up

    def __bool__(self) -> bool:
        return bool(self != 0)


def _divisor(term: Any) -> Any:
    """Return a divisor that is known to be positive: for others z3's division is not Python's."""
    if not (term.as_long() >= 1 if solver().is_int_value(term)
            else _RUNS and _RUNS[-1].knows(Truth(term >= 1))):
        raise ZeroDivisionError(f"divisor {term}: wanted one that is known to be 1 or more; assume "
                                "it, inside of `demand`")
    return term


def number(value: Any) -> Any:
    """Return an int or a truth (0 or 1) as a `Symbol`; TypeError for others, such as a float."""
    if isinstance(value, Symbol):
        return value
    if isinstance(value, bool | Truth):
        return where(value, 1, 0)
    if isinstance(value, int):
        return Symbol(solver().IntVal(value))
    raise TypeError(f"got {type(value).__name__}, wanted an integer: symbols stand for integers")


def truth(value: Any) -> Truth:
    """Return a bool as a `Truth`."""
    return value if isinstance(value, Truth) else Truth(value)


def integers(names: str) -> tuple[Any, ...]:
    """Return a symbol, typed to go where an int goes, for each name."""
    return tuple(Symbol(solver().Int(name)) for name in names.split())


def function(name: str) -> Callable[[Any], Any]:
    """Return an unknown function from integers to integers; see `rising`."""
    z3 = solver()
    unknown = z3.Function(name, z3.IntSort(), z3.IntSort())
    return lambda argument: Symbol(unknown(number(argument).term))


def rising(values: Callable[[Any], Any], at: Sequence[Any], most: int | None = None) -> Truth:
    """Return that an unknown function never falls between some arguments, in any order of them.

    From one integer to the next it rises at most by `most`, if that is given.
    """
    return every(*((a <= b).implies(every(values(a) <= values(b), most is None
                                          or values(b) <= values(a) + (number(b) - a) * most))
                   for a in map(number, at) for b in map(number, at) if a is not b))


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds and `no` elsewhere, without a branch."""
    return Symbol(solver().If(truth(condition).term, number(yes).term, number(no).term))


def every(*truths: Any) -> Truth:
    """Return "all of these"."""
    return Truth(solver().And(*(truth(value).term for value in truths)))


def some(*truths: Any) -> Truth:
    """Return "at least one of these"."""
    return Truth(solver().Or(*(truth(value).term for value in truths)))


class Run:
    """One way through the branches of a function, and what is known on it.

    Where both answers are possible they are those of `prefix`, in order, and then True.
    """

    def __init__(self, hypotheses: Sequence[Truth], prefix: Sequence[bool]) -> None:
        self.known = [hypothesis.term for hypothesis in hypotheses]
        self.prefix, self.answers = list(prefix), list[bool]()
        self.lemmas: list[Truth] = []
        self.others: list[tuple[bool, ...]] = []  # prefixes of runs that are still to be made

    def branch(self, condition: Truth) -> bool:
        """Return the answer to a branch."""
        if self.knows(condition):
            return True
        if self.knows(~condition):
            return False
        if len(self.answers) < len(self.prefix):
            answer = self.prefix[len(self.answers)]
        else:
            answer = True
            self.others.append((*self.answers, False))
            if len(self.others) > MOST:
                raise RuntimeError(ENDLESS)
        self.known.append(condition.term if answer else (~condition).term)
        self.answers.append(answer)
        return answer

    def knows(self, statement: Truth) -> bool:
        """Return whether a statement follows from what is known."""
        return implied(self.known, statement.term, STEPS)


_RUNS: list[Run] = []  # the current one is the last


def ways(function: Callable[[], Result], known: Sequence[Truth]) -> Iterator[tuple[Run, Result]]:
    """Run a function once for each way through its branches; yield what is known, and the result.

    Raises:
        RuntimeError: if there are too many ways, such as in a loop of symbolic length.
    """
    waiting: list[tuple[bool, ...]] = [()]
    for _ in range(MOST):
        if not waiting:
            return
        run = Run(known, waiting.pop())
        _RUNS.append(run)
        try:
            result = function()
        finally:
            _RUNS.pop()
        waiting += run.others
        yield run, result
    if waiting:
        raise RuntimeError(ENDLESS)


def assume(*facts: Any) -> None:
    """Add hypotheses to what the current run knows."""
    current().known += [truth(fact).term for fact in facts]


def lemma(*statements: Any) -> None:
    """Prove statements from what the current run knows, in this order, and add them to it.

    What the solver cannot show soon becomes something that the theorem has to prove.
    """
    run = current()
    for statement in map(truth, statements):
        (run.known.append(statement.term) if run.knows(statement) else run.lemmas.append(statement))


def divided_by(value: Any, divisor: Any, quotient: Any, rest: Any) -> None:
    """Use that value = divisor quotient + rest, 0 <= rest < divisor, is value's only division."""
    x, d, q, r = map(number, (value, divisor, quotient, rest))
    assume(every(x == d * q + r, 0 <= r, r < d).implies(
        every(Symbol(x.term / d.term) == q, Symbol(x.term % d.term) == r)))


def current() -> Run:
    """Return the current run; RuntimeError outside of `demand`."""
    if not _RUNS:
        raise RuntimeError("assume and lemma need `demand` around them")
    return _RUNS[-1]
