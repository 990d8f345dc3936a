"""a2, second part: checks of what noise shows, and of Theorem 1 and its repair."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import log, prod
from numbers import Real

from scipy.stats import binom
from torch import Tensor

from cca_lab.course.compare import describe, need_equal, need_number
from cca_lab.course.tasks import Answer, Draw, Mistake, case

# a2.5: what the circular measure shows in noise


def noise_value(tokens: int, top: int) -> float:
    """Return the mean lift of the heaviest of exponential weights, from the means of their order statistics."""
    means = [sum(1 / rest for rest in range(place, tokens + 1)) for place in range(1, top + 1)]
    return sum(means) / top


def check_noise(answer: Answer, sizes: list[tuple[int, int]]) -> None:
    """Compare predictions."""
    for tokens, top in sizes:
        wanted = noise_value(tokens, top)
        causes = {"the chosen tokens are all taken to be as heavy as the heaviest": noise_value(tokens, 1),
                  "only the lightest of the chosen tokens is counted":
                      sum(1 / rest for rest in range(top, tokens + 1)),
                  "the share is not put in units of an even share, top / tokens": wanted * top / tokens,
                  "the even share is taken off": wanted - 1,
                  "the sum over the chosen tokens is not divided by their number": wanted * top,
                  "the harmonic sum is replaced by the logarithm": 1 + log(tokens / top)}
        with case(f"{tokens} tokens, top {top}"):
            need_equal(answer(tokens, top), wanted, "the mean lift", tolerance=1e-6,
                       causes=causes if tokens > 4 else None)  # among few tokens the mistakes look alike


def lift_of_one(answer: Answer, draw: Draw) -> None:
    """The heaviest token alone; 1 to 3 tokens come last, because their numbers do not tell one mistake from another."""
    check_noise(answer, [(6, 1), (draw.randint(10, 60), 1), (draw.randint(500, 2000), 1), (3, 1), (2, 1), (1, 1)])


def lift_of_several(answer: Answer, draw: Draw) -> None:
    """Several tokens, up to all of them."""
    check_noise(answer, [(7, 3), (draw.randint(20, 40), 5), (draw.randint(200, 600), draw.randint(6, 30)), (50, 50),
                         (3, 2), (2, 2)])


# a2.7: Theorem 1 as printed, refuted


def near(got: object, what: str) -> Fraction:
    """Return a number as the fraction that was meant: 1.1 and 1 / 3 also if they came in float32."""
    return Fraction(need_number(got, what)).limit_denominator(10**6)


def law_of(got: object) -> tuple[list[Fraction], list[Fraction], int, Fraction, Fraction]:
    """Return values, chances, length, rho and x of an example, as fractions, if it satisfies the hypotheses."""
    keys = ("values", "chances", "length", "rho", "x")
    if not isinstance(got, dict) or set(got) != set(keys):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(keys)}")
    lists = [got[key].tolist() if isinstance(got[key], Tensor) else got[key] for key in keys[:2]]
    if any(not isinstance(part, (list, tuple)) or not all(isinstance(x, Real) for x in part) for part in lists):
        raise Mistake("values and chances must be lists of numbers")
    values, chances = ([near(x, key) for x in part] for part, key in zip(lists, keys, strict=False))
    length = need_number(got["length"], "length")
    rho, x = (near(got[key], key) for key in ("rho", "x"))
    if not 3 <= len(values) <= 6 or len(set(values)) != len(values) or len(chances) != len(values):
        raise Mistake(f"{len(values)} values and {len(chances)} chances, wanted 3 to 6 different values X > 0, and a "
                      "chance for each")
    if min(values) <= 0:
        raise Mistake(f"the smallest value is {float(min(values)):g}, wanted values X = e^xi over 0")
    if min(chances) < Fraction(1, 20) - Fraction(1, 10**6):
        raise Mistake(f"the smallest chance is {float(min(chances)):g}, wanted chances of at least 0.05")
    if abs(sum(chances) - 1) > 1e-6:
        raise Mistake(f"the chances sum to {float(sum(chances)):.7g}, wanted 1")
    if length != int(length) or not 2 <= length or len(values) ** length > 20000:
        raise Mistake(f"length is {length:g}, wanted an integer of 2 or more, with at most 20000 different rows: "
                      "len(values) ** length")
    if not Fraction(1, int(length)) < rho <= 1 or x <= 0:
        raise Mistake(f"rho is {float(rho):g} and x is {float(x):g}, wanted 1 / length < rho <= 1 and x > 0")
    total = sum(chances)
    return values, [chance / total for chance in chances], int(length), rho, x


def refuted(answer: Answer, draw: Draw) -> None:
    """The example must satisfy the theorem's hypotheses, lie in the middle, and violate the printed bound."""
    values, chances, length, rho, x = law_of(answer())
    head = sum(chance for value, chance in zip(values, chances, strict=True) if value <= x)
    tail = sparse = Fraction(0)
    for row in product(list(zip(values, chances, strict=True)), repeat=length):
        total, chance = sum(value for value, _ in row), prod(chance for _, chance in row)
        sparse += chance * (max(value for value, _ in row) * length * rho > total)
        tail += chance * ((length * rho - 1) * x <= total - row[0][0])
    if min(head, tail) < Fraction(1, 2) - Fraction(1, 10**6):
        raise Mistake(f"P_head is {float(head):.4f} and P_tail is {float(tail):.4f}: wanted at least 1/2 for both, so "
                      "that x lies in the middle")
    claimed = 1 - (head * tail) ** length
    if claimed < sparse + Fraction(1, 10) - Fraction(1, 10**6):
        raise Mistake(f"the printed bound is 1 - ({float(head):.4f} * {float(tail):.4f}) ** {length} = "
                      f"{float(claimed):.4f}, and P_sparse is {float(sparse):.4f}: wanted a bound that is too large by "
                      "0.1 or more")


