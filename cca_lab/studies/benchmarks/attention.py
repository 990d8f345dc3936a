"""CCA attention against PyTorch's full causal attention, in one run: `cca-lab study attention`.

All do the same work, from q, k, v to the output, in interleaved rounds; a ratio is taken within its
round, and the median over rounds is reported. Beside it stands the ratio of key-query pairs, which
is the saving in operations: their quotient is the share of it that becomes time. A matrix product
runs in the same rounds, so that useful operations per second show how far each is from the peak.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from cca_lab.attention.plan import TileBatch, plan_of
from cca_lab.mechanisms.cca import groups
from cca_lab.reporting import machine, print_table
from cca_lab.settings import check_sizes, option
from cca_lab.studies.benchmarks.timing import (
    MOST_ROUNDS,
    ROUNDS,
    compared,
    copy_call,
    interleave,
    least_bytes,
    median_and_range,
    peak_of,
    product_call,
    ratios,
    useful_flops,
)
from cca_lab.studies.study import Study
from cca_lab.views.figures.costs import Point, roofline

SHAPE: dict[str, Any] = {"batch": 1, "heads": 8, "head_dim": 64, "group": 16, "dtype": "float32"}
PASSES = ("forward", "forward+backward")
GROUP_ROWS, UNIT = 16, 32  # runs.h: rows with the same columns; bfloat16.h: rows of a unit
FULL, PRODUCT, COPY = "full", "product", "copy"
PRODUCT_SIZE, COPY_BYTES = 2048, 1 << 28

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Contender = str | tuple[str, int]  # FULL, or an implementation of CCA and its window
LONGEST = 2**20


@dataclass(frozen=True, kw_only=True)
class AttentionBench(Study):
    """Measure CCA against PyTorch's full attention on the CPU: time, pairs, peak, memory.

    Seconds are medians with [lowest, highest]; `share` is the time ratio over the pair ratio;
    `of_peak` is useful operations per second over the matrix product's; memory is in bytes.
    """

    length: tuple[int, ...] = option((2048, 4096, 8192, 16384, 32768),
                                     "Sequence length, in tokens; repeatable.", least=2,
                                     most=LONGEST)
    window: tuple[int, ...] = option((256, 1024), "Local window, in tokens; repeatable.", least=1,
                                     most=LONGEST)
    rounds: int = option(5, ROUNDS, least=1, most=MOST_ROUNDS)
    memory: bool = option(True, "Measure peak memory too.", flag="--memory/--no-memory")
    native: bool | None = option(None, "Measure the native C++ op too.",
                                 flag="--native/--no-native", shown="if it can be built")
    figure: Path | None = option(None, "PNG file to write, with the roofline.", output="file")
    dtype: str = option("float32", "float32 or bfloat16.", choices=("float32", "bfloat16"))

    def result(self) -> dict[str, Any]:
        """Measure every length and pass, then memory and the machine's limits."""
        check_sizes(length=(self.length, 2, LONGEST),
                    window=(self.window, 1, LONGEST))  # at least one of each
        implementations = usable_implementations(self.native, self.dtype)
        names: list[Contender] = [FULL]
        names += [(name, window) for window in self.window for name in implementations]
        rows = [row for length in self.length for kind in PASSES
                for row in measure(length, names, kind, self.rounds, self.dtype)]
        if self.memory:
            add_memory(rows, self.dtype)
        return {"bench": "attention", "shape": SHAPE | {"dtype": self.dtype}, "rounds": self.rounds,
                "machine": machine(), "roof": roof(self.rounds, self.dtype), "rows": rows}

    def draw(self, result: Mapping[str, Any]) -> Figure:
        """Draw the roofline."""
        roof, where = result["roof"], result["machine"]
        return roofline(points(result), peak=fastest_product(result), bandwidth=roof["bandwidth"],
                        peak_name=roof["product"],
                        title=f"Attention, forward: {where['cpu']}, {where['threads']} threads")

    def show(self, result: Mapping[str, Any]) -> None:
        """Print one table per pass."""
        where, shape, roof = result["machine"], result["shape"], result["roof"]
        limits = {"GFLOP/s": f"{roof['flops'] / 1e9:.0f}",
                  "GB/s": f"{roof['bandwidth'] / 1e9:.1f}"}
        print_table(f"{where['cpu']}, {where['threads']} threads, torch {where['torch']}",
                    [*shape, *limits], [[*shape.values(), *limits.values()]])
        columns = ("L", "s", "CCA", "full ms", "CCA ms", "ratio", "range", "pairs", "share",
                   "full/peak", "CCA/peak", "MiB")
        for kind in dict.fromkeys(row["pass"] for row in result["rows"]):
            rows = [(row["length"], row["window"], row["implementation"],
                     f"{row['full_seconds'] * 1e3:.1f}", f"{row['cca_seconds'] * 1e3:.1f}",
                     f"{row['ratio']:.2f}", "{:.2f}-{:.2f}".format(*row["ratio_range"]),
                     f"{row['pair_ratio']:.2f}", f"{row['share']:.0%}",
                     f"{row['full_of_peak']:.0%}", f"{row['cca_of_peak']:.0%}",
                     " / ".join("-" if row.get(peak) is None else f"{row[peak] / 2**20:.0f}"
                                for peak in ("full_peak", "cca_peak")))
                    for row in result["rows"] if row["pass"] == kind]
            print_table(
                f"{kind}: full / CCA, beside the ratio of pairs; useful operations beside a matrix "
                "product's", columns, rows)


