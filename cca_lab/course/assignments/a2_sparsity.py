"""a2: how sparse a map is, measured so that noise shows nothing; Theorem 1 of DGA repaired.

The variants: keys for a share of what the sinks leave, a window's loss over the rows that can lose,
tokens chosen on earlier rows and tested on later ones.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from math import log, prod, sqrt
from numbers import Real
from typing import Any

import torch
from scipy.stats import binom, norm
from torch import Tensor

from cca_lab.course.compare import (
    by_hand,
    describe,
    need_close,
    need_equal,
    need_keys,
    need_number,
    need_same,
    need_tensor,
)
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case

# a2: the maps that its checks draw, and what is right for them, by loops and in integers.

def integer_map(draw: Draw, length: int) -> Tensor:
    """Return a causal map of small integers (length, length), token 0 heavier than the others."""
    drawn = draw.integers(0, 10, length, length).tril()
    drawn[:, 0] += 2
    drawn.diagonal().add_(1)
    return drawn


def tied_map(draw: Draw, length: int, mass: tuple[int, int], sinks: int) -> Tensor:
    """Return such a map whose heaviest keys hold exactly the mass where a row is long enough."""
    drawn = integer_map(draw, length)
    top, over = mass
    for row in range(sinks + over, length):
        room = row + 1 - sinks
        unit = draw.randint(1, max(1, room // (2 * (over - top))))
        light = unit * (over - top)  # tokens of weight 1; the others hold the mass
        heavy = draw.randint(1, min(room - light, unit * top // 2))  # of at least 2 each
        each, more = divmod(unit * top, heavy)
        values = [each + (heavy_token < more)
                  for heavy_token in range(heavy)] + [1] * light + [0] * (room - light - heavy)
        draw.shuffle(values)
        drawn[row, sinks : row + 1] = torch.tensor(values)
    return drawn


def counted(drawn: Tensor, mass: tuple[int, int], sinks: int) -> Tensor:
    """Return how many of a row's heaviest tokens after the sinks hold the mass, in integers."""
    counts = []
    for row in drawn[:, sinks:].tolist():
        held, keys = 0, 0
        for weight in sorted(row, reverse=True):
            if mass[1] * held >= mass[0] * sum(row):
                break
            held, keys = held + weight, keys + 1
        counts.append(keys)
    return torch.tensor(counts)


def exact_map(draw: Draw, length: int, empty: bool = False) -> Tensor:
    """Return such a map with row sums of 64, all exact; or every second row is token 0's alone."""
    drawn = draw.integers(0, 5, length, length).tril()
    drawn.diagonal().add_(1)
    if empty:
        drawn[::2, 1:] = 0
    drawn[:, 0] += 64 - drawn.sum(dim=-1)
    return drawn


def noise(draw: Draw, maps: int, length: int) -> Tensor:
    """Return causal maps of noise (maps, length, length): exponential weights over their sum."""
    drawn = (draw.normal(maps, length, length) ** 2 + draw.normal(maps, length, length) ** 2).tril()
    return drawn / drawn.sum(dim=-1, keepdim=True)


