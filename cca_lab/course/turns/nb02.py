"""What the reader writes in notebook 02: three ways to ask where the weight of a row lies."""

from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import need_close, need_equal, need_items, need_number
from cca_lab.course.tasks import Answer, CourseTask, Draw, Property, case

ROUNDING = 1e-6


def _causal(scores: Tensor) -> Tensor:
    """Return the weights of causal attention, (L, L)."""
    future = torch.ones(scores.shape, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(1)


# 02.2: keys that hold a given part of a row
def _count(weights: list[float], mass: float) -> int:
    """Return after how many weights, in the order they come, the sum reaches the mass."""
    return next((n for n in range(1, len(weights)) if sum(weights[:n]) >= mass - ROUNDING),
                len(weights))


def check_count(answer: Answer, draw: Draw) -> None:
    """Random rows and several masses, against sums of the first n."""
    for length, mass in [(30, 0.75), (6, 0.9), (9, 0.5), (12, 0.9), (1, 0.9)]:
        row = draw.normal(length, scale=1.5).softmax(0).tolist()
        ordered = sorted(row, reverse=True)
        wanted = _count(ordered, mass)
        causes = {
            "the key that crosses the line is not counted: it is needed too": wanted - 1,
            "the weights are taken as they stand; put the largest first": _count(row, mass),
            "the smallest weights come first; put the largest first": _count(ordered[::-1], mass),
            "0.9 is written into the function; the argument `mass` says how much":
                _count(ordered, 0.9),
            "the sum may pass the mass by one key more than it has to": wanted + 1,
        }
        with case(f"{length} weights, mass {mass}"):
            _need_count(answer(row, mass), wanted, causes)


def _need_count(got: Any, wanted: int, causes: dict[str, int]) -> None:
    need_equal(need_number(got, "the number of keys"), wanted, "the number of keys", causes=causes)


def check_edges(answer: Answer, draw: Draw) -> None:
    """Sums that meet the mass exactly, and sums that meet it but for rounding."""
    with case("the weights 0.5, 0.25, 0.25, and mass 0.75"):
        _need_count(answer([0.25, 0.5, 0.25], 0.75), 2, {
            "a sum that is exactly the mass does not count: it is enough, so compare with >=": 3})
    with case("ten weights of 0.1, and mass 0.9"):
        _need_count(answer([0.1] * 10, 0.9), 9, {
            "rounding decides: nine times 0.1 is 0.8999999999999999 for a computer, so stop at "
            "mass - 1e-6": 10})


# 02.4: choose a token on some rows, test it on later ones
def _choose(weights: Tensor, tokens: range, rows: range) -> int:
    """Return the token that the rows read most, in units of an even share."""
    total = {t: sum(float(weights[i, t]) * (i + 1) for i in rows) for t in tokens}
    return max(total, key=lambda t: total[t])


def _share(weights: Tensor, token: int, rows: range, even: int | None = None) -> float:
    """Return the share of rows that give a token more than 1 / (i + 1), or more than 1 / even."""
    return sum(float(weights[i, token]) > 1 / (even or i + 1) for i in rows) / len(rows)


def _tempting(draw: Draw, length: int, first: int, split: int) -> Tensor:
    """Return weights in which token 0, a late token and the testing rows tempt to err."""
    scores = draw.normal(length, length)
    tokens = list(range(2, first))
    draw.shuffle(tokens)
    scores[:, 0] += 3  # a sink
    scores[:, first + 1] += 4  # not a candidate
    scores[first:split, tokens[0]] += 2  # the right choice
    scores[split::2, tokens[0]] += 2
    scores[split:, tokens[1]] += 5  # wins only if the rows of the test have a say
    return _causal(scores)


def check_choice(answer: Answer, draw: Draw) -> None:
    """The token, then the share, against loops."""
    for length, first, split in [(32, 16, 24), (40, 12, 20), (25, 10, 18)]:
        weights = _tempting(draw, length, first, split)
        tokens, early, late = range(1, first), range(first, split), range(split, length)
        token = _choose(weights, tokens, early)
        share = _share(weights, token, late)
        with case(f"{length} tokens, first {first}, split {split}"):
            got = _two(answer(weights, first, split))
            _need_token(got[0], token, {
                "token 0 is a candidate: every row reads it for no reason, so begin with token 1":
                    _choose(weights, range(first), early),
                "the rows of the test have a say in the choice: this is the circle that we want to "
                "leave":
                    _choose(weights, tokens, range(first, length)),
                "the rows of the test choose alone: this is the circle that we want to leave":
                    _choose(weights, tokens, late),
                "tokens from `first` on are candidates: some of the choosing rows cannot read them":
                    _choose(weights, range(1, split), early),
                "it is counted from the first candidate, token 1: add 1": token - 1,
            })
            causes = {
                "the rows that chose are tested too": _share(weights, token, range(first, length)),
                "only the rows that chose are tested": _share(weights, token, early),
                "an even share of row i is 1 / (i + 1), not 1 / L":
                    _share(weights, token, late, length),
                "the number of rows is returned, not their share": share * len(late),
                "the weight itself is compared with 1; multiply it by i + 1 first": 0.0,
                "the weights are averaged; count the rows instead":
                    float(weights[split:, token].mean()),
            }
            need_equal(need_number(got[1], "the share"), share, "the share", tolerance=1e-6,
                       causes=causes if share else None)


# Text of 24 tokens, first 8, split 16, by (rows, token): the even shares that those rows give to
# the token; and the right choice; and what each mistake chooses instead.
PLACES: tuple[tuple[dict[tuple[range, int], float], int, dict[int, str]], ...] = (
    ({(range(8, 16), 2): 1.2, (range(8, 12), 4): 3.0}, 4, {
        2: "in how many rows it is over the even share does not choose: the mean of the shares "
           "does"}),
    ({(range(8, 16), 2): 2.0, (range(12, 13), 6): 6.0}, 2, {
        6: "the largest share of a single row does not choose: the mean of the shares does"}),
    ({(range(8, 16), 1): 2.0, (range(8, 16), 4): 1.0}, 1, {4: "token 1 is a candidate too"}),
    ({(range(8, 16), 7): 2.0, (range(8, 16), 8): 3.0, (range(8, 16), 4): 1.0}, 7, {
        8: "token `first` is no candidate, only those before it",
        4: "token `first` - 1 is a candidate too"}),
    ({(range(8, 9), 2): 4.0, (range(15, 16), 3): 3.0}, 2, {3: "row `first` has a say too"}),
    ({(range(8, 9), 2): 3.0, (range(15, 16), 3): 6.0, (range(16, 17), 4): 7.0,
      (range(7, 8), 5): 7.0}, 3, {
        2: "row `split` - 1 has a say too",
        4: "row `split` has no say: it is the first of the test",
        5: "rows before `first` have no say"}),
    ({(range(8, 9), 3): 2.7, (range(15, 16), 5): 4.0}, 5, {
        3: "the weights are compared as they are; an even share of row i is 1 / (i + 1), so "
           "multiply by i + 1 first"}),
)


def _with_shares(shares: dict[tuple[range, int], float]) -> Tensor:
    """Return weights, (24, 24), that are such shares; what is left of a row goes to token 0."""
    weights = torch.zeros(24, 24, dtype=torch.float64)
    for (rows, token), share in shares.items():
        for i in rows:
            weights[i, token] = share / (i + 1)
    weights[:, 0] = 1 - weights.sum(1)
    return weights


def check_places(answer: Answer, draw: Draw) -> None:
    """Texts in which one row or one token decides, and shares close to the even one."""
    for shares, token, causes in PLACES:
        given = ", ".join(f"{share} to token {t} from row" + (
            f" {rows[0]}" if len(rows) == 1 else f"s {rows[0]} to {rows[-1]}")
            for (rows, t), share in shares.items())
        with case(f"24 tokens, first 8, split 16; even shares: {given}"):
            got = _two(answer(_with_shares(shares), 8, 16))[0]
            _need_token(got, token, {cause: other for other, cause in causes.items()})
    close = {(range(8, 16), 3): 2.0, (range(16, 20), 3): 1.03, (range(20, 24), 3): 0.97}
    with case("24 tokens, first 8, split 16; the rows of the test give 1.03 or 0.97 even shares, "
              "four rows each"):
        got = _two(answer(_with_shares(close), 8, 16))[1]
        need_equal(need_number(got, "the share"), 0.5, "the share", tolerance=1e-6, causes={
            "row i reads i + 1 tokens, so its even share is 1 / (i + 1), not 1 / i": 0.0,
            "row i reads i + 1 tokens, so its even share is 1 / (i + 1), not 1 / (i + 2)": 1.0})


def _need_token(got: Any, wanted: int, causes: dict[str, int]) -> None:
    need_equal(need_number(got, "the chosen token"), wanted, "the chosen token", causes=causes)


def _two(got: Any) -> tuple[Any, Any]:
    if isinstance(got, Tensor) and got.numel() == 2:
        got = tuple(got.flatten())
    need_items(got, 2, "two: the chosen token and the share")
    return got[0], got[1]


# 02.8: the weight beyond a window
def _beyond(weights: Tensor, window: int, sinks: int = 0) -> Tensor:
    """Add the weights of all tokens that are older than the window and no sinks, one by one."""
    rows = [[float(weights[i, t]) for t in range(sinks, i - window + 1)]
            for i in range(len(weights))]
    return torch.tensor([sum(row) for row in rows], dtype=weights.dtype)


def check_beyond(answer: Answer, draw: Draw) -> None:
    """Windows of many sizes, with and without sinks, the shortest and the longest included."""
    for length, window, sinks in [(9, 3, 0), (12, 4, 2), (8, 1, 0), (10, 3, 5), (7, 7, 0),
                                  (6, 20, 1)]:
        weights = _causal(draw.normal(length, length, scale=1.5))
        causes = {
            "the window is one token too short: the row's own token is one of its tokens":
                _beyond(weights, window - 1, sinks) if window > 1 else None,
            "the window is one token too long: row i keeps the tokens from i - window + 1 on":
                _beyond(weights, window + 1, sinks),
            "the sinks are not left out": _beyond(weights, window),
            "one sink too few is left out: sinks = 2 leaves out tokens 0 and 1":
                _beyond(weights, window, max(0, sinks - 1)),
            "one sink too many is left out: sinks = 2 leaves out tokens 0 and 1":
                _beyond(weights, window, sinks + 1),
            "sinks inside the window are subtracted although they were never beyond it":
                _beyond(weights, window) - weights[:, :sinks].sum(1),
            "this is what the row keeps, not what it loses": 1 - _beyond(weights, window, sinks),
        }
        with case(f"{length} tokens, window {window}, sinks {sinks}"):
            need_close(answer(weights, window, sinks), _beyond(weights, window, sinks),
                       "the lost weight", causes=causes)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("02.2", "count_keys", "Keys that hold a given part of a row", 5, 2, 4, (
        Property("equal to sums of the largest weights", 1, check_count),
        Property("a sum that meets the mass is enough", 1, check_edges))),
    CourseTask("02.4", "choose_then_test", "Choose on early rows, test on late ones", 8, 3, 4, (
        Property("the token and the share of each text", 1, check_choice),
        Property("what decides, and what does not", 1, check_places))),
    CourseTask("02.8", "weight_beyond", "The weight beyond a window", 5, 2, 5, (
        Property("equal to adding what is older", 1, check_beyond),)),
)
