"""Checks of a3.5 to a3.7: Hessians, the steps that a constraint allows, and counterexamples."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe, first, need_close, need_equal
from cca_lab.course.tasks import Answer, Draw, Mistake, case

FLAT = 1e-9  # an eigenvalue below this share of the largest one counts as 0
SAMPLES = [([[1.0], [-1.0]], [1.0], [math.log(3), 0.0])]  # values, target, logits


def entry(got: Any, keys: tuple[str, ...], key: str) -> Any:
    """Return one entry of a result that should be a dict with these keys."""
    if not isinstance(got, dict) or set(got) != set(keys):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(keys)}")
    return got[key]


def table(got: Any, what: str) -> Tensor:
    """Return numbers, a tensor or nested lists, as float64."""
    try:
        found = torch.as_tensor(got, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise Mistake(f"{what} is {describe(got)}, wanted a tensor or lists of numbers") from None
    if not found.isfinite().all():
        raise Mistake(f"{what} has an entry that is not finite")
    return found


def basis(normal: Tensor) -> Tensor:
    """Return an orthonormal basis of the vectors orthogonal to `normal`, (n, n - 1)."""
    return torch.linalg.svd(normal.double()[None])[2][1:].T


def ratio(matrix: Tensor) -> float:
    """Return the largest over the smallest eigenvalue of a symmetric matrix; infinite if that one is 0."""
    found = torch.linalg.eigvalsh(matrix)
    return (found[-1] / found[0]).item() if found[0] > FLAT * found[-1] else math.inf


def ones(size: int) -> Tensor:
    """Return ones."""
    return torch.ones(size, dtype=torch.float64)


# a3.5: three Hessians


def problems(draw: Draw) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Yield (name, logits, values, target)."""
    for values, target, logits in SAMPLES:
        yield ("the example", *(torch.tensor(part, dtype=torch.float64) for part in (logits, values, target)))
    sizes = [(draw.randint(2, 6), draw.randint(1, 6)) for _ in range(5)] if draw.secret else [(3, 2), (3, 3), (2, 4)]
    for length, width in [*sizes, (4, 4)]:
        name = f"{length} tokens, {width} dimensions"
        yield name, draw.normal(length), draw.normal(length, width), draw.normal(width)


def second(answer: Answer, draw: Draw, key: str) -> None:
    """Compare one of the Hessians with derivatives by torch."""
    for name, logits, values, target in problems(draw):
        def by_weights(weights: Tensor, values: Tensor = values, target: Tensor = target) -> Tensor:
            return (weights @ values - target).square().sum()

        weights = logits.softmax(0)
        wanted: dict[str, Tensor] = {"weights": torch.autograd.functional.hessian(by_weights, weights)}
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), logits)
        wanted["gauss_newton"] = jacobian @ wanted["weights"] @ jacobian
        wanted["logits"] = torch.autograd.functional.hessian(lambda x: by_weights(x.softmax(0)), logits)
        diagonal = weights.diag()
        printed = 2 * values.T @ values
        other: dict[str, Tensor] = {
            "the factor 2 of the square is left out": wanted[key] / 2,
            "the matrix is the printed 2 V^T V instead of 2 V V^T": printed,
            "softmax's derivative is taken to be diag(weights), without the rank-one term":
                diagonal @ wanted["weights"] @ diagonal,
            "softmax's derivative stands on the left only: both variables are logits": jacobian @ wanted["weights"],
            "softmax's derivative stands on the right only: both variables are logits": wanted["weights"] @ jacobian,
            "the Hessian by the weights is taken": wanted["weights"],
            "the second derivative of softmax is left out (Gauss-Newton)": wanted["gauss_newton"],
            "the whole Hessian is taken": wanted["logits"],
            "the part with the residual has the wrong sign": 2 * wanted["gauss_newton"] - wanted["logits"]}
        with case(name):
            got = entry(answer(logits, values, target), tuple(wanted), key)
            if isinstance(got, Tensor) and got.shape == printed.shape != wanted[key].shape:
                raise Mistake(f'"{key}" has shape {tuple(got.shape)}: is it the printed 2 V^T V? There are '
                              f"{len(logits)} variables, so wanted {tuple(wanted[key].shape)}")
            causes = {cause: wrong for cause, wrong in other.items() if wrong.shape == wanted[key].shape}
            need_close(got, wanted[key], f'"{key}"', tolerance=1e-5, causes=causes)


