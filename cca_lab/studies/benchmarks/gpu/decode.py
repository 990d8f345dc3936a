"""Speed of one row against a cache: the decode kernel and PyTorch's attention.

Each is timed as launched from Python, and as a CUDA graph, as servers decode: a row takes some
microseconds, less than Python needs to launch it.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.mechanisms.cca import groups
from cca_lab.studies.benchmarks.gpu.section import (
    Section,
    Sizes,
    captured,
    random_tensors,
    timed,
    told,
)
from cca_lab.studies.benchmarks.timing import median_and_range, ratios

DTYPE = torch.bfloat16
FULL = "sdpa, full"  # the baseline
GRAPH = ", graph"


def run(sizes: Sizes, section: Section) -> None:
    """Measure every length and number of KV heads."""
    for length in sizes.lengths:
        for kv_heads in sizes.kv_heads:
            section.attempt(f"length {length}, {kv_heads} KV heads",
                            lambda n=length, of=kv_heads: measure(sizes, section, n, of))


@torch.no_grad()
def measure(sizes: Sizes, section: Section, length: int, kv_heads: int) -> None:
    """Measure one row against all keys, and against as many as CCA's cache holds."""
    group, window = sizes.settings[0]
    q, k, v = random_tensors((1, sizes.heads, 1, sizes.head_dim),
                             *[(1, kv_heads, length, sizes.head_dim)] * 2, dtype=DTYPE)
    cached = groups.cache_tokens(length, group, window)
    calls: dict[str, Callable[[], object]] = {}
    for what, keys in (("full", length), ("CCA", cached)):
        some = tuple(x[:, :, :keys].contiguous() for x in (k, v))
        calls[f"sdpa, {what}"] = lambda some=some: sdpa(q, *some)
        calls[f"kernel, {what}"] = lambda some=some: kernel(q, *some)
    graphs, errors = graphs_of(calls) if torch.cuda.is_available() else ({}, {})
    found, failed = timed(calls | graphs, sizes.rounds, sizes.least)
    for name, error in (errors | failed).items():
        section.add(length=length, kv_heads=kv_heads, contender=name, error=error)
    for name, times in found.items():
        seconds, spread = median_and_range(times)
        entries, full = cached if "CCA" in name else length, FULL + GRAPH * name.endswith(GRAPH)
        size = 2 * kv_heads * entries * sizes.head_dim * q.element_size()
        section.add(
            length=length, kv_heads=kv_heads, contender=name, entries=entries, bytes=size,
            seconds=seconds, range=spread, bytes_a_second=size / seconds,
            speedup=median_and_range(ratios(found[full], times))[0] if full in found else None)


def graphs_of(calls: dict[str, Callable[[], object]]) -> tuple[dict[str, Callable[[], object]],
                                                               dict[str, str]]:
    """Return every call as a CUDA graph, and the errors of those that cannot be captured."""
    graphs, errors = {}, {}
    for name, call in calls.items():
        try:
            graphs[name + GRAPH] = captured(call)
        except Exception as error:
            errors[name + GRAPH] = told(error)
    return graphs, errors


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's attention; a KV head's query heads are rows of one call, so keys stay as is."""
    rows = q.view(q.shape[0], k.shape[1], -1, q.shape[3])  # (B, Hk, H / Hk, D)
    return F.scaled_dot_product_attention(rows, k, v)


def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The lab's decode kernel."""
    from cca_lab.attention.kernels.decode import triton_decode

    return triton_decode(q, k, v, q.shape[-1] ** -0.5)[0]
