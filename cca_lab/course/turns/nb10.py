"""What the reader writes in notebook 10: a chance, rows that refute and fool, a bound."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from cca_lab.course.compare import describe, need_number
from cca_lab.course.exercise import equals, examples, holds, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property

Row = Sequence[float]  # X_1 .. X_L
Law = list[tuple[float, Row]]  # the probability of each row


def chance(law: Law, event: Callable[[Row], float]) -> float:
    """Return the probability of an event; of a number, its expectation."""
    return sum(probability * event(row) for probability, row in law)


def drawn_law(draw: Draw, length: int) -> Law:
    """Return four rows with their probabilities."""
    chances = [draw.randint(1, 9) for _ in range(4)]
    return [(chance / sum(chances), [draw.choice([1, 1, 2, 3, 5, 20]) for _ in range(length)])
            for chance in chances]


# 10.2: the chance of a sparse row
def sparse(row: Row, rho: float) -> bool:
    """Return whether some weight of a row is over 1 / (L rho)."""
    return len(row) * rho * max(row) > sum(row)


def by_event(event: Callable[[Row, float], float]) -> Answer:
    """Return the chance of another event."""
    return lambda law, rho: chance(law, lambda row: event(row, rho))


LAWS: dict[str, Law] = {
    "weights at the bar": [(0.5, [3, 1, 1, 1]), (0.1, [1, 1, 8, 1]), (0.15, [1, 2, 2, 2]),
                           (0.25, [0.28125, 0.03125, 0.03125, 0.03125])],
    "even rows": [(0.25, [1, 1, 1, 1, 1]), (0.75, [2, 2, 2, 3, 2])]}


def rows(draw: Draw, tokens: int, rho: float, law: str) -> tuple[Any, ...]:
    """Return a law and a rate."""
    return LAWS.get(law) or drawn_law(draw, tokens), rho


# 10.4: a row that refutes Theorem 1
def found(answer: Answer) -> Answer:
    """Return an answer whose row, rate and x are numbers that can be judged."""
    def search() -> tuple[list[float], float, float]:
        got = answer()
        if got is None:
            raise Mistake("the search found nothing: does it try rows of equal numbers, and an x "
                          "below all of them?")
        if not isinstance(got, (list, tuple)) or len(got) != 3 or not isinstance(
                got[0], (list, tuple)):
            raise Mistake(f"the result is {describe(got)}, wanted a row X, rho and x")
        row = [need_number(value, f"X of token {token}") for token, value in enumerate(got[0], 1)]
        if not row or min(row) <= 0:
            raise Mistake(f"the row is {row}; X = e^xi is over 0")
        return row, need_number(got[1], "rho"), need_number(got[2], "x")

    return search


def refutes(answer: Answer, draw: Draw) -> None:
    """Its row, which is certain, its rate and its x: the right side of Eq. 8 is over P_sparse."""
    row, rho, x = answer()
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


# 10.6: the corrected bound
Bound = Callable[[Law, float, float], float]


def over(law: Law, x: float) -> float:
    """Return the chance that the largest X is over x."""
    return chance(law, lambda row: max(row) > x)


def heavy(law: Law, rho: float, x: float) -> float:
    """Return the chance of a sum over L rho x."""
    return chance(law, lambda row: sum(row) > len(row) * rho * x)


def corrected_bound(law: Law, rho: float, points: list[float], *,
                    at: Bound = lambda law, rho, x: over(law, x) - heavy(law, rho, x),
                    take: Callable[..., float] = max, least: float = -2.0) -> float:
    """Return the best two-term bound over the points; the keywords are mistakes."""
    return max(least, take(at(law, rho, x) for x in points))


POINTS: dict[str, tuple[Law, float, list[float]]] = {
    "large terms": ([(0.4, [20, 1, 1, 1]), (0.35, [1, 1, 20, 20]), (0.25, [8, 8, 8, 8])], 0.5,
                    [15.0, 20.5]),
    "bounds below 0": ([(0.5, [1, 1, 1, 1]), (0.5, [2, 2, 2, 3])], 0.5, [3.0, 3.5])}


def at_points(draw: Draw, rho: float, law: str) -> tuple[Any, ...]:
    """Return a law of any dependence, a rate, and points that equal some X."""
    if law in POINTS:
        return POINTS[law]
    values = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 12.0, 20.0]
    return drawn_law(draw, 4), rho, sorted(draw.sample(values, 4))


# 10.8: a sparse row that needs most of its tokens
def fools(got: Any, length: int, rho: float) -> None:
    """Look at a row's length, sum and largest weight, and how many tokens hold 90 % of it."""
    bar = 1 / (length * rho)
    got = got.tolist() if isinstance(got, Tensor) else got
    if not isinstance(got, (list, tuple)):
        raise Mistake(f"the result is {describe(got)}, wanted a list of {length} weights")
    if len(got) != length:
        raise Mistake(f"the row has {len(got)} weights, wanted {length}: the heavy token is one of "
                      "them")
    row = [need_number(weight, f"weight {token}") for token, weight in enumerate(got)]
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
        if held >= 0.9 - 1e-9:
            break
        held, tokens = held + weight, tokens + 1
    if tokens < 0.8 * length:
        raise Mistake(f"the row is rho-sparse, but {tokens} of its {length} tokens hold 90 % of "
                      "it, wanted 80 % of the tokens or more: one weight just over the bar, and "
                      "all others alike")


