"""LoCoCo's memory: how it is made compression by compression, and which tokens its slots hold."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cca_lab.attention import causal_intervals
from cca_lab.attention.dense import attention_matrix
from cca_lab.mechanisms.lococo_compressor import compression_matrix, mix
from cca_lab.mechanisms.lococo_rows import Compression, Settings, compressions


class Memory(NamedTuple):
    """Slot keys and values, (B, Hk, M, D) each, and the weights (B, Hk, M, N) that made them."""

    keys: Tensor
    values: Tensor
    weights: Tensor | None = None


def memories(q: Tensor, k: Tensor, v: Tensor, settings: Settings, scale: float | None,
             compressor: nn.Module | None) -> list[Memory]:
    """Return the memory after each compression, one after the other: each is made from the one before.

    With a `horizon` of h, the memory of compression n is made once more from the memory n - h, which is
    cut from the graph: the same numbers, with gradients through h compressions.
    """
    plan = compressions(q.shape[2], settings)
    horizon = settings.horizon if torch.is_grad_enabled() else None
    made, received = [Memory(k[:, :, :0], v[:, :, :0])], []
    for n, step in enumerate(plan):
        received.append(_received_before(q, k, made[-1], received[-1:], step, settings, scale))
        depth = 1 if horizon is None else min(horizon, n + 1)
        memory = made[n + 1 - depth]
        if horizon is not None:
            memory = Memory(memory.keys.detach(), memory.values.detach())
        for earlier in range(n + 1 - depth, n + 1):
            raw = slice(plan[earlier].first, plan[earlier].border)
            memory = compress(memory, k[:, :, raw], v[:, :, raw], received[earlier], settings, compressor)
        made.append(memory)
    return made[1:]


def compress(memory: Memory, k: Tensor, v: Tensor, received: Tensor | None, settings: Settings,
             compressor: nn.Module | None) -> Memory:
    """Mix slots and raw tokens, k and v (B, Hk, n, D), into new slots (Eq. 3-7)."""
    keys, values = torch.cat([memory.keys, k], dim=2), torch.cat([memory.values, v], dim=2)
    weights = compression_matrix(keys, values, received, settings, compressor)
    return Memory(mix(weights, keys), mix(weights, values), weights)


@torch.no_grad()
def attention_received(q: Tensor, keys: Tensor, scale: float | None) -> Tensor:
    """Add up the attention that columns receive from the last T rows and from all query heads.

    Args:
        q: (B, H, T, D).
        keys: of the columns, (B, Hk, N, D), N >= T.
        scale: None means D**-0.5.

    Returns:
        (B, Hk, N), in at least float32, without gradient.
    """
    rows = causal_intervals(q.shape[2], keys.shape[2])
    weights, _ = attention_matrix(q, keys, rows, q.shape[-1] ** -0.5 if scale is None else scale)
    return weights.sum(dim=2).unflatten(1, (keys.shape[1], -1)).sum(dim=2)


def _received_before(q: Tensor, k: Tensor, memory: Memory, before: list[Tensor | None], step: Compression,
                     settings: Settings, scale: float | None) -> Tensor | None:
    """Return what each column received before a compression, (B, Hk, N); None where nobody asks."""
    if not settings.scored:
        return None
    columns = torch.cat([memory.keys, k[:, :, step.first : step.border]], dim=2)
    since = step.last if settings.scores == "last" else step.first
    received = attention_received(q[:, :, since : step.border], columns, scale)
    if settings.scores == "sum" and before:  # a slot inherits the scores of what it was made from
        inherited = (memory.weights.detach() @ before[0][..., None])[..., 0]
        received[..., : settings.slots] += inherited
    return received


def pooling(made: list[Memory], settings: Settings, length: int, k: Tensor) -> Tensor:
    """Return P, (B, Hk, G M + L, L): which tokens each column, slots first, is made of.

    Args:
        made: the memories, whose weights are multiplied.
        settings: of the mechanism.
        length: L.
        k: keys, (B, Hk, L, D), for shape, dtype and device.
    """
    dtype = made[0].weights.dtype if made else torch.promote_types(k.dtype, torch.float32)
    raw = torch.eye(length, dtype=dtype, device=k.device).expand(*k.shape[:2], length, length)
    pools = [raw[:, :, :0]]
    for step, memory in zip(compressions(length, settings), made, strict=True):
        pools.append(memory.weights @ torch.cat([pools[-1], raw[:, :, step.first : step.border]], dim=2))
    return torch.cat([*pools, raw], dim=2)
