"""Speed of a layer's attention on a GPU, and its share of the peak, by length.

The contenders, on the same q, k, v, in rounds of rotating order:

    flash           full causal attention, PyTorch's flash backend: the baseline
    sdpa            the same with the backend that PyTorch chooses
    full, kernel    the same on the lab's kernel
    CCA             from q, k, v to the output, pooling included
    CCA, kernel     the attention alone, over cores pooled before
    CCA, flex       the same by FlexAttention, compiled, over cores and raw tokens in one tensor
    pooling         the pooling alone

A rate is useful operations per second (see `benchmarks.timing`), for the targets over flash's.
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch import config as functorch_config
from torch.nn.attention import SDPBackend, sdpa_kernel

from cca_lab.attention import causal_intervals, pool_groups
from cca_lab.attention.sources import halves, split_intervals
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.indices import core_count
from cca_lab.reporting import device
from cca_lab.studies.benchmarks.flex import flex_call
from cca_lab.studies.benchmarks.gpu.section import (
    Section,
    Setting,
    Sizes,
    free_memory,
    random_tensors,
    timed,
    told,
)
from cca_lab.studies.benchmarks.timing import (
    copy_call,
    least_bytes,
    median_and_range,
    product_call,
    ratios,
    useful_flops,
)

FLASH = "flash"
DTYPE = torch.bfloat16

Attend = Callable[..., Tensor | tuple[Tensor, ...]]
# A call, its inputs, the pairs of a head, and CCA's setting.
Contender = tuple[Attend, tuple[Tensor, ...], int, Setting | None]


def run(sizes: Sizes, section: Section) -> None:
    """Measure the machine's peaks, then every contender at every length."""
    section.attempt("roof", partial(roof, sizes, section))
    # The backward is timed repeatedly on one graph, which compiled code allows only without donated
    # buffers. That setting is local to a thread, and on a GPU autograd would run the backward in
    # another thread.
    with (functorch_config.patch(donated_buffer=False),
          torch.autograd.set_multithreading_enabled(False)):
        for length in sizes.lengths:
            section.attempt(f"length {length}", partial(measure, sizes, section, length))


def roof(sizes: Sizes, section: Section) -> None:
    """Measure the peak of matrix products and the bandwidth of a copy."""
    product, flops = product_call(sizes.product, DTYPE, device())
    copied, traffic = copy_call(sizes.copy, device())
    times, _ = timed({"product": product, "copy": copied}, max(5, sizes.rounds), sizes.least)
    peak, peak_range = median_and_range([flops / time for time in times["product"]])
    bandwidth, bandwidth_range = median_and_range([traffic / time for time in times["copy"]])
    section.note(peak=peak, peak_range=peak_range, bandwidth=bandwidth,
                 bandwidth_range=bandwidth_range,
                 product=f"{sizes.product} x {sizes.product} bfloat16")


def measure(sizes: Sizes, section: Section, length: int) -> None:
    """Measure all contenders at one length: forward, then backward."""
    contenders, errors = make_contenders(sizes, length)
    for name, message in errors.items():
        section.add(length=length, contender=name, error=message)
    for kind, prepare in (("forward", forward_call), ("backward", backward_call)):
        calls = {}
        for name, (attend, inputs, *_) in contenders.items():
            try:
                calls[name] = prepare(attend, inputs)
            except Exception as error:
                section.add(length=length, contender=name, **{"pass": kind}, error=told(error))
        times, failed = timed(calls, sizes.rounds, sizes.least)
        del calls
        free_memory()
        for name, message in failed.items():
            section.add(length=length, contender=name, **{"pass": kind}, error=message)
        for name in times:
            section.add(**row(sizes, section, length, kind, name, contenders[name], times))


def row(sizes: Sizes, section: Section, length: int, kind: str, name: str, contender: Contender,
        times: dict[str, list[float]]) -> dict[str, Any]:
    """Return seconds, rate, and their ratios to flash attention, as JSON values."""
    *_, pairs, setting = contender
    seconds, spread = median_and_range(times[name])
    made: dict[str, Any] = {"length": length, "pass": kind, "contender": name,
                            "setting": setting, "pairs": pairs, "seconds": seconds,
                            "range": spread}
    if pairs:
        flops = useful_flops(pairs, sizes.heads, sizes.head_dim, kind)
        peak = section.found.get("peak")
        made |= {"rate": flops / seconds, "of_peak": flops / seconds / peak if peak else None,
                 "flops": flops,
                 "bytes": least_bytes(length, length, sizes.heads, sizes.heads, sizes.head_dim, 2)}
    if FLASH in times:
        speedup, full = median(ratios(times[FLASH], times[name])), length * (length + 1) // 2
        made |= {"speedup": speedup, "of_flash": speedup * pairs / full if pairs else None}
    return made


