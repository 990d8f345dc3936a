"""Slips in the kernels' online softmax, each installed by a function that takes monkeypatch."""

from cca_lab.attention.kernels import interval, interval_forward
from cca_lab.attention.kernels.interval_forward import matmul
from cca_lab.attention.kernels.language import tl, triton


@triton.jit
def _fold_uncorrected(accumulator, row_sum, row_max, scores, v, MASKED: tl.constexpr,
                      UPCAST: tl.constexpr):
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    weights = tl.exp2(scores - new_max[:, None])
    return accumulator + matmul(weights.to(v.dtype), v,
                                UPCAST), row_sum + tl.sum(weights, 1), new_max


def no_correction(patch) -> None:
    """The maximum moves on, and what was added up before stays as it was."""
    patch.setattr(interval_forward, "fold", _fold_uncorrected)


def natural_exponent(patch) -> None:
    """exp2 of logits that were not multiplied by log2(e)."""
    patch.setattr(interval, "LOG2_E", 1.0)


ONLINE = (no_correction, natural_exponent)
