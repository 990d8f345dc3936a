"""a4, effects: gradients through a core, and what an edit moves."""

import torch
from torch import Tensor

from cca_lab.course.compare import describe, first, need_close, need_tensor
from cca_lab.course.tasks import Answer, Draw, Mistake, Property, Task, case

# a4.5: gradients

PARTS = ("d_judge", "d_keys", "d_values")


def wrong_gradients(inputs: tuple[Tensor, ...], scale: float) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Return what plausible mistakes give, for all three gradients."""
    judge, keys, values, d_key, d_value = inputs
    phi = (scale * keys @ judge).softmax(dim=0)
    d_phi = keys @ d_key + values @ d_value
    through = phi[:, None] * d_key
    d_values = phi[:, None] * d_value

    def backward(d_score: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
        return factor * d_score @ keys, through + factor * d_score[:, None] * judge, d_values

    right = phi * (d_phi - phi @ d_phi)
    return {"the scale is forgotten": backward(right, 1.0),
            "the normalisation of the softmax is forgotten (the mean of d_phi is not subtracted)":
                backward(phi * d_phi, scale),
            "phi is taken as constant (keys then have the path through the core key only)":
                (0 * judge, through, d_values),
            "only the core value passes its gradient through phi":
                backward(phi * (values @ d_value - phi @ (values @ d_value)), scale),
            "only the core key passes its gradient through phi":
                backward(phi * (keys @ d_key - phi @ (keys @ d_key)), scale),
            "keys get a gradient through the scores only":
                (judge, scale * right[:, None] * judge, d_values)}


def gradients(answer: Answer, draw: Draw, part: str) -> None:
    """Compare one of the three gradients with automatic differentiation."""
    sizes = [(2, 1, 1), (1, 2, 2), (3, 2, 1), (5, 4, 3)]
    if draw.secret:
        sizes = [(2, 1, 1), *sorted((draw.randint(1, 7), draw.randint(1, 5), draw.randint(1, 5)) for _ in range(6))]
    for group, dim, out in sizes:
        inputs = tuple(draw.normal(*shape) for shape in ((dim,), (group, dim), (group, out), (dim,), (out,)))
        scale = draw.choice((0.5, 2.0))
        judge, keys, values = (x.clone().requires_grad_() for x in inputs[:3])
        phi = (scale * keys @ judge).softmax(dim=0)
        loss = inputs[3] @ (phi @ keys) + inputs[4] @ (phi @ values)
        wanted = dict(zip(PARTS, torch.autograd.grad(loss, (judge, keys, values)), strict=True))
        with case(f"group {group}, head dim {dim}, scale {scale}"):
            got = answer(*inputs, scale)
            if not isinstance(got, (tuple, list)) or len(got) != 3:
                raise Mistake(f"the result is {describe(got)}, wanted three tensors: {', '.join(PARTS)}")
            index = PARTS.index(part)
            need_close(got[index], wanted[part], part,
                       causes={cause: other[index] for cause, other in wrong_gradients(inputs, scale).items()})


def gradient_of_judge(answer: Answer, draw: Draw) -> None:
    """The judge's query."""
    gradients(answer, draw, "d_judge")


def gradient_of_keys(answer: Answer, draw: Draw) -> None:
    """The keys, along both paths."""
    gradients(answer, draw, "d_keys")


def gradient_of_values(answer: Answer, draw: Draw) -> None:
    """The values."""
    gradients(answer, draw, "d_values")


# a4.6: what an edit moves


def outputs(tokens: dict[str, Tensor], vector: Tensor, group: int, window: int, judge: str) -> Tensor:
    """Return CCA-Attention (N, L, E) of N texts (N, L, D), row after row; `vector` is the learned judge."""
    q, k, v = tokens["query"], tokens["key"], tokens["value"]
    core_k, core_v, out = k[:, :0], v[:, :0], []
    for start in range(0, q.shape[1] // group * group, group):
        members = slice(start, start + group)
        judges = {"last": q[:, members][:, -1:], "mean": q[:, members].mean(1, keepdim=True), "all": q[:, members],
                  "learned": vector.expand(len(q), 1, -1)}[judge]
        phi = (judges @ k[:, members].mT).softmax(dim=-1).mean(dim=1, keepdim=True)
        core_k, core_v = torch.cat([core_k, phi @ k[:, members]], 1), torch.cat([core_v, phi @ v[:, members]], 1)
    for row in range(q.shape[1]):
        cores = max(0, (row + 1 - window) // group)
        keys, values = (torch.cat([core[:, :cores], x[:, group * cores : row + 1]], dim=1)
                        for core, x in ((core_k, k), (core_v, v)))
        out.append((q[:, row, None] @ keys.mT).softmax(dim=-1) @ values)
    return torch.cat(out, dim=1)


def moves(answer: Answer, draw: Draw, parts: tuple[str, ...]) -> None:
    """Compare the prediction with edits: every token in turn, every row measured."""
    sizes = [(1, 1, 1), (2, 1, 1), (5, 2, 1), (7, 3, 1), (8, 2, 3)]
    if draw.secret:
        drawn = [(draw.randint(5, 12), draw.randint(2, 4), draw.randint(1, 4)) for _ in range(4)]
        sizes = [(1, 1, 1), (4, 1, 2), *sorted(drawn)]
    for length, group, window in sizes:
        tokens = {part: draw.normal(length, 3).expand(length + 1, -1, -1) for part in ("query", "key", "value")}
        vector, edits = draw.normal(3), torch.zeros(length + 1, length, 3, dtype=torch.float64)
        each = torch.arange(length)
        edits[each, each] = draw.normal(length, 3)                                # text t edits token t, the last none
        for judge in ("last", "mean", "all", "learned"):
            for part in parts:
                out = outputs({**tokens, part: tokens[part] + edits}, vector, group, window, judge)
                measured = (out[:-1] - out[-1]).abs().amax(dim=-1).T > 1e-12      # (rows, tokens)
                with case(f'length {length}, group {group}, window {window}, judge "{judge}"'):
                    got = need_tensor(answer(length, group, window, judge, part), (length, length), "the table", "bool")
                    compare_moves(got, measured, part)


def compare_moves(got: Tensor, measured: Tensor, part: str) -> None:
    """Raise a mistake for the first row and token that are predicted wrong."""
    if torch.equal(got, measured):
        return
    row, token = first(got != measured)
    raise Mistake(f"an edit of the {part} of token {token} " + (
        f"moves row {row}, and you say that it does not: through which core could it?" if measured[row, token] else
        f"does not move row {row}, and you say that it does: does the row read more than one column, does that query "
        "judge, and can a group of one be weighted differently?"))


def moves_of_queries(answer: Answer, draw: Draw) -> None:
    """Edits of queries."""
    moves(answer, draw, ("query",))


def moves_of_the_rest(answer: Answer, draw: Draw) -> None:
    """Edits of keys and values."""
    moves(answer, draw, ("key", "value"))


TASKS = (
    Task("a4.5", "core_gradients", "Backward through a core", 30, 4, 4, (
        Property("the gradient of the judge's query", 1, gradient_of_judge),
        Property("the gradient of the keys, along both paths", 1, gradient_of_keys),
        Property("the gradient of the values", 1, gradient_of_values))),
    Task("a4.6", "moved", "What an edit moves", 20, 3, 4, (
        Property("edits of queries move the predicted rows", 1, moves_of_queries),
        Property("edits of keys and values move the predicted rows", 1, moves_of_the_rest))),
)
