"""a3: group coding: correlated noise, uneven pools, and Hessians of the right problems.

The variants: a group's logit is pooled with any weights, and the noise of its tokens has any
covariance; the Hessian is also taken by the logits, where Theorem 3 of DGA has nothing to say.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.slips import after, need_close, need_equal
from cca_lab.course.compare import by_hand, describe, first, many, need_keys, need_number
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case

# Results, bases and condition numbers

FLAT = 1e-9  # an eigenvalue below this share of the largest one counts as 0
SAMPLES = [([[1.0], [-1.0]], [1.0], [math.log(3), 0.0])]  # values, target, logits


def entry(got: Any, keys: tuple[str, ...], key: str) -> Any:
    """Return one entry of a result that should be a dict with these keys."""
    need_keys(got, keys)
    return got[key]


def table(got: Any, what: str) -> Tensor:
    """Return numbers, a tensor or nested lists, as float64."""
    try:
        numbers = torch.as_tensor(got, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise Mistake(f"{what} is {describe(got)}, wanted a tensor or lists of numbers") from None
    if not numbers.isfinite().all():
        raise Mistake(f"{what} has an entry that is not finite")
    return numbers


def basis(normal: Tensor) -> Tensor:
    """Return an orthonormal basis of the vectors orthogonal to `normal`, (n, n - 1)."""
    return torch.linalg.svd(normal.double()[None])[2][1:].T


def condition(matrix: Tensor) -> float:
    """Return the largest over the smallest eigenvalue of a symmetric matrix; infinite over 0."""
    spectrum = torch.linalg.eigvalsh(matrix)
    return (spectrum[-1] / spectrum[0]).item() if spectrum[0] > FLAT * spectrum[-1] else math.inf


def ones(size: int) -> Tensor:
    """Return ones."""
    return torch.ones(size, dtype=torch.float64)


# a3.2 and a3.3: pooled noise

def covariance(draw: Draw, size: int, least: float = 0.2) -> Tensor:
    """Return a random symmetric matrix with eigenvalues from about `least` to `size` or so."""
    root = draw.normal(size, size)
    return root @ root.T / size + least * torch.eye(size, dtype=torch.float64)


def spread(draw: Draw, size: int) -> Tensor:
    """Return random variances."""
    return tensor([draw.uniform(0.2, 4.0) for _ in range(size)])


def shown(pool: Tensor | None, matrix: Tensor) -> str:
    """Return the inputs for a message, all of them if they are few."""
    def text(values: Tensor) -> list:
        return [[round(x, 3) for x in row] for row in values.tolist()]

    start = "" if pool is None else f"pool {text(pool[None])[0]}, "
    return f"{start}covariance {text(matrix)}" if len(
        matrix) < 3 else f"{start}a group of {len(matrix)}"


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
        pairs = [(pool[i] * pool[j] * matrix[i, j]).item() for i in range(size)
                 for j in range(size)]
        token = matrix.diagonal().mean().item()
        alone = (pool.square() @ matrix.diagonal()).item()
        wanted = sum(pairs) / token
        causes = {"the weights of the pool are not squared":
                      (pool @ matrix.diagonal()).item() / token,
                  "the pool is taken to be even": matrix.mean().item() / token,
                  "the pool is taken to be even, and the tokens independent": 1 / size,
                  "the variance of one token is not divided out": sum(pairs),
                  "the standard deviation is taken": abs(wanted) ** 0.5,
                  "the variances of the tokens are taken to be equal": pool.square().sum().item()}
        if correlated:
            causes = {"the covariances are left out": alone / token,
                      "each pair of tokens is counted once instead of twice":
                          (alone + sum(pairs)) / 2 / token,
                      "the sign of a covariance is lost":
                          (pool @ matrix.abs() @ pool).item() / token} | causes
        with case(shown(pool, matrix)):
            need_equal(answer(pool, matrix), wanted, "the factor", tolerance=1e-5, causes=causes)


def best(answer: Answer, draw: Draw, correlated: bool) -> None:
    """Compare a pooling with the one of least noise: all covariances with its noise are equal."""
    first = [tensor([[1, 1.5], [1.5, 4]]),
             tensor([[1, -0.5], [-0.5, 1]])] if correlated else [tensor([[1, 0], [0, 4]])]
    more = [draw.randint(1, 8) for _ in range(8)] if draw.secret else [1, 3, 5]
    drawn = [covariance(draw, size) if correlated else spread(draw, size).diag() for size in more]
    for matrix in [*first, *drawn]:
        solved = torch.linalg.solve(matrix, torch.ones(len(matrix), dtype=torch.float64))
        inverse, lowest = 1 / matrix.diagonal(), torch.linalg.eigh(matrix)[1][:, 0]
        causes = {"the weights do not sum to 1": solved,
                  "all tokens get the same weight": torch.full_like(inverse, 1 / len(inverse)),
                  "tokens are weighted by 1 / standard deviation":
                      inverse.sqrt() / inverse.sqrt().sum(),
                  "the covariances are left out": inverse / inverse.sum(),
                  "the eigenvector of the smallest eigenvalue is taken: it is best for the length "
                  "1, not for the sum 1": lowest / lowest.sum(),
                  "negative weights are cut off": solved.clamp(min=0) / solved.clamp(min=0).sum()}
        with case(shown(None, matrix)):
            need_close(answer(matrix), solved / solved.sum(), "the pool", tolerance=1e-4,
                       causes=causes)


# a3.4: bias and variance of weights with noisy logits, from samples

def sampled(draw: Draw) -> Iterator[tuple[str, Tensor, Tensor, int]]:
    """Yield (name, logits, noise, group): the example of the notebook first."""
    step = 2 * torch.log(torch.tensor([3.0], dtype=torch.float64))
    yield "the example", torch.zeros(
        4, dtype=torch.float64), torch.cat([step, torch.zeros(7)]).view(2, 4), 2
    sizes = draw.sizes(6, (2, 5), (1, 5), (2, 40)) if draw.secret else [
        (2, 1, 3), (3, 2, 5), (2, 3, 200)]
    for groups, group, samples in sizes:
        length = groups * group
        yield (f"{length} tokens, groups of {group}, {samples} samples", draw.normal(length),
               draw.normal(samples, length, scale=0.8), group)


def shared(masses: Tensor, group: int) -> Tensor:
    """Return the weights of tokens, each an equal part of its group's mass."""
    return (masses / group).repeat_interleave(group, dim=-1)