def sink(length: int, rho: float, *, weight: Callable[[int, float], float] = lambda length, rho:
         1.01 / (length * rho), share: bool = True, more: int = 0) -> list[float]:
    """Return a row with a heavy first token, and all others alike; the keywords are mistakes."""
    w = weight(length, rho)
    return [w] + [(1 - w if share else 1) / (length - 1 + more)] * (length - 1 + more)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("10.2", "chance_of_sparse", "The chance of a sparse row", 6, 2, (
        equals("equal to a sum over the rows", by_event(sparse),
               examples(rows, (4, 0.5, "weights at the bar"), (5, 1.0, "even rows"),
                        (5, 0.75, "even rows"), (4, 0.5, "drawn"), (4, 0.75, "drawn"),
                        (3, 1.0, "drawn")), "P_sparse", wrong={
            "a weight that only reaches the bar is counted; it must be over it":
                by_event(lambda row, rho: len(row) * rho * max(row) >= sum(row)),
            "the bar is rho / L: `1 / L * rho` divides first; write 1 / (L * rho)":
                by_event(lambda row, rho: max(row) / sum(row) > rho / len(row)),
            "rho is forgotten: the bar is 1 / (L rho), and not 1 / L":
                by_event(lambda row, rho: max(row) / sum(row) > 1 / len(row)),
            "the bar is 1 / rho or L rho, which no weight is over; it is 1 / (L rho)":
                by_event(lambda row, rho: max(row) / sum(row) > 1 / rho),
            "every token over the bar is counted; a row counts once":
                by_event(lambda row, rho: sum(len(row) * rho * x > sum(row) for x in row)),
            "X is compared with the bar; the weight of a token is X divided by the row's sum":
                by_event(lambda row, rho: max(row) > 1 / (len(row) * rho)),
            "rows are counted alike; each has its own probability":
                lambda law, rho: sum(sparse(row, rho) for _, row in law) / len(law),
            "it is the chance of the rows that are not sparse":
                by_event(lambda row, rho: not sparse(row, rho)),
            "only the first token is looked at; any token may be over the bar":
                by_event(lambda row, rho: len(row) * rho * row[0] > sum(row))}),)),
    CourseTask("10.4", "counterexample", "A search against Theorem 1", 8, 3, (
        Property("refutes Eq. 8", 1, refutes, wrong={
            "the search found nothing": lambda: None,
            "wanted a row X, rho and x": lambda: 1,
            "so P_sparse is 1": lambda: ((3, 1), 1, 0.5),
            "Theorem 1 speaks of 1/L < rho <= 1": lambda: ((1, 1), 0.5, 0.5),
            "the maximum is over x > 0": lambda: ((1, 1), 1, 0),
            "try a smaller or a larger x": lambda: ((1, 1), 1, 1),
            "X = e^xi is over 0": lambda: ((0, 0), 1, 0.5)}),), drive=found),
    CourseTask("10.6", "corrected_bound", "The corrected bound, at its best point", 8, 3, (
        equals("the best of the two-term bounds", corrected_bound,
               examples(at_points, (0.5, "large terms"), (0.5, "bounds below 0"),
                        (0.5, "drawn"), (0.75, "drawn"), (1.0, "drawn")),
               "the bound", wrong=mistakes(corrected_bound, {
            "the smallest over the points is taken; each point gives a bound, so take the best "
            "one": {"take": min},
            "a bound below 0 is cut off there; it promises nothing, and is still the bound":
                {"least": 0.0},
            "the first X is taken in the place of the largest one":
                {"at": lambda law, rho, x: chance(law, lambda row: row[0] > x)
                 - heavy(law, rho, x)},
            "L is forgotten: the sum is compared with rho x":
                {"at": lambda law, rho, x: over(law, x)
                 - chance(law, lambda row: sum(row) > rho * x)},
            "the second chance is that of a sum BELOW L rho x: that is what one hopes for, so it "
            "may not be subtracted":
                {"at": lambda law, rho, x: over(law, x) - 1 + heavy(law, rho, x)},
            "the chance that both hold is computed; the bound subtracts one chance from another":
                {"at": lambda law, rho, x: chance(
                    law, lambda row: max(row) > x and sum(row) <= len(row) * rho * x)},
            "two chances are multiplied, as if the events were independent; this can promise too "
            "much": {"at": lambda law, rho, x: over(law, x) * (1 - heavy(law, rho, x))},
            "the largest X may also equal x; then no weight is over the bar for certain":
                {"at": lambda law, rho, x: chance(law, lambda row: max(row) >= x)
                 - heavy(law, rho, x)}})),)),
    CourseTask("10.8", "row_that_fools", "A rho-sparse row that needs most of its tokens", 6, 2,
               (holds("sparse by definition, and spread out", fools,
                      examples(lambda draw, tokens, rho: (tokens, rho), (1000, 0.01), (100, 0.08),
                               (300, 0.05), (617, 0.02)), wrong={
            "only the tokens over the bar have a weight": lambda length, rho: (
                [1 / (int(length * rho) - 1)] * (int(length * rho) - 1)
                + [0.0] * (length - int(length * rho) + 1))} | mistakes(sink, {
            "0.1 is the bar of the first example; it depends on the length and on rho":
                {"weight": lambda length, rho: 0.101},
            "is not over the bar": {"weight": lambda length, rho: 1 / length},
            "only reaches the bar": {"weight": lambda length, rho: 1 / (length * rho)},
            "no weight is negative": {"weight": lambda length, rho: 1.01 / rho},
            "the others share what is left": {"share": False},
            "wanted 80 % of the tokens": {"weight": lambda length, rho: 0.95},
            "the heavy token is one of them": {"more": 1}})),)),
)
