"""a2: how sparse a map is, measured so that noise shows nothing, with an honest interval."""

from functools import partial
from math import log, sqrt
from typing import Any

import torch
from scipy.stats import binom, norm
from torch import Tensor

from cca_lab.course.compare import by_hand, need_equal, need_items, need_number
from cca_lab.course.exercise import equals, examples, holds, slips
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case


# a2.2: tokens that stay heavy
def lift(maps: Tensor, first: int, split: int, top: int) -> Tensor:
    """Return the lift of each map by loops."""
    lifts = []
    for each in maps:
        totals = each[first:split, 1:first].sum(dim=0).tolist()
        ranked = sorted(range(len(totals)), key=lambda token: totals[token], reverse=True)
        rows = each[split:, 1:first]
        held, even = rows[:, ranked[:top]].sum(dim=-1), rows.sum(dim=-1)
        lifts.append((held / even).mean() * len(totals) / top)
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
def noise_lift(tokens: int, top: int) -> float:
    """Return the mean lift of the heaviest exponential weights.

    It is the mean of the first means of order statistics.
    """
    means = [sum(1 / rest for rest in range(rank, tokens + 1)) for rank in range(1, top + 1)]
    return sum(means) / len(means)


# a2.4: an estimate of P_sparse with its interval
def wilson(share: float, rows: int, z: float) -> tuple[float, float]:
    """Return the middle of Wilson's interval, a good one, and half of its width."""
    inside = share * (1 - share) / rows + z * z / (4 * rows * rows)
    return (share + z * z / (2 * rows)) / (1 + z * z / rows), z / (1 + z * z / rows) * sqrt(inside)


def textbook(share: float, rows: int, z: float) -> tuple[float, float]:
    """Return the share and z standard errors."""
    return share, z * sqrt(share * (1 - share) / rows)


def estimate(logits: Tensor, rho: float, level: float) -> tuple[float, float, float]:
    """Return the share of sparse rows and the interval."""
    rows, length = logits.shape
    largest = logits.double().softmax(-1).amax(-1)
    share = (largest > 1 / (length * rho)).double().mean().item()
    middle, half = wilson(share, rows, float(norm.ppf((1 + level) / 2)))
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