def make_contenders(sizes: Sizes, length: int) -> tuple[dict[str, Contender], dict[str, str]]:
    """Return every contender of a length, and the errors of those that cannot be made."""
    q, k, v = (x.requires_grad_()
               for x in random_tensors(*[(1, sizes.heads, length, sizes.head_dim)] * 3,
                                       dtype=DTYPE))
    full = length * (length + 1) // 2
    scale = sizes.head_dim**-0.5
    contenders: dict[str, Contender] = {
        FLASH: (flash, (q, k, v), full, None),
        "sdpa": (partial(F.scaled_dot_product_attention, is_causal=True), (q, k, v), full, None)}
    errors: dict[str, str] = {}

    def add(name: str, make: Callable[[], Contender]) -> None:
        try:
            contenders[name] = make()
        except Exception as error:
            errors[name] = told(error)

    add("full, kernel", lambda: (kernel(causal_intervals(length), scale), (q, k, v), full, None))
    def add_setting(setting: Setting) -> None:
        group, window = setting
        pairs, table = groups.pairs(length, group, window), groups.intervals(length, group, window)
        add(f"CCA, s = {window}", lambda: (
            CCA(group=group, window=window, backend="triton").attention, (q, k, v), pairs, setting))
        add(f"CCA, kernel, s = {window}", lambda: (
            kernel(table, scale), sources(q, k, v, group, window), pairs, setting))
        if setting != sizes.settings[0]:
            return
        add("pooling", lambda: (partial(pool_groups, group=group, backend="triton"), (q, k, v), 0,
                                setting))
        if length in sizes.flex_lengths:
            add("CCA, flex", lambda: (
                flex_call(table, core_count(length, group, window) + length, group, window,
                          device(), compiled=sizes.name == "real"),
                joined(*sources(q, k, v, group, window)), pairs, setting))

    for setting in sizes.settings:
        add_setting(setting)
    return contenders, errors


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Full causal attention with PyTorch's flash backend only."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def kernel(intervals: Tensor, scale: float) -> Attend:
    """Return the attention kernel alone, its intervals on the GPU before timing starts."""
    from cca_lab.attention.kernels.interval import triton_attention

    on_device = intervals.to(device())

    def attend(q: Tensor, *columns: Tensor) -> Tensor:
        keys, values = halves(columns)
        tables = split_intervals(on_device, [x.shape[2] for x in keys])
        return triton_attention(q, keys, values, tables, scale)[0]

    return attend


def sources(q: Tensor, k: Tensor, v: Tensor, group: int, window: int) -> tuple[Tensor, ...]:
    """Return q, the keys of cores and of raw tokens, and so the values, as leaf tensors."""
    count = core_count(q.shape[2], group, window)
    with torch.no_grad():
        cores = pool_groups(q, k, v, group, count=count) if count else (k[:, :, :0], v[:, :, :0])
    return q, *(x.detach().requires_grad_() for pair in zip(cores, (k, v), strict=True)
                for x in pair)


def joined(q: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
    """Return q, keys and values of one tensor each, as leaf tensors."""
    return q, *(torch.cat(tuple(x), dim=2).detach().requires_grad_() for x in halves(columns))


def forward_call(attend: Attend, inputs: tuple[Tensor, ...]) -> Callable[[], object]:
    """Return the forward as a call on inputs without gradient."""
    inputs = tuple(x.detach() for x in inputs)
    return lambda: attend(*inputs)


def backward_call(attend: Attend, inputs: tuple[Tensor, ...]) -> Callable[[], object]:
    """Return the backward alone as a call; the forward has run, and its graph is kept."""
    outputs = attend(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    grads = [torch.randn_like(output) for output in outputs]
    return lambda: torch.autograd.grad(outputs, inputs, grads, retain_graph=True)
