"""Checks of a3.4: bias and variance of weights with noisy logits, from samples."""

from collections.abc import Iterator

import torch
from torch import Tensor

from cca_lab.course.assignments.a3_hessian import entry
from cca_lab.course.compare import need_close
from cca_lab.course.tasks import Answer, Draw, case


def sampled(draw: Draw) -> Iterator[tuple[str, Tensor, Tensor, int]]:
    """Yield (name, logits, noise, group): the example of the notebook first."""
    step = 2 * torch.log(torch.tensor([3.0], dtype=torch.float64))
    yield "the example", torch.zeros(4, dtype=torch.float64), torch.cat([step, torch.zeros(7)]).view(2, 4), 2
    sizes = [(draw.randint(2, 5), draw.randint(1, 5), draw.randint(2, 40)) for _ in range(6)] if draw.secret else [
        (2, 1, 3), (3, 2, 5), (2, 3, 200)]
    for groups, group, samples in sizes:
        length = groups * group
        yield (f"{length} tokens, groups of {group}, {samples} samples", draw.normal(length),
               draw.normal(samples, length, scale=0.8), group)


def shared(masses: Tensor, group: int) -> Tensor:
    """Return the weights of tokens, each an equal part of its group's mass."""
    return (masses / group).repeat_interleave(group, dim=-1)


def coded(logits: Tensor, noise: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a token's weights without groups and with groups, (N, L) each, and with groups but no noise, (L,)."""
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
    kept, kept_clean = (shared(each.view(*each.shape[:-1], -1, group).sum(-1), group) for each in (full, plain))
    causes = {"the logits are left out, and softmax gets the noise alone": coded(0 * logits, noise, group),
              "logits of a group are summed instead of averaged": (full, summed, summed_clean),
              "the mass of a group is kept: softmax should see the mean logits of groups": (full, kept, kept_clean)}
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
                      "groups are compared with full attention": (grouped - logits.softmax(-1)).mean(dim=0),
                      "groups are compared with full attention under the same noise": (grouped - full).mean(dim=0),
                      "the absolute value is averaged": moved.abs().mean(dim=0)}
        elif key == "variance":
            causes = {"the bias is left in: subtract the mean of the samples": moved.square().sum(0) / (count - 1),
                      "the mean square is returned, bias included": moved.square().mean(dim=0),
                      "the sum is divided by N": wanted * (count - 1) / count,
                      "a group's mass is not shared by its tokens": wanted * group**2,
                      "the standard deviation is returned": wanted.sqrt(),
                      "full attention is measured": full.var(dim=0)}
        else:
            causes = {"it is turned around": 1 / wanted, "masses are compared with weights": wanted * group**2,
                      "standard deviations are divided": wanted.sqrt()}
        with case(name):
            got = entry(answer(logits, noise, group), ("bias", "variance", "factor"), key)
            # relative to the largest wanted value, however small: a variance may be 1e-3
            need_close(got, wanted, key, tolerance=1e-4 * min(1.0, wanted.abs().max().item()),
                       causes=causes | mistaken(key, logits, noise, group))


def bias(answer: Answer, draw: Draw) -> None:
    """The mean shift of the grouped weights."""
    measured(answer, draw, "bias")


def variance(answer: Answer, draw: Draw) -> None:
    """The variance about the mean of the samples."""
    measured(answer, draw, "variance")


def ratio(answer: Answer, draw: Draw) -> None:
    """The variance with groups over the variance without."""
    measured(answer, draw, "factor")
