"""a4: core tokens. Who judges a group, ragged groups, grouped queries, learned judges, and what an affine map allows.

The variants are not in the package: a mean judge, a vote of all tokens, a learned judge with a temperature, a ragged
last group that is pooled too. The checks of judges are in `a4_judges`, of gradients and edits in `a4_effects`, of what
a core counts and loses in `a4_counts`.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments import a4_counts, a4_effects
from cca_lab.course.assignments.a4_judges import grouped, pooled, ragged, whole_groups
from cca_lab.course.compare import describe, need_close
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Share, Task, case

# a4.1: by hand

BY_HAND = {"phi": (0.125, 0.25, 0.125, 0.5), "core key": (1.25, 0.125), "core value": (7.0,),
           "phi of the mean query": (0.2, 0.2, 0.4, 0.2)}


def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check the numbers that were worked out for one group."""
    got = answer()
    if not isinstance(got, dict) or set(got) != set(BY_HAND):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(BY_HAND)}")
    wrong = [key for key, wanted in BY_HAND.items() if not same_numbers(got[key], wanted)]
    return Share(1 - len(wrong) / len(BY_HAND), f"not right yet: {', '.join(wrong)}") if wrong else None


def same_numbers(got: Any, wanted: tuple[float, ...]) -> bool:
    """Return whether a number or a list of numbers equals the wanted ones."""
    try:
        numbers = torch.as_tensor(got, dtype=torch.float64).flatten()
    except (TypeError, ValueError, RuntimeError):
        return False
    return numbers.shape == (len(wanted),) and bool((numbers - torch.tensor(wanted).double()).abs().max() < 1e-4)


# a4.3: a learned judge


def learned_weights(k: Tensor, judge: Tensor, temperature: Tensor, group: int, share: bool = True) -> Tensor:
    """Return phi (H, M, g); temperatures 0 and infinity are the limits. Without `share` the first of equals has all."""
    scores = (k @ judge[:, :, None])[..., 0].unflatten(1, (-1, group))             # (H, M, g)
    phi = []
    for rows, tau in zip(scores, temperature.tolist(), strict=True):
        behind = rows - rows.amax(dim=-1, keepdim=True)                           # 0 for the best: no overflow below
        best = (behind == 0).double()
        best = best if share else best * (best.cumsum(dim=-1) == 1)
        phi.append(best / best.sum(dim=-1, keepdim=True) if tau == 0 else (behind / tau).softmax(dim=-1))
    return torch.stack(phi)


def learned(answer: Answer, k: Tensor, v: Tensor, judge: Tensor, temperature: Tensor, group: int) -> None:
    """Compare the cores of learned judges with right ones."""
    phi = learned_weights(k, judge, temperature, group)
    first_vector, first_temperature = judge[:1].expand_as(judge), temperature[:1].expand(len(k))
    others = {"every head uses the temperature of the first": learned_weights(k, judge, first_temperature, group),
              "every head uses the vector of the first": learned_weights(k, first_vector, temperature, group)}
    if temperature.gt(0).all() and temperature.isfinite().all():
        others["scores are multiplied by the temperature"] = learned_weights(k, judge, 1 / temperature, group)
        others["the temperature is left out"] = learned_weights(k, judge, torch.ones_like(temperature), group)
    if temperature.eq(0).any():
        others["only one of equal scores has all the weight at temperature 0"] = learned_weights(
            k, judge, temperature, group, share=False)
    told = ", ".join(f"{tau:.3g}" for tau in temperature.tolist())
    with case(f"{len(k)} heads, length {k.shape[1]}, group {group}, temperatures {told}"):
        got = answer(k, v, judge, temperature, group)
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Mistake(f"the result is {describe(got)}, wanted two tensors: core keys and core values")
        for part, x, what in ((got[0], k, "core keys"), (got[1], v, "core values")):
            need_close(part, pooled(phi, x), what, causes={cause: pooled(other, x) for cause, other in others.items()},
                       why="does a temperature of 0 divide, or is infinity multiplied by 0?")


def learned_sizes(draw: Draw) -> Iterator[tuple[int, int, int]]:
    """Yield (heads, groups, group)."""
    yield from ([(1, 1, 2), (2, 2, 3), (3, 2, 4)] if not draw.secret else
                [(1, 1, 2), (2, draw.randint(1, 4), draw.randint(2, 5)), (3, draw.randint(2, 4), draw.randint(2, 6))])


def learned_right(answer: Answer, draw: Draw) -> None:
    """Temperatures between 0 and infinity."""
    for heads, count, group in learned_sizes(draw):
        temperature = torch.tensor([draw.uniform(0.2, 3) for _ in range(heads)], dtype=torch.float64)
        k, v = draw.normal(heads, count * group, 3), draw.normal(heads, count * group, 2)
        learned(answer, k, v, draw.normal(heads, 3), temperature, group)