def by_weights(answer: Answer, draw: Draw) -> None:
    """The second derivative by the weights."""
    second(answer, draw, "weights")


def gauss_newton(answer: Answer, draw: Draw) -> None:
    """The part of the Hessian by the logits without second derivatives of softmax."""
    second(answer, draw, "gauss_newton")


def by_logits(answer: Answer, draw: Draw) -> None:
    """The second derivative by the logits."""
    second(answer, draw, "logits")


# a3.6: condition number under a constraint


def semidefinite(draw: Draw, size: int) -> Tensor:
    """Return a random symmetric matrix with eigenvalues from about 0.3 to `size` or so."""
    parts = draw.normal(size, size)
    return parts @ parts.T / size + 0.3 * torch.eye(size, dtype=torch.float64)


def need_condition(got: Any, matrix: Tensor, normal: Tensor) -> None:
    """Compare a condition number under a constraint with the one in an orthonormal basis."""
    steps = basis(normal)
    wanted = ratio(steps.T @ matrix @ steps)
    if isinstance(got, Tensor) and got.numel() == 1:
        got = got.item()
    if isinstance(got, float) and abs(got) == math.inf or math.isinf(wanted):
        if got != wanted:
            raise Mistake(f"the condition number is {describe(got)}, wanted {describe(wanted)}: "
                          + ("a step that keeps the constraint has eigenvalue 0, of which rounding may leave a tiny "
                             "number" if math.isinf(wanted) else
                             "no step that keeps the constraint is flat; do you count the direction it forbids?"))
        return
    loose = torch.cat([-(normal[1:] / normal[0])[None], ones(len(normal) - 1).diag()])
    differences = ones(len(normal)).diag()[:, 1:] - ones(len(normal)).diag()[:, :-1]
    projected = matrix - torch.outer(normal, normal @ matrix) / normal.square().sum()
    longer = ones(len(normal)).diag() - torch.outer(normal, normal)
    unscaled = torch.linalg.eigvalsh(longer @ matrix @ longer)
    others = {"the constraint is ignored": ratio(matrix),
              "`normal` is projected out, but not divided by its length": (unscaled[-1] / unscaled[1]).item(),
              "`normal` is not divided by its length, and its own direction counts":
                  (unscaled[-1] / unscaled[0]).item(),
              "steps that sum to 0 are taken, instead of steps orthogonal to `normal`":
                  ratio(basis(ones(len(normal))).T @ matrix @ basis(ones(len(normal)))),
              "the basis is orthogonal to `normal`, but not orthonormal": ratio(loose.T @ matrix @ loose),
              "differences of neighbours serve as a basis: they are not orthonormal":
                  ratio(differences.T @ matrix @ differences),
              "a matrix that is not symmetric is given to eigvalsh": ratio(projected)}
    need_equal(got, wanted, "the condition number", tolerance=1e-4,
               causes={cause: other for cause, other in others.items() if math.isfinite(other)})


def constrained(answer: Answer, draw: Draw) -> None:
    """Matrices that are positive definite, and one that is singular off the constraint."""
    first = torch.tensor([2.0, 2.0, 0.0], dtype=torch.float64).diag()
    examples = [(first, ones(3)), (torch.tensor([[1.0, 0], [0, 3]]).double(), ones(2))]
    for size in [draw.randint(3, 7) for _ in range(6)] if draw.secret else [3, 4]:
        examples += [(semidefinite(draw, size), ones(size)),
                     (semidefinite(draw, size), 1.0 + draw.integers(0, 5, size).double())]
    for matrix, normal in examples:
        with case(f"a {len(matrix)} x {len(matrix)} matrix, normal {[round(x, 3) for x in normal.tolist()]}"):
            need_condition(answer(matrix, normal), matrix, normal)


