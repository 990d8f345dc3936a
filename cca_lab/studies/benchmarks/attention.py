"""CCA attention against PyTorch's full causal attention, in one run: `cca-lab study attention`.

All do the same work, from q, k, v to the output, in interleaved rounds; a ratio is taken within its
round, and the median over rounds is reported. Beside it stands the ratio of key-query pairs, which
is the saving in operations: their quotient is the share of it that becomes time. A matrix product
runs in the same rounds, so that useful operations per second show how far each is from the peak.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention.native import available, bfloat16_units, load
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca import groups
from cca_lab.options import Count
from cca_lab.reporting import machine
from cca_lab.studies.benchmarks.timing import (
    compared,
    interleave,
    least_bytes,
    peak_of,
    product_call,
    ratios,
    roof,
    useful_flops,
)
from cca_lab.studies.study import cell, markdown, percent, result_file

if TYPE_CHECKING:  # what draws takes half a second to import
    from cca_lab.views.figures.costs import Point

SHAPE: dict[str, Any] = {"batch": 1, "heads": 8, "head_dim": 64, "group": 16, "dtype": "float32"}
PASSES = ("forward", "forward+backward")
FULL, PRODUCT = "full", "product"
PRODUCT_SIZE, COPY_BYTES = 2048, 1 << 28

Contender = str | tuple[str, int]  # FULL, or a backend of CCA and its window


@dataclass(frozen=True, kw_only=True)
class AttentionBench:
    """Measure CCA against PyTorch's full attention on the CPU: time, pairs, peak, memory.

    Seconds are medians with [lowest, highest]; `share` is the time ratio over the pair ratio;
    `of_peak` is useful operations per second over the matrix product's; memory is in bytes.
    """

    length: tuple[Count, ...] = (2048, 4096, 8192, 16384, 32768)
    """Sequence lengths, in tokens."""
    window: tuple[Count, ...] = (256, 1024)
    """Local windows, in tokens."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Numbers of q, k and v."""
    rounds: Count = 5
    """Interleaved rounds; each time is the median over them."""
    memory: bool = True
    """Measure peak memory too."""
    out: Path | None = None
    """JSON file to write."""

    def run(self) -> None:
        """Measure the machine's limits, then every length and pass; print the table."""
        names: list[Contender] = [FULL, *((backend, window) for window in self.window
                                          for backend in backends(self.dtype))]
        with result_file(self.out) as result:
            result |= {"machine": machine(), "bench": "attention", "rounds": self.rounds,
                       "shape": SHAPE | {"dtype": self.dtype},
                       "roof": roof(PRODUCT_SIZE, COPY_BYTES, getattr(torch, self.dtype),
                                     torch.device("cpu"), self.rounds)}
            result["rows"] = [row for length, kind in product(self.length, PASSES)
                              for row in measure(length, names, kind, self.rounds, self.dtype,
                                                 self.memory)]
        print(table(result))


def table(result: Mapping[str, Any]) -> str:
    """Return the table of CCA against full attention, one pass after the other."""
    rows = [[row["pass"], str(row["length"]), str(row["window"]), row["implementation"],
             f"{row['ratio']:.2f}", f"{row['pair_ratio']:.2f}", percent(row["share"]),
             percent(row["full_of_peak"]), percent(row["cca_of_peak"]),
             cell(row.get("full_peak"), 2**20), cell(row.get("cca_peak"), 2**20)]
            for row in sorted(result["rows"], key=lambda row: row["pass"])]
    where = "{cpu}, {threads} threads, torch {torch}".format_map(result["machine"])
    shape = ", ".join(f"{name} {value}" for name, value in result["shape"].items())
    return markdown(
        ["pass", "L", "window", "CCA", "full time / CCA time", "full pairs / CCA pairs", "share",
         "full, of peak", "CCA, of peak", "full MiB", "CCA MiB"], rows,
        f"{where}; {shape}; medians of {result['rounds']} interleaved rounds; peak: a product "
        f"{result['roof']['product']} in the same rounds.")


def draw(result: Mapping[str, Any]) -> Any:
    """Draw the forward's measurements under the roofline of their machine."""
    from cca_lab.views.figures.costs import roofline

    return roofline(
        points(result), peak=fastest_product(result), bandwidth=result["roof"]["bandwidth"],
        peak_name=result["roof"]["product"],
        title="Attention, forward: {cpu}, {threads} threads".format_map(result["machine"]))


def families_table(results: Sequence[Mapping[str, Any]],
                   lengths: Sequence[int] = (8192, 16384)) -> str:
    """Return how many times as fast native CCA is as full attention, a line for each machine."""
    columns = list(product(lengths, (256, 1024)))
    rows = []
    for result, kind in product(results, PASSES):
        ratios = {(row["length"], row["window"]): f"{row['ratio']:.1f}" for row in result["rows"]
                  if row["pass"] == kind and row["implementation"] == "native"}
        rows.append([result["machine"]["cpu"], result["shape"]["dtype"], kind,
                     *(ratios[column] for column in columns)])
    return markdown(["CPU", "dtype", "pass", *(f"{length} tokens, window {window}"
                                               for length, window in columns)], rows)