def learned_limits(answer: Answer, draw: Draw) -> None:
    """Temperatures 0 and infinity and near them; whole numbers, so that equal scores are exactly equal."""
    ends = ((0.0, float("inf"), 1.0), (float("inf"), 0.5, 0.0), (1e-300, 0.0, 1e300))
    for heads, count, group in learned_sizes(draw):
        for temperature in (torch.tensor(some[:heads], dtype=torch.float64) for some in ends):
            k, v = draw.integers(-1, 2, heads, count * group, 3).double(), draw.normal(heads, count * group, 2)
            learned(answer, k, v, draw.integers(-1, 2, heads, 3).double(), temperature, group)
    for above in (0.0, 2.0**-40):                                                 # a tie, and nearly one
        k = torch.tensor([[[1.0], [3.0], [3.0 + above], [2.0]]], dtype=torch.float64)
        learned(answer, k, draw.normal(1, 4, 2), torch.ones(1, 1).double(), torch.zeros(1).double(), 4)


# a4.4: pool, then project


def projected(answer: Answer, draw: Draw, unit: bool) -> None:
    """Compare with the projection of every token, and count the projected rows."""
    sizes = [(1, 2), (2, 3), (3, 4)] if not draw.secret else [(1, 2), (draw.randint(2, 5), draw.randint(2, 6)), (6, 5)]
    for cores, group in sizes:
        x, weight, bias = draw.normal(cores * group, 4), draw.normal(4, 3), draw.normal(3, scale=2.0)
        phi = draw.normal(cores, group).softmax(dim=-1)
        if not unit:
            phi = phi * torch.tensor([[draw.uniform(0.2, 1.8)] for _ in range(cores)], dtype=torch.float64)
            if cores > 1:                                                         # one sum is 0 and one is negative
                phi[-1] = 0.0
                phi[-1, :2] = torch.tensor([0.5, -0.5])
            if cores > 2:
                phi[0] *= -1
        rows: list[int] = []

        def project(some: Any, weight: Tensor = weight, bias: Tensor = bias, rows: list[int] = rows) -> Tensor:
            if not isinstance(some, Tensor) or some.dim() != 2 or some.shape[1] != 4 or len(some) > 1000:
                raise Mistake(f"project was called with {describe(some)}, wanted a tensor of shape (rows, 4)")
            rows.append(len(some))
            return some.double() @ weight + bias

        sums = phi.sum(dim=-1, keepdim=True)
        plain = torch.einsum("mg,mgc->mc", phi, x.unflatten(0, (cores, group))) @ weight
        with case(f"{cores} groups of {group}, weights that sum to {'1' if unit else 'other numbers than 1'}"):
            why = "are the weights divided by their sum? It can be 0"
            need_close(answer(x, phi, project), plain + sums * bias, "the projected cores", why=why, causes={
                "the bias is added once, whatever the weights sum to": plain + bias,
                "the bias is added once for each token of the group": plain + group * bias,
                "the bias is left out": plain,
                "the weights are divided by their sum": plain / sums + bias})
            if sum(rows) > cores + 1:
                raise Mistake(f"{sum(rows)} rows were projected, {cores + 1} are enough: pool before you project")


def projected_unit(answer: Answer, draw: Draw) -> None:
    """Weights that sum to 1."""
    projected(answer, draw, unit=True)


def projected_any(answer: Answer, draw: Draw) -> None:
    """Weights that do not; they can sum to 0, or to less."""
    projected(answer, draw, unit=False)


ASSIGNMENT = Assignment("a4", "pooling", "Core tokens: pooling, and who judges", ("05", "07"), (
    Task("a4.1", "by_hand", "One group by hand", 10, 1, 3, (Property("the numbers of the group", 2, by_hand),)),
    Task("a4.2", "judged_cores", "Three ways to judge", 35, 3, 5, (
        Property("whole groups are pooled right by every judge", 2, whole_groups),
        Property("a ragged last group is pooled over the tokens that it has", 1, ragged),
        Property("query heads are averaged before they judge", 1, grouped))),
    Task("a4.3", "learned_cores", "A learned judge with a temperature", 15, 2, 3, (
        Property("each head has its vector and its temperature", 1, learned_right),
        Property("temperatures 0 and infinity are limits", 1, learned_limits, hidden=True))),
    Task("a4.4", "projected_cores", "Pool first, project later", 10, 3, 4, (
        Property("one projected row for each core is enough", 1, projected_unit),
        Property("the bias is right when weights do not sum to 1", 1, projected_any))),
    *a4_effects.TASKS,
    *a4_counts.TASKS,
))
