"""The limits of a machine (matrix peak, memory bandwidth), and the useful operations and least bytes of attention.

A visible query-key pair costs two products of D features, scores and values: 4 D operations forward. The
backward has five such products (scores again, dV, dP, dQ, dK): 10 D. What an implementation computes beyond that,
masked or twice, is not counted as useful. The least traffic is q, k, v read once and out written once.
"""

from collections.abc import Callable

import torch

PRODUCTS = {"forward": 4, "backward": 10, "forward+backward": 14}  # operations per pair and feature


def useful_flops(pairs: int, heads: int, head_dim: int, kind: str = "forward") -> int:
    """Return the floating-point operations that a pass needs for its visible pairs.

    Args:
        pairs: query-key pairs of one head.
        heads: query heads, times the batch.
        head_dim: D.
        kind: "forward", "backward" or "forward+backward".
    """
    return PRODUCTS[kind] * head_dim * pairs * heads


def least_bytes(rows: int, columns: int, heads: int, kv_heads: int, head_dim: int, itemsize: int) -> int:
    """Return the bytes that a forward must move: q and out (heads, rows, D), k and v (kv_heads, columns, D)."""
    return 2 * (heads * rows + kv_heads * columns) * head_dim * itemsize


def product_call(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Callable[[], object], int]:
    """Return a call that multiplies two random square matrices, and the number of its floating-point operations."""
    generator = torch.Generator(device).manual_seed(0)
    one, other = (torch.randn(size, size, generator=generator, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty_like(one)
    return lambda: torch.mm(one, other, out=out), 2 * size**3


def copy_call(size: int, device: torch.device) -> tuple[Callable[[], object], int]:
    """Return a call that copies `size` bytes, and the number of bytes it reads and writes."""
    source = torch.zeros(size // 4, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), 2 * source.nbytes
