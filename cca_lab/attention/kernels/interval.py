"""Interval attention on the Triton backend: the launches, and the gradients for autograd."""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.fused import refuse_second_derivative
from cca_lab.attention.intervals import TensorCache, minimum
from cca_lab.attention.kernels import launch
from cca_lab.attention.kernels.configs import Blocks, blocks_for, padded
from cca_lab.attention.kernels.interval_backward import (
    interval_backward_columns,
    interval_backward_rows,
)
from cca_lab.attention.kernels.interval_forward import interval_forward
from cca_lab.attention.kernels.language import triton
from cca_lab.attention.kernels.launch import LOG2_E

_BOUNDS = TensorCache()


def triton_attention(q: Tensor, k: Tensor, v: Tensor, intervals: Tensor, scale: float, *,
                     forward: Blocks | None = None,
                     backward: Blocks | None = None) -> tuple[Tensor, Tensor]:
    """Compute `dense_attention` in one fused kernel, differentiable once through out and lse.

    Args:
        q, k, v: fp16, bf16 or fp32, any strides; intervals and scale as in `dense_attention`.
        forward, backward: block sizes, which do not change the result; None takes the table's.

    Raises:
        ValueError: for a dtype, head dimension or device that the kernels do not support.
    """
    launch.check_tensor("q", q)
    shape = q.shape[-1], q.element_size(), launch.backend_name()
    forward = forward or blocks_for("forward", *shape)
    backward = backward or blocks_for("backward", *shape)
    return _TritonAttention.apply(q, k, v, bounds_of(intervals, q.device), scale, forward, backward)


def bounds_of(intervals: Tensor, device: torch.device) -> Tensor:
    """Return starts and ends as separate rows, int32 (b, h, n, 2, L), to be read together."""
    def build() -> Tensor:
        with torch.inference_mode(False):
            return intervals.to(device=device, dtype=torch.int32).permute(0, 1, 3, 4,
                                                                          2).contiguous()

    return _BOUNDS.get(intervals, device, build)


def rows_of_columns(bounds: Tensor, columns: int, block: int) -> Tensor:
    """Return which rows see each block of columns, int32 (b, h, n, 4, blocks).

    The four are: first, first that sees all, last that sees all + 1, last + 1. Row i sees c if
    start_i <= c < end_i, and both never decrease, so the rows that see column c are
    [first with end > c, first with start > c).
    """
    starts, ends = bounds.unbind(dim=3)  # (b, h, n, L) each
    first = torch.arange(0, columns, block, device=bounds.device, dtype=torch.int32)
    limits = [x.expand(*starts.shape[:-1], -1).contiguous()
              for x in limits_of_block(first, columns, block)]
    # how many are smaller
    return torch.stack([torch.searchsorted(values.contiguous(), limit, out_int32=True)
                        for values in (ends, starts) for limit in limits], dim=3)


def limits_of_block(first: Any, columns: int, block: int) -> tuple[Any, Any]:
    """Return below which ends, or starts, rows are counted for a block of columns from `first` on.

    Row i sees the first column c if its end is not below c + 1 and its start is; and so the last.
    """
    return first + 1, minimum(first + block, columns)


class _TritonAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, scale: float,
                blocks: Blocks, backward_blocks: Blocks) -> tuple[Tensor, Tensor]:
        batch, heads, length, head_dim = q.shape
        out, lse = launch.new_output(q.shape, q), launch.new_output(q.shape[:-1], q, torch.float32)
        interval_forward[(triton.cdiv(length, blocks.rows), batch * heads)](
            q, k, v, bounds, out, lse, *q.stride(), *k.stride(), *v.stride(), *out.stride(),
            *_outer(bounds), heads, heads // k.shape[1], length, scale * LOG2_E, **_constants(
                bounds, head_dim, q.dtype, blocks))
        ctx.save_for_backward(q, k, v, bounds, out, lse)
        ctx.scale, ctx.blocks = scale, backward_blocks
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None,
                 grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("attention on the Triton kernels")
        q, k, v, bounds, out, lse = ctx.saved_tensors
        if grad_out is None and grad_lse is None:
            return None, None, None, None, None, None, None
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out.contiguous()
        delta = (grad_out.float() * out.float()).sum(dim=-1)  # (B, H, L)
        delta = delta if grad_lse is None else delta - grad_lse
        grads = _launch_backward(q, k, v, bounds, grad_out, lse, delta.contiguous(), ctx.scale,
                                 ctx.blocks)
        return *grads, None, None, None, None


def _launch_backward(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, grad_out: Tensor, lse: Tensor,
                     delta: Tensor, scale: float, blocks: Blocks) -> list[Tensor]:
    """Return dQ, dK and dV, contiguous."""
    batch, heads, length, head_dim = q.shape
    key_heads, columns = k.shape[1:3]
    constants = _constants(bounds, head_dim, q.dtype, blocks)
    strides = (*q.stride(), *k.stride(), *v.stride(), *_outer(bounds))
    grad_q, grad_k, grad_v = (launch.new_output(x.shape, x) for x in (q, k, v))
    interval_backward_rows[(triton.cdiv(length, blocks.rows), batch * heads)](
        q, k, v, bounds, grad_out, lse, delta, grad_q, *strides, heads, heads // key_heads, length,
        scale, scale * LOG2_E, **constants)
    rows = rows_of_columns(bounds, columns, blocks.columns)
    interval_backward_columns[(rows.shape[-1], batch * key_heads)](
        q, k, v, bounds, rows, grad_out, lse, delta, grad_k, grad_v, *strides, *_outer(rows),
        key_heads, heads // key_heads, length, columns, scale, scale * LOG2_E, **constants)
    return [grad_q, grad_k, grad_v]


def _outer(x: Tensor) -> tuple[int, int]:
    """Return the strides of batch and head, 0 where one entry serves all."""
    batch, head = (0 if size == 1 else stride for size, stride in zip(x.shape[:2],
                                                                      x.stride()[:2], strict=True))
    return batch, head


def _constants(bounds: Tensor, head_dim: int, dtype: torch.dtype, blocks: Blocks) -> dict[str, Any]:
    return dict(D=head_dim, BLOCK_D=padded(head_dim), BLOCK_M=blocks.rows, BLOCK_N=blocks.columns,
                INTERVALS=bounds.shape[2], UPCAST=launch.upcast(dtype),
                num_warps=blocks.warps, num_stages=blocks.stages)
