"""How fast is one row against a cache? The decode kernel against PyTorch's attention, full caches and CCA's."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.bench.gpu_section import Section, random_tensors, timed
from cca_lab.bench.gpu_sizes import Sizes
from cca_lab.bench.timing import median_and_range, ratios
from cca_lab.mechanisms import cca

DTYPE = torch.bfloat16
FULL = "sdpa, full"  # the yardstick


def run(sizes: Sizes, section: Section) -> None:
    """Measure every length and number of KV heads."""
    for length in sizes.lengths:
        for kv_heads in sizes.kv_heads:
            section.attempt(f"length {length}, {kv_heads} KV heads",
                            lambda n=length, of=kv_heads: measure(sizes, section, n, of))


@torch.no_grad()
def measure(sizes: Sizes, section: Section, length: int, kv_heads: int) -> None:
    """One row against all keys, and against as many as CCA's cache holds."""
    group, window = sizes.settings[0]
    q, k, v = random_tensors((1, sizes.heads, 1, sizes.head_dim), *[(1, kv_heads, length, sizes.head_dim)] * 2,
                             dtype=DTYPE)
    held = cca.cache_tokens(length, group, window)
    calls: dict[str, Callable[[], object]] = {}
    for what, keys in (("full", length), ("CCA", held)):
        some = tuple(x[:, :, :keys].contiguous() for x in (k, v))
        calls[f"sdpa, {what}"] = lambda some=some: sdpa(q, *some)
        calls[f"kernel, {what}"] = lambda some=some: kernel(q, *some)
    found, errors = timed(calls, sizes.rounds, sizes.least)
    for name, error in errors.items():
        section.add(length=length, kv_heads=kv_heads, contender=name, error=error)
    for name, times in found.items():
        seconds, spread = median_and_range(times)
        entries = held if name.endswith("CCA") else length
        size = 2 * kv_heads * entries * sizes.head_dim * q.element_size()
        section.add(length=length, kv_heads=kv_heads, contender=name, entries=entries, bytes=size, seconds=seconds,
                    range=spread, bytes_a_second=size / seconds,
                    speedup=median_and_range(ratios(found[FULL], times))[0] if FULL in found else None)


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's attention; the query heads of a KV head are rows of one call, so keys are not repeated."""
    rows = q.view(q.shape[0], k.shape[1], -1, q.shape[3])  # (B, Hk, H / Hk, D)
    return F.scaled_dot_product_attention(rows, k, v)


def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The lab's decode kernel."""
    from cca_lab.attention.kernels.decode import triton_decode

    return triton_decode(q, k, v, q.shape[-1] ** -0.5)[0]