def usable_implementations(native: bool | None = None, dtype: str = "float32") -> list[str]:
    """Return "blocked", and "native" if that op can be built and computes with the dtype.

    `native` False leaves it out, True requires it (ValueError if it is not there), None takes it.
    """
    from cca_lab.attention.native import available, bfloat16_units, load

    if native is False or not (available() or native):
        return ["blocked"]
    if not available():
        raise ValueError(
            "native: got --native, but the operator cannot be built here; install a C++ compiler "
            "(`cca-lab doctor` says what is missing), or measure with --no-native")
    load()
    if dtype == "bfloat16" and not bfloat16_units():
        if native:
            raise ValueError(
                "native: got --native in bfloat16, which needs AVX512-BF16; measure with "
                "--no-native")
        return ["blocked"]
    return ["blocked", "native"]


def contender(name: Contender) -> Attend:
    """Return full causal attention for "full", or CCA for an implementation and a window."""
    if isinstance(name, str):
        return partial(F.scaled_dot_product_attention, is_causal=True)
    from cca_lab.mechanisms import CCA

    implementation, window = name
    return CCA(group=SHAPE["group"], window=window, backend=implementation).attention


def prepare(length: int, name: Contender, kind: str,
            dtype: str = "float32") -> Callable[[], object]:
    """Make random inputs and return the call that is measured."""
    generator = torch.Generator().manual_seed(0)
    size = (SHAPE["batch"], SHAPE["heads"], length, SHAPE["head_dim"])
    training = kind == "forward+backward"
    q, k, v, grad = (torch.randn(size, generator=generator).to(getattr(torch, dtype))
                     for _ in range(4))
    q, k, v = (x.requires_grad_(training) for x in (q, k, v))
    attend = contender(name)

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


def pairs_of(length: int, name: Contender) -> int:
    """Return the number of key-query pairs that one head computes."""
    if isinstance(name, str):
        return length * (length + 1) // 2
    return groups.pairs(length, SHAPE["group"], name[1])


def pair_ratio(length: int, window: int) -> float:
    """Return the key-query pairs of full causal attention over those of CCA attention."""
    return pairs_of(length, FULL) / pairs_of(length, ("", window))


def measure(length: int, names: Sequence[Contender], kind: str, rounds: int,
            dtype: str = "float32") -> list[dict[str, Any]]:
    """Return the rows of one length and pass, all from the same rounds."""
    product, product_flops = product_call(PRODUCT_SIZE, getattr(torch, dtype), torch.device("cpu"))
    calls = {name: prepare(length, name, kind, dtype) for name in names}
    times = interleave({PRODUCT: product, **calls}, rounds)

    def of_peak(name: Contender) -> float:
        flops = useful_flops(pairs_of(length, name), SHAPE["batch"] * SHAPE["heads"],
                             SHAPE["head_dim"], kind)
        return median(flops / product_flops * ratio
                      for ratio in ratios(times[PRODUCT], times[name]))

    full = compared(times, FULL, FULL)
    rows = []
    for name in names:
        if isinstance(name, str):
            continue
        cca, pairs = compared(times, name, FULL), pair_ratio(length, name[1])
        rows.append({"length": length, "window": name[1], "implementation": name[0], "pass": kind,
                     "full_seconds": full["seconds"], "full_range": full["range"],
                     "cca_seconds": cca["seconds"], "cca_range": cca["range"],
                     "ratio": cca["ratio"], "ratio_range": cca["ratio_range"],
                     "pair_ratio": pairs, "share": cca["ratio"] / pairs,
                     "full_of_peak": of_peak(FULL), "cca_of_peak": of_peak(name)})
    return rows


