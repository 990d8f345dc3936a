"""a2, second part: checks of what noise shows, of P_sparse with an interval, and of Theorem 1 and its repair."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import log, prod, sqrt
from numbers import Real

import torch
from scipy.stats import binom, norm
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
                  "the even share is taken off": wanted - 1,
                  "the sum over the chosen tokens is not divided by their number": wanted * top,
                  "the harmonic sum is replaced by the logarithm": 1 + log(tokens / top)}
        with case(f"{tokens} tokens, top {top}"):
            need_equal(answer(tokens, top), wanted, "the mean lift", tolerance=1e-6, causes=causes)


def lift_of_one(answer: Answer, draw: Draw) -> None:
    """The heaviest token alone, from 1 token on."""
    check_noise(answer, [(1, 1), (2, 1), (3, 1), (draw.randint(10, 60), 1), (draw.randint(500, 2000), 1)])


def lift_of_several(answer: Answer, draw: Draw) -> None:
    """Several tokens, up to all of them."""
    check_noise(answer, [(2, 2), (3, 2), (draw.randint(20, 40), 5), (draw.randint(200, 600), draw.randint(6, 30)),
                         (50, 50)])


# a2.6: an estimate with its interval


def three(answer: Answer, logits: Tensor, rho: float, level: float) -> tuple[float, float, float]:
    """Return the answer's share, low and high."""
    got = answer(logits, rho, level)
    values = got.tolist() if isinstance(got, Tensor) and got.ndim == 1 else got
    if not isinstance(values, (list, tuple)) or len(values) != 3:
        raise Mistake(f"the result is {describe(got)}, wanted three numbers: share, low, high")
    share, low, high = (need_number(value, what) for value, what in zip(values, ("share", "low", "high"), strict=True))
    if not -1e-9 <= low <= high <= 1 + 1e-9:
        raise Mistake(f"the interval is {low:.4g} to {high:.4g}, wanted 0 <= low <= high <= 1")
    return share, low, high


def share(answer: Answer, draw: Draw) -> None:
    """The share itself: ties with the bar, large logits, random ones."""
    tie = torch.tensor([[0.0, 0.0, -1000.0, -1000.0], [3.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    large = 1000 + 3 * draw.normal(50, 20)
    for what, logits, rho in (("the smallest row, two equal logits", torch.zeros(1, 2, dtype=torch.float64), 1.0),
                              ("a row whose largest weight equals the bar of 1/2", tie, 0.5),
                              ("Gaussian logits", 2 * draw.normal(60, 30), 0.1),
                              ("Gaussian logits in float32", 2 * draw.normal(40, 25, dtype=torch.float32), 0.2),
                              ("logits of about 1000", large, 0.2)):
        length = logits.shape[-1]
        weights = logits.double().softmax(-1).amax(-1)
        wanted = (weights > 1 / (length * rho)).double().mean().item()
        causes = {"a weight that equals the bar counts as over it":
                      (weights >= 1 / (length * rho)).double().mean().item(),
                  "the bar is 1 / L": (weights > 1 / length).double().mean().item(),
                  "the bar is rho": (weights > rho).double().mean().item()}
        with case(f"{what}, {len(logits)} rows of {length}, rho {rho}"):
            need_equal(three(answer, logits, rho, 0.95)[0], wanted, "the share of sparse rows", tolerance=1e-6,
                       causes=causes)


def intervals(answer: Answer, draw: Draw, rows: int, level: float) -> list[tuple[float, float]]:
    """Return the answer's intervals if none, one, .. all of the rows are sparse."""
    found = []
    for hits in range(rows + 1):
        logits = 0.1 * draw.normal(rows, 8)
        for row in draw.sample(range(rows), hits):
            logits[row, draw.randint(0, 7)] += 6
        with case(f"{hits} of {rows} rows are sparse, level {level}"):
            found.append(three(answer, logits, 0.5, level)[1:])
    return found


def wilson(hits: int, rows: int, level: float) -> float:
    """Return the width of Wilson's interval, a good one."""
    z = norm.ppf((1 + level) / 2)
    part = hits / rows
    return float(2 * z / (1 + z * z / rows) * sqrt(part * (1 - part) / rows + z * z / (4 * rows * rows)))


def check_covers(answer: Answer, draw: Draw, ranges: tuple[tuple[float, float], ...]) -> None:
    """Compute exactly how often the intervals hold the true chance, and how wide they are, averaged over chances."""
    for level in (0.8, 0.95):
        rows = draw.randint(45, 60) if draw.secret else 50
        found = torch.tensor(intervals(answer, draw, rows, level), dtype=torch.float64)    # (rows + 1, 2)
        good = torch.tensor([wilson(hits, rows, level) for hits in range(rows + 1)], dtype=torch.float64)
        for first, last in ranges:
            chance = first + (last - first) * (torch.arange(200, dtype=torch.float64)[:, None] + 0.5) / 200
            seen = torch.tensor(binom.pmf(torch.arange(rows + 1).numpy(), rows, chance.numpy())) / 200
            covered = (seen * ((found[:, 0] <= chance) & (chance <= found[:, 1]))).sum().item()
            width, usual = (seen @ (found[:, 1] - found[:, 0])).sum().item(), (seen @ good).sum().item()
            with case(f"{rows} rows, chances of a sparse row from {first} to {last}, level {level}"):
                if covered < level - 0.04:
                    raise Mistake(f"the interval holds the true chance in {covered:.3f} of all samples, wanted {level} "
                                  "(0.04 less will do): is the standard error right, is the interval open at both "
                                  "sides, and what does it do when no row or every row is sparse?")
                if width > 1.5 * usual:
                    raise Mistake(f"the interval is {width:.3f} wide on average, wanted at most {1.5 * usual:.3f}: is "
                                  "it two-sided, at this level, and divided by the root of the number of rows?")


def covers_middle(answer: Answer, draw: Draw) -> None:
    """Chances in the middle, where every textbook interval is good."""
    check_covers(answer, draw, ((0.3, 0.7),))


def covers_ends(answer: Answer, draw: Draw) -> None:
    """Chances near 0 and 1, where a sample often has no sparse row at all, or only sparse ones."""
    check_covers(answer, draw, ((0.01, 0.06), (0.94, 0.99)))


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
    if min(values) <= 0 or min(chances) < Fraction(1, 20) - Fraction(1, 10**6) or abs(sum(chances) - 1) > 1e-6:
        raise Mistake("wanted values X = e^xi over 0, and chances of at least 0.05 that sum to 1")
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