def coded(logits: Tensor, noise: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights without and with groups, (N, L) each, and with groups but no noise, (L,)."""
    def weights(logits: Tensor) -> Tensor:
        return shared(logits.view(*logits.shape[:-1], -1, group).mean(-1).softmax(-1), group)

    return (logits + noise).softmax(-1), weights(logits + noise), weights(logits)


def found(key: str, full: Tensor, grouped: Tensor, clean: Tensor) -> Tensor:
    """Return one entry of the result."""
    if key == "bias":
        return (grouped - clean).mean(dim=0)
    return grouped.var(dim=0) / (full.var(dim=0) if key == "factor" else 1.0)


def mistaken(key: str, logits: Tensor, noise: Tensor, group: int) -> dict[str, Tensor]:
    """Return what comes out of mistakes in the weights."""
    full, plain = (logits + noise).softmax(-1), logits.softmax(-1)
    _, summed, summed_clean = coded(group * logits, group * noise, group)
    kept, kept_clean = (shared(each.view(*each.shape[:-1], -1, group).sum(-1), group)
                        for each in (full, plain))
    causes = {"the logits are left out, and softmax gets the noise alone":
                  coded(0 * logits, noise, group),
              "logits of a group are summed instead of averaged": (full, summed, summed_clean),
              "the mass of a group is kept: softmax should see the mean logits of groups":
                  (full, kept, kept_clean)}
    return {cause: found(key, *weights) for cause, weights in causes.items()}


def measured(answer: Answer, draw: Draw, key: str) -> None:
    """Compare one entry with what the definitions give."""
    for name, logits, noise, group in sampled(draw):
        full, grouped, clean = coded(logits, noise, group)
        moved, count = grouped - clean, len(noise)
        wanted = found(key, full, grouped, clean)
        causes: dict[str, Tensor] = {}
        if key == "bias":
            causes = {"the weight without noise is not subtracted": grouped.mean(dim=0),
                      "the sign is turned around": -wanted,
                      "full attention is measured": (full - logits.softmax(-1)).mean(dim=0),
                      "groups are compared with full attention":
                          (grouped - logits.softmax(-1)).mean(dim=0),
                      "groups are compared with full attention under the same noise":
                          (grouped - full).mean(dim=0),
                      "the absolute value is averaged": moved.abs().mean(dim=0)}
        elif key == "variance":
            causes = {"the bias is left in: subtract the mean of the samples":
                          moved.square().sum(0) / (count - 1),
                      "the mean square is returned, bias included": moved.square().mean(dim=0),
                      "the sum is divided by N": wanted * (count - 1) / count,
                      "a group's mass is not shared by its tokens": wanted * group**2,
                      "the standard deviation is returned": wanted.sqrt(),
                      "full attention is measured": full.var(dim=0)}
        else:
            causes = {"it is turned around": 1 / wanted, "masses are compared with weights":
                          wanted * group**2,
                      "standard deviations are divided": wanted.sqrt()}
        with case(name):
            got = entry(answer(logits, noise, group), ("bias", "variance", "factor"), key)
            # relative to the largest wanted value, however small: a variance may be 1e-3
            need_close(got, wanted, key, tolerance=1e-4 * min(1.0, wanted.abs().max().item()),
                       causes=causes | mistaken(key, logits, noise, group))


# a3.5: three Hessians

def problems(draw: Draw) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Yield (name, logits, values, target)."""
    for values, target, logits in SAMPLES:
        yield "the example", tensor(logits), tensor(values), tensor(target)
    sizes = draw.sizes(5, (2, 6), (1, 6)) if draw.secret else [(3, 2), (3, 3), (2, 4)]
    for length, width in [*sizes, (4, 4)]:
        name = f"{length} tokens, {many(width, 'dimension')}"
        yield name, draw.normal(length), draw.normal(length, width), draw.normal(width)


def second(answer: Answer, draw: Draw, key: str) -> None:
    """Compare one of the Hessians with derivatives by torch."""
    for name, logits, values, target in problems(draw):
        def by_weights(weights: Tensor, values: Tensor = values, target: Tensor = target) -> Tensor:
            return (weights @ values - target).square().sum()

        weights = logits.softmax(0)
        wanted: dict[str, Tensor] = {"weights":
                                         torch.autograd.functional.hessian(by_weights, weights)}
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), logits)
        wanted["gauss_newton"] = jacobian @ wanted["weights"] @ jacobian
        wanted["logits"] = torch.autograd.functional.hessian(lambda x: by_weights(x.softmax(0)),
                                                             logits)
        diagonal = weights.diag()
        printed = 2 * values.T @ values
        other: dict[str, Tensor] = {
            "the factor 2 of the square is left out": wanted[key] / 2,
            "the matrix is the printed 2 V^T V instead of 2 V V^T": printed,
            "softmax's derivative is taken to be diag(weights), without the rank-one term":
                diagonal @ wanted["weights"] @ diagonal,
            "softmax's derivative stands on the left only: both variables are logits":
                jacobian @ wanted["weights"],
            "softmax's derivative stands on the right only: both variables are logits":
                wanted["weights"] @ jacobian,
            "the Hessian by the weights is taken": wanted["weights"],
            "the second derivative of softmax is left out (Gauss-Newton)": wanted["gauss_newton"],
            "the whole Hessian is taken": wanted["logits"],
            "the part with the residual has the wrong sign":
                2 * wanted["gauss_newton"] - wanted["logits"]}
        with case(name):
            got = entry(answer(logits, values, target), tuple(wanted), key)
            if isinstance(got, Tensor) and got.shape == printed.shape != wanted[key].shape:
                raise Mistake(
                    f'"{key}" has shape {tuple(got.shape)}: is it the printed 2 V^T V? There are '
                    f"{len(logits)} variables, so wanted {tuple(wanted[key].shape)}")
            causes = {cause: wrong for cause, wrong in other.items()
                      if wrong.shape == wanted[key].shape}
            need_close(got, wanted[key], f'"{key}"', tolerance=1e-5, causes=causes)


