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
    """Against the matrix of a comparison: token t is in group t // group."""
    for length, group in [(5, 2), (6, 3), (11, 4), (3, 5), (4, 1)]:
        count = length // group
        t, p = torch.arange(length), torch.arange(count)[:, None]
        pooled = (t // group == p).double() / group
        strided = ((t % max(count, 1) == p) & (t < count * group)).double() / group
        raw = torch.eye(length).double()
        causes = {
            "the raw tokens stand first; the groups do": torch.cat([raw, pooled]),
            "a group's weights are 1 each; they sum to 1, so each is 1 / group":
                torch.cat([group * pooled, raw]),
            "every n-th token is a group; neighbours are": torch.cat([strided, raw]),
            "each group starts one token late": torch.cat([pooled.roll(1, dims=1), raw]),
        }
        got = answer(length, group)
        with case(f"{length} tokens, groups of {group}"):
            need_close(got if not isinstance(got, Tensor) else got.double(),
                       torch.cat([pooled, raw]), "P", tolerance=1e-6, causes=causes)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("00.1", "weighted_mean", "One row of attention", 5, 1, 4, (
        Property("equal to a sum over the tokens", 1, check_mean),)),
    CourseTask("00.2", "pooling_matrix", "The columns as a matrix", 8, 2, 4, (
        Property("groups first, then raw tokens", 1, check_matrix),)),
)
