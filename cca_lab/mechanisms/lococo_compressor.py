"""LoCoCo's compressor: a convolution over keys and values that says how each slot mixes the columns.

    W = g * [K ; V]                       one output channel for each slot           (Eq. 6)
    w_ij = ReLU(W_ij) / sum_k ReLU(W_ik)  or  softmax_j ReLU(W_ij)                   (Eq. 7)
    slot_i = sum_j w_ij column_j          the same w for keys and values             (Eq. 3-5)

Every way to fill slots is such a matrix w: a kept token is a one-hot row, and eviction has no other rows.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cca_lab.attention.dense import accumulation_dtype
from cca_lab.mechanisms.lococo_rows import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


class Compressor(nn.Module):
    """The trainable part of one layer: a Conv1d of 2D -> M channels, shared by all heads (Section 3.2.1).

    Differs from the public code: weights start at a variance of 1 / (2D kernel), there at 1, where the
    convolution's output is tens of times its input and the softmax is saturated. With `residual`, the share
    alpha of the convolution is sigmoid(a), a trained, so that slots stay weighted means; there a free scalar.

    Args:
        head_dim: D.
        slots: M, the slots that the convolution fills.
        kernel: columns that one weight looks at, odd.
        residual: whether to have the share alpha; it starts at 1/2.
    """

    def __init__(self, head_dim: int, slots: int, *, kernel: int = 21, residual: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2 * head_dim, slots, kernel, padding="same")
        nn.init.normal_(self.conv.weight, std=(2 * head_dim * kernel) ** -0.5)
        nn.init.zeros_(self.conv.bias)
        self.share = nn.Parameter(torch.zeros(())) if residual else None

    def forward(self, pairs: Tensor) -> Tensor:
        """Return W of Eq. 6, (B, Hk, M, N), from [key ; value] of N columns, (B, Hk, N, 2D)."""
        batch, heads = pairs.shape[:2]
        channels = pairs.flatten(0, 1).mT.to(self.conv.weight.dtype)  # (B Hk, 2D, N)
        return self.conv(channels).unflatten(0, (batch, heads))


def new_module(config: "PreTrainedConfig", *, slots: int, sinks: int = 0, heavy: int = 0, kernel: int = 21,
               residual: bool = False, **_: object) -> Compressor | None:
    """Return the compressor of one attention layer, or None if every slot keeps a token and none is mixed."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    mixed = slots - sinks - heavy
    return Compressor(head_dim, mixed, kernel=kernel, residual=residual) if mixed else None


def normalise(output: Tensor, weights: str) -> Tensor:
    """Turn a convolution's output (..., N) into mixing weights that sum to 1 over the columns (Eq. 7).

    Args:
        output: W of Eq. 6.
        weights: "relu", the ratio of the paper, in which a row of zeros (0/0 as printed) becomes the plain
            mean and passes no gradient back; or "softmax", that of the public code, softmax(ReLU(W)), which
            gives no column less than 1/e^max of the largest.
    """
    positive = output.relu()
    if weights == "softmax":
        return positive.softmax(dim=-1)
    total = positive.sum(dim=-1, keepdim=True)
    dead = total == 0
    return torch.where(dead, 1 / output.shape[-1], positive / total.masked_fill(dead, 1.0))


def compression_matrix(keys: Tensor, values: Tensor, received: Tensor | None, settings: Settings,
                       compressor: nn.Module | None) -> Tensor:
    """Say how the slots mix the columns: [one-hot rows of sinks ; of heavy hitters ; convolved rows].

    Args:
        keys, values: of all columns, (B, Hk, N, D), N > M.
        received: the attention that each column received, (B, Hk, N); None if settings.scored is False.
        settings: of the mechanism.
        compressor: maps [key ; value] of the columns that are not kept, (B, Hk, R, 2D), to one row for each
            convolved slot, (B, Hk, M', R); None stands for a convolution of zeros.

    Returns:
        (B, Hk, M, N), rows sum to 1, in at least float32.

    Raises:
        ValueError: if the compressor has not one channel for each convolved slot.
    """
    columns, dtype = keys.shape[2], accumulation_dtype(keys.dtype)
    kept = _kept_columns(keys, received, settings)                          # (B, Hk, kept)
    one_hot = F.one_hot(kept, columns).to(dtype)                            # (B, Hk, kept, N)
    if settings.convolved == 0:
        return one_hot
    is_kept = one_hot.sum(dim=2)                                            # (B, Hk, N)
    rest = is_kept.argsort(dim=-1, stable=True)[..., : columns - kept.shape[-1]]  # (B, Hk, R), as they stand
    output = keys.new_zeros((*keys.shape[:2], settings.convolved, rest.shape[-1]))
    if compressor is not None:
        pairs = torch.cat([keys, values], dim=-1)
        output = compressor(pairs.take_along_dim(rest[..., None], dim=2))   # (B, Hk, M', R)
        if output.shape[2] != settings.convolved:
            raise ValueError(f"compressor: got one with {output.shape[2]} slots, wanted {settings.convolved} "
                             "(slots less sinks and heavy); make it with the same options")
    rows = normalise(output.to(dtype), settings.weights)
    if settings.residual:
        favourites = largest(received.take_along_dim(rest, dim=-1), settings.convolved)
        alpha = share_of(compressor)
        rows = alpha * rows + (1 - alpha) * F.one_hot(favourites, rest.shape[-1]).to(dtype)
    place = rest.unsqueeze(2).expand_as(rows)
    mixed = rows.new_zeros((*rows.shape[:-1], columns)).scatter(-1, place, rows)
    return torch.cat([one_hot, mixed], dim=2)


def share_of(compressor: nn.Module | None) -> Tensor | float:
    """Return alpha, the share of the convolution beside the residual: 1/2 until it is trained."""
    share = getattr(compressor, "share", None)
    return 0.5 if share is None else share.sigmoid()


def largest(scores: Tensor, count: int) -> Tensor:
    """Return the places of the `count` largest scores (..., N) in order of place; of equals the earlier."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count].sort(dim=-1).values


def mix(weights: Tensor, columns: Tensor) -> Tensor:
    """Return slots (B, Hk, M, D): weights (B, Hk, M, N) times columns (B, Hk, N, D), in their dtype."""
    return (weights @ columns.to(weights.dtype)).to(columns.dtype)


def _kept_columns(keys: Tensor, received: Tensor | None, settings: Settings) -> Tensor:
    """Return the columns that are kept, (B, Hk, sinks + heavy): the first, and the most attended others."""
    shape = (*keys.shape[:2], settings.sinks)
    sinks = torch.arange(settings.sinks, device=keys.device).expand(shape)
    if settings.heavy == 0:
        return sinks
    heavy = settings.sinks + largest(received[..., settings.sinks:], settings.heavy)
    return torch.cat([sinks, heavy], dim=-1)
