"""What the reader writes in notebook 11: noise, condition numbers, a matrix that refutes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need_equal, need_items, need_number
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case

Pool = Callable[[Sequence[float]], float]  # the logits of a group -> its one logit
SINGULAR = 1e10  # no condition number below is that large


# 11.2: the variance of one weight
def _other_variances(weights: list[float], j: int) -> dict[str, float]:
    """Return what usual mistakes make of the variance."""
    weight_j, squares = weights[j], sum(weight**2 for weight in weights)
    moves = [weight_j * ((i == j) - weight) for i, weight in enumerate(weights)]
    right = sum(move**2 for move in moves)
    return {
        "only the token's own noise counts; a softmax passes on the noise of all tokens":
            moves[j] ** 2,
        "the token's own noise is left out": right - moves[j] ** 2,
        "the 1 of the token itself is forgotten: its own derivative is alpha_j (1 - alpha_j)":
            weight_j**2 * squares,
        "the derivatives are added before squaring; independent noises add their squares":
            sum(moves) ** 2,
        "the factor alpha_j of every derivative is forgotten": right / weight_j**2,
        "the factor alpha_j is not squared with the rest": right / weight_j,
        "the derivatives' sizes are added; a variance adds their squares":
            sum(abs(move) for move in moves),
        "the square root is taken: that is the standard deviation": math.sqrt(right),
        "it is divided by the number of tokens; a variance of a sum is the sum of the variances":
            right / len(weights),
    }


def check_variance(answer: Answer, draw: Draw) -> None:
    """Every weight of a few rows, against a sum over the noises."""
    rows = [[0.1, 0.6, 0.3], [0.25, 0.75]]
    for length in (4, 6):
        shares = [draw.randint(1, 9) for _ in range(length)]
        rows.append([share / sum(shares) for share in shares])
    for weights in rows:
        for j, weight_j in enumerate(weights):
            wanted = sum((weight_j * ((i == j) - weight)) ** 2 for i, weight in enumerate(weights))
            with case(f"token {j} of {len(weights)} with the weights "
                      f"{[round(weight, 3) for weight in weights]}"):
                need_equal(need_number(answer(weights, j)), wanted, "the variance", tolerance=1e-9,
                           causes=_other_variances(weights, j))


# 11.4: the noise on a group's logit
def _mean(logits: Sequence[float]) -> float:
    return sum(logits) / len(logits)


def _soft(logits: Sequence[float]) -> float:
    powers = [math.exp(logit) for logit in logits]
    return sum(power * logit for power, logit in zip(powers, logits, strict=True)) / sum(powers)


def _linear(logits: Sequence[float]) -> float:
    return sum(0.1 * (token + 1) * logit for token, logit in enumerate(logits))


POOLS: dict[str, Pool] = {"unequal weights": _linear, "the mean": _mean, "softmax pooling": _soft}


def _slopes(pool: Pool, logits: list[float], step: float = 1e-5, *,
            both: bool = True) -> list[float]:
    """Return the pooled logit's derivatives, from two sides or from one."""
    slopes = []
    for j in range(len(logits)):
        up, down = ([a + (sign * step if i == j else 0.0) for i, a in enumerate(logits)]
                    for sign in (1, -1))
        slopes.append((pool(up) - pool(down)) / (2 * step) if both
                      else (pool(up) - pool(logits)) / step)
    return slopes


def _other_factors(pool: Pool, logits: list[float]) -> dict[str, float]:
    slopes = _slopes(pool, logits)
    causes = {
        "all logits are moved together; each token has noise of its own, so move one at a time":
            sum(slopes) ** 2,
        "the derivatives are added without squares": sum(slopes),
        "only the first token is moved": slopes[0] ** 2,
        "the mean is taken; the variances of independent noises add up":
            _mean([slope**2 for slope in slopes]),
        "the square root is taken: that is the factor of the standard deviation":
            math.sqrt(sum(slope**2 for slope in slopes)),
        "a change from both sides is divided by one step; the two sides are two steps apart":
            4 * sum(slope**2 for slope in slopes),
    }
    return causes | {
        f"the step is {step:g}{side}: too large to follow the slope":
            sum(slope**2 for slope in _slopes(pool, logits, step, both=not side))
        for step in (1.0, 0.1, 0.01) for side in ("", ", to one side")}


def check_factor(answer: Answer, draw: Draw) -> None:
    """Three ways to pool, for groups of several sizes."""
    for size in (3, 2, 5):
        logits = [round(float(x), 3) for x in draw.normal(size, scale=2.0)]
        for name, pool in POOLS.items():
            wanted = sum(slope**2 for slope in _slopes(pool, logits))
            causes = {cause: x for cause, x in _other_factors(pool, logits).items()
                      if abs(x - wanted) > 1e-3}
            with case(f"{name} of the logits {logits}"):
                got = need_number(answer(pool, logits))
                if abs(got) < 1e-6:
                    raise Mistake(f"the factor is {got:g}: divide the change of the pooled logit "
                                  "by the step")
                need_equal(got, wanted, "the factor", tolerance=2e-4, causes=causes)


