"""a2: how sparse a map is, measured so that noise shows nothing, with an honest interval."""

from collections.abc import Callable
from functools import partial
from math import log, sqrt
from typing import Any

import torch
from scipy.stats import binom, norm
from torch import Tensor

from cca_lab.course.compare import by_hand, need_equal, need_items, need_number
from cca_lab.course.exercise import equals, examples, holds, mistakes
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case


# a2.2: tokens that stay heavy
def lift(maps: Tensor, first: int, split: int, top: int, *,
         choose: Callable[[int, int], slice] = slice, skip: int = 1, test: int = 0,
         largest: bool = True, candidates: int = 0, unit: bool = True,
         how: str = "mean of shares") -> Tensor:
    """Return the lift of each map by loops; the keywords are mistakes."""
    lifts = []
    for each in maps:
        totals = each[choose(first, split), skip:first].sum(dim=0).tolist()
        ranked = sorted(range(len(totals)), key=lambda token: totals[token], reverse=largest)
        rows = each[split + test :, skip:first]
        held, even = rows[:, ranked[:top]].sum(dim=-1), rows.sum(dim=-1)
        share = {"mean of shares": (held / even).mean(), "ratio of sums": held.sum() / even.sum(),
                 "whole row": held.mean(), "last row": held[-1] / even[-1]}[how]
        lifts.append(share * (len(totals) + candidates) / top if unit else share)
    return torch.stack(lifts)


def noise(draw: Draw, tokens: int, first: int, split: int, top: int) -> tuple[Any, ...]:
    """Return maps of noise in which token 0 takes any share of a row, and the sizes."""
    maps = (draw.normal(4, tokens, tokens) ** 2 + draw.normal(4, tokens, tokens) ** 2).tril()
    maps[..., 0] *= 1 + 9 * draw.normal(tokens).abs()
    return maps / maps.sum(dim=-1, keepdim=True), first, split, top


def faded(draw: Draw, tokens: int, first: int, split: int) -> tuple[Any, ...]:
    """Return two maps: a token that only the choosing rows read, and one that all rows read.

    More rows test than choose, so that a token chosen on all rows is another one.
    """
    before, after = draw.sample(range(1, first), 2)
    maps = torch.eye(tokens, dtype=torch.float64).repeat(2, 1, 1)
    maps[:, first:] /= 2
    maps[:, first:split, before] = maps[0, split:, after] = maps[1, split:, before] = 0.5
    return maps, first, split, 1


# a2.3: what the circular measure shows in noise
def noise_lift(tokens: int, top: int, *, part: slice = slice(None), even: int = 0,
               divided: bool = True, unit: bool = True, whole: bool = False) -> float:
    """Return the mean lift of the heaviest exponential weights; the keywords are mistakes.

    It is the mean of the first means of order statistics.
    """
    means = [sum(1 / rest for rest in range(rank, tokens + 1)) for rank in range(1, top + 1)][part]
    total = sum(means) / (len(means) if divided else 1) - even
    return total * (1 if unit else top / tokens) / (tokens if whole else 1)


# a2.4: an estimate of P_sparse with its interval
def wilson(share: float, rows: int, z: float) -> tuple[float, float]:
    """Return the middle of Wilson's interval, a good one, and half of its width."""
    inside = share * (1 - share) / rows + z * z / (4 * rows * rows)
    return (share + z * z / (2 * rows)) / (1 + z * z / rows), z / (1 + z * z / rows) * sqrt(inside)


def textbook(share: float, rows: int, z: float) -> tuple[float, float]:
    """Return the share and z standard errors."""
    return share, z * sqrt(share * (1 - share) / rows)


def estimate(logits: Tensor, rho: float, level: float, *,
             bar: Callable[[int, float], float] = lambda length, rho: 1 / (length * rho),
             over: Callable[[Tensor, float], Tensor] = torch.gt,
             interval: Callable[[float, int, float], tuple[float, float]] = wilson,
             quantile: Callable[[float], float] = lambda level: (1 + level) / 2,
             soft: Answer = torch.softmax, most: Answer = torch.amax) -> tuple[float, float, float]:
    """Return the share of sparse rows and the interval; the keywords are mistakes."""
    rows, length = logits.shape
    weights = most(soft(logits.double(), -1), -1)
    share = over(weights, bar(length, rho)).double().mean().item()
    middle, half = interval(share, rows, float(norm.ppf(quantile(level))))
    return share, max(0.0, middle - half), min(1.0, middle + half)