def add_memory(rows: list[dict[str, Any]], dtype: str = "float32") -> None:
    """Measure the peak memory of each contender, and add it to its rows."""
    peaks: dict[tuple[Any, ...], int | None] = {}
    for row in rows:
        cca = row["implementation"], row["window"]
        for key, name in (("full_peak", FULL), ("cca_peak", cca)):
            case = row["length"], name, row["pass"]
            if case not in peaks:
                peaks[case] = peak_of(prepare_warm, *case, dtype)
            row[key] = peaks[case]


def roof(rounds: int, dtype: str = "float32") -> dict[str, Any]:
    """Return a product's operations and a copy's bytes per second, medians with ranges."""
    cpu = torch.device("cpu")
    made = {PRODUCT: product_call(PRODUCT_SIZE, getattr(torch, dtype), cpu),
            COPY: copy_call(COPY_BYTES, cpu)}
    times = interleave({name: call for name, (call, _) in made.items()}, rounds)
    rates = {name: median_and_range([made[name][1] / time for time in times[name]])
             for name in made}
    return {"product": f"{PRODUCT_SIZE} x {PRODUCT_SIZE} {dtype}", "flops": rates[PRODUCT][0],
            "flops_range": rates[PRODUCT][1], "bandwidth": rates[COPY][0],
            "bandwidth_range": rates[COPY][1]}


def seen_pairs(row: Mapping[str, Any], shape: Mapping[str, Any]) -> tuple[int, int]:
    """Return the pairs that a head of full attention and of CCA sees, of a measured row."""
    length = row["length"]
    return length * (length + 1) // 2, groups.pairs(length, shape["group"], row["window"])


def rates_of(row: Mapping[str, Any], shape: Mapping[str, Any]) -> tuple[float, float]:
    """Return the useful operations a second of full attention and of CCA, from a measured row."""
    full, cca = (useful_flops(pairs, shape["batch"] * shape["heads"], shape["head_dim"],
                              row["pass"])
                 for pairs in seen_pairs(row, shape))
    return full / row["full_seconds"], cca / row["cca_seconds"]


def fastest_product(result: Mapping[str, Any]) -> float:
    """Return the highest rate that the matrix product reached in the rounds, from its shares.

    The product that is timed after the rounds may run at another clock, and then is no roof.
    """
    return max(rates_of(row, result["shape"])[0] / row["full_of_peak"] for row in result["rows"])


def points(result: Mapping[str, Any]) -> dict[str, list[Point]]:
    """Return the forward measurements as points of the roofline, full attention first."""
    shape = result["shape"]
    heads, head_dim = shape["batch"] * shape["heads"], shape["head_dim"]
    curves: dict[str, dict[int, Point]] = {}
    for row in (row for row in result["rows"] if row["pass"] == PASSES[0]):
        length, window = row["length"], row["window"]
        traffic = least_bytes(length, length, heads, heads, head_dim,
                              getattr(torch, shape["dtype"]).itemsize)
        for name, pairs, key in zip(("full", f"{row['implementation']}, s = {window}"),
                                    seen_pairs(row, shape), ("full_seconds", "cca_seconds"),
                                    strict=True):
            curves.setdefault(name, {})[length] = Point(
                heads * pairs, useful_flops(pairs, heads, head_dim), traffic, row[key])
    return {name: list(by_length.values()) for name, by_length in curves.items()}


@lru_cache
def computed_pairs(length: int, group: int, window: int, implementation: str,
                   dtype: str = "float32") -> int:
    """Return the pairs that one head computes: whole tiles, of which a row sees a part.

    The ratio of the pairs that are seen is what CCA could save, that of the pairs in tiles is what
    these blocks can save at most; between that and the measured ratio is the speed of a tile.
    """
    table = groups.intervals(length, group, window)[0, 0]  # (L, 2, 2)
    if implementation == "blocked":
        return sum(_area(tiles) for tiles in plan_of(table))
    rows, columns = (UNIT, UNIT) if dtype == "bfloat16" else (GROUP_ROWS, 1)
    first = torch.arange(0, length, rows)
    last = (first + rows - 1).clamp(max=length - 1)
    start, end = table[first, :, 0], table[last, :, 1]  # (blocks, 2)
    width = (-(-end // columns) - start // columns) * columns
    return int(torch.where(end > start, width, 0).sum()) * rows


def _area(tiles: TileBatch) -> int:
    """Return the pairs of a batch of tiles; of a causal one those of its lower half."""
    if tiles.causal:
        return tiles.count * tiles.rows * (tiles.rows + 1) // 2
    return tiles.count * tiles.rows * tiles.columns


def tile_ratio(length: int, group: int, window: int, implementation: str,
               dtype: str = "float32") -> float:
    """Return the pairs of full attention over those that a form of CCA computes."""
    return length * (length + 1) // 2 / computed_pairs(length, group, window, implementation, dtype)
