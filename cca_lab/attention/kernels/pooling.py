"""Group pooling on the Triton backend: the launches, and the gradients for autograd."""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.fused import refuse_second_derivative
from cca_lab.attention.kernels import launch
from cca_lab.attention.kernels.configs import padded
from cca_lab.attention.kernels.language import triton
from cca_lab.attention.kernels.pooling_kernels import pooling_backward, pooling_forward

WARPS = {16: 1, 32: 1, 64: 2}  # by padded head dim, else 4: a group is one small tile of g rows


def triton_pool_groups(q: Tensor, k: Tensor, v: Tensor, group: int, count: int, scale: float,
                       turn: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Pool the first M groups with softmax weights of each group's last query, differentiable once.

    Args:
        q: (B, H, L, D), any strides.
        k, v: (B, Hk, L, D), any strides; one core per KV head.
        group, count: g, and M, at least 1.
        scale: factor on the dot products.
        turn: cos and sin of the angle from each token to its group's middle, (1 or B, M g, D),
            float32; None does not rotate the keys.

    Returns:
        Core keys and core values, (B, Hk, M, D) each, in the dtype of k.
    """
    launch.check_tensor("k", k)
    return _TritonPooling.apply(q, k, v, group, count, scale, turn)


class _TritonPooling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: int, count: int, scale: float,
                turn: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        batch, key_heads, _, head_dim = k.shape
        shape = torch.Size((batch, key_heads, count, head_dim))
        core_k, core_v = launch.new_output(shape, k), launch.new_output(shape, v)
        ctx.save_for_backward(q, k, v)
        ctx.turn = None if turn is None else tuple(table.float().contiguous() for table in turn)
        ctx.group, ctx.count, ctx.scale = group, count, scale
        pooling_forward[(count, batch * key_heads)](
            q, k, v, *_tables(q, ctx.turn), core_k, core_v, *_arguments(q, k, v, ctx.turn), count,
            scale, **_constants(head_dim, group, turn), num_warps=WARPS.get(padded(head_dim), 4))
        return core_k, core_v

    @staticmethod
    def backward(ctx: Any, grad_core_k: Tensor, grad_core_v: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("pooling on the Triton kernels")
        q, k, v = ctx.saved_tensors
        batch, key_heads, length, head_dim = k.shape
        # queries that pool nothing, tail
        grads = [launch.new_output(x.shape, x).zero_() for x in (q, k, v)]
        pooling_backward[(ctx.count, batch * key_heads)](
            q, k, v, *_tables(q, ctx.turn), grad_core_k.contiguous(), grad_core_v.contiguous(),
            *grads, *_arguments(q, k, v, ctx.turn), ctx.count, length, ctx.scale,
            **_constants(head_dim, ctx.group, ctx.turn), num_warps=WARPS.get(padded(head_dim), 4))
        return *grads, None, None, None, None


def _tables(q: Tensor, turn: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """Return the tables, or q in their place: the kernel then never reads that pointer."""
    return (q, q) if turn is None else turn


def _arguments(q: Tensor, k: Tensor, v: Tensor,
               turn: tuple[Tensor, Tensor] | None) -> tuple[int, ...]:
    per_row = 0 if turn is None or len(turn[0]) == 1 else turn[0].stride(0)
    return (*q.stride(), *k.stride(), *v.stride(), per_row, k.shape[1], q.shape[1] // k.shape[1])


def _constants(head_dim: int, group: int, turn: object) -> dict[str, Any]:
    return dict(D=head_dim, BLOCK_D=padded(head_dim), GROUP=group,
                BLOCK_T=triton.next_power_of_2(group), ROTATED=turn is not None)