# a3.6: condition number under a constraint

def need_condition(got: Any, matrix: Tensor, normal: Tensor) -> None:
    """Compare a condition number under a constraint with the one in an orthonormal basis."""
    steps = basis(normal)
    wanted = condition(steps.T @ matrix @ steps)
    if isinstance(got, Tensor) and got.numel() == 1:
        got = got.item()
    if isinstance(got, float) and abs(got) == math.inf or math.isinf(wanted):
        if got != wanted:
            raise Mistake(f"the condition number is {describe(got)}, wanted {describe(wanted)}: "
                          + ("a step that keeps the constraint has eigenvalue 0, of which rounding "
                             "may leave a tiny number" if math.isinf(wanted) else
                             "no step that keeps the constraint is flat; do you count the "
                             "direction it forbids?"))
        return
    loose = torch.cat([-(normal[1:] / normal[0])[None], ones(len(normal) - 1).diag()])
    differences = ones(len(normal)).diag()[:, 1:] - ones(len(normal)).diag()[:, :-1]
    projected = matrix - torch.outer(normal, normal @ matrix) / normal.square().sum()
    longer = ones(len(normal)).diag() - torch.outer(normal, normal)
    unscaled = torch.linalg.eigvalsh(longer @ matrix @ longer)
    others = {"the constraint is ignored": condition(matrix),
              "`normal` is projected out, but not divided by its length":
                  (unscaled[-1] / unscaled[1]).item(),
              "`normal` is not divided by its length, and its own direction counts":
                  (unscaled[-1] / unscaled[0]).item(),
              "steps that sum to 0 are taken, instead of steps orthogonal to `normal`":
                  condition(basis(ones(len(normal))).T @ matrix @ basis(ones(len(normal)))),
              "the basis is orthogonal to `normal`, but not orthonormal":
                  condition(loose.T @ matrix @ loose),
              "differences of neighbours serve as a basis: they are not orthonormal":
                  condition(differences.T @ matrix @ differences),
              "a matrix that is not symmetric is given to eigvalsh": condition(projected)}
    need_equal(got, wanted, "the condition number", tolerance=1e-4,
               causes={cause: other for cause, other in others.items() if math.isfinite(other)})