# 11.8: condition numbers of both Hessians
def _kappa(values: Tensor) -> float:
    spectrum = torch.linalg.svdvals(values) ** 2
    return float(spectrum[0] / spectrum[-1])


def check_kappas(answer: Answer, draw: Draw) -> None:
    """Gaussian values with L <= d, so that both Hessians are positive definite."""
    for length, width, m in [(4, 6, 2), (6, 9, 3), (8, 12, 2)]:
        values = draw.normal(length, width)
        before, after = _kappa(values), _kappa(values.reshape(-1, m, width).mean(1))
        other = _kappa(values.reshape(m, -1, width).mean(0))
        with case(f"L = {length}, d = {width}, m = {m}"):
            got = answer(values, m)
            if isinstance(got, Tensor) and got.numel() == 2:
                got = got.flatten().tolist()
            need_items(got, 2, "two condition numbers: in full, in groups")
            _need_kappa(got[0], before, "kappa in full", {"it is the one in groups": after})
            _need_kappa(got[1], after, "kappa in groups", {
                "it is the one in full: group the rows of V first": before,
                "tokens j, j + k, j + 2k, ... form a group; here m neighbours do": other})


def _need_kappa(got: Any, wanted: float, what: str, causes: dict[str, float]) -> None:
    number = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
    if isinstance(number, (int, float)) and not abs(number) < SINGULAR:
        raise Mistake(f"{what} is {describe(number)}: the matrix has an eigenvalue 0. The Hessian "
                      "by the weights is V V^T with one row for each token; is this V^T V, which "
                      "has one for each feature?")
    need_equal(need_number(got, what), wanted, what, tolerance=1e-6, causes=causes | {
        "singular values of V are divided; the eigenvalues of V V^T are their squares":
            math.sqrt(wanted),
        "the smallest eigenvalue is divided by the largest": 1 / wanted})


# 11.10: four rows for which kappa of the printed matrix rises
def check_rises(answer: Answer, draw: Draw) -> None:
    """Both matrices are positive definite, and the condition number is larger in groups."""
    before, after = (_spectrum(rows) for rows in _both(answer()))
    for what, spectrum in (("V^T V", before), ("the matrix of the means", after)):
        if spectrum[0] <= 1e-9 * spectrum[-1]:
            raise Mistake(f"{what} has the eigenvalue 0, and both must be positive definite: skip "
                          "such a V")
    if after[-1] / after[0] <= before[-1] / before[0] * (1 + 1e-9):
        raise Mistake(f"kappa is {before[-1] / before[0]:.4g}, in groups "
                      f"{after[-1] / after[0]:.4g}: it does not rise. Are neighbouring rows "
                      "grouped, and their means taken?")


def check_small(answer: Answer, draw: Draw) -> None:
    """Three ones, which is the least."""
    total = float(_both(answer())[0].abs().sum())
    if total > 3:
        raise Mistake(f"the absolute values of its entries sum to {total:g}; there is a V with "
                      "three ones: let the search begin with few of them")


def _both(got: Any) -> tuple[Tensor, Tensor]:
    if got is None:
        raise Mistake("the search found nothing: does it compare both condition numbers for all "
                      "2^8 matrices?")
    try:
        values = torch.as_tensor(got, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        values = torch.zeros(0)
    if values.shape != (4, 2):
        raise Mistake(f"the result is {describe(got)}, wanted four rows of two numbers")
    return values, (values[::2] + values[1::2]) / 2


def _spectrum(rows: Tensor) -> list[float]:
    spectrum: list[float] = torch.linalg.eigvalsh(rows.T @ rows).tolist()
    return spectrum


TURNS: tuple[CourseTask, ...] = (
    CourseTask("11.2", "weight_variance", "The noise that reaches one weight", 7, 3, 5, (
        Property("equal to a sum over the noises", 1, check_variance),)),
    CourseTask("11.4", "noise_factor", "The noise on a group's logit", 8, 3, 5, (
        Property("for three ways to pool", 1, check_factor),)),
    CourseTask("11.10", "rising_rows", "A matrix that refutes a proof", 8, 3, 5, (
        Property("kappa rises in groups of two", 1, check_rises),
        Property("three ones, which is the least", 1, check_small))),
    CourseTask("11.8", "kappas", "Condition numbers, in full and in groups", 7, 2, 4, (
        Property("of the Hessians by the weights", 1, check_kappas),)),
)