def three(got: Any) -> tuple[float, float, float]:
    """Return the share, the low and the high end."""
    got = got.tolist() if isinstance(got, Tensor) and got.ndim == 1 else got
    share, low, high = (need_number(part, what) for part, what in zip(
        need_items(got, 3, "three numbers: share, low, high"), ("share", "low", "high"),
        strict=True))
    if not -1e-9 <= low <= high <= 1 + 1e-9:
        raise Mistake(f"the interval is {low:.4g} to {high:.4g}, wanted 0 <= low <= high <= 1")
    return share, low, high


def shares(got: Any, logits: Tensor, rho: float, level: float) -> None:
    """The share is right; the ends are looked at elsewhere."""
    need_equal(three(got)[0], estimate(logits, rho, level)[0], "the share of sparse rows",
               tolerance=1e-6)


def rows_of(draw: Draw, rows: int, tokens: int, rho: float, about: int) -> tuple[Any, ...]:
    """Return logits about a number; the first row's largest weight equals the bar of 1/2."""
    logits = about + 1.5 * draw.normal(rows, tokens)
    if rho == 0.5:
        logits[0] = torch.tensor([0.0, 0.0] + [-1000.0] * (tokens - 2))
    return logits, rho, 0.95


def covers(answer: Answer, draw: Draw, ranges: tuple[tuple[float, float], ...]) -> None:
    """Compute how often the intervals hold the true chance and how wide they are, over chances."""
    for level in (0.8, 0.95):
        rows, ends, good = draw.randint(45, 60) if draw.secret else 50, [], []
        for hits in range(rows + 1):
            logits = 0.1 * draw.normal(rows, 8)
            logits[draw.sample(range(rows), hits), draw.randint(0, 7)] += 6
            with case(f"{hits} of {rows} rows are sparse, level {level}"):
                ends.append(three(answer(logits.clone(), 0.5, level))[1:])
            good.append(2 * wilson(hits / rows, rows, float(norm.ppf((1 + level) / 2)))[1])
        low, high = torch.tensor(ends, dtype=torch.float64).T
        for first, last in ranges:
            places = (torch.arange(200, dtype=torch.float64)[:, None] + 0.5) / 200
            chance = first + (last - first) * places
            seen = torch.tensor(binom.pmf(range(rows + 1), rows, chance.numpy())) / 200
            covered = (seen * ((low <= chance) & (chance <= high))).sum().item()
            width, usual = ((seen @ x).sum().item() for x in (
                high - low, torch.tensor(good, dtype=torch.float64)))
            with case(f"{rows} rows, chances of a sparse row {first} to {last}, level {level}"):
                if covered < level - 0.04:
                    raise Mistake(f"the interval holds the true chance in {covered:.4f} of all "
                                  f"samples, wanted {level} (0.04 less will do)", ": is the share "
                                  "right, the standard error, and what if no row is sparse?")
                if width > 1.5 * usual:
                    raise Mistake(f"the interval is {width:.6f} wide on average, wanted at most "
                                  f"{1.5 * usual:.6f}", ": is it two-sided, at this level, and "
                                  "divided by the root of the number of rows?")