def constrained(answer: Answer, draw: Draw) -> None:
    """Matrices that are positive definite, and one that is singular off the constraint."""
    first = torch.tensor([2.0, 2.0, 0.0], dtype=torch.float64).diag()
    examples = [(first, ones(3)), (torch.tensor([[1.0, 0], [0, 3]]).double(), ones(2))]
    for size in [draw.randint(3, 7) for _ in range(6)] if draw.secret else [3, 4]:
        examples += [(covariance(draw, size, 0.3), ones(size)),
                     (covariance(draw, size, 0.3), 1.0 + draw.integers(0, 5, size).double())]
    for matrix, normal in examples:
        with case(f"a {len(matrix)} x {len(matrix)} matrix, normal "
                  f"{[round(x, 3) for x in normal.tolist()]}"):
            need_condition(answer(matrix, normal), matrix, normal)


def flat(answer: Answer, draw: Draw) -> None:
    """Singular matrices: with the zero in the direction that is forbidden, and elsewhere."""
    for size in (3, 4, draw.randint(5, 7)):
        normal = 1.0 + draw.integers(0, 5, size).double()
        steps = basis(normal)
        inside = steps @ covariance(draw, size - 1, 0.3) @ steps.T
        root = draw.normal(size, size - 2)  # of rank size - 2: one step is flat
        for matrix, what in ((inside, "flat along normal"), (root @ root.T, "flat along a step")):
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
        raise Mistake(f'"printed": entry [{row}][{column}] is {got[row, column]:.6g}, '
                      "wanted integers from -9 to 9")
    means = got.view(2, 3, 2).mean(1)
    before, after = condition(got.T @ got), condition(means.T @ means)
    if max(before, after) == math.inf:
        which = "V^T V" if before == math.inf else "its matrix of group means"
        raise Mistake(f"{which} is singular, and Theorem 3 asks for positive eigenvalues")
    if before > 2 * (1 + FLAT):
        raise Mistake(f"the condition number of 2 V^T V is {before:.4g}, wanted 2 or less: make "
                      "the columns about equally long, and orthogonal")
    if after < 50 * (1 - FLAT):
        raise Mistake(f"the condition number with groups is {after:.4g}, wanted 50 or more: which "
                      "column should nearly cancel in each group?")


