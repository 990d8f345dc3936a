"""Checks of a1.6 and a1.7: what tiles cost, and the softmax backwards."""

import torch
from torch import Tensor

from cca_lab.course.assignments.a1_dense import INF, need_double, number
from cca_lab.course.compare import describe, need_equal
from cca_lab.course.tasks import Answer, Draw, Mistake, case

# a1.6: costs


def need_costs(answer: Answer, size: tuple[int, int, int], wanted: dict[str, int]) -> None:
    """Compare the three numbers."""
    length, dim, tile = size
    causes = {"flops": {"a multiplication and an addition count as one": wanted["flops"] // 2,
                        "only the causal pairs are counted": 2 * dim * length * (length + 1),
                        "tiles that lie wholly in the future are counted too": 4 * dim * length * length},
              "bytes": {"the keys and values are read once, not once for each tile of rows": 8 * dim * length,
                        "a number has one byte, not two": wanted["bytes"] // 2},
              "scores": {"the tile is larger than the text, and not cut off": tile * tile}}
    with case(f"length {length}, {number(dim, 'feature')}, tiles of {tile}"):
        got = answer(*size)
        if not isinstance(got, dict) or set(got) != set(wanted):
            raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(wanted)}")
        for key, right in wanted.items():
            if not isinstance(got[key], int):
                raise Mistake(f"{key} is {describe(got[key])}, wanted an integer: divide with //")
            need_equal(got[key], right, key, causes=causes[key])


def costs_small(answer: Answer, draw: Draw) -> None:
    """Against counting."""
    more = [(draw.randint(1, 90), draw.randint(1, 9), draw.randint(1, 20)) for _ in range(8)] if draw.secret else []
    for length, dim, tile in [(1, 1, 1), (5, 1, 2), (4, 3, 2), (3, 2, 8), (23, 8, 5), *sorted(more)]:
        lasts = [(first, min(first + tile, length)) for first in range(0, length, tile)]
        pairs = sum((last - first) * last for first, last in lasts)
        keys = sum(last for _, last in lasts)
        need_costs(answer, (length, dim, tile), {"flops": 4 * dim * pairs, "bytes": 4 * dim * (keys + length),
                                                 "scores": min(tile, length) ** 2})


def costs_large(answer: Answer, draw: Draw) -> None:
    """A text at which nobody counts tiles."""
    for length, dim, tile in [(10**12 + 7, 128, 64), (10**11, 64, 128)]:
        length = draw.randint(10**11, 10**12) if draw.secret else length
        whole, rest = divmod(length, tile)
        keys = tile * (whole * whole + whole) // 2
        need_costs(answer, (length, dim, tile),
                   {"flops": 4 * dim * (tile * keys + rest * length),
                    "bytes": 4 * dim * (keys + (length if rest else 0) + length), "scores": tile * tile})


# a1.7: backward


def gradients(answer: Answer, scores: Tensor, sink: Tensor, upstream: Tensor, which: int, what: str) -> None:
    """Compare one of the two gradients with autograd's."""
    x, z = scores.clone().requires_grad_(), sink.clone().requires_grad_()
    weights = torch.cat([x, z[:, None]], dim=-1).softmax(-1)[:, :-1]
    wanted = torch.autograd.grad((weights * upstream).sum(), [x, z])[which]
    weights = weights.detach()
    rest = 1 - weights.sum(-1)
    mean, total = (weights * upstream).sum(-1, keepdim=True), upstream.sum(-1, keepdim=True)
    name = ("the gradient of the scores", "the gradient of the sinks")[which]
    with case(what):
        got = answer(weights, upstream)
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Mistake(f"the result is {describe(got)}, wanted a tuple of two tensors")
        if isinstance(got[which], Tensor) and got[which].isnan().any():
            raise Mistake(f"{name} has a NaN: is it the logarithm of the sink's weight, which may be 0 or rounded to "
                          "less than 0, or a division by a weight that is 0?")
        causes = {"the mean of the upstream gradient is not subtracted": weights * upstream,
                  "the plain sum of the upstream gradient is subtracted, not its sum with the weights":
                  weights * (upstream - total),
                  "the mean is taken as if the weights added up to 1":
                  weights * (upstream - mean / weights.sum(-1, keepdim=True).clamp(min=1e-300)),
                  "the factor of the weights is forgotten": upstream - mean}
        signs = {"the sign is wrong": -wanted, "the sink's weight is forgotten": -mean[:, 0],
                 "the upstream gradient is summed without the weights": -rest * total[:, 0]}
        need_double(got[which], wanted, name, (causes, signs)[which] if scores.shape[1] > 1 else {})


def run_backward(answer: Answer, draw: Draw, which: int) -> None:
    """Check one gradient on ordinary rows, on rows with masked keys, and where a sum of weights is rounded up."""
    more = [(draw.randint(1, 6), draw.randint(2, 9)) for _ in range(4)] if draw.secret else []
    for rows, keys in [(1, 2), (1, 1), (1, 3), (4, 4), (3, 6), *sorted(more)]:
        scores, sink, upstream = draw.normal(rows, keys), draw.normal(rows), draw.normal(rows, keys)
        what = f"{number(rows, 'row')}, {number(keys, 'key')}"
        gradients(answer, scores, sink, upstream, which, what)
        masked = scores.masked_fill(torch.arange(keys) > torch.arange(rows)[:, None], -INF)
        gradients(answer, masked, sink, upstream, which, f"{what}, a causal mask")
    scores = draw.normal(400, 4)
    over = scores[scores.softmax(-1).sum(-1) > 1][:8]
    gradients(answer, over, torch.full((len(over),), -60.0).double(), draw.normal(len(over), 4), which,
              f"{number(len(over), 'row')}, 4 keys, weights that add up to a little more than 1 by rounding")


def backward_scores(answer: Answer, draw: Draw) -> None:
    """The gradient of the scores."""
    run_backward(answer, draw, 0)


def backward_sinks(answer: Answer, draw: Draw) -> None:
    """The gradient of the sink logits."""
    run_backward(answer, draw, 1)


def backward_extreme(answer: Answer, draw: Draw) -> None:
    """Rows whose weight lies in one place, or whose sink has none: 1 - sum is 0 or rounds below it."""
    keys, rest = draw.normal(40, 4), draw.normal(40)
    first = torch.tensor([1e4, 0, 0, 0], dtype=torch.float64)
    for scores, sink, what in ((keys + first, rest, "all weight lies in key 0"),
                               (keys, rest + 1e4, "all weight lies in the sink"),
                               (keys, rest - 50, "the sink has no weight, to rounding")):
        for which in (0, 1):
            gradients(answer, scores, sink, draw.normal(40, 4), which, what)
