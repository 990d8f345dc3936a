"""What the reader writes in notebook 00_start_here: the weighted mean, and the pooling matrix."""

import math

import torch
from torch import Tensor

from cca_lab.course.compare import need_close
from cca_lab.course.tasks import Answer, CourseTask, Draw, Property, case

# 00.1: the act of attention

def check_mean(answer: Answer, draw: Draw) -> None:
    """Against a loop over the tokens."""
    for length, width in [(3, 2), (5, 3), (1, 2), (7, 1)]:
        scores, values = draw.normal(length), draw.normal(length, width)
        powers = [math.exp(score) for score in scores.tolist()]
        wanted = torch.stack([power / sum(powers) * value
                              for power, value in zip(powers, values, strict=True)]).sum(0)
        causes = {
            "the weights do not sum to 1: divide each power by the sum of all":
                scores.exp() @ values,
            "the scores are the weights; the weights are e to the power of them":
                scores / scores.sum() @ values,
            "the scores are the weights, and not even divided by their sum": scores @ values,
            "all weights are equal: this is the plain mean": values.mean(0),
            "only the best score counts": values[scores.argmax()],
            "the values are added up without weights": values.sum(0),
        }
        with case(f"{length} tokens, values of {width} features"):
            need_close(answer(scores, values), wanted, "the result", causes=causes)


# 00.2: the columns, as a matrix

def check_matrix(answer: Answer, draw: Draw) -> None:
    """Against a matrix that is filled number by number."""
    for length, group in [(5, 2), (6, 3), (11, 4), (3, 5), (4, 1)]:
        count = length // group
        wanted = torch.zeros(count + length, length, dtype=torch.float64)
        for p in range(count):
            for t in range(length):
                wanted[p, t] = 1 / group if t // group == p else 0
        for t in range(length):
            wanted[count + t, t] = 1
        got = answer(length, group)
        with case(f"{length} tokens, groups of {group}"):
            need_close(got if not isinstance(got, Tensor) else got.double(), wanted, "P",
                       tolerance=1e-6,
                       causes=_other_matrices(wanted, count, group))


def _other_matrices(wanted: Tensor, count: int, group: int) -> dict[str, Tensor]:
    """Return what usual mistakes make of the matrix."""
    length = wanted.shape[1]
    raw_first = torch.cat([wanted[count:], wanted[:count]])
    sums, strided, shifted = wanted.clone(), wanted.clone(), wanted.clone()
    sums[:count] *= group
    strided[:count] = torch.tensor([[float(t % count == p) / group if t < count * group else 0.0
                                     for t in range(length)]
                                    for p in range(count)]).reshape(count, length)
    shifted[:count] = wanted[:count].roll(1, dims=1)
    return {
        "the raw tokens stand first; the groups do": raw_first,
        "a group's weights are 1 each; they sum to 1, so each is 1 / group": sums,
        "every n-th token is a group; neighbours are": strided,
        "each group starts one token late": shifted,
    }


TURNS: tuple[CourseTask, ...] = (
    CourseTask("00.1", "weighted_mean", "One row of attention", 5, 1, 4, (
        Property("equal to a sum over the tokens", 1, check_mean),)),
    CourseTask("00.2", "pooling_matrix", "The columns as a matrix", 8, 2, 4, (
        Property("groups first, then raw tokens", 1, check_matrix),)),
)