def uneven(answer: Answer, draw: Draw) -> None:
    """Weights and values whose Gauss-Newton matrix by the logits grouping makes worse."""
    got = answer()
    weights, values = (table(entry(got, KEYS, key), f'"{key}"') for key in ("weights", "values"))
    if weights.shape != (6,) or values.ndim != 2 or len(values) != 6 or not values.shape[1]:
        raise Mistake(f"the shapes are {tuple(weights.shape)} and {tuple(values.shape)}, wanted "
                      "(6,) and (6, d)")
    if weights.min() <= 0 or abs(weights.sum() - 1) > 1e-6:
        raise Mistake("the weights are not all positive with the sum 1")
    before, after = (condition(root.T @ root) for root in (
        moved(weights, values), moved(weights.view(3, 2).sum(1), values.view(3, 2, -1).mean(1))))
    if before > 1e6:
        raise Mistake(f"without groups the condition number is {before:.4g}, wanted a million or "
                      "less: the six values must be affinely independent, which takes 5 dimensions "
                      "or more")
    if after < 2 * before * (1 - FLAT):
        even = (weights.view(3, 2)[:, 0] - weights.view(3, 2)[:, 1]).abs().max() < 1e-9
        raise Mistake(f"grouping takes the condition number from {before:.4g} to {after:.4g}, "
                      "wanted at least twice as much"
                      + (": with even weights inside groups it can never rise" if even
                         else ": which rows alpha_j (V_j - o) do your values give?"))


def moved(weights: Tensor, values: Tensor) -> Tensor:
    """Return A of the Gauss-Newton matrix 2 A A^T in a basis of steps that sum to 0, (d, n - 1)."""
    softmax = weights.diag() - torch.outer(weights, weights)
    return (basis(ones(len(weights))).T @ softmax @ values).T


# a3.8: bounds

