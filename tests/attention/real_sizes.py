"""The kernels at real sizes, against the dense backend in float64.

Memory that PyTorch allocates uninitialised is NaN, so that what a kernel does not store is seen.
Errors are measured by blocks of 128 rows:

    |got - wanted| of a block  <=  FACTOR * eps(dtype) * |wanted| of the block   (Euclidean norms)

A kernel rounds softmax weights, score gradients and results to the inputs' dtype, each with an
error of at most eps/2 that varies in sign: together below one eps. In float32 the sums of thousands
of terms, and exponents of logits of a few units, cost some tens of eps.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import interval_attention, pool_groups
from cca_lab.attention.intervals import causal_intervals
from cca_lab.mechanisms import VerticalSlash
from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.indices import core_count
from cca_lab.mechanisms.streaming import streaming_llm
from cca_lab.reporting import device

FACTOR = {torch.float32: 64, torch.float16: 2, torch.bfloat16: 2}
ROWS = 256  # per chunk of the reference
BLOCK = 128  # rows whose error is measured together
SMALL = 1e-2  # smallest norm of a block in the error, as a share of the mean norm
LENGTH, KEYS = 16384 + 5, 131072 + 3  # tokens of a text and of a cache: no multiples of a block
HEADS, KV_HEADS, HEAD_DIM, SIZES = 8, 2, 128, (16, 1024)  # the last: CCA's group and window
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
CASES = ((BF16, "cca", 128), (BF16, "full", 128), (FP16, "cca", 128), (FP32, "cca", 128),
         (BF16, "streaming_llm", 128), (BF16, "cca", 64), (BF16, "cca", 80), (FP16, "cca", 64),
         (FP32, "full", 128), (FP32, "cca", 64))
PATTERN: dict[str, Any] = {"vertical": 200, "slash": 300, "last": 64, "forced_vertical": 30,
                           "forced_slash": 50, "block": 64}


def checks() -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Yield each check's name, and what returns its errors in eps of the dtype, by tensor."""
    for dtype, mechanism, head_dim in CASES:
        yield (f"attention, {mechanism}, {dtype}, head_dim {head_dim}",
               partial(check_attention, mechanism, dtype, head_dim))
    for dtype in FACTOR:
        for check in (check_pooling, check_decoding, check_vertical_slash):
            yield f"{check.__name__}, {dtype}", partial(check, dtype)


