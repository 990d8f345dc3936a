"""LoCoCo's compressor: a convolution over keys and values gives the weights with which slots mix columns.

    W = g * [K ; V]                       one output channel for each slot           (Eq. 6)
    w_ij = ReLU(W_ij) / sum_k ReLU(W_ik)  or  softmax_j ReLU(W_ij)                   (Eq. 7)
    slot_i = sum_j w_ij column_j          the same w for keys and values             (Eq. 3-5)

Every way to fill slots is such a matrix w: a kept token is a one-hot row, and in eviction all rows are one-hot.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cca_lab.attention.dense import accumulation_dtype
from cca_lab.mechanisms.lococo.segments import Settings
from cca_lab.mechanisms.masked import best


class Compressor(nn.Module):
    """The trainable part of one layer: a Conv1d of 2D -> M channels, shared by all heads (Section 3.2.1).

    Differs from the public code: initial weights have a variance of 1 / (2D kernel). There it is 1, so that the
    convolution's output is tens of times its input and the softmax saturates. With `residual`, the share alpha
    of the convolution is sigmoid(a) with a trained, so that slots stay weighted means; there it is a free scalar.

    Args:
        head_dim: D.
        slots: M, the slots that the convolution fills.
        kernel: width of the convolution in columns, odd.
        residual: whether to train the share alpha, which starts at 1/2.
    """

    def __init__(self, head_dim: int, slots: int, *, kernel: int = 21, residual: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2 * head_dim, slots, kernel, padding="same")
        nn.init.normal_(self.conv.weight, std=(2 * head_dim * kernel) ** -0.5)
        nn.init.zeros_(self.conv.get_parameter("bias"))
        self.share = nn.Parameter(torch.zeros(())) if residual else None

    def forward(self, pairs: Tensor) -> Tensor:
        """Return W of Eq. 6, (B, Hk, M, N), from [key ; value] of N columns, (B, Hk, N, 2D)."""
        batch, heads = pairs.shape[:2]
        channels = pairs.flatten(0, 1).mT.to(self.conv.weight.dtype)  # (B Hk, 2D, N)
        return self.conv(channels).unflatten(0, (batch, heads))


def normalise(output: Tensor, weights: str) -> Tensor:
    """Normalise a convolution's output (..., N) to mixing weights that sum to 1 over the columns (Eq. 7).

    Args:
        output: W of Eq. 6.
        weights: "relu", the ratio of the paper, in which a row of zeros (0/0 as printed) becomes the plain
            mean and has no gradient; or "softmax", softmax(ReLU(W)) as in the public code, where no weight is
            less than e^-max of the largest one.
    """
    positive = output.relu()
    if weights == "softmax":
        return positive.softmax(dim=-1)
    total = positive.sum(dim=-1, keepdim=True)
    dead = total == 0
    return torch.where(dead, 1 / output.shape[-1], positive / total.masked_fill(dead, 1.0))


def compression_matrix(keys: Tensor, values: Tensor, accumulated: Tensor | None, settings: Settings,
                       compressor: nn.Module | None) -> Tensor:
    """Return w, by which slots mix columns: [one-hot rows of sinks ; of heavy hitters ; convolved rows].

    Args:
        keys, values: of all columns, (B, Hk, N, D), N > M.
        accumulated: the accumulated attention of each column, (B, Hk, N); None stands for zeros.
        settings: of the mechanism.
        compressor: maps [key ; value] of the R columns that are not kept, (B, Hk, R, 2D), to one row for each
            of the M' convolved slots, (B, Hk, M', R); None stands for an output of zeros.

    Returns:
        (B, Hk, M, N), rows sum to 1, in at least float32.

    Raises:
        ValueError: if the compressor does not have one channel for each convolved slot.
    """
    columns, dtype = keys.shape[2], accumulation_dtype(keys.dtype)
    accumulated = keys.new_zeros(keys.shape[:3]) if accumulated is None else accumulated
    kept = _kept_columns(keys, accumulated, settings)                       # (B, Hk, kept)
    one_hot = F.one_hot(kept, columns).to(dtype)                            # (B, Hk, kept, N)
    if settings.convolved == 0:
        return one_hot
    is_kept = one_hot.sum(dim=2)                                            # (B, Hk, N)
    rest = is_kept.argsort(dim=-1, stable=True)[..., : columns - kept.shape[-1]]  # (B, Hk, R), in order
    output = keys.new_zeros((*keys.shape[:2], settings.convolved, rest.shape[-1]))
    if compressor is not None:
        pairs = torch.cat([keys, values], dim=-1)
        output = compressor(pairs.take_along_dim(rest[..., None], dim=2))   # (B, Hk, M', R)
        if output.shape[2] != settings.convolved:
            raise ValueError(f"module: got a compressor with {output.shape[2]} slots, wanted {settings.convolved} "
                             "(slots less sinks and heavy); make it with the same options")
    rows = normalise(output.to(dtype), settings.weights)
    if settings.residual:
        top = best(accumulated.take_along_dim(rest, dim=-1), settings.convolved)  # top residual columns
        alpha = share_of(compressor)
        rows = alpha * rows + (1 - alpha) * F.one_hot(top, rest.shape[-1]).to(dtype)
    place = rest.unsqueeze(2).expand_as(rows)
    mixed = rows.new_zeros((*rows.shape[:-1], columns)).scatter(-1, place, rows)
    return torch.cat([one_hot, mixed], dim=2)


def share_of(compressor: nn.Module | None) -> Tensor | float:
    """Return alpha, the share of the convolution against the residual: 1/2 if there is none to train."""
    share = getattr(compressor, "share", None)
    return 0.5 if share is None else share.sigmoid()


def mix(weights: Tensor, columns: Tensor) -> Tensor:
    """Return slots (B, Hk, M, D): weights (B, Hk, M, N) times columns (B, Hk, N, D), in the columns' dtype."""
    return (weights @ columns.to(weights.dtype)).to(columns.dtype)


def _kept_columns(keys: Tensor, accumulated: Tensor, settings: Settings) -> Tensor:
    """Return the indices of kept columns, (B, Hk, sinks + heavy): the first, and the most attended others."""
    shape = (*keys.shape[:2], settings.sinks)
    sinks = torch.arange(settings.sinks, device=keys.device).expand(shape)
    if settings.heavy == 0:
        return sinks
    heavy = settings.sinks + best(accumulated[..., settings.sinks:], settings.heavy)
    return torch.cat([sinks, heavy], dim=-1)