def pools(draw: Draw) -> Iterator[tuple[Tensor, float, float]]:
    """Yield (pool, low, high), the example of the notebook first."""
    yield torch.tensor([[1.0, 0, 0], [0, 0.5, 0.5]]).double(), 1.0, 3.0
    yield torch.tensor([[1.0, 0, 0], [0, 0.75, 0.25]]).double(), 1.0, 3.0
    sizes = [[draw.randint(1, 5) for _ in range(draw.randint(2, 4))]
             for _ in range(6)] if draw.secret else [[2, 2], [3, 2, 4]]
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
        causes = {"lowest": {
            "the pool is taken to be even": low / count.max().item(),
            "it is not divided": low,
            "the eigenvalues of W^T W are taken, which has zeros that W W^T has not": 0.0,
            "lengths of rows are not squared": low * least**0.5,
            "max and min are swapped": low * most},
                  "highest": {"the pool is taken to be even": high / count.min().item(),
                              "it is not divided": high,
                              "lengths of rows are not squared": high * most**0.5,
                              "max and min are swapped": high * least},
                  "kappa": {"the pool is taken to be even": high / low * sizes,
                            "rows are taken to be equally long": high / low,
                            "lengths of rows are not squared": high / low * (most / least) ** 0.5}}
        rows = "; ".join(str([round(x, 3) for x in row if x]) for row in pool.tolist())
        with case(f"weights of the groups {rows}, eigenvalues of H from {low:.3g} to {high:.3g}"):
            got = answer(pool, low, high)
            for key in keys:
                value = entry(got, tuple(wanted), key)
                value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
                # Inf, but for rounding.
                if key == "kappa" and isinstance(value, float) and (value < 0 or value > 1e9):
                    raise Mistake(f'"kappa" is {describe(value)}, wanted {wanted[key]:.6g}: do you '
                                  "divide by an eigenvalue 0 of W^T W? The groups are k, and W W^T "
                                  "is k x k")
                number = need_number(value, f'"{key}"')
                broken = number > wanted[key] if key == "lowest" else number < wanted[key]
                try:
                    need_equal(number, wanted[key], f'"{key}"', tolerance=1e-6, causes=causes[key])
                except Mistake as mistake:
                    raise Mistake(f"{mistake}. {'Some H breaks' if broken else 'No H attains'} "
                                  "this bound") from None


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
        with case(f"eigenvalues from {low:.4g} to {high:.4g}, step {step:.4g}, tolerance "
                  f"{tolerance:.3g}"):
            got = answer(low, high, step, tolerance)
            if wanted is None or got is None:
                if got is not wanted:
                    raise Mistake(f"the result is {describe(got)}, wanted {describe(wanted)}: an "
                                  f"error shrinks by the factors {ends[0]:.4g} and {ends[1]:.4g} "
                                  "in a step")
                continue
            need_equal(got, wanted, "the number of steps", causes={
                "only the smallest eigenvalue is looked at": logs(ends[0], tolerance),
                "only the largest eigenvalue is looked at": logs(ends[1], tolerance),
                "the squared error is meant": logs(max(ends) ** 2, tolerance),
                "the best step is taken instead of the given one": logs(best, tolerance),
                "it is rounded down": logs(max(ends), tolerance, math.floor),
                "1 is added even if the steps come out whole":
                    logs(max(ends), tolerance, math.floor) + 1,
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
    need_steps(answer, [(1.0, 3.0, 0.5, 0.1), (1.0, 3.0, 1 / 3, 0.1), (1.0, 3.0, 0.6, 0.1),
                        (1.0, 3.0, 0.5, 0.25), *runs(draw, 10 if draw.secret else 4)])


def arrives(answer: Answer, draw: Draw) -> None:
    """Descents that stay where they are, grow, or arrive at once."""
    grows = [(low, high, draw.uniform(2.05, 4.0) / high, tolerance)
             for low, high, _, tolerance in runs(draw, 4)]
    need_steps(answer, [(2.0, 2.0, 0.5, 0.1), (1.0, 4.0, 0.5, 0.1), (1.0, 4.0, 1.0, 0.1), *grows,
                        *runs(draw, 4)])


def tensor(rows: list) -> Tensor:
    """Return numbers as float64."""
    return torch.tensor(rows, dtype=torch.float64)


ASSIGNMENT = Assignment("a3", "coding", "Group coding: the noise factors, and the right Hessian",
                        ("11",), (
    CourseTask("a3.1", "by_hand", "Four tokens by hand", 15, 2, 3, (
        Property("the numbers of the example", 2, by_hand(
            {"weights": [0.2, 0.2, 0.3, 0.3], "mean": 0.5, "three to one": 0.625, "token 0":
                 0.0144}, 1e-6)),)),
    CourseTask("a3.2", "noise_factor", "Noise of a pooled logit", 10, 2, 5, (
        Property("the factor of independent noise", 1, partial(factor, correlated=False)),
        Property("the factor of correlated noise", 1,
                 after(partial(factor, correlated=False), partial(factor, correlated=True))))),
    CourseTask("a3.3", "best_pool", "The pooling of least noise", 20, 3, 3, (
        Property("independent tokens are weighted by their noise", 1,
                 partial(best, correlated=False)),
        Property("correlated tokens too", 1,
                 after(partial(best, correlated=False), partial(best, correlated=True))))),
    CourseTask("a3.4", "measure", "Bias and variance from samples", 20, 3, 4, (
        Property("the bias is the mean shift", 1, partial(measured, key='bias')),
        Property("the variance is about the mean", 1, partial(measured, key='variance')),
        Property("the factor compares with full attention", 1, partial(measured, key='factor')))),
    CourseTask("a3.5", "hessians", "Three Hessians", 30, 4, 5, (
        Property("the Hessian by the weights", 1, partial(second, key="weights")),
        Property("the Gauss-Newton part by the logits", 1, partial(second, key='gauss_newton')),
        Property("the whole Hessian by the logits", 2, partial(second, key='logits')))),
    CourseTask("a3.6", "condition_on", "The condition number that counts", 20, 3, 5, (
        Property("only steps that keep the constraint count", 1, constrained),
        Property("infinite if such a step is flat, and only then", 1, flat, hidden=True))),
    CourseTask("a3.7", "counterexamples", "Where grouping makes it worse", 40, 5, 4, (
        Property("the printed matrix gets 50 times worse", 1, printed),
        Property("descent on logits gets worse", 2, uneven))),
    CourseTask("a3.8", "bounds", "The best bounds for any pooling", 15, 3, 4, (
        Property("the range of eigenvalues holds, and is attained", 1,
                 partial(bounded, keys=('lowest', 'highest'))),
        Property("so does the bound on the condition number", 1,
                 partial(bounded, keys=('kappa',))))),
    CourseTask("a3.9", "descent_steps", "How many steps", 10, 2, 3, (
        Property("as many steps as descent takes", 1, steps),
        Property("None if descent never arrives, and only then", 1, after(steps, arrives),
                 hidden=True))),
))