WITH_0 = "split, 1:first", "split, 0:first", "split:, 1:first", "split:, 0:first"
ASSIGNMENT = Assignment("a2", "sparsity", "Sparsity, measured without fooling yourself",
                        ("02", "10"), (
    CourseTask("a2.1", "by_hand", "One row by hand", 10, 1, (
        by_hand("the numbers of the row",
                {"keys": 4, "keys without token 0": 3, "beyond": 0.5, "rate": 1 / (6 * 0.3)},
                {"beyond": 0.3}, {"keys": 5}, {"rate": 0.3}, near=2e-3),)),
    CourseTask("a2.2", "lift", "Do heavy tokens stay heavy?", 30, 3, (
        equals("the lift of noise", lift, examples(
            noise, (6, 4, 5, 1), (12, 5, 8, 2), (24, 9, 17, 3), (48, 33, 40, 2),
            larger=((30, 40), (6, 9), (12, 20), (1, 4))), "the lift", points=2,
            why="is it a mean over no rows? Row `split` is the first one that tests, and the last "
                "row of the map tests too", wrong=slips(lift, {
            "tokens are chosen on the rows that test them": ("first:split", "split:"),
            "tokens are chosen on the rows before `first`, which do not see all candidates":
                ("first:split", ":first"),
            "row `split` has a say, too": ("first:split", "first : split + 1"),
            "token 0 can be chosen": WITH_0,
            "token 0 can be chosen, though it is not counted as a candidate":
                (*WITH_0, "* len(totals)", "* (len(totals) - 1)"),
            "the candidates are taken to be `first`; they are one fewer, without token 0":
                ("* len(totals)", "* (len(totals) + 1)"),
            "row `split` does not test": ("each[split:", "each[split + 1 :"),
            "the lightest candidates are chosen": ("reverse=True", "reverse=False"),
            "only the last row tests": ("(held / even).mean()", "(held / even)[-1]"),
            "the weights of all testing rows are summed before the division":
                ("(held / even).mean()", "held.sum() / even.sum()"),
            "the weight is divided by that of the whole row": ("(held / even)", "held"),
            "the mean share is not put in units of an even share": ("* len(totals) / top", "")})),
        equals("what was heavy and is no more counts nothing", lift, examples(
            faded, (7, 4, 5), (16, 6, 10), (30, 7, 13), larger=((30, 40), (5, 9), (11, 15))),
            "the lift", wrong=slips(lift, {
            "tokens are chosen on all rows, also on those that test them":
                ("first:split", "first:")})))),
    CourseTask("a2.3", "noise_lift", "What the circular measure shows in noise", 15, 2, (
        equals("equal to means of sorted numbers", noise_lift, examples(
            lambda draw, tokens, top: (tokens, top), (2, 1), (3, 2), (7, 3), (50, 50), (600, 1),
            (600, 30), larger=((30, 2000), (1, 30))), "the mean lift", points=2, tolerance=1e-6,
            wrong={"the harmonic sum is replaced by the logarithm":
                       lambda tokens, top: 1 + log(tokens / top)} | slips(noise_lift, {
            "the chosen tokens are all taken to be as heavy as the heaviest":
                ("sum(means) / len(means)", "means[0]"),
            "only the lightest of the chosen tokens is counted":
                ("sum(means) / len(means)", "means[-1]"),
            "the share is not put in units of an even share, top / tokens":
                ("/ len(means)", "/ tokens"),
            "the sum is divided by the number of tokens once more":
                ("/ len(means)", "/ len(means) / tokens"),
            "the even share is taken off": ("/ len(means)", "/ len(means) - 1"),
            "the sum over the chosen tokens is not divided by their number":
                ("/ len(means)", "")})),)),
    CourseTask("a2.4", "estimate", "P_sparse with an interval", 20, 3, (
        holds("the share of sparse rows", shares, examples(
            rows_of, (2, 4, 0.5, 0), (60, 30, 0.125, 0), (9, 6, 0.5, 0), (50, 20, 0.25, 1000)),
            wrong=slips(estimate, {
            "a weight that equals the bar counts as over it": ("largest >", "largest >="),
            "the bar is rho": ("1 / (length * rho)", "rho"),
            "the bar is 1 / L or lower: one weight of a row is always over that or equal":
                ("(length * rho)", "length"),
            "the logits are compared with the bar, without a softmax": (".softmax(-1)", ""),
            "exp is taken without the maximum subtracted":
                (".softmax(-1)", ".exp().div(logits.double().exp().sum(-1, keepdim=True))"),
            "the mean weight is compared, not the largest": (".amax(-1)", ".mean(-1)"),
            "the last weight is compared, not the largest": (".amax(-1)", "[:, -1]")})),
        Property("the interval covers as often as it says", 1, partial(
            covers, ranges=((0.3, 0.7),)), wrong=slips(estimate, {
            "the quantile is one-sided": ("(1 + level) / 2", "level"),
            "z is 1.96 at every level: look at this level": ("(1 + level) / 2", "0.975"),
            "the interval is 0 to 1 always": ("return share", "middle = half = 0.5; return share"),
            "the standard error is not divided by the root of the rows":
                ("wilson(share, rows", "textbook(share, 1"),
            "the variance is taken for the standard error": (
                "return share", "middle, half = share, norm.ppf((1 + level) / 2) * share * "
                                "(1 - share) / rows; return share"),
            "the interval has no width":
                ("return share", "middle, half = share, 0.0; return share")})),
        Property("the interval covers near 0 and 1 too", 1, partial(
            covers, ranges=((0.01, 0.06), (0.94, 0.99))), hidden=True, wrong=slips(estimate, {
            "share +- z standard errors is used, which is empty if no row or every row is sparse":
                ("wilson", "textbook")})))),
    CourseTask("a2.5", "head_picture", "What a head's picture shows", 30, 2, (), read=3),
))