def own_token_only(draw: Draw, maps: Tensor) -> Tensor:
    """Return maps in which one late row reads its own token alone: it could lose, but does not."""
    row = draw.randint(maps.shape[-1] // 2, maps.shape[-1] - 2)
    alone = maps.clone()
    alone[:, row] = 0
    alone[:, row, row] = 1
    return alone


def lost(maps: Tensor, windows: list[int], late: int = 0, every: bool = False,
         losing: bool = False) -> Tensor:
    """Return what rows lose on average; options move the border or take the mean of other rows."""
    length, columns = maps.shape[-1], []
    for window in windows:
        losses = [maps[:, i, : max(0, i - window + 1 + late)].sum(-1)
                 for i in range(0 if every else window, length)]
        rows = torch.stack(losses) if losses else maps.new_zeros(1, len(maps))
        columns.append(rows.sum(0) / (rows > 0).sum(0).clamp(min=1) if losing else rows.mean(0))
    return torch.stack(columns, dim=-1)


def lifted(maps: Tensor, first: int, split: int, top: int, *, choose: slice | None = None,
           skip: int = 1, test: int | None = None, how: str = "mean of shares") -> Tensor:
    """Return the lift of each map by loops.

    The options are mistakes: other rows choose, another first candidate (`skip`), another first row
    that tests, or the weight of the chosen as "ratio of sums" or of the "whole row".
    """
    lifts = []
    for each in maps:
        totals = each[choose or slice(first, split), skip:first].sum(dim=0).tolist()
        chosen = sorted(range(len(totals)), key=lambda token: -totals[token])[:top]
        rows = each[split if test is None else test:, skip:first]
        held, even = rows[:, chosen].sum(dim=-1), rows.sum(dim=-1)
        share = {"mean of shares": (held / even).mean(), "ratio of sums": held.sum() / even.sum(),
                 "whole row": held.mean()}[how]
        lifts.append(share * len(totals) / top)
    return torch.stack(lifts)


def with_sink(draw: Draw, maps: Tensor, share: float | None = None) -> Tensor:
    """Return maps in which token 0 takes another share of each row, evenly from the others."""
    shares = torch.tensor([share or draw.uniform(0.2, 0.9) for _ in range(maps.shape[-1])],
                          dtype=maps.dtype)
    rest = maps.clone()
    rest[..., 0] = 0
    rest[..., 1:, :] *= ((1 - shares[1:]) / rest[..., 1:, :].sum(dim=-1))[..., None]
    rest[..., 0] = 1 - rest.sum(dim=-1)
    return rest


def planted(maps: Tensor, tokens: list[int], factor: float) -> Tensor:
    """Return maps in which some tokens weigh more in every row."""
    more = maps.clone()
    more[..., tokens] *= factor
    return more / more.sum(dim=-1, keepdim=True)


# a2.2: keys for a share, on maps of small integers over their sum, so that the right counts are
# exact

def check_counts(answer: Answer, draw: Draw, maps: list[Tensor], mass: tuple[int, int], sinks: int,
                 empty: bool = False, note: str = "") -> None:
    """Compare counts of maps in both precisions; rows of sinks only are skipped unless `empty`."""
    ints = torch.stack(maps)
    wanted = torch.stack([counted(each, mass, sinks) for each in maps])
    ascending = [[next((k for k in range(len(row) + 1) if mass[1] * sum(sorted(row)[:k]) >= mass[0]
                        * sum(row)), 0) for row in each[:, sinks:].tolist()] for each in maps]
    causes = {"one key is counted where none is needed: for mass 0, or if the tokens after the "
              "sinks have no weight": wanted.clamp(min=1),
              "one key is missing: the sum reaches the mass with the next one":
                  (wanted - 1).clamp(min=0),
              "one key is too many: did you count the key after the mass was reached?": wanted + 1,
              "a sum that misses the mass by up to 0.0001 is taken to have reached it: that is too "
              "generous": torch.stack([counted(each, (10**4 * mass[0] - mass[1], 10**4 * mass[1]),
                                               sinks) for each in maps]),
              "the sinks are counted among the keys":
                  torch.stack([counted(each, mass, 0) for each in maps]),
              "the weights are sorted from the smallest": torch.tensor(ascending)}
    for dtype in (torch.float64, torch.float32):
        with case(f"{len(maps)} maps of {maps[0].shape[0]} tokens, {dtype}, mass "
                  f"{mass[0] / mass[1]:.6g}, sinks {sinks}{note}"):
            weights = ints.to(dtype) / ints.sum(dim=-1, keepdim=True).to(dtype)
            got = need_tensor(answer(weights, mass[0] / mass[1], sinks), wanted.shape, "the count",
                              "int")
            rows = slice(0 if empty else sinks, None)
            left = {cause: torch.cat([wanted[:, :rows.start], other[:, rows]], -1)
                    for cause, other in causes.items()}
            need_same(torch.cat([wanted[:, :rows.start], got[:, rows]], -1), wanted, "the count",
                      causes=left)


def counts_plain(answer: Answer, draw: Draw) -> None:
    """Masses that no sum of weights can equal."""
    for length, sinks in ((3, 0), (6, 1), (20, 2),
                          *((draw.randint(8, 23), draw.randint(0, 3)) for _ in range(3))):
        check_counts(answer, draw, [integer_map(draw, length) for _ in range(2)],
                     (draw.randint(90, 200), 211), sinks)


def counts_tied(answer: Answer, draw: Draw) -> None:
    """Masses that a sum of weights equals but for rounding, or misses by 0.00004."""
    for length, sinks, mass in ((13, 0, (9, 10)), (16, 1, (9, 10)), (24, 2, (7, 10)),
                                (draw.randint(20, 30), draw.randint(0, 3), (4, 5))):
        check_counts(answer, draw, [tied_map(draw, length, mass, sinks) for _ in range(3)], mass,
                     sinks, note="; in most rows a sum equals the mass")
    for length, (top, over) in ((13, (9, 10)), (draw.randint(20, 30), (7, 10))):
        maps = [tied_map(draw, length, (top, over), 0) for _ in range(3)]
        check_counts(answer, draw, maps, (25_000 * top + over, 25_000 * over), 0,
                     note="; in most rows a sum misses the mass by 0.00004")


def counts_ends(answer: Answer, draw: Draw) -> None:
    """Mass 0, mass 1, and rows of sinks only; all sums are exact, so no rounding matters."""
    for length, sinks in ((1, 1), (4, 1), (9, 12), (draw.randint(6, 15), draw.randint(1, 4))):
        for mass in ((0, 1), (1, 1), (draw.randint(30, 63), 67)):
            check_counts(answer, draw, [exact_map(draw, length, empty=True),
                                        exact_map(draw, length)], mass, sinks, empty=True)


# a2.3: beyond a window

def check_lost(answer: Answer, maps: Tensor, windows: list[int]) -> None:
    """Compare losses of one batch of maps."""
    causes = {"the window is one token too long": lost(maps, windows, -1),
              "the window is one token too short": lost(maps, windows, 1),
              "rows that have no token beyond the window are part of the mean":
                  lost(maps, windows, every=True),
              "rows that have tokens beyond the window, but give them no weight, are left out of "
              "the mean": lost(maps, windows, losing=True)}
    with case(f"{maps.shape[0]} maps of {maps.shape[-1]} tokens, windows {windows}"):
        need_close(answer(maps, windows), lost(maps, windows), "the loss", tolerance=1e-6,
                   causes=causes, why="is it a mean over no rows?")


def lost_random(answer: Answer, draw: Draw) -> None:
    """Windows inside the text; one row could lose something, but reads its own token alone."""
    for length in (4, 9, draw.randint(12, 30)):
        windows = [2, length - 1, draw.randint(2, length - 2)]
        check_lost(answer, noise(draw, 3, length), windows)
        check_lost(answer, own_token_only(draw, noise(draw, 3, length)), windows)


def lost_ends(answer: Answer, draw: Draw) -> None:
    """No window, a window of one token, and windows as long as the text and longer."""
    for length in (4, draw.randint(6, 20)):
        check_lost(answer, noise(draw, 2, length), [0, 1, 2, length, length + 3])


# a2.4: tokens that stay heavy

def lift_values(answer: Answer, draw: Draw) -> None:
    """The number itself."""
    for length, first, split, top in ((6, 4, 5, 1), (12, 5, 8, 2), (24, 9, 17, 3)):
        if draw.secret:
            length = length + draw.randint(0, 6)
        maps = with_sink(draw, noise(draw, 4, length))
        sizes = (first, split, top)
        wanted, sink = lifted(maps, *sizes), lifted(maps, *sizes, skip=0)
        causes = {"tokens are chosen on the rows that test them":
                      lifted(maps, *sizes, choose=slice(split, None)),
                  "tokens are chosen on all rows, also on those that test them":
                      lifted(maps, *sizes, choose=slice(first, None)),
                  "token 0 can be chosen": sink,
                  "token 0 can be chosen, though it is not counted as a candidate":
                      sink * (first - 1) / first,
                  "the candidates are taken to be `first`; they are one fewer, without token 0":
                      wanted * first / (first - 1),
                  "the weights of all testing rows are summed before the division":
                      lifted(maps, *sizes, how="ratio of sums"),
                  "the weight is divided by that of the whole row":
                      lifted(maps, *sizes, how="whole row"),
                  "the mean share is not put in units of an even share": wanted * top / (first - 1)}
        if split + 1 < length:
            causes["row `split` does not test"] = lifted(maps, *sizes, test=split + 1)
        with case(f"4 maps of {length} tokens, first {first}, split {split}, top {top}"):
            need_close(lifts_of(answer, maps, sizes), wanted, "the lift", causes=causes)


def lifts_of(answer: Answer, maps: Tensor, sizes: tuple[int, int, int]) -> Tensor:
    """Return the answer's lifts, if they are finite."""
    return need_tensor(answer(maps, *sizes), maps.shape[:-2], "the lift",
                       why="is it a mean over no rows? Row `split` is the first one that tests, "
                           "and the last row of the map tests too")


def lift_noise(answer: Answer, draw: Draw) -> None:
    """Noise must show a lift of 1 on average, and tokens that are heavy everywhere a large one."""
    maps = noise(draw, 100, 48)
    units = ("is it the share of what the candidates weigh in that row, times the number of "
             "candidates, divided by top?")
    for what, given, low, high, below, above in (
        ("pure noise", maps, 0.9, 1.1, units, "do the rows that choose the tokens also test them?"),
        ("noise with two tokens eight times as heavy", planted(maps, [3, 20], 8), 3, 8,
         "are the two chosen, and " + units, units)):
        with case(f"100 maps of 48 tokens, first 33, split 40, top 2, {what}"):
            mean = lifts_of(answer, given, (33, 40, 2)).mean().item()
            if not low < mean < high:
                raise Mistake(f"the mean lift is {mean:.3f}, wanted {low} to {high}: "
                              f"{below if mean <= low else above}")


def lift_gone(answer: Answer, draw: Draw) -> None:
    """A token that only the choosing rows read has a lift of 0; one that all read, the largest.

    More rows test than choose, so that a token chosen on all rows is the other one.
    """
    for length, first, split in ((7, 4, 5), (16, 6, 10),
                                 (draw.randint(25, 30), 7, draw.randint(10, 15))):
        before, after = draw.sample(range(1, first), 2)
        maps = torch.eye(length, dtype=torch.float64).repeat(2, 1, 1)
        maps[:, first:] /= 2
        maps[:, first:split, before] = maps[0, split:, after] = maps[1, split:, before] = 0.5
        with case(f"{length} tokens, first {first}, split {split}, top 1; token {before} is heavy "
                  f"in the choosing rows, and later token {after} is (map 0) or token {before} "
                  "still (map 1)"):
            gone, stays = lifts_of(answer, maps, (first, split, 1)).tolist()
            if abs(gone) > 1e-6 or stays < first - 1 - 1e-6:
                raise Mistake(f"the lifts are {gone:.6g} and {stays:.6g}, wanted 0 and "
                              f"{first - 1}: token {before} is chosen in both maps, and holds "
                              "nothing or all of what the candidates have later")


def lift_sink(answer: Answer, draw: Draw) -> None:
    """Token 0 may take any share of the rows, and the lift stays; heavy tokens are still seen."""
    for length, first, split in ((10, 5, 7), (30, 12, 20)):
        # The heaviest in each row is chosen, however token 0 weighs the rows.
        maps = noise(draw, 6, length)
        maps[..., first:, 2] = 2 * maps[..., first:, 1:first].amax(dim=-1)
        light, heavy = (with_sink(draw, maps, draw.uniform(*ends))
                        for ends in ((0.1, 0.3), (0.6, 0.9)))
        with case(f"6 maps of {length} tokens, first {first}, split {split}, top 1, token 2 "
                  "heaviest in all rows"):
            plain = lifts_of(answer, light, (first, split, 1))
            if plain.mean() < 1.2:
                raise Mistake(f"the mean lift is {plain.mean():.3f}, though token 2 is at least "
                              "twice as heavy as the other candidates in all rows: wanted more "
                              "than 1.2")
            need_close(lifts_of(answer, heavy, (first, split, 1)), plain.double(),
                       "the lift after token 0 was given more of each row")


# a2.5: what the circular measure shows in noise

def noise_value(tokens: int, top: int) -> float:
    """Return the mean lift of the heaviest exponential weights, from means of order statistics."""
    means = [sum(1 / rest for rest in range(rank, tokens + 1)) for rank in range(1, top + 1)]
    return sum(means) / top


def check_noise(answer: Answer, sizes: list[tuple[int, int]]) -> None:
    """Compare predictions."""
    for tokens, top in sizes:
        wanted = noise_value(tokens, top)
        causes = {"the chosen tokens are all taken to be as heavy as the heaviest":
                      noise_value(tokens, 1),
                  "only the lightest of the chosen tokens is counted":
                      sum(1 / rest for rest in range(top, tokens + 1)),
                  "the share is not put in units of an even share, top / tokens":
                      wanted * top / tokens,
                  "the even share is taken off": wanted - 1,
                  "the sum over the chosen tokens is not divided by their number": wanted * top,
                  "the harmonic sum is replaced by the logarithm": 1 + log(tokens / top)}
        with case(f"{tokens} tokens, top {top}"):
            need_equal(answer(tokens, top), wanted, "the mean lift", tolerance=1e-6,
                       # Among few tokens the mistakes look alike.
                       causes=causes if tokens > 4 else None)


def lift_of_one(answer: Answer, draw: Draw) -> None:
    """The heaviest token alone; among 1 to 3 tokens mistakes look alike, so they come last."""
    check_noise(answer, [(6, 1), (draw.randint(10, 60), 1), (draw.randint(500, 2000), 1), (3, 1),
                         (2, 1), (1, 1)])


def lift_of_several(answer: Answer, draw: Draw) -> None:
    """Several tokens, up to all of them."""
    check_noise(answer, [(7, 3), (draw.randint(20, 40), 5),
                         (draw.randint(200, 600), draw.randint(6, 30)), (50, 50), (3, 2), (2, 2)])


# a2.6: checks of an estimate of P_sparse with its interval.

def three(answer: Answer, logits: Tensor, rho: float, level: float) -> tuple[float, float, float]:
    """Return the answer's share, low and high."""
    got = answer(logits, rho, level)
    values = got.tolist() if isinstance(got, Tensor) and got.ndim == 1 else got
    if not isinstance(values, (list, tuple)) or len(values) != 3:
        raise Mistake(f"the result is {describe(got)}, wanted three numbers: share, low, high")
    share, low, high = (need_number(value, what)
                        for value, what in zip(values, ("share", "low", "high"), strict=True))
    if not -1e-9 <= low <= high <= 1 + 1e-9:
        raise Mistake(f"the interval is {low:.4g} to {high:.4g}, wanted 0 <= low <= high <= 1")
    return share, low, high


def share(answer: Answer, draw: Draw) -> None:
    """The share itself: ties with the bar, large logits, random ones."""
    tie = torch.tensor([[0.0, 0.0, -1000.0, -1000.0], [3.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    large = 1000 + 3 * draw.normal(50, 20)
    for what, logits, rho in (
        ("the smallest row, two equal logits", torch.zeros(1, 2, dtype=torch.float64), 1.0),
        ("Gaussian logits", 1.25 * draw.normal(60, 30), 0.125),
        ("a row whose largest weight equals the bar of 1/2", tie, 0.5),
        ("Gaussian logits in float32", 2 * draw.normal(40, 25, dtype=torch.float32), 0.2),
        ("logits of about 1000", large, 0.2)):
        length = logits.shape[-1]
        weights = logits.double().softmax(-1).amax(-1)
        wanted = (weights > 1 / (length * rho)).double().mean().item()
        causes = {"a weight that equals the bar counts as over it":
                      (weights >= 1 / (length * rho)).double().mean().item(),
                  "the bar is rho": (weights > rho).double().mean().item(),
                  "the bar is too low, such as 1 / L or rho / L: one weight of a row is always "
                  "over that": 1.0}
        with case(f"{what}, {len(logits)} rows of {length}, rho {rho}"):
            need_equal(three(answer, logits, rho, 0.95)[0], wanted, "the share of sparse rows",
                       tolerance=1e-6, causes=causes)


def intervals(answer: Answer, draw: Draw, rows: int,
              level: float) -> list[tuple[float, float, float]]:
    """Return the answer's shares and intervals if none, one, .. all of the rows are sparse."""
    answers = []
    for hits in range(rows + 1):
        logits = 0.1 * draw.normal(rows, 8)
        for row in draw.sample(range(rows), hits):
            logits[row, draw.randint(0, 7)] += 6
        with case(f"{hits} of {rows} rows are sparse, level {level}"):
            answers.append(three(answer, logits, 0.5, level))
    return answers


def wilson(hits: int, rows: int, level: float) -> float:
    """Return the width of Wilson's interval, a good one."""
    z = norm.ppf((1 + level) / 2)
    share = hits / rows
    return float(2 * z / (1 + z * z / rows) * sqrt(share * (1 - share) / rows + z * z
                                                   / (4 * rows * rows)))


def check_covers(answer: Answer, draw: Draw, ranges: tuple[tuple[float, float], ...]) -> None:
    """Compute how often the intervals hold the true chance and how wide they are, over chances."""
    for level in (0.8, 0.95):
        rows = draw.randint(45, 60) if draw.secret else 50
        # (rows + 1, 3).
        table = torch.tensor(intervals(answer, draw, rows, level), dtype=torch.float64)
        shares, low, high = table.T
        good = torch.tensor([wilson(hits, rows, level) for hits in range(rows + 1)],
                            dtype=torch.float64)
        for first, last in ranges:
            chance = first + (last - first) * (torch.arange(200, dtype=torch.float64)[:, None]
                                               + 0.5) / 200
            seen = torch.tensor(binom.pmf(torch.arange(rows + 1).numpy(), rows,
                                          chance.numpy())) / 200
            covered = (seen * ((low <= chance) & (chance <= high))).sum().item()
            width, usual = (seen @ (high - low)).sum().item(), (seen @ good).sum().item()
            with case(f"{rows} rows, chances of a sparse row from {first} to {last}, level "
                      f"{level}"):
                if covered < level - 0.04:
                    raise Mistake(f"the interval holds the true chance in {covered:.4f} of all "
                                  f"samples, wanted {level} (0.04 less will do): {why(shares)}")
                if width > 1.5 * usual:
                    raise Mistake(f"the interval is {width:.6f} wide on average, wanted at most "
                                  f"{1.5 * usual:.6f}: is it two-sided, at this level, and divided "
                                  "by the root of the number of rows?")


def why(shares: Tensor) -> str:
    """Return what to look at if an interval misses: the share, if that is wrong already."""
    rows = len(shares) - 1
    for hits, got in enumerate(shares.tolist()):
        if abs(got - hits / rows) > 1e-6:
            return (f"the share itself is wrong, {got:.4g} where {hits} of {rows} rows are sparse, "
                    f"wanted {hits / rows:.4g}; mend it first")
    return ("is the standard error right, is the interval open at both sides, and what does it do "
            "when no row or every row is sparse?")


# a2.7: Theorem 1 as printed, refuted

def near(got: object, what: str) -> Fraction:
    """Return a number as the fraction that was meant: 1.1 and 1 / 3 also if they are float32."""
    return Fraction(need_number(got, what)).limit_denominator(10**6)


def law_of(got: Any) -> tuple[list[Fraction], list[Fraction], int, Fraction, Fraction]:
    """Return values, chances, length, rho and x of an example that satisfies the hypotheses."""
    keys = ("values", "chances", "length", "rho", "x")
    need_keys(got, keys)
    lists = [got[key].tolist() if isinstance(got[key], Tensor) else got[key] for key in keys[:2]]
    if any(not isinstance(numbers, (list, tuple)) or not all(isinstance(x, Real) for x in numbers)
           for numbers in lists):
        raise Mistake("values and chances must be lists of numbers")
    values, chances = ([near(x, key) for x in numbers]
                       for numbers, key in zip(lists, keys, strict=False))
    length = need_number(got["length"], "length")
    rho, x = (near(got[key], key) for key in ("rho", "x"))
    if not 3 <= len(values) <= 6 or len(set(values)) != len(values) or len(chances) != len(values):
        raise Mistake(f"{len(values)} values and {len(chances)} chances, wanted 3 to 6 different "
                      "values X > 0, and a chance for each")
    if min(values) <= 0:
        raise Mistake(f"the smallest value is {float(min(values)):g}, wanted values X = e^xi over "
                      "0")
    if min(chances) < Fraction(1, 20) - Fraction(1, 10**6):
        raise Mistake(f"the smallest chance is {float(min(chances)):g}, wanted chances of at least "
                      "0.05")
    if abs(sum(chances, Fraction(0)) - 1) > 1e-6:
        raise Mistake(f"the chances sum to {float(sum(chances)):.7g}, wanted 1")
    if length != int(length) or not 2 <= length or len(values) ** length > 20000:
        raise Mistake(f"length is {length:g}, wanted an integer of 2 or more, with at most 20000 "
                      "different rows: len(values) ** length")
    if not Fraction(1, int(length)) < rho <= 1 or x <= 0:
        raise Mistake(f"rho is {float(rho):g} and x is {float(x):g}, wanted 1 / length < rho <= 1 "
                      "and x > 0")
    total = sum(chances)
    return values, [chance / total for chance in chances], int(length), rho, x


def refuted(answer: Answer, draw: Draw) -> None:
    """The example satisfies the hypotheses, lies in the middle, and violates the printed bound."""
    values, chances, length, rho, x = law_of(answer())
    head = sum(chance for value, chance in zip(values, chances, strict=True) if value <= x)
    tail = sparse = Fraction(0)
    for row in product(list(zip(values, chances, strict=True)), repeat=length):
        total, chance = sum(value for value, _ in row), prod(chance for _, chance in row)
        sparse += chance * (max(value for value, _ in row) * length * rho > total)
        tail += chance * ((length * rho - 1) * x <= total - row[0][0])
    if min(head, tail) < Fraction(1, 2) - Fraction(1, 10**6):
        raise Mistake(f"P_head is {float(head):.4f} and P_tail is {float(tail):.4f}: wanted at "
                      "least 1/2 for both, so that x lies in the middle")
    claimed = 1 - (head * tail) ** length
    if claimed < sparse + Fraction(1, 10) - Fraction(1, 10**6):
        raise Mistake(f"the printed bound is 1 - ({float(head):.4f} * {float(tail):.4f}) ** "
                      f"{length} = {float(claimed):.4f}, and P_sparse is {float(sparse):.4f}: "
                      "wanted a bound that is too large by 0.1 or more")


# a2.8: the repaired bound

def two_sides(large: float, chance: float, length: int, rho: float, x: float) -> dict[str, float]:
    """Return the chance of a sparse row and the repaired bound, summed over large values."""
    sparse = bound = 0.0
    for count, seen in enumerate(binom.pmf(range(length + 1), length, chance).tolist()):
        top, total = (large if count else 1.0), length - count + count * large
        sparse += seen * (top * length * rho > total)
        bound += seen * ((top > x) - (total > length * rho * x))
    return {"sparse": sparse, "repaired": bound}


def undecided(large: float, chance: float) -> float:
    """Return a binary fraction as rate, near which a row may be sparse or not."""
    return round(4096 * (1 + chance * (large - 1)) / large) / 4096


def settings(draw: Draw, longest: int) -> Iterator[tuple[float, float, int, float, float]]:
    """Yield (large, chance, length, rho, x) in binary fractions, so that equal sums stay equal."""
    yield from ((3.0, 0.5, 2, 1.0, 2.0), (3.0, 0.5, 2, 1.0, 1.0), (3.0, 0.75, 4, 0.5, 3.0),
                (20.0, 0.25, 4, 0.5, 12.5), (9.0, 0.0625, 30, 0.25, 8.5), (2.0, 0.25, 8, 0.25, 0.5))
    for _ in range(12 if draw.secret else 4):
        length = draw.randint(4, longest)
        large, chance = float(draw.randint(2, 40)), draw.choice((0.5, 0.125, 0.015625))
        rho = max(draw.choice((draw.randint(5, 16) / 16, undecided(large, chance))),
                  5 / 16 if length < 40 else 0)
        yield large, chance, length, rho, draw.choice((large - 0.25,
                                                       draw.randint(1, int(4.5 * large)) / 4))


def check_sides(answer: Answer, draw: Draw, key: str,
                long: list[tuple[float, float, int, float, float]] | None = None) -> None:
    """Compare one side for rows that can be counted by their large values, or for long ones."""
    for large, chance, length, rho, x in long or settings(draw, 60):
        with case(f"large {large:g}, chance {chance:g}, length {length}, rho {rho:g}, x {x:g}"):
            wanted = two_sides(large, chance, length, rho, x)
            got = need_keys(answer(large, chance, length, rho, x), wanted)
            need_equal(got[key], wanted[key], key, causes=None, tolerance=1e-8)


def both_long(answer: Answer, draw: Draw) -> None:
    """Lengths at which the number of rows no longer fits a floating point number."""
    for length in (1500, 3000):
        large = float(draw.randint(8, 30))
        for key in ("sparse", "repaired"):
            check_sides(answer, draw, key, [(large, 1 / 128, length, undecided(large, 1 / 128),
                                             large - 0.25)])


ASSIGNMENT = Assignment("a2", "sparsity", "Sparsity, measured without fooling yourself",
                        ("02", "10"), (
    CourseTask("a2.1", "by_hand", "One row by hand", 10, 1, 3, (
        Property("the numbers of the row", 2, by_hand(
            {"keys": 4, "keys without token 0": 3, "beyond": 0.5, "rate": 1 / (6 * 0.3)}, 2e-3)),)),
    CourseTask("a2.2", "keys_for_share", "Keys for a share of the row", 25, 2, 4, (
        Property("the fewest keys are counted", 1, counts_plain),
        Property("a sum that equals the mass has reached it", 1, counts_tied),
        Property("mass 0, mass 1 and rows of sinks only", 1, counts_ends))),
    CourseTask("a2.3", "lost_beyond", "What a window loses", 15, 2, 4, (
        Property("the loss is the mean over rows that can lose", 1, lost_random),
        Property("windows of 0, 1 and the whole text", 1, lost_ends))),
    CourseTask("a2.4", "lift", "Do heavy tokens stay heavy?", 30, 3, 5, (
        Property("the lift of random maps", 1, lift_values),
        Property("noise shows nothing, heavy tokens a lot", 1, lift_noise),
        Property("what was heavy and is no more counts nothing", 1, lift_gone),
        Property("the share of token 0 does not matter", 1, lift_sink))),
    CourseTask("a2.5", "noise_lift", "What the circular measure shows in noise", 15, 2, 4, (
        Property("one token is chosen", 1, lift_of_one),
        Property("several tokens are chosen", 1, lift_of_several))),
    CourseTask("a2.6", "estimate", "P_sparse with an interval", 20, 3, 4, (
        Property("the share of sparse rows", 1, share),
        Property("the interval covers as often as it says", 1,
                 partial(check_covers, ranges=((0.3, 0.7),))),
        Property("the interval covers near 0 and 1 too", 1,
                 partial(check_covers, ranges=((0.01, 0.06), (0.94, 0.99))), hidden=True))),
    CourseTask("a2.7", "too_much", "An example against Theorem 1", 15, 2, 4, (
        Property("the printed bound promises too much in the middle", 2, refuted),)),
    CourseTask("a2.8", "two_values", "The repaired bound, predicted", 20, 3, 4, (
        Property("the chance of a sparse row", 1, partial(check_sides, key="sparse")),
        Property("the repaired bound at one x", 1, partial(check_sides, key="repaired")),
        Property("both for thousands of tokens", 1, both_long, hidden=True))),
    CourseTask("a2.9", "head_picture", "What a head's picture shows", 30, 2, 4, (), read=3),
))
