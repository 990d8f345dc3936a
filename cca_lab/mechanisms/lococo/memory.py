"""LoCoCo's memory: the slots after each compression, and the weights of the tokens in them."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cca_lab.attention import causal_intervals
from cca_lab.attention.dense import attention_matrix
from cca_lab.mechanisms.lococo.compressor import compression_matrix, mix
from cca_lab.mechanisms.lococo.segments import Compression, Settings, compressions


class Memory(NamedTuple):
    """Slot keys and values, (B, Hk, M, D) each, and the weights (B, Hk, M, N) that made them."""

    keys: Tensor
    values: Tensor
    weights: Tensor


def memories(q: Tensor, k: Tensor, v: Tensor, settings: Settings, scale: float | None,
             compressor: nn.Module | None) -> list[Memory]:
    """Return the memory after each compression; each is made from the one before.

    With a `horizon` of h, the memory after compression n is made again from the memory after n - h, which is
    detached from the graph: the numbers are the same, and gradients flow through h compressions.
    """
    plan = compressions(q.shape[2], settings)
    horizon = settings.horizon if torch.is_grad_enabled() else None
    made = [Memory(k[:, :, :0], v[:, :, :0], k[:, :, :0, :0])]
    accumulated: list[Tensor | None] = [None]
    for n, step in enumerate(plan):
        accumulated.append(_accumulated_before(q, k, made[-1], accumulated[-1], step, settings, scale))
        depth = 1 if horizon is None else min(horizon, n + 1)
        memory = made[n + 1 - depth]
        if horizon is not None:
            memory = Memory(*(tensor.detach() for tensor in memory))
        for earlier in range(n + 1 - depth, n + 1):
            raw = slice(plan[earlier].first, plan[earlier].border)
            memory = compress(memory, k[:, :, raw], v[:, :, raw], accumulated[earlier + 1], settings, compressor)
        made.append(memory)
    return made[1:]


def compress(memory: Memory, k: Tensor, v: Tensor, accumulated: Tensor | None, settings: Settings,
             compressor: nn.Module | None) -> Memory:
    """Mix slots and raw tokens, k and v (B, Hk, n, D), into new slots (Eq. 3-7)."""
    keys, values = torch.cat([memory.keys, k], dim=2), torch.cat([memory.values, v], dim=2)
    weights = compression_matrix(keys, values, accumulated, settings, compressor)
    return Memory(mix(weights, keys), mix(weights, values), weights)


@torch.no_grad()
def attention_received(q: Tensor, keys: Tensor, scale: float | None) -> Tensor:
    """Return the accumulated attention on columns, summed over T rows and the query heads of a KV head.

    Args:
        q: queries of the rows at the last T columns, (B, H, T, D).
        keys: of the columns, (B, Hk, N, D), N >= T.
        scale: None means D**-0.5.

    Returns:
        (B, Hk, N), in at least float32, without gradient.
    """
    rows = causal_intervals(q.shape[2], keys.shape[2])
    weights, _ = attention_matrix(q, keys, rows, q.shape[-1] ** -0.5 if scale is None else scale)
    return weights.sum(dim=2).unflatten(1, (keys.shape[1], -1)).sum(dim=2)


def _accumulated_before(q: Tensor, k: Tensor, memory: Memory, before: Tensor | None, step: Compression,
                        settings: Settings, scale: float | None) -> Tensor | None:
    """Return the accumulated attention of columns before a compression, (B, Hk, N); None if it is not needed."""
    if not settings.scored:
        return None
    columns = torch.cat([memory.keys, k[:, :, step.first : step.border]], dim=2)
    since = step.last if settings.scores == "last" else step.first
    accumulated = attention_received(q[:, :, since : step.border], columns, scale)
    if settings.scores == "sum" and before is not None:  # a slot inherits the scores of its columns
        inherited = (memory.weights.detach() @ before[..., None])[..., 0]
        accumulated[..., : settings.slots] += inherited
    return accumulated


def pooling(made: list[Memory], settings: Settings, length: int, k: Tensor, *, reach: bool = False) -> Tensor:
    """Return P, (B, Hk, G M + L, L): the weight of each token in each column, slots first.

    Args:
        made: the memories, whose weights are multiplied.
        settings: of the mechanism.
        length: L.
        k: keys, (B, Hk, L, D), for shape, dtype and device.
        reach: use 1 for a token in a column, 0 for others: a product of weights may underflow in its dtype.
    """
    dtype = made[0].weights.dtype if made else torch.promote_types(k.dtype, torch.float32)
    raw = torch.eye(length, dtype=dtype, device=k.device).expand(*k.shape[:2], length, length)
    pools = [raw[:, :, :0]]
    for step, memory in zip(compressions(length, settings), made, strict=True):
        pool = memory.weights @ torch.cat([pools[-1], raw[:, :, step.first : step.border]], dim=2)
        pools.append((pool > 0).to(dtype) if reach else pool)
    return torch.cat([*pools, raw], dim=2)
