"""The native backend: interval attention as a C++ op for the CPU, built where a compiler exists.

Its sources in cca_lab/attention/cpp, in reading order: gemm.h multiplies matrices that stay in
cache, runs.h finds the columns a block of rows computes, forward.h and backward.h do one block,
received.h sums what a block's rows give to the columns, and interval_attention.cpp does all blocks;
bfloat16*.h do the same for bfloat16 on processors with AVX512-BF16 or AMX. row.h and
pool.h are what a decoded token needs, in any dtype: one row over columns in several pieces, and the
core of a group; step.h also adds the token to what is stored. python.h calls them without torch's
dispatcher, where Python's headers are installed.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import native_build
from cca_lab.attention.eager import eager
from cca_lab.attention.fused import refuse_second_derivative
from cca_lab.attention.rotary import Rotation
from cca_lab.attention.sources import Source, halves, split_intervals, tensors_of

DTYPES = (torch.float32, torch.float64)  # and bfloat16 where `bfloat16_units`
ROW_DTYPES = (*DTYPES, torch.bfloat16, torch.float16)
_taken = False  # whether "auto" has taken the op: it is asked in every layer, for every token
_LOADING = Lock()  # the op may be registered once in a process


def available() -> bool:
    """Return whether the op is built on this machine or can be built."""
    return native_build.library().is_file() or native_build.missing() is None


def ready(x: Tensor) -> bool:
    """Return whether "auto" uses the op for a tensor; the first call tries to build it."""
    supported = x.dtype in DTYPES or x.dtype == torch.bfloat16
    return supported and reads_rows(x) and (x.dtype in DTYPES or bfloat16_units())


def reads_rows(x: Tensor) -> bool:
    """Return whether "auto" uses `row` for a tensor; the first call tries to build the op."""
    return x.is_cpu and x.dtype in ROW_DTYPES and (_taken or _take())


def _take() -> bool:
    """Return whether "auto" takes the op from now on."""
    global _taken
    _taken = not native_build.switched_off() and (built() or _built_for_auto())
    return _taken


@cache
@eager
def _built_for_auto() -> bool:
    """Return whether the op can be used after an attempt to build it: one attempt in a process."""
    return native_build.build_for_auto() and built()


@eager
def bfloat16_units() -> bool:
    """Return whether the op is loaded and multiplies bfloat16 here, on AVX512-BF16 or AMX."""
    return _registered() and bool(torch.ops.cca_lab.bfloat16_units())


@eager
def native_attention(q: Tensor, k: Source, v: Source, intervals: Tensor,
                     scale: float) -> tuple[Tensor, Tensor]:
    """Compute `dense_attention` in linear memory, differentiable once through out and lse.

    The first call builds the op, which takes half a minute. The dtype is float32 or float64, or
    bfloat16 where `bfloat16_units`; there sums and softmax are float32, and weights are rounded
    before they multiply values. Gradients of k and v are sums over blocks of rows, in an order that
    depends only on the number of threads, so results are reproducible.

    Raises:
        ValueError: for another dtype or device, or if the op cannot be built on this machine.
    """
    if q.device.type != "cpu" or q.dtype not in (*DTYPES, torch.bfloat16):
        raise ValueError(f'backend: got "native" for {q.dtype} on {q.device}, wanted float32 or '
                         'float64 on the CPU; use backend="auto", or "blocked", which takes any')
    load()
    if q.dtype == torch.bfloat16 and not bfloat16_units():
        raise ValueError('backend: got "native" for torch.bfloat16, which needs a processor with '
                         'AVX512-BF16; use backend="auto", or "blocked", which takes any')
    keys = tensors_of(k)
    bounds = [table.cpu().permute(4, 0, 1, 3, 2).contiguous()  # (2, b, h, n, L)
              for table in split_intervals(intervals, [x.shape[2] for x in keys])]
    return _NativeAttention.apply(q, bounds, scale, *keys, *tensors_of(v))


@eager
def row(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], scale: float,
        bias: Sequence[Tensor] = ()) -> Tensor:
    """Compute `attend_row` in C++, without a gradient; ValueError if the op cannot be built."""
    output: Tensor = _token_ops().row(query, keys, values, bias, scale)
    return output


@eager
def pool(q: Tensor, k: Tensor, v: Tensor, group: int, count: int, scale: float,
         rotation: Rotation | None) -> tuple[Tensor, Tensor]:
    """Pool groups as `pool_groups` with softmax weights and one core per KV head: no gradient."""
    cos, sin = (None, None) if rotation is None else (
        x if x.dim() == 3 else x[None] for x in rotation)
    core_k, core_v = _token_ops().pool(q, k, v, group, count, scale, cos, sin)
    return core_k, core_v


def step(query: Tensor, key: Tensor, value: Tensor, keys: Sequence[Tensor],
         values: Sequence[Tensor], scale: float, drop: Sequence[int],
         bias: Sequence[Tensor] = (), received: Tensor | None = None, part: Sequence[int] = (),
         owner: Sequence[int] = ()) -> tuple[Tensor, list[Tensor]]:
    """Let a new token attend to pieces and itself, and add it to the last piece of each part.

    Args:
        query, key, value: (B, H, 1, D) and (B, Hk, 1, D).
        keys, values, scale, bias: as in `attend_row`.
        drop: of each part, the entries [begin, end) of its last piece that leave, of which the new
            token is the last.
        received: (B, Hk, n), of the only piece; then one of the entries leaves in each head, that
            which has received least.
        part: of each piece, the part of the KV heads that read it; one part without it.
        owner: of each KV head, its part.

    Returns:
        (B, H, 1, D), and the last keys and values of each part, then what they have received.
    """
    output, grown = _token_ops().step(query, key, value, keys, values, bias,
                                      part or [0] * len(keys), owner, drop, scale, received)
    return output, grown


def slide(past: Sequence[Tensor], new: Sequence[Tensor], begin: int, end: int) -> list[Tensor]:
    """Return tensors without their entries from `begin` to before `end`, then the new entry."""
    slid: list[Tensor] = _token_ops().slide(past, new, begin, end)
    return slid


class _NativeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, bounds: list[Tensor], scale: float,
                *columns: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = torch.ops.cca_lab.forward(q, *halves(columns), bounds, scale)
        ctx.save_for_backward(q, out, lse, *columns)
        ctx.bounds, ctx.scale = bounds, scale
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None,
                 grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("native attention")
        q, out, lse, *columns = ctx.saved_tensors
        if grad_out is None and grad_lse is None:
            return None, None, None, *(None for _ in columns)
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out
        grad_q, grad_k, grad_v = torch.ops.cca_lab.backward(
            grad_out, grad_lse, q, *halves(columns), out, lse, ctx.bounds, ctx.scale)
        return grad_q, None, None, *grad_k, *grad_v


@cache
def _token_ops() -> Any:
    """Return the ops of a decoded token, without torch's dispatcher if possible."""
    load()
    address = torch.ops.cca_lab.python_functions()
    # without an address, it was built without Python's headers
    return ctypes.PYFUNCTYPE(ctypes.py_object)(address)() if address else torch.ops.cca_lab


def _registered() -> bool:
    return hasattr(torch.ops.cca_lab, "forward")


def load() -> None:
    """Build the op if needed and register it with torch; ValueError if that fails."""
    with _LOADING:
        if _registered():
            return
        library = native_build.build()
        if _registered():  # a build also registers the op
            return
        try:
            torch.ops.load_library(library)
        except OSError as error:
            raise ValueError(f"native: {library} cannot be loaded here ({error}); delete it, and "
                             "it is built again") from error


@eager
def built() -> bool:
    """Return whether the op is already built and can be loaded."""
    return _registered() or (native_build.library().is_file() and _loads())


@cache
def _loads() -> bool:
    """Return whether the existing library, which another system may have built, can be loaded."""
    try:
        load()
    except ValueError:
        return False
    return True
