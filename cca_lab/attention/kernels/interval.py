"""Interval attention on the Triton backend: the launches, and the gradients for autograd."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.fused import refuse_second_derivative
from cca_lab.attention.intervals import TensorCache, minimum
from cca_lab.attention.kernels import launch
from cca_lab.attention.kernels.configs import KERNELS, Blocks, blocks_for, padded
from cca_lab.attention.kernels.interval_backward import (
    interval_backward_columns,
    interval_backward_rows,
)
from cca_lab.attention.kernels.interval_forward import interval_forward
from cca_lab.attention.kernels.language import triton
from cca_lab.attention.kernels.launch import LOG2_E
from cca_lab.attention.sources import Source, halves, tensors_of

_BOUNDS = TensorCache()


def triton_attention(q: Tensor, keys: Source, values: Source, intervals: Source, scale: float, *,
                     blocks: Sequence[Blocks] | None = None) -> tuple[Tensor, Tensor]:
    """Compute `dense_attention` in one fused kernel, differentiable once through out and lse.

    Args:
        q: (B, H, L, D), fp16, bf16 or fp32, any strides.
        keys, values: (B, Hk, N, D), any strides; or one or two sources of columns, which are read
            where they lie.
        intervals: (b, h, L, n, 2); or those of each source, in its own columns.
        scale: as in `dense_attention`.
        blocks: block sizes of each of `configs.KERNELS`, which do not change the result; None
            takes the table's.

    Raises:
        ValueError: for a dtype, head dimension or device that the kernels do not support.
    """
    launch.check_tensor("q", q)
    shape = q.shape[-1], q.element_size(), launch.backend_name()
    blocks = blocks or [blocks_for(kernel, *shape) for kernel in KERNELS]
    bounds = [bounds_of(x, q.device) for x in tensors_of(intervals)]
    return _TritonAttention.apply(q, bounds, scale, blocks, *tensors_of(keys), *tensors_of(values))


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
    def forward(ctx: Any, q: Tensor, bounds: list[Tensor], scale: float,
                blocks: Sequence[Blocks], *columns: Tensor) -> tuple[Tensor, Tensor]:
        batch, heads, length, _ = q.shape
        out, lse = launch.new_output(q.shape, q), launch.new_output(q.shape[:-1], q, torch.float32)
        sources = [_source(*x) for x in zip(*halves(columns), bounds, strict=True)]
        interval_forward[(triton.cdiv(length, blocks[0].rows), batch * heads)](
            q, *_both(sources), out, lse, *q.stride(), *out.stride(), heads,
            heads // columns[0].shape[1], length, scale * LOG2_E,
            **_constants(q, bounds, blocks[0]))
        ctx.save_for_backward(q, out, lse, *columns)
        ctx.bounds, ctx.scale, ctx.blocks = bounds, scale, blocks[1:]
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None,
                 grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("attention on the Triton kernels")
        q, out, lse, *columns = ctx.saved_tensors
        if grad_out is None and grad_lse is None:
            return (None,) * (4 + len(columns))
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out.contiguous()
        grad_lse = torch.zeros_like(lse) if grad_lse is None else grad_lse.contiguous()
        grad_q, *grads = _launch_backward(q, columns, ctx.bounds, out, lse, grad_out, grad_lse,
                                          ctx.scale, *ctx.blocks)
        return grad_q, None, None, None, *grads


def _launch_backward(q: Tensor, columns: list[Tensor], bounds: list[Tensor], out: Tensor,
                     lse: Tensor, grad_out: Tensor, grad_lse: Tensor, scale: float,
                     of_rows: Blocks, of_columns: Blocks) -> list[Tensor]:
    """Return the gradients of q and of the columns, contiguous."""
    batch, heads, length, _ = q.shape
    key_heads = columns[0].shape[1]
    parts = list(zip(*halves(columns), bounds, strict=True))
    numbers, delta = (length, scale, scale * LOG2_E), launch.new_output(lse.shape, lse)
    grads = [launch.new_output(x.shape, x) for x in (q, *columns)]
    sources = [_source(*x) for x in parts]
    interval_backward_rows[(triton.cdiv(length, of_rows.rows), batch * heads)](
        q, *_both(sources), out, lse, grad_out, grad_lse, delta, grads[0], *q.stride(), heads,
        heads // key_heads, *numbers, **_constants(q, bounds, of_rows))
    rows = [rows_of_columns(x, k.shape[2], of_columns.columns) for k, _, x in parts]
    sources = [(*source, x, *_outer(x), grad_k.shape[2], grad_k, grad_v) for source, x, grad_k,
               grad_v in zip(sources, rows, *halves(grads[1:]), strict=True)]
    interval_backward_columns[(sum(x.shape[-1] for x in rows), batch * key_heads)](
        q, *_both(sources), grad_out, lse, delta, *q.stride(), key_heads, heads // key_heads,
        *numbers, **_constants(q, bounds, of_columns))
    return grads


def _source(k: Tensor, v: Tensor, bounds: Tensor) -> tuple[Any, ...]:
    """Return a kernel's arguments of one source."""
    return k, v, bounds, *k.stride(), *v.stride(), *_outer(bounds)


def _both(sources: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the arguments of the first source and of the last, which may be the same."""
    return *sources[0], *sources[-1]


def _outer(x: Tensor) -> tuple[int, int]:
    """Return the strides of batch and head, 0 where one entry serves all."""
    batch, head = (0 if size == 1 else stride for size, stride in zip(x.shape[:2],
                                                                      x.stride()[:2], strict=True))
    return batch, head


def _constants(q: Tensor, bounds: list[Tensor], blocks: Blocks) -> dict[str, Any]:
    return dict(D=q.shape[-1], BLOCK_D=padded(q.shape[-1]), BLOCK_M=blocks.rows,
                BLOCK_N=blocks.columns, FIRST=bounds[0].shape[2],
                INTERVALS=sum(x.shape[2] for x in bounds), UPCAST=launch.upcast(q.dtype),
                num_warps=blocks.warps, num_stages=blocks.stages)
