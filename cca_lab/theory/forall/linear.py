"""Linear statements that follow from statements with products and quotients of variables.

Products of variables make integer arithmetic undecidable. Here each becomes a new variable, about which only true
things are said: it grows with one factor where the other is not negative. What follows from the linear statements
follows from the given ones. The converse does not hold, so counterexamples are sought elsewhere.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod
from typing import Any

from cca_lab.theory.forall.terms import solver

FAR = 2  # two factors x and y of a third are compared exactly where x - y is smaller, else by an inequality
MOST_KEPT = 20_000  # terms, of which the linear forms are kept for later queries

Keys = frozenset[int]
Rewritten = tuple[Any, Keys]  # a z3 term, and the numbers of the new variables in it


def linear(terms: Sequence[Any]) -> list[Any]:
    """Return linear z3 terms that follow from the given ones."""
    if len(_KEPT.done) > MOST_KEPT:
        _KEPT.forget()
    lines = [_KEPT.formula(term) for term in terms]
    quotients = frozenset[int]().union(*(keys for _, _, keys in lines))
    lines += [_KEPT.formula(_KEPT.quotients.facts[key]) for key in sorted(quotients)]
    products = frozenset[int]().union(*(keys for _, keys, _ in lines))
    return [*(term for term, _, _ in lines), _KEPT.products.facts(products)]


class _Rewriting:
    """A rewriting of z3 terms from their leaves up."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Any, Rewritten]] = {}  # the old term is kept, so that its id is not used again

    def replace(self, term: Any) -> Rewritten:
        """Return the rewritten term, and which new variables are in it."""
        if term.get_id() not in self._done:
            parts = [self.replace(part) for part in term.children()]
            new = self.rewritten(term, [part for part, _ in parts]) if parts else (term, frozenset())
            self._done[term.get_id()] = term, (new[0], new[1].union(*(keys for _, keys in parts)))
        return self._done[term.get_id()][1]

    def rewritten(self, term: Any, parts: list[Any]) -> Rewritten:
        """Return the term with rewritten parts, and the variables that are new in it."""
        same = all(new.eq(old) for new, old in zip(parts, term.children(), strict=True))
        return (term if same else solver().substitute(term, *zip(term.children(), parts, strict=True))), frozenset()


