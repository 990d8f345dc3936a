"""Deciding whether hypotheses imply a goal, and finding the smallest counterexample."""

from collections.abc import Sequence
from time import monotonic
from typing import Any

from cca_lab.theory.forall.linear import linear
from cca_lab.theory.forall.terms import solver

LARGEST_SUM = 2**20  # where the search for a counterexample ends


def implied(hypotheses: Sequence[Any], goal: Any, seconds: float) -> bool:
    """Return True if the hypotheses imply the goal (z3 terms) for all integers; False if that was not shown."""
    z3 = solver()
    found = z3.SimpleSolver()
    found.set("timeout", int(1000 * seconds), "random_seed", 0, "smt.arith.solver", 2)  # the quickest for these
    found.add(*linear([*hypotheses, z3.Not(goal)]))
    return bool(found.check() == z3.unsat)


def plainly_implied(hypotheses: Sequence[Any], goal: Any, seconds: float) -> bool:
    """Return True if z3 shows it with the products as they are; where numbers are known, it is better at that."""
    z3 = solver()
    found = z3.Solver()
    found.set("timeout", int(1000 * seconds), "random_seed", 0)
    found.add(*hypotheses, z3.Not(goal))
    return bool(found.check() == z3.unsat)


def smallest(hypotheses: Sequence[Any], goal: Any, seconds: float) -> dict[str, int] | None:
    """Return the counterexample with the least sum of absolute values, ties by name; None if the solver cannot tell."""
    z3 = solver()
    search = _Search([*hypotheses, z3.Not(goal)], seconds)
    names = sorted(variables([*hypotheses, goal]))
    values = [z3.Int(name) for name in names]
    sizes = [z3.If(x >= 0, x, -x) for x in values]

    def bounded(most: int) -> list[Any]:
        return [z3.Sum(sizes) <= most, *(size <= most for size in sizes)]

    low, high = 0, 1
    try:
        while not search.succeeds(*bounded(high)):
            low, high = high + 1, 2 * high
            if high > LARGEST_SUM:
                return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if search.succeeds(*bounded(middle)) else (middle + 1, high)
        search.solver.add(*bounded(high))
        return {name: search.settle(x, high) for name, x in zip(names, values, strict=True)}
    except TimeoutError:
        return None


class _Search:
    """A search for values of variables that ends after some seconds in all."""

    def __init__(self, terms: Sequence[Any], seconds: float) -> None:
        self.solver = solver().Solver()
        self.solver.set("random_seed", 0)
        self.solver.add(*terms)
        self.end = monotonic() + seconds

    def succeeds(self, *assumed: Any) -> bool:
        """Return whether there are values with further restrictions; TimeoutError if the solver cannot tell."""
        z3 = solver()
        self.solver.push()
        self.solver.set("timeout", max(1, int(1000 * (self.end - monotonic()))))
        self.solver.add(*assumed)
        answer = self.solver.check()
        self.solver.pop()
        if answer == z3.unknown:
            raise TimeoutError("the solver cannot tell")
        return bool(answer == z3.sat)

    def settle(self, x: Any, most: int) -> int:
        """Fix a variable at its smallest absolute value, the positive one first, and return it."""
        ordered = (sign * size for size in range(most + 1) for sign in ((1, -1) if size else (1,)))
        value = next(value for value in ordered if self.succeeds(x == value))
        self.solver.add(x == value)
        return value


_INSIDE: dict[int, tuple[Any, frozenset[str], dict[int, Any]]] = {}  # terms are kept, so that no id is used again


def divisors(terms: Sequence[Any]) -> list[Any]:
    """Return the symbolic divisors in z3 terms."""
    found: dict[int, Any] = {}
    for term in terms:
        found |= _inside(term)[2]
    return list(found.values())


def variables(terms: Sequence[Any]) -> set[str]:
    """Return the names of the integer variables in z3 terms."""
    return set[str]().union(*(_inside(term)[1] for term in terms))


def _inside(term: Any) -> tuple[Any, frozenset[str], dict[int, Any]]:
    """Return a term, the names of its variables, and its symbolic divisors."""
    z3 = solver()
    if term.get_id() not in _INSIDE:
        parts = [_inside(part) for part in term.children()]
        names = frozenset[str]().union(*(names for _, names, _ in parts))
        if z3.is_const(term) and z3.is_int(term) and not z3.is_int_value(term):
            names = frozenset([str(term)])
        found = {key: divisor for _, _, inside in parts for key, divisor in inside.items()}
        if (z3.is_idiv(term) or z3.is_mod(term)) and not z3.is_int_value(term.arg(1)):
            found[term.arg(1).get_id()] = term.arg(1)
        _INSIDE[term.get_id()] = term, names, found
    return _INSIDE[term.get_id()]
