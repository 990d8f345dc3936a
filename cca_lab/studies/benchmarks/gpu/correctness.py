"""Correctness of the kernels at real sizes, against the dense backend in float64.

Memory that PyTorch allocates uninitialised is NaN, so that what a kernel does not store is seen.
Errors are measured by blocks of 128 rows:

    |got - wanted| of a block  <=  FACTOR * eps(dtype) * |wanted| of the block   (Euclidean norms)

A kernel rounds softmax weights, score gradients and results to the inputs' dtype, each with an
error of at most eps/2 that varies in sign: together below one eps. In float32 the sums of thousands
of terms, and exponents of logits of a few units, cost some tens of eps.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from cca_lab.attention import interval_attention, pool_groups
from cca_lab.attention.intervals import causal_intervals
from cca_lab.mechanisms import VerticalSlash
from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.indices import core_count
from cca_lab.mechanisms.streaming import streaming_llm
from cca_lab.studies.benchmarks.gpu.section import Section, Sizes, random_tensors

FACTOR = {torch.float32: 64, torch.float16: 2, torch.bfloat16: 2}
ROWS = 256  # per chunk of the reference
BLOCK = 128  # rows whose error is measured together
SMALL = 1e-2  # smallest norm of a block in the error, as a share of the mean norm


def run(sizes: Sizes, section: Section) -> None:
    """Check attention, pooling, decoding and vertical-slash in every dtype; a row per case.

    A dtype's other kernels follow its first case: if time runs out, the last cases are missing.
    """
    others = {"pooling": check_pooling, "decoding": check_decoding,
              "vertical-slash": check_vertical_slash}
    done: set[torch.dtype] = set()
    for dtype, mechanism, head_dim in sizes.cases:
        section.attempt(f"{mechanism}, {dtype}, head_dim {head_dim}",
                        partial(check_attention, sizes, section, mechanism, dtype, head_dim))
        for what, check in ({} if dtype in done else others).items():
            section.attempt(f"{what}, {dtype}", partial(check, sizes, section, dtype))
        done.add(dtype)


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill memory that PyTorch allocates uninitialised with NaN within the context."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about non-deterministic operators
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)


def table_of(mechanism: str, length: int, group: int, window: int) -> tuple[Tensor, int]:
    """Return the intervals of a mechanism (1, 1, L, n, 2), and its number of columns N."""
    if mechanism == "cca":
        cores = core_count(length, group, window)
        return groups.intervals(length, group, window), cores + length
    if mechanism == "full":
        return causal_intervals(length), length
    return streaming_llm.intervals(torch.arange(length), 4, window), length


def check_attention(sizes: Sizes, section: Section, mechanism: str, dtype: torch.dtype,
                    head_dim: int) -> None:
    """Check the output, the log-sum-exp and all gradients of the kernels."""
    heads, kv_heads = sizes.check_heads
    table, columns = table_of(mechanism, sizes.length, *sizes.check_setting)
    shapes = (heads, sizes.length), (kv_heads, columns), (kv_heads, columns), (heads, sizes.length)
    q, k, v, grad_out = random_tensors(*((1, of, length, head_dim) for of, length in shapes),
                                       dtype=dtype)
    (grad_lse,) = random_tensors((1, heads, sizes.length), dtype=torch.float32, seed=1)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    with poisoned():
        out, lse = interval_attention(q, k, v, table, backend="triton", return_lse=True)
        grads = torch.autograd.grad((out, lse), (q, k, v), (grad_out, grad_lse))
    wanted = reference(q.detach(), k.detach(), v.detach(), table, grad_out, grad_lse)
    judge(section, f"attention, {mechanism}", dtype, head_dim,
          dict(zip(("out", "lse", "dq", "dk", "dv"), zip((out, lse, *grads), wanted, strict=True),
                   strict=True)))


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


def check_pooling(sizes: Sizes, section: Section, dtype: torch.dtype) -> None:
    """Check the cores and gradients of the fused pooling, with re-rotated keys."""
    heads, kv_heads = sizes.check_heads
    group, head_dim = sizes.check_setting[0], sizes.head_dim
    length = sizes.length // group * group
    q, k, v = (x.requires_grad_() for x in random_tensors(
        *((1, of, length, head_dim) for of in (heads, kv_heads, kv_heads)), dtype=dtype))
    angle = random_tensors((length, head_dim // 2), dtype=torch.float32, seed=2)[0]
    cos, sin = (torch.cat([f(angle), f(angle)], dim=-1) for f in (torch.cos, torch.sin))
    grads_out = random_tensors(*[(1, kv_heads, length // group, head_dim)] * 2, dtype=dtype, seed=3)
    with poisoned():
        cores = pool_groups(q, k, v, group, rotation=(cos, sin), backend="triton")
        grads = torch.autograd.grad(cores, (q, k, v), grads_out)
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    wanted = pool_groups(q, k, v, group, rotation=(cos.double(), sin.double()), backend="torch")
    wanted_grads = torch.autograd.grad(wanted, (q, k, v), [x.double() for x in grads_out])
    pairs = zip((*cores, *grads), (*wanted, *wanted_grads), strict=True)
    judge(section, "pooling", dtype, head_dim,
          dict(zip(("core k", "core v", "dq", "dk", "dv"), pairs, strict=True)))


@torch.no_grad()
def check_decoding(sizes: Sizes, section: Section, dtype: torch.dtype) -> None:
    """Check one row against the longest cache."""
    heads, kv_heads = sizes.check_heads
    keys = max(sizes.lengths) + 3
    cache = (1, kv_heads, keys, sizes.head_dim)
    q, k, v = random_tensors((1, heads, 1, sizes.head_dim), cache, cache, dtype=dtype)
    everything = torch.tensor([[[[[0, keys]]]]])
    with poisoned():
        got = interval_attention(q, k, v, everything, backend="triton", return_lse=True)
    wanted = interval_attention(q.double(), k.double(), v.double(), everything, backend="dense",
                                return_lse=True)
    judge(section, "decoding", dtype, sizes.head_dim,
          dict(zip(("out", "lse"), zip(got, wanted, strict=True), strict=True)))


@torch.no_grad()
def check_vertical_slash(sizes: Sizes, section: Section, dtype: torch.dtype) -> None:
    """Check MInference's pattern; kernel and reference read the same columns and diagonals."""
    heads, kv_heads = sizes.check_heads
    length, options = sizes.check_pattern
    q, k, v = random_tensors(
        *((1, of, length, sizes.head_dim) for of in (heads, kv_heads, kv_heads)), dtype=dtype)
    exact = [x.double() for x in (q, k, v)]
    pattern = VerticalSlash(**options)  # type: ignore[arg-type]  # none of these is the backend
    chosen = pattern.select(*exact[:2])
    with poisoned():
        got = replace(pattern, backend="triton").attention(q, k, v, selection=chosen)
    wanted = replace(pattern, backend="dense").attention(*exact, selection=chosen)
    judge(section, "vertical-slash", dtype, sizes.head_dim, {"out": (got, wanted)})


def judge(section: Section, what: str, dtype: torch.dtype, head_dim: int,
          pairs: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Add a row with the error of every tensor in eps, and whether all are tolerated."""
    errors = {name: block_error(got, wanted) / torch.finfo(dtype).eps
              for name, (got, wanted) in pairs.items()}
    section.add(case=what, dtype=str(dtype).removeprefix("torch."), head_dim=head_dim,
                errors_in_eps=errors, tolerance_in_eps=FACTOR[dtype],
                right=all(error <= FACTOR[dtype] for error in errors.values()))


def block_error(got: Tensor, wanted: Tensor) -> float:
    """Return the largest |got - wanted| / |wanted| of a block of rows; infinite for NaN."""
    if not bool(got.isfinite().all()):
        return float("inf")
    got, wanted = (x.detach().double().reshape(*x.shape[:3], -1) for x in (got, wanted))
    error, size = (torch.stack([block.flatten(2).norm(dim=-1) for block in x.split(BLOCK, 2)])
                   for x in (got - wanted, wanted))  # (blocks, B, H)
    return (error / size.clamp_min(SMALL * size.mean()).clamp_min(1e-300)).max().item()
