"""Speed of one row against a cache: the decode kernel and PyTorch's attention.

Each is timed as launched from Python, and as a CUDA graph, as servers decode: a row takes some
microseconds, less than Python needs to launch it.
"""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.mechanisms.cca import groups
from cca_lab.studies.benchmarks.gpu import section as of_sections
from cca_lab.studies.benchmarks.gpu.section import Section, Sizes, captured, timed, told
from cca_lab.studies.benchmarks.timing import median_and_range, ratios

DTYPE = torch.bfloat16
FULL = "sdpa, full"  # the baseline
GRAPH = ", graph"


def run(sizes: Sizes, section: Section) -> None:
    """Measure every length and number of KV heads."""
    for length in sizes.lengths:
        for kv_heads in sizes.kv_heads:
            section.attempt(f"length {length}, {kv_heads} KV heads",
                            partial(measure, sizes, section, length, kv_heads))


@torch.no_grad()
def measure(sizes: Sizes, section: Section, length: int, kv_heads: int) -> None:
    """Measure one row against all keys, and against as many as CCA's cache holds."""
    group, window = sizes.settings[0]
    q, k, v = of_sections.random_tensors((1, sizes.heads, 1, sizes.head_dim),
                             *[(1, kv_heads, length, sizes.head_dim)] * 2, dtype=DTYPE)
    cached = groups.cache_tokens(length, group, window)
    calls: dict[str, Callable[[], object]] = {}
    for what, keys in (("full", length), ("CCA", cached)):
        key, value = (x[:, :, :keys].contiguous() for x in (k, v))
        calls[f"sdpa, {what}"] = partial(sdpa, q, key, value)
        calls[f"kernel, {what}"] = partial(kernel, q, key, value)
    errors: dict[str, str] = {}
    for name, call in list(calls.items()) if torch.cuda.is_available() else ():
        try:
            calls[name + GRAPH] = captured(call)
        except Exception as error:
            errors[name + GRAPH] = told(error)
    times, failed = timed(calls, sizes.rounds, sizes.least)
    for name, message in (errors | failed).items():
        section.add(length=length, kv_heads=kv_heads, contender=name, error=message)
    for name in times:
        seconds, spread = median_and_range(times[name])
        entries, full = cached if "CCA" in name else length, FULL + GRAPH * name.endswith(GRAPH)
        size = 2 * kv_heads * entries * sizes.head_dim * q.element_size()
        speedup = median(ratios(times[full], times[name])) if full in times else None
        section.add(length=length, kv_heads=kv_heads, contender=name, entries=entries, bytes=size,
                    seconds=seconds, range=spread, bytes_a_second=size / seconds, speedup=speedup)


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's attention; a KV head's query heads are rows of one call, so keys stay as is."""
    rows = q.view(q.shape[0], k.shape[1], -1, q.shape[3])  # (B, Hk, H / Hk, D)
    return F.scaled_dot_product_attention(rows, k, v)


def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The lab's decode kernel."""
    from cca_lab.attention.kernels.decode import triton_decode

    return triton_decode(q, k, v, q.shape[-1] ** -0.5)[0]
