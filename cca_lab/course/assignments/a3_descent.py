"""Checks of a3.8 and a3.9: the best bounds on a grouped Hessian, and the steps that descent takes."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from cca_lab.course.assignments.a3_hessian import entry
from cca_lab.course.compare import describe, need_equal, need_number
from cca_lab.course.tasks import Answer, Draw, Mistake, case

# a3.8: bounds


def pools(draw: Draw) -> Iterator[tuple[Tensor, float, float]]:
    """Yield (pool, low, high), the example of the notebook first."""
    yield torch.tensor([[1.0, 0, 0], [0, 0.5, 0.5]]).double(), 1.0, 3.0
    yield torch.tensor([[1.0, 0, 0], [0, 0.75, 0.25]]).double(), 1.0, 3.0
    sizes = [[draw.randint(1, 5) for _ in range(draw.randint(2, 4))] for _ in range(6)] if draw.secret else [
        [2, 2], [3, 2, 4]]
    for size in sizes:
        rows = [draw.normal(count).softmax(0) for count in size]
        low = draw.uniform(0.1, 2.0)
        yield torch.block_diag(*(row[None] for row in rows)), low, low * draw.uniform(1.5, 9.0)


def bounded(answer: Answer, draw: Draw, keys: tuple[str, ...]) -> None:
    """Compare bounds with the best ones."""
    for pool, low, high in pools(draw):
        squares = pool.square().sum(1)
        least, most = squares.min().item(), squares.max().item()
        count = (pool > 0).sum(1)
        wanted = {"lowest": low * least, "highest": high * most, "kappa": high / low * most / least}
        sizes = (count.max() / count.min()).item()
        causes = {"lowest": {"the pool is taken to be even": low / count.max().item(), "it is not divided": low,
                             "the eigenvalues of W^T W are taken, which has zeros that W W^T has not": 0.0,
                             "lengths of rows are not squared": low * least**0.5,
                             "max and min are swapped": low * most},
                  "highest": {"the pool is taken to be even": high / count.min().item(), "it is not divided": high,
                              "lengths of rows are not squared": high * most**0.5,
                              "max and min are swapped": high * least},
                  "kappa": {"the pool is taken to be even": high / low * sizes, "rows are taken to be equally long":
                            high / low, "lengths of rows are not squared": high / low * (most / least) ** 0.5}}
        rows = "; ".join(str([round(x, 3) for x in row if x]) for row in pool.tolist())
        with case(f"weights of the groups {rows}, eigenvalues of H from {low:.3g} to {high:.3g}"):
            got = answer(pool, low, high)
            for key in keys:
                found = entry(got, tuple(wanted), key)
                found = found.item() if isinstance(found, Tensor) and found.numel() == 1 else found
                if key == "kappa" and isinstance(found, float) and (found < 0 or found > 1e9):  # inf, but for rounding
                    raise Mistake(f'"kappa" is {describe(found)}, wanted {wanted[key]:.6g}: do you divide by an '
                                  "eigenvalue 0 of W^T W? The groups are k, and W W^T is k x k")
                number = need_number(found, f'"{key}"')
                broken = number > wanted[key] if key == "lowest" else number < wanted[key]
                try:
                    need_equal(number, wanted[key], f'"{key}"', tolerance=1e-6, causes=causes[key])
                except Mistake as mistake:
                    raise Mistake(f"{mistake}. {'Some H breaks' if broken else 'No H attains'} this bound") from None


def eigenvalue_range(answer: Answer, draw: Draw) -> None:
    """Smallest and largest eigenvalue of any grouped Hessian."""
    bounded(answer, draw, ("lowest", "highest"))


def condition_bound(answer: Answer, draw: Draw) -> None:
    """Largest condition number of any grouped Hessian."""
    bounded(answer, draw, ("kappa",))


# a3.9: descent


def descend(low: float, high: float, step: float, tolerance: float) -> int | None:
    """Run descent along both extreme eigenvectors; return the steps of the slower one."""
    factors = (abs(1 - step * low), abs(1 - step * high))
    if max(factors) >= 1:
        return None
    errors, count = [1.0, 1.0], 0
    while max(errors) > tolerance:
        errors = [error * factor for error, factor in zip(errors, factors, strict=True)]
        count += 1
    return count


def need_steps(answer: Answer, examples: list[tuple[float, float, float, float]]) -> None:
    """Compare numbers of steps with a run of descent."""
    def logs(rate: float, tolerance: float, rounded: Callable[[float], int] = math.ceil) -> int:
        return rounded(math.log(tolerance) / math.log(rate)) if 0 < rate < 1 else -1

    for low, high, step, tolerance in examples:
        wanted = descend(low, high, step, tolerance)
        ends = [abs(1 - step * low), abs(1 - step * high)]
        best = (high - low) / (high + low)
        with case(f"eigenvalues from {low:.4g} to {high:.4g}, step {step:.4g}, tolerance {tolerance:.3g}"):
            got = answer(low, high, step, tolerance)
            if wanted is None or got is None:
                if got is not wanted:
                    raise Mistake(f"the result is {describe(got)}, wanted {describe(wanted)}: an error shrinks by the "
                                  f"factors {ends[0]:.4g} and {ends[1]:.4g} in a step")
                continue
            need_equal(got, wanted, "the number of steps", causes={
                "only the smallest eigenvalue is looked at": logs(ends[0], tolerance),
                "only the largest eigenvalue is looked at": logs(ends[1], tolerance),
                "the squared error is meant": logs(max(ends) ** 2, tolerance),
                "the best step is taken instead of the given one": logs(best, tolerance),
                "it is rounded down": logs(max(ends), tolerance, math.floor),
                "1 is added even if the steps come out whole": logs(max(ends), tolerance, math.floor) + 1,
                "no step is taken: a factor of 0 takes one": 0})


def runs(draw: Draw, count: int) -> Iterator[tuple[float, float, float, float]]:
    """Yield runs that arrive, none so close to a whole number of steps that rounding decides."""
    while count:
        low = draw.uniform(0.1, 2.0)
        high = low * draw.uniform(1.2, 30.0)
        step, tolerance = draw.uniform(0.4, 1.95) / high, 10 ** -draw.uniform(0.5, 5.0)
        exact = math.log(tolerance) / math.log(max(abs(1 - step * low), abs(1 - step * high)))
        if abs(exact - round(exact)) > 1e-4:
            count -= 1
            yield low, high, step, tolerance


def steps(answer: Answer, draw: Draw) -> None:
    """Descents that arrive."""
    # the factor 1/2 and the tolerance 1/4 tie without any rounding
    need_steps(answer, [(1.0, 3.0, 0.5, 0.1), (1.0, 3.0, 1 / 3, 0.1), (1.0, 3.0, 0.6, 0.1), (1.0, 3.0, 0.5, 0.25),
                        *runs(draw, 10 if draw.secret else 4)])


def arrives(answer: Answer, draw: Draw) -> None:
    """Descents that stay where they are, grow, or arrive at once."""
    grows = [(low, high, draw.uniform(2.05, 4.0) / high, tolerance) for low, high, _, tolerance in runs(draw, 4)]
    need_steps(answer, [(2.0, 2.0, 0.5, 0.1), (1.0, 4.0, 0.5, 0.1), (1.0, 4.0, 1.0, 0.1), *grows, *runs(draw, 4)])
