"""Blocked CCA attention against PyTorch's full causal attention, in one run: `cca-lab bench attention`.

Every contender does the same job, from q, k, v to the output, pooling included. Rounds interleave them in
rotating order, so that a machine that slows down slows them all; a ratio is taken within its round and the
median over rounds is reported. Beside it stands the ratio of key-query pairs, which is what CCA saves by
arithmetic: their quotient is the share of that saving that the implementation turns into time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.bench.memory import peak_of
from cca_lab.bench.report import machine, print_table, write_json

LENGTHS = (2048, 4096, 8192, 16384, 32768)
WINDOWS = (256, 1024)
SHAPE = {"batch": 1, "heads": 8, "head_dim": 64, "group": 16, "dtype": "float32"}
PASSES = ("forward", "forward+backward")
FULL = "full"

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def run(lengths: Sequence[int] = LENGTHS, windows: Sequence[int] = WINDOWS, rounds: int = 5,
        out: str | Path | None = None, memory: bool = True) -> dict[str, Any]:
    """Measure, print a table, and write it as JSON.

    Args:
        lengths: sequence lengths L.
        windows: local windows s; the group is 16.
        rounds: interleaved rounds behind every median.
        out: JSON file to write, or None.
        memory: also measure the peak extra memory, each in a process of its own.

    Returns:
        What is written: shape, machine, and one row per length, window and pass. Seconds are medians with
        [lowest, highest]; `share` is the time ratio over the pair ratio; memory is in bytes.

    Raises:
        ValueError: naming the argument that is not positive.
    """
    for name, values in (("lengths", lengths), ("windows", windows), ("rounds", [rounds])):
        if not values or min(values) < 1:
            raise ValueError(f"{name}: got {list(values)}, wanted positive whole numbers")
    rows = [row for length in lengths for kind in PASSES for row in _measure(length, windows, kind, rounds)]
    if memory:
        peaks = {(row["length"], name, row["pass"]): None for row in rows for name in (FULL, row["window"])}
        peaks = {case: peak_of(prepare, *case) for case in peaks}
        for row in rows:
            row["full_peak"] = peaks[row["length"], FULL, row["pass"]]
            row["cca_peak"] = peaks[row["length"], row["window"], row["pass"]]
    result = {"bench": "attention", "shape": SHAPE, "rounds": rounds, "machine": machine(), "rows": rows}
    if out is not None:
        write_json(out, result)
    show(result)
    return result


def contender(name: str | int) -> Attend:
    """Full causal attention for "full", or blocked CCA attention for a window."""
    if name == FULL:
        return partial(F.scaled_dot_product_attention, is_causal=True)
    from cca_lab.mechanisms import cca

    return partial(cca.attention, group=SHAPE["group"], window=name, backend="blocked")


def prepare(length: int, name: str | int, kind: str) -> Callable[[], object]:
    """Make random inputs and return the call that is measured."""
    generator = torch.Generator().manual_seed(0)
    size = (SHAPE["batch"], SHAPE["heads"], length, SHAPE["head_dim"])
    training = kind == "forward+backward"
    q, k, v = (torch.randn(size, generator=generator).requires_grad_(training) for _ in range(3))
    attend, grad = contender(name), torch.randn(size, generator=generator) if training else None

    def call() -> object:
        with torch.set_grad_enabled(training):
            output = attend(q, k, v)
        return torch.autograd.grad(output, (q, k, v), grad) if training else output

    return call


def interleave(calls: dict[Any, Callable[[], object]], rounds: int) -> dict[Any, list[float]]:
    """Seconds of each call in each round, after one round that is not counted; the order rotates."""
    names, seconds = list(calls), {name: [] for name in calls}
    for round_ in range(-1, rounds):
        turn = round_ % len(names)
        for name in names[turn:] + names[:turn]:
            start = perf_counter()
            calls[name]()
            if round_ >= 0:
                seconds[name].append(perf_counter() - start)
    return seconds


def pair_ratio(length: int, window: int) -> float:
    """Key-query pairs of full causal attention over those of CCA attention."""
    from cca_lab.mechanisms import cca

    return length * (length + 1) / 2 / cca.pairs(length, SHAPE["group"], window)


def _measure(length: int, windows: Sequence[int], kind: str, rounds: int) -> list[dict[str, Any]]:
    """The rows of one length and pass, one for each window, all from the same rounds."""
    seconds = interleave({name: prepare(length, name, kind) for name in (FULL, *windows)}, rounds)
    rows = []
    for window in windows:
        ratios = [full / cca for full, cca in zip(seconds[FULL], seconds[window], strict=True)]
        pairs = pair_ratio(length, window)
        rows.append({
            "length": length, "window": window, "pass": kind,
            "full_seconds": median(seconds[FULL]), "full_range": [min(seconds[FULL]), max(seconds[FULL])],
            "cca_seconds": median(seconds[window]), "cca_range": [min(seconds[window]), max(seconds[window])],
            "ratio": median(ratios), "ratio_range": [min(ratios), max(ratios)],
            "pair_ratio": pairs, "share": median(ratios) / pairs,
        })
    return rows


def show(result: dict[str, Any]) -> None:
    """Print the rows of `run`, forward before forward+backward."""
    where, shape = result["machine"], result["shape"]
    print_table(f"{where['cpu']}, {where['threads']} threads, torch {where['torch']}", list(shape), [shape.values()])
    columns = ("L", "s", "full ms", "CCA ms", "ratio", "range", "pairs", "share", "MiB")
    for kind in PASSES:
        rows = [(row["length"], row["window"], f"{row['full_seconds'] * 1e3:.1f}", f"{row['cca_seconds'] * 1e3:.1f}",
                 f"{row['ratio']:.2f}", "{:.2f}-{:.2f}".format(*row["ratio_range"]), f"{row['pair_ratio']:.2f}",
                 f"{row['share']:.0%}", _mib(row.get("full_peak")) + " / " + _mib(row.get("cca_peak")))
                for row in result["rows"] if row["pass"] == kind]
        print_table(f"{kind}: full / CCA, beside the ratio of pairs", columns, rows)


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f}"
