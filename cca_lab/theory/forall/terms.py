"""Symbolic integers and truths: Python's operators on z3 terms."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from numbers import Integral
from typing import Any

SINGLE = (0, 1)  # what a symbol that is used as an index may turn out to be
BRANCH: list[Any] = []  # who decides `if truth:`; see `paths.py`


@cache
def solver() -> Any:
    """Return the module z3.

    Raises:
        ModuleNotFoundError: naming the extra that installs it.
    """
    try:
        return import_module("z3")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("z3: is not installed; run `pip install 'cca-lab[proofs]'`", name="z3") from error


class Symbolic:
    """What torch's functions take inside of `demand`."""

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a symbol: torch's functions take it inside of `demand` only")


class Truth(Symbolic):
    """A statement about symbolic integers; `term` is z3's. As a number it is 0 or 1, as in torch."""

    def __init__(self, term: Any) -> None:
        self.term = solver().BoolVal(term) if isinstance(term, bool) else term

    def implies(self, other: Any) -> "Truth":
        """Return "if this, then that"."""
        return Truth(solver().Implies(self.term, truth(other).term))

    def iff(self, other: Any) -> "Truth":
        """Return "this exactly if that"."""
        return Truth(self.term == truth(other).term)

    def __and__(self, other: Any) -> "Truth":
        return Truth(solver().And(self.term, truth(other).term))

    def __or__(self, other: Any) -> "Truth":
        return Truth(solver().Or(self.term, truth(other).term))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> "Truth":
        return Truth(solver().Not(self.term))

    def __bool__(self) -> bool:
        plain = solver().simplify(self.term)
        if solver().is_true(plain) or solver().is_false(plain):
            return bool(solver().is_true(plain))
        if not BRANCH:
            raise TypeError(f"{self.term}: has no value outside of `demand`; join truths with &, | and ~")
        return BRANCH[-1](self)

    def __int__(self) -> int:
        return int(bool(self))

    def __add__(self, other: Any) -> "Symbol":
        return number(self) + other

    __radd__ = __add__

    def __mul__(self, other: Any) -> "Symbol":
        return where(self, other, 0) if _scalars(other) else NotImplemented

    __rmul__ = __mul__


class Symbol(Symbolic):
    """A symbolic integer; `term` is z3's. The lab's checks of arguments take it for an int64."""

    dtype = "int64"

    def __init__(self, term: Any) -> None:
        self.term = term

    def __add__(self, other: Any) -> "Symbol":
        return _number(lambda x, y: x + y, self, other)

    def __radd__(self, other: Any) -> "Symbol":
        return _number(lambda x, y: x + y, other, self)

    def __sub__(self, other: Any) -> "Symbol":
        return _number(lambda x, y: x - y, self, other)

    def __rsub__(self, other: Any) -> "Symbol":
        return _number(lambda x, y: x - y, other, self)

    def __floordiv__(self, other: Any) -> "Symbol":
        return _number(lambda x, y: x / _divisor(y), self, other)

    def __rfloordiv__(self, other: Any) -> "Symbol":
        return _number(lambda x, y: x / _divisor(y), other, self)

    def __mod__(self, other: Any) -> "Symbol":
        return _number(lambda x, y: x % _divisor(y), self, other)

    def __rmod__(self, other: Any) -> "Symbol":
        return _number(lambda x, y: x % _divisor(y), other, self)

    def __mul__(self, other: Any) -> "Symbol":
        return where(other, self, 0) if isinstance(other, Truth) else _number(lambda x, y: x * y, self, other)

    __rmul__ = __mul__

    def __lt__(self, other: Any) -> Truth:
        return _statement(lambda x, y: x < y, self, other)

    def __le__(self, other: Any) -> Truth:
        return _statement(lambda x, y: x <= y, self, other)

    def __gt__(self, other: Any) -> Truth:
        return _statement(lambda x, y: x > y, self, other)

    def __ge__(self, other: Any) -> Truth:
        return _statement(lambda x, y: x >= y, self, other)

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return _statement(lambda x, y: x == y, self, other)

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return _statement(lambda x, y: x != y, self, other)

    def __neg__(self) -> "Symbol":
        return Symbol(-self.term)

    def __abs__(self) -> "Symbol":
        return most(self, -self)

    def __divmod__(self, other: Any) -> tuple["Symbol", "Symbol"]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple["Symbol", "Symbol"]:
        return number(other) // self, number(other) % self

    __hash__ = None  # type: ignore[assignment]  # equality is a statement here, so a cache cannot look it up

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __repr__(self) -> str:
        return "?"  # in a message of the lab, where the term would be long

    def __index__(self) -> int:
        plain = solver().simplify(self.term)
        if solver().is_int_value(plain):
            return int(plain.as_long())
        for value in SINGLE if BRANCH else ():
            if self == value:
                return value
        raise TypeError(f"{self.term}: is no single number; the function needs one here (an index, range or int())")