def backends(dtype: str = "float32") -> list[str]:
    """Return "blocked", and "native" if that op can be built and computes with the dtype."""
    if not available():
        return ["blocked"]
    load()
    return ["blocked"] if dtype == "bfloat16" and not bfloat16_units() else ["blocked", "native"]


def prepare(length: int, name: Contender, kind: str,
            dtype: str = "float32") -> Callable[[], object]:
    """Make random inputs and return the call that is measured."""
    generator = torch.Generator().manual_seed(0)
    size = (SHAPE["batch"], SHAPE["heads"], length, SHAPE["head_dim"])
    training = kind == "forward+backward"
    q, k, v, grad = (torch.randn(size, generator=generator).to(getattr(torch, dtype))
                     for _ in range(4))
    q, k, v = (x.requires_grad_(training) for x in (q, k, v))
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    if isinstance(name, str):
        attend = partial(F.scaled_dot_product_attention, is_causal=True)
    else:
        attend = CCA(group=SHAPE["group"], window=name[1], backend=name[0]).attention

    def call() -> object:
        with torch.set_grad_enabled(training):
            output = attend(q, k, v)
        return torch.autograd.grad(output, (q, k, v), grad) if training else output

    return call


def prepare_warm(length: int, name: Contender, kind: str,
                 dtype: str = "float32") -> Callable[[], object]:
    """Do as `prepare` does, after a short call, so that one-time loading is not counted."""
    prepare(64, name, kind, dtype)()
    return prepare(length, name, kind, dtype)


def pairs_of(length: int, window: int | None, group: int = SHAPE["group"]) -> int:
    """Return the key-query pairs that a head of CCA sees, or of full attention without a window."""
    return length * (length + 1) // 2 if window is None else groups.pairs(length, group, window)


def measure(length: int, names: Sequence[Contender], kind: str, rounds: int,
            dtype: str = "float32", memory: bool = False) -> list[dict[str, Any]]:
    """Return the rows of one length and pass, all from the same rounds."""
    product, product_flops = product_call(PRODUCT_SIZE, getattr(torch, dtype), torch.device("cpu"))
    calls = {name: prepare(length, name, kind, dtype) for name in names}
    times = interleave({PRODUCT: product, **calls}, rounds)
    peaks = {name: peak_of(prepare_warm, length, name, kind, dtype) for name in names} \
        if memory else {}

    def of_peak(name: Contender, pairs: int) -> float:
        flops = useful_flops(pairs, SHAPE["batch"] * SHAPE["heads"], SHAPE["head_dim"], kind)
        return median(flops / product_flops * ratio
                      for ratio in ratios(times[PRODUCT], times[name]))

    full, rows = compared(times, FULL, FULL), []
    for name in names:
        if isinstance(name, str):
            continue
        cca = compared(times, name, FULL)
        many, few = (pairs_of(length, window) for window in (None, name[1]))
        rows.append({"length": length, "window": name[1], "implementation": name[0], "pass": kind,
                     "full_seconds": full["seconds"], "full_range": full["range"],
                     "cca_seconds": cca["seconds"], "cca_range": cca["range"],
                     "ratio": cca["ratio"], "ratio_range": cca["ratio_range"],
                     "pair_ratio": many / few, "share": cca["ratio"] * few / many,
                     "full_of_peak": of_peak(FULL, many), "cca_of_peak": of_peak(name, few),
                     **({"full_peak": peaks[FULL], "cca_peak": peaks[name]} if memory else {})})
    return rows


def rates_of(row: Mapping[str, Any], shape: Mapping[str, Any]) -> tuple[float, float]:
    """Return the useful operations a second of full attention and of CCA, from a measured row."""
    full, cca = (useful_flops(pairs_of(row["length"], window, shape["group"]),
                              shape["batch"] * shape["heads"], shape["head_dim"], row["pass"])
                 for window in (None, row["window"]))
    return full / row["full_seconds"], cca / row["cca_seconds"]


def fastest_product(result: Mapping[str, Any]) -> float:
    """Return the highest rate that the matrix product reached in the rounds, from its shares.

    The product that is timed after the rounds may run at another clock, and then is no roof.
    """
    return max(rates_of(row, result["shape"])[0] / row["full_of_peak"] for row in result["rows"])


def points(result: Mapping[str, Any]) -> "dict[str, list[Point]]":
    """Return the forward measurements as points of the roofline, full attention first."""
    from cca_lab.views.figures.costs import Point

    shape = result["shape"]
    heads, head_dim = shape["batch"] * shape["heads"], shape["head_dim"]
    curves: dict[str, dict[int, Point]] = {}
    for row in (row for row in result["rows"] if row["pass"] == PASSES[0]):
        length, window = row["length"], row["window"]
        traffic = least_bytes(length, length, heads, heads, head_dim,
                              getattr(torch, shape["dtype"]).itemsize)
        for name, of, key in (("full", None, "full_seconds"),
                              (f"{row['implementation']}, s = {window}", window, "cca_seconds")):
            pairs = pairs_of(length, of, shape["group"])
            curves.setdefault(name, {})[length] = Point(
                heads * pairs, useful_flops(pairs, heads, head_dim), traffic, row[key])
    return {name: list(by_length.values()) for name, by_length in curves.items()}