HAND = {"keys": 4, "keys without token 0": 3, "beyond": 0.5, "rate": 1 / (6 * 0.3)}
ASSIGNMENT = Assignment("a2", "sparsity", "Sparsity, measured without fooling yourself",
                        ("02", "10"), (
    CourseTask("a2.1", "by_hand", "One row by hand", 10, 1, 3, (
        Property("the numbers of the row", 2, by_hand(HAND, 2e-3), wrong={
            "not right yet: beyond": lambda: HAND | {"beyond": 0.3},
            "not right yet: keys": lambda: HAND | {"keys": 5},
            "not right yet: rate": lambda: HAND | {"rate": 0.3}}),)),
    CourseTask("a2.2", "lift", "Do heavy tokens stay heavy?", 30, 3, 5, (
        equals("the lift of noise", lift, examples(
            noise, (6, 4, 5, 1), (12, 5, 8, 2), (24, 9, 17, 3), (48, 33, 40, 2),
            larger=((30, 40), (6, 9), (12, 20), (1, 4))), "the lift", points=2,
            why="is it a mean over no rows? Row `split` is the first one that tests, and the last "
                "row of the map tests too", wrong=mistakes(lift, {
            "tokens are chosen on the rows that test them":
                {"choose": lambda first, split: slice(split, None)},
            "tokens are chosen on the rows before `first`, which do not see all candidates":
                {"choose": lambda first, split: slice(0, first)},
            "row `split` has a say, too": {"choose": lambda first, split: slice(first, split + 1)},
            "token 0 can be chosen": {"skip": 0},
            "token 0 can be chosen, though it is not counted as a candidate":
                {"skip": 0, "candidates": -1},
            "the candidates are taken to be `first`; they are one fewer, without token 0":
                {"candidates": 1},
            "row `split` does not test": {"test": 1},
            "the lightest candidates are chosen": {"largest": False},
            "only the last row tests": {"how": "last row"},
            "the weights of all testing rows are summed before the division":
                {"how": "ratio of sums"},
            "the weight is divided by that of the whole row": {"how": "whole row"},
            "the mean share is not put in units of an even share": {"unit": False}})),
        equals("what was heavy and is no more counts nothing", lift, examples(
            faded, (7, 4, 5), (16, 6, 10), (30, 7, 13), larger=((30, 40), (5, 9), (11, 15))),
            "the lift", wrong=mistakes(lift, {
            "tokens are chosen on all rows, also on those that test them":
                {"choose": lambda first, split: slice(first, None)}})))),
    CourseTask("a2.3", "noise_lift", "What the circular measure shows in noise", 15, 2, 4, (
        equals("equal to means of sorted numbers", noise_lift, examples(
            lambda draw, tokens, top: (tokens, top), (2, 1), (3, 2), (7, 3), (50, 50), (600, 1),
            (600, 30), larger=((30, 2000), (1, 30))), "the mean lift", points=2, tolerance=1e-6,
            wrong={"the harmonic sum is replaced by the logarithm":
                       lambda tokens, top: 1 + log(tokens / top)} | mistakes(noise_lift, {
            "the chosen tokens are all taken to be as heavy as the heaviest": {"part": slice(1)},
            "only the lightest of the chosen tokens is counted": {"part": slice(-1, None)},
            "the share is not put in units of an even share, top / tokens": {"unit": False},
            "the sum is divided by the number of tokens once more": {"whole": True},
            "the even share is taken off": {"even": 1},
            "the sum over the chosen tokens is not divided by their number":
                {"divided": False}})),)),
    CourseTask("a2.4", "estimate", "P_sparse with an interval", 20, 3, 4, (
        holds("the share of sparse rows", shares, examples(
            rows_of, (2, 4, 0.5, 0), (60, 30, 0.125, 0), (9, 6, 0.5, 0), (50, 20, 0.25, 1000)),
            wrong=mistakes(estimate, {
            "a weight that equals the bar counts as over it": {"over": torch.ge},
            "the bar is rho": {"bar": lambda length, rho: rho},
            "the bar is 1 / L or lower: one weight of a row is always over that or equal":
                {"bar": lambda length, rho: 1 / length},
            "the logits are compared with the bar, without a softmax": {"soft": lambda x, dim: x},
            "exp is taken without the maximum subtracted":
                {"soft": lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True)},
            "the mean weight is compared, not the largest": {"most": torch.mean},
            "the last weight is compared, not the largest": {"most": lambda x, dim: x[:, -1]}})),
        Property("the interval covers as often as it says", 1, partial(
            covers, ranges=((0.3, 0.7),)), wrong=mistakes(estimate, {
            "the quantile is one-sided": {"quantile": lambda level: level},
            "z is 1.96 at every level: look at this level": {"quantile": lambda level: 0.975},
            "the interval is 0 to 1 always": {"interval": lambda *args: (0.5, 0.5)},
            "the standard error is not divided by the root of the rows":
                {"interval": lambda share, rows, z: textbook(share, 1, z)},
            "the variance is taken for the standard error":
                {"interval": lambda share, rows, z: (share, z * share * (1 - share) / rows)},
            "the interval has no width": {"interval": lambda share, rows, z: (share, 0.0)}})),
        Property("the interval covers near 0 and 1 too", 1, partial(
            covers, ranges=((0.01, 0.06), (0.94, 0.99))), hidden=True, wrong=mistakes(estimate, {
            "share +- z standard errors is used, which is empty if no row or every row is sparse":
                {"interval": textbook}})))),
    CourseTask("a2.5", "head_picture", "What a head's picture shows", 30, 2, 4, (), read=3),
))
