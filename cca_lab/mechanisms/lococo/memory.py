"""LoCoCo's compressor: a convolution over keys and values gives the weights that mix columns.

    W = g * [K ; V]                       one output channel for each slot           (Eq. 6)
    w_ij = ReLU(W_ij) / sum_k ReLU(W_ik)  or  softmax_j ReLU(W_ij)                   (Eq. 7)
    slot_i = sum_j w_ij column_j          the same w for keys and values             (Eq. 3-5)

Every way to fill slots is such a matrix w: a kept token is a one-hot row, and in eviction all rows
are one-hot.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cca_lab.attention import causal_intervals
from cca_lab.attention.dense import accumulation_dtype, attention_matrix
from cca_lab.mechanisms.lococo.segments import Compression, Settings, compressions
from cca_lab.mechanisms.tokens import best


class Compressor(nn.Module):
    """The trainable part of one layer: a Conv1d of 2D -> M channels for all heads (Section 3.2.1).

    Differs from the public code: initial weights have a variance of 1 / (2D kernel). There it is 1,
    so that the convolution's output is tens of times its input and the softmax saturates.

    Args:
        head_dim: D.
        slots: M, the slots that the convolution fills.
        kernel: width of the convolution in columns, odd.
    """

    def __init__(self, head_dim: int, slots: int, *, kernel: int = 21) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2 * head_dim, slots, kernel, padding="same")
        nn.init.normal_(self.conv.weight, std=(2 * head_dim * kernel) ** -0.5)
        nn.init.zeros_(self.conv.get_parameter("bias"))

    def forward(self, pairs: Tensor) -> Tensor:
        """Return W of Eq. 6, (B, Hk, M, N), from [key ; value] of N columns, (B, Hk, N, 2D)."""
        batch, heads = pairs.shape[:2]
        channels = pairs.flatten(0, 1).mT.to(self.conv.weight.dtype)  # (B Hk, 2D, N)
        return self.conv(channels).unflatten(0, (batch, heads))


def normalise(output: Tensor, weights: str) -> Tensor:
    """Normalise a convolution's output W (..., N) to weights that sum to 1 (Eq. 7).

    "relu" is the ratio of the paper, in which a row of zeros (0/0 as printed) becomes the mean;
    "softmax" is softmax(ReLU(W)), as in the public code: no weight is less than e^-max of the
    largest one.
    """
    positive = output.relu()
    if weights == "softmax":
        return positive.softmax(dim=-1)
    total = positive.sum(dim=-1, keepdim=True)
    dead = total == 0
    return torch.where(dead, 1 / output.shape[-1], positive / total.masked_fill(dead, 1.0))


def compression_matrix(keys: Tensor, values: Tensor, accumulated: Tensor | None, settings: Settings,
                       compressor: nn.Module | None) -> Tensor:
    """Return w, by which slots mix columns: [rows of sinks ; of heavy hitters ; convolved rows].

    Args:
        keys, values: of all columns, (B, Hk, N, D), N > M.
        accumulated: the accumulated attention of each column, (B, Hk, N); None stands for zeros.
        settings: of the mechanism.
        compressor: maps [key ; value] of the R columns that are not kept, (B, Hk, R, 2D), to one
            row for each of the M' convolved slots, (B, Hk, M', R); None gives zeros.

    Returns:
        (B, Hk, M, N), rows sum to 1, in at least float32.

    Raises:
        ValueError: if the compressor does not have one channel for each convolved slot.
    """
    columns, pairs = keys.shape[2], torch.cat([keys, values], dim=-1)
    if settings.sinks + settings.heavy == 0:  # all columns are convolved, in order
        return _convolved_rows(pairs, settings, compressor)
    accumulated = keys.new_zeros(keys.shape[:3]) if accumulated is None else accumulated
    sinks = torch.arange(settings.sinks, device=keys.device).expand(*keys.shape[:2], -1)
    heavy = settings.sinks + best(accumulated[..., settings.sinks:], settings.heavy)
    kept = torch.cat([sinks, heavy], dim=-1)                                # (B, Hk, kept)
    one_hot = F.one_hot(kept, columns).to(accumulation_dtype(keys.dtype))    # (B, Hk, kept, N)
    if settings.convolved == 0:
        return one_hot
    is_kept = one_hot.sum(dim=2)                                            # (B, Hk, N)
    # (B, Hk, R), in order
    rest = is_kept.argsort(dim=-1, stable=True)[..., :columns - kept.shape[-1]]
    rows = _convolved_rows(pairs.take_along_dim(rest[..., None], dim=2), settings,
                           compressor)                                      # (B, Hk, M', R)
    target = rest.unsqueeze(2).expand_as(rows)
    mixed = rows.new_zeros((*rows.shape[:-1], columns)).scatter(-1, target, rows)
    return torch.cat([one_hot, mixed], dim=2)


def _convolved_rows(pairs: Tensor, settings: Settings, compressor: nn.Module | None) -> Tensor:
    """Return the normalised rows of the convolved slots, from the columns that are not kept."""
    if compressor is None:
        output = pairs.new_zeros((*pairs.shape[:2], settings.convolved, pairs.shape[2]))
    else:
        output = compressor(pairs)
    if output.shape[2] != settings.convolved:
        raise ValueError(
            f"module: got a compressor with {output.shape[2]} slots, wanted "
            f"{settings.convolved} (slots less sinks and heavy); make it with the same options")
    return normalise(output.to(accumulation_dtype(pairs.dtype)), settings.weights)


def mix(weights: Tensor, columns: Tensor) -> Tensor:
    """Return slots (B, Hk, M, D): weights (B, Hk, M, N) times columns (B, Hk, N, D)."""
    return (weights @ columns.to(weights.dtype)).to(columns.dtype)


class Memory(NamedTuple):
    """Slot keys and values, (B, Hk, M, D) each, and the weights (B, Hk, M, N) that made them."""

    keys: Tensor
    values: Tensor
    weights: Tensor


def memories(q: Tensor, k: Tensor, v: Tensor, settings: Settings, scale: float | None,
             compressor: nn.Module | None) -> list[Memory]:
    """Return the memory after each compression; each is made from the one before."""
    made, memory = [], Memory(k[:, :, :0], v[:, :, :0], k[:, :, :0, :0])
    accumulated: Tensor | None = None
    for step in compressions(q.shape[2], settings):
        accumulated = _accumulated_before(q, k, memory, accumulated, step, settings, scale)
        raw = slice(step.first, step.border)
        memory = compress(memory, k[:, :, raw], v[:, :, raw], accumulated, settings, compressor)
        made.append(memory)
    return made


def compress(memory: Memory, k: Tensor, v: Tensor, accumulated: Tensor | None, settings: Settings,
             compressor: nn.Module | None) -> Memory:
    """Mix slots and raw tokens, k and v (B, Hk, n, D), into new slots (Eq. 3-7)."""
    keys, values = torch.cat([memory.keys, k], dim=2), torch.cat([memory.values, v], dim=2)
    weights = compression_matrix(keys, values, accumulated, settings, compressor)
    return Memory(mix(weights, keys), mix(weights, values), weights)


@torch.no_grad()
def attention_received(q: Tensor, keys: Tensor, scale: float | None) -> Tensor:
    """Return the attention on columns, summed over T rows and the query heads of a KV head.

    Queries of the rows at the last T columns (B, H, T, D), keys (B, Hk, N, D) -> (B, Hk, N), in at
    least float32, without gradient.
    """
    rows = causal_intervals(q.shape[2], keys.shape[2])
    weights, _ = attention_matrix(q, keys, rows, q.shape[-1] ** -0.5 if scale is None else scale)
    return weights.sum(dim=2).unflatten(1, (keys.shape[1], -1)).sum(dim=2)


def _accumulated_before(q: Tensor, k: Tensor, memory: Memory, before: Tensor | None,
                        step: Compression, settings: Settings,
                        scale: float | None) -> Tensor | None:
    """Return the accumulated attention before a compression, (B, Hk, N); None if not needed."""
    if not settings.scored:
        return None
    columns = torch.cat([memory.keys, k[:, :, step.first : step.border]], dim=2)
    since = step.last if settings.scores == "last" else step.first
    accumulated = attention_received(q[:, :, since : step.border], columns, scale)
    if settings.scores == "sum" and before is not None:  # a slot inherits the scores of its columns
        inherited = (memory.weights.detach() @ before[..., None])[..., 0]
        accumulated[..., : settings.slots] += inherited
    return accumulated


def pooling(made: list[Memory], settings: Settings, length: int, k: Tensor, *,
            reach: bool = False) -> Tensor:
    """Return P, (B, Hk, G M + L, L): the weight of each token in each column, slots first.

    With `reach`, 1 for a token in a column, 0 for others: a product of weights may underflow.
    """
    dtype = made[0].weights.dtype if made else torch.promote_types(k.dtype, torch.float32)
    raw = torch.eye(length, dtype=dtype, device=k.device).expand(*k.shape[:2], length, length)
    pools = [raw[:, :, :0]]
    for step, memory in zip(compressions(length, settings), made, strict=True):
        pool = memory.weights @ torch.cat([pools[-1], raw[:, :, step.first : step.border]], dim=2)
        pools.append((pool > 0).to(dtype) if reach else pool)
    return torch.cat([*pools, raw], dim=2)
