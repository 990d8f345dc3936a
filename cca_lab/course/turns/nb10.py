"""What the reader writes in notebook 10: a chance, rows that refute and fool, a bound."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from cca_lab.course.compare import describe, need_equal, need_number
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

Row = Sequence[float]  # X_1 .. X_L
Law = list[tuple[float, Row]]  # the probability of each row
SHARE = 0.9  # of a row's weight
NEEDED = 0.8  # of the tokens that a row which fools must need for it


def _chance(law: Law, event: Callable[[Row], bool | int]) -> float:
    """Return the probability of an event; of a number, its expectation."""
    return sum(probability * event(row) for probability, row in law)


def _law(draw: Draw, length: int) -> Law:
    chances = [draw.randint(1, 9) for _ in range(4)]
    return [(chance / sum(chances), [draw.choice([1, 1, 2, 3, 5, 20]) for _ in range(length)])
            for chance in chances]


# 10.2: the chance of a sparse row
def _sparse_chances(law: Law, rho: float) -> tuple[float, dict[str, float]]:
    """Return P_sparse, and what usual mistakes make of it."""
    length = len(law[0][1])
    most = length * rho
    wanted = _chance(law, lambda row: most * max(row) > sum(row))
    return wanted, {
        "a weight that only reaches the bar is counted; it must be over it":
            _chance(law, lambda row: most * max(row) >= sum(row)),
        "the bar is rho / L: `1 / L * rho` divides first; write 1 / (L * rho)":
            _chance(law, lambda row: max(row) / sum(row) > rho / length),
        "the bar is 1 / rho, and L is forgotten": 0.0,
        "X is compared with the bar; the weight of a token is X divided by the row's sum":
            _chance(law, lambda row: max(row) > 1 / most),
        "rows are counted alike; each has its own probability":
            sum(most * max(row) > sum(row) for _, row in law) / len(law),
        "tokens are counted; a row with two weights over the bar is still one row":
            _chance(law, lambda row: sum(most * x > sum(row) for x in row)),
        "it is the chance of the rows that are not sparse": 1 - wanted,
        "only the first token is looked at; any token may be over the bar":
            _chance(law, lambda row: most * row[0] > sum(row)),
    }


def check_chance(answer: Answer, draw: Draw) -> None:
    """Laws of a few rows; L rho is a whole number, so that a weight can equal the bar exactly."""
    first: Law = [(0.5, [3, 1, 1, 1]), (0.1, [1, 1, 8, 1]), (0.15, [1, 2, 2, 2]),
                  (0.25, [0.28125, 0.03125, 0.03125, 0.03125])]  # mistakes differ here
    cases: list[tuple[Law, float]] = [
        (first, 0.5), *((_law(draw, 4), rho) for rho in (0.5, 0.75)), (_law(draw, 3), 1.0),
        ([(0.25, [1, 1, 1, 1, 1]), (0.75, [2, 2, 2, 3, 2])], 1.0)]
    for law, rho in cases:
        wanted, causes = _sparse_chances(law, rho)
        with case(f"{len(law)} rows of {len(law[0][1])} tokens, rho = {rho:g}"):
            need_equal(need_number(answer(law, rho)), wanted, "P_sparse", tolerance=1e-9,
                       causes=causes)


# 10.4: a row that refutes Theorem 1
def check_refutes(answer: Answer, draw: Draw) -> None:
    """Its row, which is certain, its rate and its x: the right side of Eq. 8 is over P_sparse."""
    row, rho, x = _found(answer())
    length, most = len(row), len(row) * rho
    if not 1 < most <= length:
        raise Mistake(f"rho is {rho:g} for {length} tokens; Theorem 1 speaks of 1/L < rho <= 1")
    if not x > 0:
        raise Mistake(f"x is {x:g}, and the maximum is over x > 0")
    if most * max(row) > sum(row):
        raise Mistake(f"the row {row} is rho-sparse at rho = {rho:g}, so P_sparse is 1, and no "
                      "bound of at most 1 is too large")
    if row[0] <= x and (most - 1) * x <= sum(row[1:]):
        raise Mistake(f"at x = {x:g} P_head and P_tail are both 1 for the row {row}, so the right "
                      "side is 0: try a smaller or a larger x")


def check_shortest(answer: Answer, draw: Draw) -> None:
    """Two tokens, as few as there can be."""
    row, _, _ = _found(answer())
    if len(row) > 2:
        raise Mistake(f"the row has {len(row)} tokens; there is one of two: let the search begin "
                      "with L = 2")


def _found(got: Any) -> tuple[list[float], float, float]:
    if got is None:
        raise Mistake("the search found nothing: does it try rows of equal numbers, and an x below "
                      "all of them?")
    if not isinstance(got, (list, tuple)) or len(got) != 3 or not isinstance(got[0], (list, tuple)):
        raise Mistake(f"the result is {describe(got)}, wanted a row X, rho and x")
    row = [need_number(value, f"X of token {token}") for token, value in enumerate(got[0], start=1)]
    if not row or min(row) <= 0:
        raise Mistake(f"the row is {row}; X = e^xi is over 0")
    return row, need_number(got[1], "rho"), need_number(got[2], "x")


# 10.6: the corrected bound
def check_bound(answer: Answer, draw: Draw) -> None:
    """Laws of any dependence, at points that equal some X; best over the points."""
    first: Law = [(0.4, [20, 1, 1, 1]), (0.35, [1, 1, 20, 20]), (0.25, [8, 8, 8, 8])]
    cases = [(first, 0.5, [15.0, 20.5])]  # mistakes differ here
    points_of = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 12.0, 20.0]
    cases += [(_law(draw, 4), rho, sorted(draw.sample(points_of, 4)))
              for rho in (0.5, 0.75, 1.0, 0.5)]
    for law, rho, points in cases:
        bounds = {name: [at(law, rho, x) for x in points] for name, at in _FORMS.items()}
        wanted = max(bounds["right"])
        causes = {name: max(values) for name, values in bounds.items() if name != "right"}
        causes |= {"the smallest over the points is taken; each point gives a bound, so take the "
                   "best one": min(bounds["right"])}
        with case(f"{len(law)} rows of {len(law[0][1])} tokens, rho = {rho:g}, points {points}"):
            need_equal(need_number(answer(law, rho, points)), wanted, "the bound", tolerance=1e-9,
                       causes=causes)


def _over(law: Law, x: float) -> float:
    return _chance(law, lambda row: max(row) > x)


def _heavy(law: Law, rho: float, x: float) -> float:
    return _chance(law, lambda row: sum(row) > len(row) * rho * x)


_FORMS: dict[str, Callable[[Law, float, float], float]] = {
    "right": lambda law, rho, x: _over(law, x) - _heavy(law, rho, x),
    "the first X is taken in the place of the largest one":
        lambda law, rho, x: _chance(law, lambda row: row[0] > x) - _heavy(law, rho, x),
    "L is forgotten: the sum is compared with rho x":
        lambda law, rho, x: _over(law, x) - _chance(law, lambda row: sum(row) > rho * x),
    "the second chance is that of a sum BELOW L rho x: that is what one hopes for, so it may not "
    "be subtracted":
        lambda law, rho, x: _over(law, x) - (1 - _heavy(law, rho, x)),
    "both chances are added": lambda law, rho, x: _over(law, x) + _heavy(law, rho, x),
    "two chances are multiplied, as if the events were independent; this can promise too much":
        lambda law, rho, x: _over(law, x) * (1 - _heavy(law, rho, x)),
    "the chance of both events at once is taken. That is a bound too (line 1 of the proof), but "
    "the theorem needs only the two single chances":
        lambda law, rho, x: _chance(
            law, lambda row: max(row) > x and sum(row) <= len(row) * rho * x),
    "the largest X may also equal x; then no weight is over the bar for certain":
        lambda law, rho, x: _chance(law, lambda row: max(row) >= x) - _heavy(law, rho, x),
}


# 10.8: a sparse row that needs most of its tokens
def check_row(answer: Answer, draw: Draw) -> None:
    """Its length, its sum, its largest weight, and how many tokens hold 90 % of it."""
    for length, rho in [(1000, 0.01), (100, 0.08), (300, 0.05), (draw.randint(400, 900), 0.02)]:
        with case(f"{length} tokens, rho = {rho:g}"):
            _need_row(_weights(answer(length, rho), length), 1 / (length * rho))


def _weights(got: Any, length: int) -> list[float]:
    if isinstance(got, Tensor) and got.dim() == 1:
        got = got.tolist()
    if not isinstance(got, (list, tuple)):
        raise Mistake(f"the result is {describe(got)}, wanted a list of {length} weights")
    if len(got) != length:
        raise Mistake(f"the row has {len(got)} weights, wanted {length}: the heavy token is one of "
                      "them")
    return [need_number(weight, f"weight {token}") for token, weight in enumerate(got)]


def _need_row(row: list[float], bar: float) -> None:
    if min(row) < 0:
        raise Mistake(f"a weight is {min(row):.4g}, and no weight is negative: is the heavy one "
                      f"larger than 1? The bar is 1 / (L rho) = {bar:.4g}")
    if abs(sum(row) - 1) > 1e-6:
        raise Mistake(f"the weights sum to {sum(row):.6g}, wanted 1: if one token has the weight "
                      "w, the others share what is left, 1 - w")
    if max(row) <= bar * (1 + 1e-12):
        only = ("only reaches the bar; it must be over it" if max(row) > bar * (1 - 1e-9)
                else "is not over the bar")
        raise Mistake(f"the row is not rho-sparse: its largest weight, {max(row):.4g}, {only}, "
                      f"1 / (L rho) = {bar:.4g}")
    held, tokens = 0.0, 0
    for weight in sorted(row, reverse=True):
        if held >= SHARE - 1e-9:
            break
        held, tokens = held + weight, tokens + 1
    if tokens < NEEDED * len(row):
        raise Mistake(f"the row is rho-sparse, but {tokens} of its {len(row)} tokens hold 90 % of "
                      f"it, wanted {NEEDED:.0%} of the tokens or more: one weight just over the "
                      "bar, and all others alike")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("10.2", "chance_of_sparse", "The chance of a sparse row", 6, 2, 4, (
        Property("equal to a sum over the rows", 1, check_chance),)),
    CourseTask("10.4", "counterexample", "A row that refutes Theorem 1", 8, 3, 5, (
        Property("refutes Eq. 8", 1, check_refutes),
        Property("has two tokens, as few as there can be", 1, check_shortest))),
    CourseTask("10.6", "corrected_bound", "The corrected bound, at its best point", 8, 3, 4, (
        Property("the best of the two-term bounds", 1, check_bound),)),
    CourseTask("10.8", "row_that_fools", "A rho-sparse row that needs most of its tokens", 6, 2, 5,
               (Property("sparse by definition, and spread out", 1, check_row),)),
)
