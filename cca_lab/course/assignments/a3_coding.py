"""a3: group coding. Noise that is correlated or pooled unevenly, and the Hessians of the right problems.

The variants: a group's logit is pooled with any weights, and the noise of its tokens has any covariance; the Hessian is
also taken by the logits, where Theorem 3 of DGA has nothing to say. The checks of a3.4 to a3.9 stand in `a3_samples`,
`a3_hessian` and `a3_descent`.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from cca_lab.course.assignments import a3_descent as descent
from cca_lab.course.assignments import a3_hessian as hessian
from cca_lab.course.assignments import a3_samples as samples
from cca_lab.course.compare import describe, need_close, need_equal
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Share, Task, case


def tensor(rows: list) -> Tensor:
    """Return numbers as float64."""
    return torch.tensor(rows, dtype=torch.float64)


# a3.1: by hand


def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check the numbers that were worked out for one example."""
    got = answer()
    wanted = {"weights": [0.2, 0.2, 0.3, 0.3], "mean": 0.5, "three to one": 0.625, "token 0": 0.0144}
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(wanted)}")
    wrong = []
    for key, value in wanted.items():
        try:
            found = torch.as_tensor(got[key], dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise Mistake(f"{key} is {describe(got[key])}, wanted numbers") from None
        right = tensor([value]).squeeze(0)
        if found.shape != right.shape or not torch.allclose(found, right, rtol=0, atol=1e-6):
            wrong.append(key)
    return Share(1 - len(wrong) / len(wanted), f"not right yet: {', '.join(wrong)}") if wrong else None


# a3.2 and a3.3: pooled noise


def covariance(draw: Draw, size: int) -> Tensor:
    """Return a random covariance matrix, positive definite and not far from singular."""
    parts = draw.normal(size, size)
    return parts @ parts.T / size + 0.2 * torch.eye(size, dtype=torch.float64)


def spread(draw: Draw, size: int) -> Tensor:
    """Return random variances."""
    return tensor([draw.uniform(0.2, 4.0) for _ in range(size)])


def shown(pool: Tensor | None, matrix: Tensor) -> str:
    """Return the inputs for a message, all of them if they are few."""
    def text(values: Tensor) -> list:
        return [[round(x, 3) for x in row] for row in values.tolist()]

    start = "" if pool is None else f"pool {text(pool[None])[0]}, "
    return f"{start}covariance {text(matrix)}" if len(matrix) < 3 else f"{start}a group of {len(matrix)}"


def noises(draw: Draw, correlated: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (pool, covariance), small groups first, then of random sizes."""
    if correlated:
        yield tensor([0.75, 0.25]), tensor([[1, 0.5], [0.5, 1]])
        yield tensor([0.75, 0.25]), tensor([[1, -0.5], [-0.5, 1]])
        yield tensor([0.5, 0.5]), tensor([[1, 1], [1, 1]])
    else:
        yield tensor([0.75, 0.25]), torch.eye(2, dtype=torch.float64)
        yield tensor([0.75, 0.25]), tensor([[1, 0], [0, 5]])  # no two causes give the same number
        yield tensor([0.25] * 4), 2 * torch.eye(4, dtype=torch.float64)
    for size in [draw.randint(3, 9) for _ in range(8)] if draw.secret else [3, 5]:
        pool = draw.normal(size, scale=1.5).softmax(0)
        yield pool, covariance(draw, size) if correlated else spread(draw, size).diag()


def factor(answer: Answer, draw: Draw, correlated: bool) -> None:
    """Compare noise factors with the double sum."""
    for pool, matrix in noises(draw, correlated):
        size = len(pool)
        pairs = [(pool[i] * pool[j] * matrix[i, j]).item() for i in range(size) for j in range(size)]
        token = matrix.diagonal().mean().item()
        own = (pool.square() @ matrix.diagonal()).item()
        wanted = sum(pairs) / token
        causes = {
            "the weights of the pool are not squared": (pool @ matrix.diagonal()).item() / token,
            "the pool is taken to be even": matrix.mean().item() / token,
            "the pool is taken to be even, and the tokens independent": 1 / size,
            "the variance of one token is not divided out": sum(pairs),
            "the standard deviation is taken": abs(wanted) ** 0.5,
            "the variances of the tokens are taken to be equal": pool.square().sum().item(),
        }
        if correlated:
            causes = {"the covariances are left out": own / token,
                      "each pair of tokens is counted once instead of twice": (own + sum(pairs)) / 2 / token,
                      "the sign of a covariance is lost": (pool @ matrix.abs() @ pool).item() / token} | causes
        with case(shown(pool, matrix)):
            need_equal(answer(pool, matrix), wanted, "the factor", tolerance=1e-5, causes=causes)


def factor_independent(answer: Answer, draw: Draw) -> None:
    """Independent noise: the squares of the weights."""
    factor(answer, draw, False)


def factor_correlated(answer: Answer, draw: Draw) -> None:
    """Correlated noise, of both signs."""
    factor(answer, draw, True)


def best(answer: Answer, draw: Draw, correlated: bool) -> None:
    """Compare a pooling with the one of least noise, where all covariances with the pooled noise are equal."""
    first = [tensor([[1, 1.5], [1.5, 4]]), tensor([[1, -0.5], [-0.5, 1]])] if correlated else [tensor([[1, 0], [0, 4]])]
    more = [draw.randint(1, 8) for _ in range(8)] if draw.secret else [1, 3, 5]
    drawn = [covariance(draw, size) if correlated else spread(draw, size).diag() for size in more]
    for matrix in [*first, *drawn]:
        solved = torch.linalg.solve(matrix, torch.ones(len(matrix), dtype=torch.float64))
        inverse, lowest = 1 / matrix.diagonal(), torch.linalg.eigh(matrix)[1][:, 0]
        causes = {"the weights do not sum to 1": solved,
                  "all tokens get the same weight": torch.full_like(inverse, 1 / len(inverse)),
                  "tokens are weighted by 1 / standard deviation": inverse.sqrt() / inverse.sqrt().sum(),
                  "the covariances are left out": inverse / inverse.sum(),
                  "the eigenvector of the smallest eigenvalue is taken: it is best for the length 1, not for the sum 1":
                      lowest / lowest.sum(),
                  "negative weights are cut off": solved.clamp(min=0) / solved.clamp(min=0).sum()}
        with case(shown(None, matrix)):
            need_close(answer(matrix), solved / solved.sum(), "the pool", tolerance=1e-4, causes=causes)


def best_independent(answer: Answer, draw: Draw) -> None:
    """Independent tokens of unequal noise."""
    best(answer, draw, False)


def best_correlated(answer: Answer, draw: Draw) -> None:
    """Correlated tokens: a weight may be negative."""
    best(answer, draw, True)


ASSIGNMENT = Assignment("a3", "coding", "Group coding: the noise factors, and the right Hessian", ("04",), (
    Task("a3.1", "by_hand", "Four tokens by hand", 15, 2, 3, (Property("the numbers of the example", 2, by_hand),)),
    Task("a3.2", "noise_factor", "Noise of a pooled logit", 10, 2, 5, (
        Property("the factor of independent noise", 1, factor_independent),
        Property("the factor of correlated noise", 1, factor_correlated))),
    Task("a3.3", "best_pool", "The pooling of least noise", 20, 3, 3, (
        Property("independent tokens are weighted by their noise", 1, best_independent),
        Property("correlated tokens too", 1, best_correlated))),
    Task("a3.4", "measure", "Bias and variance from samples", 20, 3, 4, (
        Property("the bias is the mean shift", 1, samples.bias),
        Property("the variance is about the mean", 1, samples.variance),
        Property("the factor compares with full attention", 1, samples.ratio))),
    Task("a3.5", "hessians", "Three Hessians", 30, 4, 5, (
        Property("the Hessian by the weights", 1, hessian.by_weights),
        Property("the Gauss-Newton part by the logits", 1, hessian.gauss_newton),
        Property("the whole Hessian by the logits", 2, hessian.by_logits))),
    Task("a3.6", "condition_on", "The condition number that counts", 20, 3, 5, (
        Property("only steps that keep the constraint count", 1, hessian.constrained),
        Property("infinite if such a step is flat, and only then", 1, hessian.flat, hidden=True))),
    Task("a3.7", "counterexamples", "Where grouping makes it worse", 40, 5, 4, (
        Property("the printed matrix gets 50 times worse", 1, hessian.printed),
        Property("descent on logits gets worse", 2, hessian.uneven))),
    Task("a3.8", "bounds", "The best bounds for any pooling", 15, 3, 4, (
        Property("the range of eigenvalues holds, and is attained", 1, descent.eigenvalue_range),
        Property("so does the bound on the condition number", 1, descent.condition_bound))),
    Task("a3.9", "descent_steps", "How many steps", 10, 2, 3, (
        Property("as many steps as descent takes", 1, descent.steps),
        Property("None if descent never arrives, and only then", 1, descent.arrives, hidden=True))),
))
