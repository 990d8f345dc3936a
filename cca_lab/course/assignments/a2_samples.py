"""a2.6: checks of an estimate of P_sparse with its interval."""

from math import sqrt

import torch
from scipy.stats import binom, norm
from torch import Tensor

from cca_lab.course.compare import describe, need_equal, need_number
from cca_lab.course.tasks import Answer, Draw, Mistake, case


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
                  "the bar is too low, such as 1 / L or rho / L: one weight of a row is always over that": 1.0}
        with case(f"{what}, {len(logits)} rows of {length}, rho {rho}"):
            need_equal(three(answer, logits, rho, 0.95)[0], wanted, "the share of sparse rows", tolerance=1e-6,
                       causes=causes)


def intervals(answer: Answer, draw: Draw, rows: int, level: float) -> list[tuple[float, float, float]]:
    """Return the answer's shares and intervals if none, one, .. all of the rows are sparse."""
    found = []
    for hits in range(rows + 1):
        logits = 0.1 * draw.normal(rows, 8)
        for row in draw.sample(range(rows), hits):
            logits[row, draw.randint(0, 7)] += 6
        with case(f"{hits} of {rows} rows are sparse, level {level}"):
            found.append(three(answer, logits, 0.5, level))
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
        found = torch.tensor(intervals(answer, draw, rows, level), dtype=torch.float64)    # (rows + 1, 3)
        shares, low, high = found.T
        good = torch.tensor([wilson(hits, rows, level) for hits in range(rows + 1)], dtype=torch.float64)
        for first, last in ranges:
            chance = first + (last - first) * (torch.arange(200, dtype=torch.float64)[:, None] + 0.5) / 200
            seen = torch.tensor(binom.pmf(torch.arange(rows + 1).numpy(), rows, chance.numpy())) / 200
            covered = (seen * ((low <= chance) & (chance <= high))).sum().item()
            width, usual = (seen @ (high - low)).sum().item(), (seen @ good).sum().item()
            with case(f"{rows} rows, chances of a sparse row from {first} to {last}, level {level}"):
                if covered < level - 0.04:
                    raise Mistake(f"the interval holds the true chance in {covered:.4f} of all samples, wanted {level} "
                                  f"(0.04 less will do): {why(shares)}")
                if width > 1.5 * usual:
                    raise Mistake(f"the interval is {width:.6f} wide on average, wanted at most {1.5 * usual:.6f}: is "
                                  "it two-sided, at this level, and divided by the root of the number of rows?")


def why(shares: Tensor) -> str:
    """Return what to look at if an interval misses: the share, if that is wrong already."""
    rows = len(shares) - 1
    for hits, got in enumerate(shares.tolist()):
        if abs(got - hits / rows) > 1e-6:
            return (f"the share itself is wrong, {got:.4g} where {hits} of {rows} rows are sparse, wanted "
                    f"{hits / rows:.4g}; mend it first")
    return ("is the standard error right, is the interval open at both sides, and what does it do when no row or every "
            "row is sparse?")


def covers_middle(answer: Answer, draw: Draw) -> None:
    """Chances in the middle, where every textbook interval is good."""
    check_covers(answer, draw, ((0.3, 0.7),))


def covers_ends(answer: Answer, draw: Draw) -> None:
    """Chances near 0 and 1, where a sample often has no sparse row at all, or only sparse ones."""
    check_covers(answer, draw, ((0.01, 0.06), (0.94, 0.99)))
