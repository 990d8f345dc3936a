"""Interleaved rounds, a machine's limits, useful operations, peak memory.

A visible query-key pair costs two products of D features, scores and values: 4 D operations
forward. The backward has five such products (scores again, dV, dP, dQ, dK): 10 D. What is computed
beyond that, masked or twice, is not useful. The least traffic: q, k, v read and out written, once.
"""

import math
import multiprocessing
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import torch

from cca_lab.freed_memory import give_back

MOST_REPEATS = 200
LONG = 20  # a call of this many times `least` is timed alone

PRODUCTS = {"forward": 4, "backward": 10, "forward+backward": 14}  # operations per pair and feature
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")

Name = TypeVar("Name", bound=Hashable)


def synchronize() -> None:
    """Wait until the GPU, if there is one, has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(call: Callable[[], object], repeat: int = 1) -> float:
    """Return the seconds of a call, GPU work included: the mean of `repeat` calls in a row."""
    synchronize()
    start = perf_counter()
    for _ in range(repeat):
        call()
    synchronize()
    return (perf_counter() - start) / repeat


def rotating(names: Sequence[Name], rounds: int) -> Iterator[tuple[int, Name]]:
    """Yield (round, name) for every name in every round; each round begins with the next name.

    Round -1 comes first: it warms up caches and compilers, and its times are not counted.
    """
    for round_ in range(-1, rounds):
        first = round_ % len(names)
        for name in (*names[first:], *names[:first]):
            yield round_, name


def interleave(calls: Mapping[Name, Callable[[], object]], rounds: int,
               least: float = 0.0) -> dict[Name, list[float]]:
    """Return the seconds of each call in each round, after a warm-up round, in rotating order.

    A slowdown of the machine so affects all. A call is repeated until `least` seconds are measured.
    """
    times: dict[Name, list[float]] = {name: [] for name in calls}
    repeats = dict.fromkeys(calls, 1)
    for round_, name in rotating(list(calls), rounds):
        if round_ >= 0:
            times[name].append(seconds(calls[name], repeats[name]))
            continue
        once = seconds(calls[name])
        if once < LONG * least:  # the first call of a short one is not typical of the next ones
            repeats[name] = math.ceil(least / max(seconds(calls[name]), least / MOST_REPEATS))
    return times


def median_and_range(values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the median and [lowest, highest]."""
    return median(values), [min(values), max(values)]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return above / below, round by round, since what slows a round slows both."""
    return [over / under for over, under in zip(above, below, strict=True)]


def compared(times: Mapping[Name, Sequence[float]], name: Name, full: Name) -> dict[str, Any]:
    """Return the seconds of a call, and those of full attention over them, with their ranges."""
    time, time_range = median_and_range(times[name])
    ratio, ratio_range = median_and_range(ratios(times[full], times[name]))
    return {"seconds": time, "range": time_range, "ratio": ratio, "ratio_range": ratio_range}


def useful_flops(pairs: int, heads: int, head_dim: int, kind: str = "forward") -> int:
    """Return the operations of a pass (a key of `PRODUCTS`) for a head's visible pairs."""
    return PRODUCTS[kind] * head_dim * pairs * heads


def least_bytes(rows: int, columns: int, heads: int, kv_heads: int, head_dim: int,
                itemsize: int) -> int:
    """Return a forward's least bytes: q, out (heads, rows, D), and k, v (kv_heads, columns, D)."""
    return 2 * (heads * rows + kv_heads * columns) * head_dim * itemsize


def product_call(size: int, dtype: torch.dtype,
                 device: torch.device) -> tuple[Callable[[], object], int]:
    """Return a call that multiplies two square matrices, and its number of operations."""
    generator = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator, dtype=dtype, device=device)
                   for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out), 2 * size**3


def copy_call(size: int, device: torch.device) -> tuple[Callable[[], object], int]:
    """Return a call that copies `size` bytes, and the number of bytes it reads and writes."""
    source = torch.zeros(size // 4, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), 2 * source.nbytes


def roof(size: int, copied: int, dtype: torch.dtype, device: torch.device, rounds: int,
         least: float = 0.0) -> dict[str, Any]:
    """Return a product's operations and a copy's bytes per second, medians with ranges."""
    product, flops = product_call(size, dtype, device)
    copy, moved = copy_call(copied, device)
    times = interleave({"product": product, "copy": copy}, rounds, least)
    rate, rate_range = median_and_range([flops / time for time in times["product"]])
    bandwidth, bandwidth_range = median_and_range([moved / time for time in times["copy"]])
    return {"product": f"{size} x {size} {str(dtype).removeprefix('torch.')}", "flops": rate,
            "flops_range": rate_range, "bandwidth": bandwidth, "bandwidth_range": bandwidth_range}


def peak_of(prepare: Callable[..., Callable[[], object]], *args: object) -> int | None:
    """Return the bytes by which `prepare(*args)()` raises the resident memory at its peak.

    A fresh process, to which `prepare` is sent by name, calls prepare(*args), whose memory does not
    count, and then what it returned. None on a system that does not report it (Windows).
    """
    spawn = multiprocessing.get_context("spawn")  # a fork would start from this process's memory
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(measure_peak, prepare, *args).result()


def measure_peak(prepare: Callable[..., Callable[[], object]], *args: object) -> int | None:
    """Do the same as `peak_of` in the current process; exact only in a fresh one."""
    call = prepare(*args)
    give_back()  # what prepare freed would serve the call, and not count
    if _CLEAR.exists():
        try:
            _CLEAR.write_text("5")  # Linux: reset the peak to the present resident memory
        except OSError:
            pass  # without permission the peak includes that of `prepare`
    before = _peak()
    call()
    after = _peak()
    return None if before is None or after is None else max(0, after - before)


def _peak() -> int | None:
    """Return the peak resident memory so far, in bytes; None if the system does not report it."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