# a2.8: the repaired bound


def two_sides(large: float, chance: float, length: int, rho: float, x: float) -> dict[str, float]:
    """Return the chance of a sparse row and the repaired bound at x, summed over the number of large values."""
    sparse = bound = 0.0
    for count, seen in enumerate(binom.pmf(range(length + 1), length, chance).tolist()):
        top, total = (large if count else 1.0), length - count + count * large
        sparse += seen * (top * length * rho > total)
        bound += seen * ((top > x) - (total > length * rho * x))
    return {"sparse": sparse, "repaired": bound}


def undecided(large: float, chance: float) -> float:
    """Return a rate near which a row with a large value may be sparse or not, as a binary fraction."""
    return round(4096 * (1 + chance * (large - 1)) / large) / 4096


def settings(draw: Draw, longest: int) -> Iterator[tuple[float, float, int, float, float]]:
    """Yield (large, chance, length, rho, x): binary fractions, so that equal sums are equal in floating point."""
    yield from ((3.0, 0.5, 2, 1.0, 2.0), (3.0, 0.5, 2, 1.0, 1.0), (3.0, 0.75, 4, 0.5, 3.0), (20.0, 0.25, 4, 0.5, 12.5),
                (9.0, 0.0625, 30, 0.25, 8.5), (2.0, 0.25, 8, 0.25, 0.5))
    for _ in range(12 if draw.secret else 4):
        length = draw.randint(4, longest)
        large, chance = float(draw.randint(2, 40)), draw.choice((0.5, 0.125, 0.015625))
        rho = max(draw.choice((draw.randint(5, 16) / 16, undecided(large, chance))), 5 / 16 if length < 40 else 0)
        yield large, chance, length, rho, draw.choice((large - 0.25, draw.randint(1, int(4.5 * large)) / 4))


def check_sides(answer: Answer, key: str, cases: Iterator[tuple[float, float, int, float, float]]) -> None:
    """Compare one side for a list of settings."""
    for large, chance, length, rho, x in cases:
        with case(f"large {large:g}, chance {chance:g}, length {length}, rho {rho:g}, x {x:g}"):
            got = answer(large, chance, length, rho, x)
            if not isinstance(got, dict) or set(got) != {"sparse", "repaired"}:
                raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys sparse and repaired")
            need_equal(got[key], two_sides(large, chance, length, rho, x)[key], key, tolerance=1e-8)


def sparse_chance(answer: Answer, draw: Draw) -> None:
    """P_sparse of rows that can still be counted by their number of large values."""
    check_sides(answer, "sparse", settings(draw, 60))


def repaired_bound(answer: Answer, draw: Draw) -> None:
    """The repaired right side at x, above and below the values and at them."""
    check_sides(answer, "repaired", settings(draw, 60))


def both_long(answer: Answer, draw: Draw) -> None:
    """Lengths at which the number of rows no longer fits a floating point number."""
    for length in (1500, 3000):
        large = float(draw.randint(8, 30))
        rho = undecided(large, 1 / 128)
        for key in ("sparse", "repaired"):
            check_sides(answer, key, iter([(large, 1 / 128, length, rho, large - 0.25)]))
