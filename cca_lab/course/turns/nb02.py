"""What the reader writes in notebook 02: three ways to ask where the weight of a row lies."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import CourseTask, Draw


def causal(scores: Tensor) -> Tensor:
    """Return the weights of causal attention, (L, L)."""
    future = torch.ones(scores.shape, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(1)


# 02.2: keys that hold a given part of a row
def count_keys(row: list[float], mass: float, *,
               order: Callable[[list[float]], list[float]] = lambda row: sorted(row, reverse=True),
               strict: bool = False, spare: float = 1e-6, less: int = 0,
               always: float = 0.0) -> int:
    """Return after how many of the largest weights the sum reaches the mass."""
    total, mass = 0.0, always or mass
    for number, weight in enumerate(order(row), start=1):
        total += weight
        if total > mass if strict else total >= mass - spare:
            return number - less
    return len(row) - less


def row_of(draw: Draw, weights: int, mass: float) -> tuple[Any, ...]:
    """Return a row of attention and a mass."""
    return draw.normal(weights, scale=1.5).softmax(0).tolist(), mass


# 02.4: choose a token on some rows, test it on later ones
def choose_then_test(weights: Tensor, first: int, split: int, *, low: int = 1,
                     every: bool = False, rows: str = "early", test: str = "late",
                     from_low: bool = False, result: str = "share", more: int = 1,
                     best: Callable[..., Tensor] = torch.mean) -> tuple[int, float]:
    """Return the token that rows `first` to `split` read most, and how many later rows do.

    Reading is counted in even shares, 1 / (i + 1) of row i. The keywords are mistakes: in the
    candidates, in the rows that choose or test, in what is compared.
    """
    spans = {"early": slice(first, split), "late": slice(split, None),
             "both": slice(first, None), "first": slice(0, split)}
    row = torch.arange(len(weights))[:, None]
    shares = weights * (row + more)
    chosen = best(shares[spans[rows], low : split if every else first], dim=0).argmax().item()
    token = int(chosen) + (0 if from_low else low)
    tested = weights[spans[test], token]
    if result == "mean":
        return token, float(tested.mean())
    over = tested * (1 if result == "weight" else (row + more)[spans[test], 0]) > 1
    return token, float(over.sum() if result == "count" else over.double().mean())


def tempting(draw: Draw, tokens: int, first: int, split: int) -> tuple[Any, ...]:
    """Return weights in which tokens that nobody should choose, and some rows, tempt to err."""
    scores = draw.normal(tokens, tokens)
    order = list(range(2, first))
    draw.shuffle(order)
    scores[:, 0] += 3  # a sink
    scores[:first, 1] += 9  # wins only if the first rows have a say
    scores[:, first + 1] += 4  # not a candidate
    scores[first:split, order[0]] += 3  # the right choice
    scores[first, order[1]] += 6  # wins only if one row is enough
    scores[split::2, order[0]] += 2
    scores[split:, order[2]] += 5  # wins only if the rows of the test have a say
    weights = causal(scores)
    share = 1 / (tokens - 0.5)  # of the last row: a little more than an even share
    weights[-1] *= (1 - share) / (1 - weights[-1, order[0]])
    weights[-1, order[0]] = share
    return weights, first, split


# 02.8: the weight beyond a window
def weight_beyond(weights: Tensor, window: int, sinks: int, *, longer: int = 0, more_sinks: int = 0,
                  all_sinks: bool = True, twice: bool = False, kept: bool = False) -> Tensor:
    """Return the weights of all tokens that are older than the window and no sinks, added up."""
    first = max(0, sinks + more_sinks) if all_sinks else 0
    lost = torch.stack([row[first : max(first, i - window - longer + 1)].sum()
                        for i, row in enumerate(weights)])
    lost = lost - weights[:, :sinks].sum(1) if twice else lost
    return 1 - lost if kept else lost


def rows(draw: Draw, tokens: int, window: int, sinks: int) -> tuple[Any, ...]:
    """Return weights, a window and a number of sinks."""
    return causal(draw.normal(tokens, tokens, scale=1.5)), window, sinks


TURNS: tuple[CourseTask, ...] = (
    CourseTask("02.2", "count_keys", "Keys that hold a given part of a row", 5, 2, (
        equals("equal to sums of the largest weights", count_keys,
               examples(row_of, (6, 0.9), (9, 0.5), (12, 0.9), (30, 0.75), (1, 0.9)),
               "the number of keys", wrong=mistakes(count_keys, {
            "the key that crosses the line is not counted: it is needed too": {"less": 1},
            "the weights are taken as they stand; put the largest first": {"order": list},
            "the smallest weights come first; put the largest first": {"order": sorted},
            "0.9 is written into the function; the argument `mass` says how much": {"always": 0.9},
            "the sum may pass the mass by one key more than it has to": {"less": -1}})),
        equals("a sum that meets the mass is enough", count_keys,
               examples(lambda draw, weights, mass: (list(weights), mass),
                        ([0.25, 0.5, 0.25], 0.75), ([0.1] * 10, 0.9)), "the number of keys",
               wrong=mistakes(count_keys, {
            "a sum that is exactly the mass does not count: it is enough, so compare with >=":
                {"strict": True},
            "rounding decides: nine times 0.1 is 0.8999999999999999 for a computer, so stop at "
            "mass - 1e-6": {"spare": 0.0}})))),
    CourseTask("02.4", "choose_then_test", "Choose on early rows, test on late ones", 8, 3, (
        equals("the token and the share of each text", choose_then_test,
               examples(tempting, (32, 16, 24), (40, 12, 20), (40, 12, 39)), "the chosen token",
               "the share", tolerance=1e-6, wrong=mistakes(choose_then_test, {
            "token 0 is a candidate: every row reads it for no reason, so begin with token 1":
                {"low": 0},
            "the rows of the test have a say in the choice: this is the circle that we want to "
            "leave": {"rows": "both"},
            "the rows of the test choose alone: this is the circle that we want to leave":
                {"rows": "late"},
            "tokens from `first` on are candidates: some of the choosing rows cannot read them":
                {"every": True},
            "the token is counted from the first candidate, token 1: add 1": {"from_low": True},
            "the rows that chose are tested too": {"test": "both"},
            "only the rows that chose are tested": {"test": "early"},
            "the number of rows is returned, not their share": {"result": "count"},
            "the weight itself is compared with 1; multiply it by i + 1 first":
                {"result": "weight"},
            "the weights are averaged; count the rows instead": {"result": "mean"},
            "the rows before `first` have a say; the rows from `first` on choose":
                {"rows": "first"},
            "the largest share of one row decides; it is the mean over the rows":
                {"best": torch.amax},
            "row i is multiplied by i; it may read i + 1 tokens": {"more": 0}})),)),
    CourseTask("02.8", "weight_beyond", "The weight beyond a window", 5, 2, (
        equals("equal to adding what is older", weight_beyond,
               examples(rows, (9, 3, 0), (12, 4, 2), (8, 1, 0), (10, 3, 5), (7, 7, 0), (6, 20, 1)),
               "the lost weight", wrong=mistakes(weight_beyond, {
            "the window is one token too short: the row's own token is one of its tokens":
                {"longer": -1},
            "the window is one token too long: row i keeps the tokens from i - window + 1 on":
                {"longer": 1},
            "the sinks are not left out": {"all_sinks": False},
            "one sink too few is left out: sinks = 2 leaves out tokens 0 and 1": {"more_sinks": -1},
            "one sink too many is left out: sinks = 2 leaves out tokens 0 and 1": {"more_sinks": 1},
            "sinks inside the window are subtracted although they were never beyond it":
                {"all_sinks": False, "twice": True},
            "this is what the row keeps, not what it loses": {"kept": True}})),)),
)