class _Quotients(_Rewriting):
    """x // y = q and x % y = r become variables with x = y q + r and 0 <= r < y, where y >= 1."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: list[Any] = []
        self._known: dict[tuple[int, int], tuple[int, Any, Any]] = {}

    def rewritten(self, term: Any, parts: list[Any]) -> Rewritten:
        """Return the quotient or remainder."""
        z3 = solver()
        kind = term.decl().kind()
        if kind not in (z3.Z3_OP_IDIV, z3.Z3_OP_MOD):
            return super().rewritten(term, parts)
        y = z3.simplify(parts[1], som=True)
        multiple, x = _split(z3.simplify(parts[0], som=True), y)  # (y a + b) // y = a + b // y
        if z3.is_int_value(y):
            return (x % y if kind == z3.Z3_OP_MOD else multiple + x / y), frozenset()
        pair = x.get_id(), y.get_id()
        if pair not in self._known:
            q, r = z3.FreshInt("quotient"), z3.FreshInt("remainder")
            self._known[pair] = len(self.facts), q, r
            d = y if z3.is_const(y) else z3.FreshInt("divisor")  # a sum as divisor also has a name, to be compared by
            self.facts.append(z3.Implies(y >= 1, z3.And(x == y * q + r, 0 <= r, r < y, d == y, x == d * q + r)))
        key, q, r = self._known[pair]
        return (r if kind == z3.Z3_OP_MOD else multiple + q), frozenset([key])


def _split(x: Any, y: Any) -> tuple[Any, Any]:
    """Return a and b with x = y a + b, for a sum x of products and a product y, such as a variable.

    Of a constant y only products are split off: z3 knows how constants divide sums.
    """
    z3 = solver()
    constant, factors = _monomial(y)
    a, b = [z3.IntVal(0)], [z3.IntVal(0)]
    for term in x.children() if z3.is_add(x) else [x]:
        size, others = _monomial(term)
        left = [*others]
        for factor in factors:
            place = next((n for n, other in enumerate(left) if other.eq(factor)), None)
            left = left if place is None else [*left[:place], *left[place + 1 :]]
        divides = len(left) == len(others) - len(factors) and (factors or len(others) > 1)
        times, rest = divmod(size, constant) if divides else (0, size)
        a.append(z3.Product([z3.IntVal(times), *left]))
        b.append(z3.Product([z3.IntVal(rest), *others]))
    return z3.simplify(z3.Sum(a), som=True), z3.simplify(z3.Sum(b), som=True)


def _monomial(term: Any) -> tuple[int, list[Any]]:
    """Return the constant and the other factors of a product of products."""
    z3 = solver()
    if not z3.is_mul(term):
        return (int(term.as_long()), []) if z3.is_int_value(term) else (1, [term])
    parts = [_monomial(part) for part in term.children()]
    return prod(size for size, _ in parts), [factor for _, factors in parts for factor in factors]


class _Products(_Rewriting):
    """x y becomes a variable, of which `facts` says that it is monotone."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[int, ...], int] = {}
        self._products: list[tuple[Any, list[tuple[Any, Any]]]] = []  # the variable, and the ways to factor it
        self._compared: dict[tuple[int, ...], list[Any]] = {}
        self._facts: dict[Keys, Any] = {}

    def rewritten(self, term: Any, parts: list[Any]) -> Rewritten:
        """Return the variable of a product, times its constant factors."""
        z3 = solver()
        if term.decl().kind() != z3.Z3_OP_MUL:
            return super().rewritten(term, parts)
        constants = [part for part in parts if z3.is_int_value(part)]
        value, keys = self._product([part for part in parts if not z3.is_int_value(part)])
        for constant in constants:
            value = constant * value
        return value, keys

    def _product(self, factors: list[Any]) -> Rewritten:
        """Return the variable of a product of variables; x y z is known as (x y) z, (x z) y and (y z) x."""
        if len(factors) < 2:
            return (factors[0] if factors else solver().IntVal(1)), frozenset()
        factors = sorted(factors, key=lambda factor: int(factor.get_id()))
        name = tuple(factor.get_id() for factor in factors)
        rests = {factor.get_id(): (factor, self._product([*factors[:n], *factors[n + 1 :]]))
                 for n, factor in enumerate(factors)}
        if name not in self._known:
            self._known[name] = len(self._products)
            pairs = [pair for x, (rest, _) in rests.values() for pair in ((x, rest), (rest, x))]
            self._products.append((solver().FreshInt("product"), pairs))
        key = self._known[name]
        return self._products[key][0], frozenset([key]).union(*(keys for _, (_, keys) in rests.values()))

    def facts(self, keys: Keys) -> Any:
        """Return what is true of the products, in one term."""
        if keys not in self._facts:
            self._facts[keys] = solver().And(*self._comparisons(keys))
        return self._facts[keys]

    def _comparisons(self, keys: Keys) -> Iterator[Any]:
        multiples: dict[int, tuple[Any, list[tuple[int, Any, Any]]]] = {}
        for key in sorted(keys):
            product, pairs = self._products[key]
            for x, y in {(x.get_id(), y.get_id()): (x, y) for x, y in pairs}.values():
                zero = (-1, solver().IntVal(0), solver().IntVal(0))
                multiples.setdefault(x.get_id(), (x, [zero]))[1].append((key, y, product))
        for factor, known in multiples.values():
            for (key_a, a, product_a), (key_b, b, product_b) in combinations(known, 2):
                names = factor.get_id(), key_a, key_b
                if names not in self._compared:
                    self._compared[names] = [_compared(factor, a, product_a, b, product_b)]
                    if key_a < 0:  # compared with 0 times the factor
                        self._compared[names] += _falls(factor, b, product_b)
                yield from self._compared[names]


def _compared(factor: Any, a: Any, product_a: Any, b: Any, product_b: Any) -> Any:
    """Say: if the factor is not negative, a - b and the products' difference over the factor are alike."""
    z3 = solver()
    away, apart = a - b, product_a - product_b
    near = [z3.And(away == step, apart == step * factor) for step in range(1 - FAR, FAR)]
    return z3.Implies(factor >= 0, z3.Or(z3.And(away <= -FAR, apart <= -FAR * factor), *near,
                                         z3.And(away >= FAR, apart >= FAR * factor)))


def _falls(factor: Any, a: Any, product: Any) -> Iterator[Any]:
    """Yield: if the factor is not positive and a <= step, then a times it is at least step times it; and for >=."""
    z3 = solver()
    for step in (-1, 0, 1):
        yield z3.Implies(z3.And(factor <= 0, a <= step), product >= step * factor)
        yield z3.Implies(z3.And(factor <= 0, a >= step), product <= step * factor)


class _Kept:
    """The linear forms of earlier queries."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.done: dict[int, tuple[Any, tuple[Any, Keys, Keys]]] = {}
        self.quotients, self.products = _Quotients(), _Products()

    def formula(self, term: Any) -> tuple[Any, Keys, Keys]:
        """Return a linear term, the products in it, and the quotients in it."""
        if term.get_id() not in self.done:
            divided, quotients = self.quotients.replace(term)
            plain, products = self.products.replace(solver().simplify(divided, som=True))
            self.done[term.get_id()] = term, (plain, products, quotients)
        return self.done[term.get_id()][1]


_KEPT = _Kept()