def random_tensors(*shapes: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """Draw tensors on the GPU, or on the CPU if there is none."""
    generator = torch.Generator(device()).manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float32, device=device()).to(dtype)
            for shape in shapes]


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill memory that PyTorch allocates uninitialised with NaN within the context."""
    before = torch.are_deterministic_algorithms_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about non-deterministic operators
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def table_of(mechanism: str, length: int, group: int, window: int) -> tuple[Tensor, int]:
    """Return the intervals of a mechanism (1, 1, L, n, 2), and its number of columns N."""
    if mechanism == "cca":
        cores = core_count(length, group, window)
        return groups.intervals(length, group, window), cores + length
    if mechanism == "full":
        return causal_intervals(length), length
    return streaming_llm.intervals(torch.arange(length), 4, window), length


def check_attention(mechanism: str, dtype: torch.dtype, head_dim: int, length: int = LENGTH,
                    sizes: tuple[int, int] = SIZES) -> dict[str, float]:
    """Check the output, the log-sum-exp and all gradients of the kernels."""
    table, columns = table_of(mechanism, length, *sizes)
    q, k, v, grad_out = random_tensors(
        *((1, heads, rows, head_dim) for heads, rows in (
            (HEADS, length), (KV_HEADS, columns), (KV_HEADS, columns), (HEADS, length))),
        dtype=dtype)
    (grad_lse,) = random_tensors((1, HEADS, length), dtype=torch.float32, seed=1)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    with poisoned():
        out, lse = interval_attention(q, k, v, table, backend="triton", return_lse=True)
        grads = torch.autograd.grad((out, lse), (q, k, v), (grad_out, grad_lse))
    wanted = reference(q.detach(), k.detach(), v.detach(), table, grad_out, grad_lse)
    return errors(dtype, ("out", "lse", "dq", "dk", "dv"), (out, lse, *grads), wanted)


def reference(q: Tensor, k: Tensor, v: Tensor, table: Tensor, grad_out: Tensor,
              grad_lse: Tensor) -> tuple[Tensor, ...]:
    """Return out, lse, dq, dk, dv in float64, in chunks of independent rows."""
    k, v = (x.double().requires_grad_() for x in (k, v))
    rows_of, sums = [], [torch.zeros_like(k), torch.zeros_like(v)]
    for rows in torch.arange(q.shape[2]).split(ROWS):
        chunk = slice(int(rows[0]), int(rows[-1]) + 1)
        query = q[:, :, chunk].double().requires_grad_()
        out, lse = interval_attention(query, k, v, table[:, :, chunk], backend="dense",
                                      return_lse=True)
        grad_q, *grads = torch.autograd.grad(
            (out, lse), (query, k, v),
            (grad_out[:, :, chunk].double(), grad_lse[:, :, chunk].double()))
        rows_of.append((out.detach(), lse.detach(), grad_q))
        for total, grad in zip(sums, grads, strict=True):
            total += grad
    return *(torch.cat(chunks, dim=2) for chunks in zip(*rows_of, strict=True)), *sums


def check_pooling(dtype: torch.dtype) -> dict[str, float]:
    """Check the cores and gradients of the fused pooling, with re-rotated keys."""
    group, length = SIZES[0], LENGTH // SIZES[0] * SIZES[0]
    q, k, v = (x.requires_grad_() for x in random_tensors(
        *((1, heads, length, HEAD_DIM) for heads in (HEADS, KV_HEADS, KV_HEADS)), dtype=dtype))
    angle = random_tensors((length, HEAD_DIM // 2), dtype=torch.float32, seed=2)[0]
    cos, sin = (torch.cat([f(angle), f(angle)], dim=-1) for f in (torch.cos, torch.sin))
    grads_out = random_tensors(*[(1, KV_HEADS, length // group, HEAD_DIM)] * 2, dtype=dtype, seed=3)
    with poisoned():
        cores = pool_groups(q, k, v, group, rotation=(cos, sin), backend="triton")
        grads = torch.autograd.grad(cores, (q, k, v), grads_out)
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    wanted = pool_groups(q, k, v, group, rotation=(cos.double(), sin.double()), backend="torch")
    wanted_grads = torch.autograd.grad(wanted, (q, k, v), [x.double() for x in grads_out])
    return errors(dtype, ("core k", "core v", "dq", "dk", "dv"), (*cores, *grads),
                  (*wanted, *wanted_grads))


@torch.no_grad()
def check_decoding(dtype: torch.dtype) -> dict[str, float]:
    """Check one row against the longest cache."""
    q, k, v = random_tensors((1, HEADS, 1, HEAD_DIM), *[(1, KV_HEADS, KEYS, HEAD_DIM)] * 2,
                             dtype=dtype)
    everything = torch.tensor([[[[[0, KEYS]]]]])
    with poisoned():
        got = interval_attention(q, k, v, everything, backend="triton", return_lse=True)
    wanted = interval_attention(q.double(), k.double(), v.double(), everything, backend="dense",
                                return_lse=True)
    return errors(dtype, ("out", "lse"), got, wanted)


@torch.no_grad()
def check_vertical_slash(dtype: torch.dtype) -> dict[str, float]:
    """Check MInference's pattern; kernel and reference read the same columns and diagonals."""
    q, k, v = random_tensors(*((1, heads, LENGTH // 4, HEAD_DIM)
                               for heads in (HEADS, KV_HEADS, KV_HEADS)), dtype=dtype)
    exact, pattern = [x.double() for x in (q, k, v)], VerticalSlash(**PATTERN)
    selection = pattern.select(*exact[:2])
    with poisoned():
        got = replace(pattern, backend="triton").attention(q, k, v, selection=selection)
    wanted = replace(pattern, backend="dense").attention(*exact, selection=selection)
    return errors(dtype, ("out",), (got,), (wanted,))


def errors(dtype: torch.dtype, names: tuple[str, ...], got: tuple[Tensor, ...],
           wanted: tuple[Tensor, ...]) -> dict[str, float]:
    """Return the error of every tensor, in eps of the dtype."""
    return {name: block_error(*pair) / torch.finfo(dtype).eps
            for name, *pair in zip(names, got, wanted, strict=True)}


def block_error(got: Tensor, wanted: Tensor) -> float:
    """Return the largest |got - wanted| / |wanted| of a block of rows; 1e300 where one is NaN."""
    if not bool(got.isfinite().all()):
        return 1e300  # JSON has no infinity
    got, wanted = (x.detach().double().reshape(*x.shape[:3], -1) for x in (got, wanted))
    error, size = (torch.stack([block.flatten(2).norm(dim=-1) for block in x.split(BLOCK, 2)])
                   for x in (got - wanted, wanted))  # (blocks, B, H)
    return (error / size.clamp_min(SMALL * size.mean()).clamp_min(1e-300)).max().item()