def flat(answer: Answer, draw: Draw) -> None:
    """Singular matrices: with the zero in the direction that is forbidden, and elsewhere."""
    for size in (3, 4, draw.randint(5, 7)):
        normal = 1.0 + draw.integers(0, 5, size).double()
        steps = basis(normal)
        inside = steps @ semidefinite(draw, size - 1) @ steps.T
        parts = draw.normal(size, size - 2)  # of rank size - 2: one step is flat
        for matrix, what in ((inside, "flat along normal"), (parts @ parts.T, "flat along a step")):
            matrix = (matrix + matrix.T) / 2
            with case(f"a {size} x {size} matrix, {what}"):
                need_condition(answer(matrix, normal), matrix, normal)


# a3.7: counterexamples


KEYS = ("printed", "weights", "values")


def printed(answer: Answer, draw: Draw) -> None:
    """Integers for which grouping raises the condition number of 2 V^T V."""
    got = table(entry(answer(), KEYS, "printed"), '"printed"')
    if tuple(got.shape) != (6, 2):
        raise Mistake(f'"printed" has shape {tuple(got.shape)}, wanted 6 rows of 2 integers')
    if (wrong := (got.abs() > 9) | (got != got.round())).any():
        row, column = first(wrong)
        raise Mistake(f'"printed": entry [{row}][{column}] is {got[row, column]:.6g}, wanted integers from -9 to 9')
    means = got.view(2, 3, 2).mean(1)
    before, after = ratio(got.T @ got), ratio(means.T @ means)
    if max(before, after) == math.inf:
        which = "V^T V" if before == math.inf else "its matrix of group means"
        raise Mistake(f"{which} is singular, and Theorem 3 asks for positive eigenvalues")
    if before > 2 * (1 + FLAT):
        raise Mistake(f"the condition number of 2 V^T V is {before:.4g}, wanted 2 or less: make the columns about "
                      "equally long, and orthogonal")
    if after < 50 * (1 - FLAT):
        raise Mistake(f"the condition number with groups is {after:.4g}, wanted 50 or more: which column should "
                      "nearly cancel in each group?")


def uneven(answer: Answer, draw: Draw) -> None:
    """Weights and values for which grouping raises the condition number of the Gauss-Newton matrix by the logits."""
    got = answer()
    weights, values = (table(entry(got, KEYS, key), f'"{key}"') for key in ("weights", "values"))
    if weights.shape != (6,) or values.ndim != 2 or len(values) != 6 or not values.shape[1]:
        raise Mistake(f"the shapes are {tuple(weights.shape)} and {tuple(values.shape)}, wanted (6,) and (6, d)")
    if weights.min() <= 0 or abs(weights.sum() - 1) > 1e-6:
        raise Mistake("the weights are not all positive with the sum 1")
    before, after = (ratio(part.T @ part) for part in (
        moved(weights, values), moved(weights.view(3, 2).sum(1), values.view(3, 2, -1).mean(1))))
    if before > 1e6:
        raise Mistake(f"without groups the condition number is {before:.4g}, wanted a million or less: the six values "
                      "must be affinely independent, which takes 5 dimensions or more")
    if after < 2 * before * (1 - FLAT):
        even = (weights.view(3, 2)[:, 0] - weights.view(3, 2)[:, 1]).abs().max() < 1e-9
        raise Mistake(f"grouping takes the condition number from {before:.4g} to {after:.4g}, wanted at least twice "
                      "as much" + (": with even weights inside groups it can never rise" if even else
                                     ": which rows alpha_j (V_j - o) do your values give?"))


def moved(weights: Tensor, values: Tensor) -> Tensor:
    """Return A of 2 A A^T, the Gauss-Newton matrix, in a basis of the steps that sum to 0: (d, n - 1)."""
    softmax = weights.diag() - torch.outer(weights, weights)
    return (basis(ones(len(weights))).T @ softmax @ values).T