Integral.register(Symbol)


def number(value: Any) -> Symbol:
    """Return an int, a truth (0 or 1) or a z3 term as a `Symbol`.

    Raises:
        TypeError: for anything else, a float for example.
    """
    if isinstance(value, Symbol):
        return value
    if isinstance(value, bool | Truth):
        return where(value, 1, 0)
    if isinstance(value, int):
        return Symbol(solver().IntVal(value))
    if isinstance(value, solver().ArithRef):
        return Symbol(value)
    raise TypeError(f"got {type(value).__name__}, wanted an integer: symbols stand for integers only")


def truth(value: Any) -> Truth:
    """Return a bool or a z3 term as a `Truth`."""
    return value if isinstance(value, Truth) else Truth(value)


def integers(names: str) -> tuple[Any, ...]:
    """Return a `Symbol`, typed to go where an int goes, for each name; ValueError for one like "x_1", see `fresh`."""
    if own := [name for name in names.split() if is_fresh(name)]:
        raise ValueError(f"names: got {own[0]}, wanted one that does not end in a number")
    return tuple(Symbol(solver().Int(name)) for name in names.split())


def is_fresh(name: str) -> bool:
    """Return whether a variable's name is one that a run gives, see `paths.fresh`."""
    return name.rpartition("_")[2].isdigit()


def where(condition: Any, yes: Any, no: Any) -> Symbol:
    """Return `yes` where the condition holds and `no` elsewhere, without a branch."""
    return Symbol(solver().If(truth(condition).term, number(yes).term, number(no).term))


def least(a: Any, b: Any) -> Symbol:
    """Return the smaller of two numbers, without a branch."""
    return where(number(a) <= number(b), a, b)


def most(a: Any, b: Any) -> Symbol:
    """Return the larger of two numbers, without a branch."""
    return where(number(a) >= number(b), a, b)


def every(*truths: Any) -> Truth:
    """Return "all of these"."""
    return Truth(solver().And(*(truth(one).term for one in truths)))


def some(*truths: Any) -> Truth:
    """Return "at least one of these"."""
    return Truth(solver().Or(*(truth(one).term for one in truths)))


def _number(compute: Callable[[Any, Any], Any], x: Any, y: Any) -> Symbol:
    return Symbol(compute(number(x).term, number(y).term)) if _scalars(x, y) else NotImplemented


def _statement(compute: Callable[[Any, Any], Any], x: Any, y: Any) -> Truth:
    return Truth(compute(number(x).term, number(y).term)) if _scalars(x, y) else NotImplemented


def _scalars(*values: Any) -> bool:
    """Return False for a symbolic tensor, whose own operators then answer."""
    return all(isinstance(value, int | Symbol | Truth | solver().ArithRef) for value in values)


def _divisor(term: Any) -> Any:
    """Return a divisor. z3's division is Python's only for positive ones; `prove` checks those outside of `demand`.

    Raises:
        ZeroDivisionError: if it is not known to be positive.
    """
    constant = solver().is_int_value(term)
    if (constant and term.as_long() < 1) or (not constant and BRANCH and not BRANCH[-1].positive(term)):
        raise ZeroDivisionError(f"divisor {term}: wanted one that is known to be 1 or more; add a hypothesis")
    return term
