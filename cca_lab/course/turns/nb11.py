"""What the reader writes in notebook 11: noise, condition numbers, a matrix that refutes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need
from cca_lab.course.exercise import equals, examples, holds, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property

Pool = Callable[[Sequence[float]], float]  # the logits of a group -> its one logit


# 11.3: the noise on a group's logit
def squares(values: Any) -> float:
    """Return the sum of squares."""
    return sum(x * x for x in values)


def soft(logits: Sequence[float]) -> float:
    """Return softmax pooling."""
    powers = [math.exp(logit) for logit in logits]
    return sum(power * logit for power, logit in zip(powers, logits, strict=True)) / sum(powers)


POOLS: dict[str, Pool] = {
    "unequal weights": lambda logits: sum(0.1 * (n + 1) * x for n, x in enumerate(logits)),
    "the mean": lambda logits: sum(logits) / len(logits), "softmax pooling": soft}


def slopes(pool: Pool, logits: list[float], step: float = 1e-5) -> list[float]:
    """Return the pooled logit's derivatives, from two sides."""
    found = []
    for j in range(len(logits)):
        up, down = ([a + (sign * step if i == j else 0.0) for i, a in enumerate(logits)]
                    for sign in (1, -1))
        found.append((pool(up) - pool(down)) / (2 * step))
    return found


def pools(draw: Draw, tokens: int, pooling: str) -> tuple[Any, ...]:
    """Return a way to pool, and logits."""
    return POOLS[pooling], [round(float(x), 3) for x in draw.normal(tokens, scale=2.0)]


# 11.8: condition numbers of both Hessians
def kappa(matrix: Tensor) -> float:
    """Return the condition number of a symmetric matrix."""
    spectrum = torch.linalg.eigvalsh(matrix)
    return float(spectrum[-1] / spectrum[0])


def kappas(values: Tensor, m: int, *, of: Callable[[Tensor], float] = lambda v: kappa(2 * v @ v.T),
           groups: str = "neighbours", turned: bool = False) -> tuple[float, float]:
    """Return the condition numbers in full and in groups of m; the keywords are mistakes."""
    grouped = {"neighbours": values.unflatten(0, (-1, m)).mean(1), "none": values,
               "strided": values.unflatten(0, (m, -1)).mean(0)}[groups]
    both = of(values), of(grouped)
    return both[::-1] if turned else both


def look(got: Any, values: Tensor, m: int) -> None:
    """Compare both, and say what a singular matrix is."""
    got = got.flatten().tolist() if isinstance(got, Tensor) and got.numel() == 2 else got
    for number in got if isinstance(got, (tuple, list)) else ():
        number = number.item() if isinstance(number, Tensor) and number.numel() == 1 else number
        if isinstance(number, (int, float)) and not abs(number) < 1e10:
            raise Mistake(f"a condition number is {describe(number)}: the matrix has an eigenvalue "
                          "0. The Hessian by the weights is V V^T with one row for each token; is "
                          "this V^T V, which has one for each feature?")
    need(got, kappas(values, m), ("kappa in full", "kappa in groups"), tolerance=1e-6)


# 11.6: four rows for which kappa of the printed matrix rises
def both(answer: Answer) -> Answer:
    """Return an answer whose rows, four of two numbers, come with the means of neighbours."""
    def search() -> tuple[Tensor, Tensor]:
        got = answer()
        if got is None:
            raise Mistake("the search found nothing: does it compare both condition numbers for "
                          "all 2^8 matrices?")
        try:
            values = torch.as_tensor(got, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            values = torch.zeros(0)
        if values.shape != (4, 2):
            raise Mistake(f"the result is {describe(got)}, wanted four rows of two numbers")
        return values, (values[::2] + values[1::2]) / 2

    return search


def rises(answer: Answer, draw: Draw) -> None:
    """Both matrices are positive definite, and the condition number is larger in groups."""
    before, after = (torch.linalg.eigvalsh(rows.T @ rows).tolist() for rows in answer())
    for what, spectrum in (("V^T V", before), ("the matrix of the means", after)):
        if spectrum[0] <= 1e-9 * spectrum[-1]:
            raise Mistake(f"{what} has the eigenvalue 0, and both must be positive definite: skip "
                          "such a V")
    if after[-1] / after[0] <= before[-1] / before[0] * (1 + 1e-9):
        raise Mistake(f"kappa is {before[-1] / before[0]:.4g}, in groups "
                      f"{after[-1] / after[0]:.4g}: it does not rise. Are neighbouring rows "
                      "grouped, and their means taken?")


TURNS: tuple[CourseTask, ...] = (
    CourseTask("11.3", "noise_factor", "The noise on a group's logit", 8, 3, (
        equals("for three ways to pool", lambda pool, a: squares(slopes(pool, a)),
               examples(pools, *((size, name) for size in (3, 2, 5) for name in POOLS)),
               "the factor", tolerance=2e-4, wrong={
            "all logits are moved together; each token has noise of its own, so move one at a time":
                lambda pool, a: sum(slopes(pool, a)) ** 2,
            "the derivatives are added without squares": lambda pool, a: sum(slopes(pool, a)),
            "only the first token is moved": lambda pool, a: slopes(pool, a)[0] ** 2,
            "the mean is taken; the variances of independent noises add up":
                lambda pool, a: squares(slopes(pool, a)) / len(a),
            "the square root is taken: that is the factor of the standard deviation":
                lambda pool, a: math.sqrt(squares(slopes(pool, a))),
            "a change from both sides is divided by one step; the two sides are two steps apart":
                lambda pool, a: 4 * squares(slopes(pool, a)),
            "no logit moves, or the change of the pooled one is not divided by the step":
                lambda pool, a: 0.0,
            "the step is 1: too large to follow the slope":
                lambda pool, a: squares(slopes(pool, a, 1.0))}),)),
    CourseTask("11.6", "rising_rows", "A matrix that refutes a proof", 8, 3, (
        Property("kappa rises in groups of two", 1, rises, wrong={
            "the search found nothing": lambda: None,
            "wanted four rows of two numbers": lambda: [0, 0, 0, 1, 0, 1, 1, 0],
            "V^T V has the eigenvalue 0": lambda: [[1, 0]] * 4,
            "the matrix of the means has the eigenvalue 0":
                lambda: [[1, 0], [-1, 0], [0, 1], [0, 1]],
            "it does not rise": lambda: [[1, 0], [1, 0], [0, 1], [0, 1]]}),), drive=both),
    CourseTask("11.8", "kappas", "Condition numbers, in full and in groups", 7, 2, (
        holds("of the Hessians by the weights", look, examples(
            lambda draw, length, width, m: (draw.normal(length, width), m), (4, 6, 2), (6, 9, 3),
            (8, 12, 2)), wrong=mistakes(kappas, {
            "is this V^T V, which has one for each feature": {"of": lambda v: kappa(2 * v.T @ v)},
            "singular values of V are divided; the eigenvalues of V V^T are their squares":
                {"of": lambda v: math.sqrt(kappa(v @ v.T))},
            "the smallest eigenvalue is divided by the largest":
                {"of": lambda v: 1 / kappa(v @ v.T)},
            "tokens j, j + k, j + 2k, ... form a group; here m neighbours do":
                {"groups": "strided"},
            "the second is that in full again: group the rows of V first": {"groups": "none"},
            "the one in groups comes first": {"turned": True}})),)),
)
