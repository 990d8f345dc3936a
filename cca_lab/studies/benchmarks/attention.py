"""CCA attention against PyTorch's full causal attention, in one run: `cca-lab bench attention`.

Every contender does the same work, from q, k, v to the output, pooling included. Rounds interleave them in
rotating order, so that a slowdown of the machine affects them all; a ratio is taken within its round, and the
median over rounds is reported. Beside it stands the ratio of key-query pairs, which is the saving of CCA in
operations: their quotient is the share of that saving that the implementation turns into time. A matrix product
runs in the same rounds: useful operations per second, over those of the product, show how far each is from the peak.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.reporting import machine, write_json
from cca_lab.settings import check_sizes
from cca_lab.studies.benchmarks.attention_tables import draw, show
from cca_lab.studies.benchmarks.memory import peak_of
from cca_lab.studies.benchmarks.peak import copy_call, product_call, useful_flops
from cca_lab.studies.benchmarks.timing import interleave, median_and_range, ratios

LENGTHS = (2048, 4096, 8192, 16384, 32768)
WINDOWS = (256, 1024)
SHORTEST, LONGEST, MOST_ROUNDS = 2, 2**20, 1000
SHAPE = {"batch": 1, "heads": 8, "head_dim": 64, "group": 16, "dtype": "float32"}
PASSES = ("forward", "forward+backward")
DTYPES = ("float32", "bfloat16")
FULL, PRODUCT, COPY = "full", "product", "copy"
PRODUCT_SIZE, COPY_BYTES = 2048, 1 << 28

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Contender = str | tuple[str, int]  # FULL, or an implementation of CCA and its window


def run(lengths: Sequence[int] = LENGTHS, windows: Sequence[int] = WINDOWS, rounds: int = 5,
        out: str | Path | None = None, memory: bool = True, native: bool | None = None,
        figure: str | Path | None = None, dtype: str = "float32") -> dict[str, Any]:
    """Measure, print a table, and write it as JSON.

    Args:
        lengths: sequence lengths L.
        windows: local windows s; the group is 16.
        rounds: interleaved rounds; each time is the median over them.
        out: JSON file to write, or None.
        memory: also measure the peak extra memory, each in a separate process.
        native: whether to measure the native C++ op; None measures it if it can be built.
        figure: PNG file to draw the roofline into, or None.
        dtype: "float32" or "bfloat16", of all contenders, full attention and the matrix product included.

    Returns:
        What is written: shape, machine, roof, and one row per length, window, implementation and pass. Seconds
        are medians with [lowest, highest]; `share` is the time ratio over the pair ratio; `of_peak` is useful
        operations per second over those of the matrix product; memory is in bytes.

    Raises:
        ValueError: for a number out of range, or if the requested native op cannot be built.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype: got {dtype!r}, wanted one of {', '.join(DTYPES)}")
    check_sizes(lengths=(lengths, SHORTEST, LONGEST), windows=(windows, 1, LONGEST), rounds=(rounds, 1, MOST_ROUNDS))
    implementations = usable_implementations(native, dtype)
    names: list[Contender] = [FULL, *((name, window) for window in windows for name in implementations)]
    rows = [row for length in lengths for kind in PASSES for row in measure(length, names, kind, rounds, dtype)]
    if memory:
        add_memory(rows, dtype)
    result = {"bench": "attention", "shape": SHAPE | {"dtype": dtype}, "rounds": rounds, "machine": machine(),
              "roof": roof(rounds, dtype), "rows": rows}
    if out is not None:
        write_json(out, result)
    if figure is not None:
        draw(result, figure)
    show(result)
    return result


def usable_implementations(native: bool | None = None, dtype: str = "float32") -> list[str]:
    """Return "blocked", and "native" if the native op is built or can be built, and computes with the dtype.

    Args:
        native: False leaves it out, True requires it, None takes it if available.
        dtype: "bfloat16" needs a processor with AMX.

    Raises:
        ValueError: if it is required and not available.
    """
    from cca_lab.attention.native import available, load, matrix_units

    if native is False or not (available() or native):
        return ["blocked"]
    if not available():
        raise ValueError("native: got --native, but the operator cannot be built here; install a C++ compiler "
                         "(`cca-lab doctor` says what is missing), or measure with --no-native")
    load()
    if dtype == "bfloat16" and not matrix_units():
        if native:
            raise ValueError("native: got --native in bfloat16, which needs a processor with AMX; measure with "
                             "--no-native")
        return ["blocked"]
    return ["blocked", "native"]


def contender(name: Contender) -> Attend:
    """Return full causal attention for "full", or CCA attention for an implementation and a window."""
    if name == FULL:
        return partial(F.scaled_dot_product_attention, is_causal=True)
    from cca_lab.mechanisms import CCA

    implementation, window = name
    return CCA(group=SHAPE["group"], window=window, backend=implementation).attention


def prepare(length: int, name: Contender, kind: str, dtype: str = "float32") -> Callable[[], object]:
    """Make random inputs and return the call that is measured."""
    generator = torch.Generator().manual_seed(0)
    size = (SHAPE["batch"], SHAPE["heads"], length, SHAPE["head_dim"])
    training = kind == "forward+backward"
    q, k, v, grad = (torch.randn(size, generator=generator).to(getattr(torch, dtype)) for _ in range(4))
    q, k, v = (x.requires_grad_(training) for x in (q, k, v))
    attend = contender(name)

    def call() -> object:
        with torch.set_grad_enabled(training):
            output = attend(q, k, v)
        return torch.autograd.grad(output, (q, k, v), grad) if training else output

    return call


def prepare_warm(length: int, name: Contender, kind: str, dtype: str = "float32") -> Callable[[], object]:
    """Do the same as `prepare`, after a short call, so that memory for one-time loading is not counted."""
    prepare(64, name, kind, dtype)()
    return prepare(length, name, kind, dtype)


def pairs_of(length: int, name: Contender) -> int:
    """Return the number of key-query pairs that one head computes."""
    from cca_lab.mechanisms.cca import groups

    return length * (length + 1) // 2 if name == FULL else groups.pairs(length, SHAPE["group"], name[1])


def pair_ratio(length: int, window: int) -> float:
    """Return the key-query pairs of full causal attention over those of CCA attention."""
    return pairs_of(length, FULL) / pairs_of(length, ("", window))


def measure(length: int, names: Sequence[Contender], kind: str, rounds: int,
            dtype: str = "float32") -> list[dict[str, Any]]:
    """Return the rows of one length and pass, one per contender except full attention, all from the same rounds."""
    product, product_flops = product_call(PRODUCT_SIZE, getattr(torch, dtype), torch.device("cpu"))
    found = interleave({PRODUCT: product, **{name: prepare(length, name, kind, dtype) for name in names}}, rounds)
    heads = SHAPE["batch"] * SHAPE["heads"]
    flops = {name: useful_flops(pairs_of(length, name), heads, SHAPE["head_dim"], kind) for name in names}
    of_peak = {name: [flops[name] / product_flops * ratio for ratio in ratios(found[PRODUCT], found[name])]
               for name in names}
    full_seconds, full_range = median_and_range(found[FULL])
    rows = []
    for name in names[1:]:
        cca_seconds, cca_range = median_and_range(found[name])
        ratio, ratio_range = median_and_range(ratios(found[FULL], found[name]))
        pairs = pair_ratio(length, name[1])
        rows.append({
            "length": length, "window": name[1], "implementation": name[0], "pass": kind,
            "full_seconds": full_seconds, "full_range": full_range,
            "cca_seconds": cca_seconds, "cca_range": cca_range,
            "ratio": ratio, "ratio_range": ratio_range, "pair_ratio": pairs, "share": ratio / pairs,
            "full_of_peak": median(of_peak[FULL]), "cca_of_peak": median(of_peak[name]),
        })
    return rows


def add_memory(rows: list[dict[str, Any]], dtype: str = "float32") -> None:
    """Measure the peak memory of each contender, and add it to its rows."""
    def own(row: dict[str, Any]) -> tuple:
        return row["length"], (row["implementation"], row["window"]), row["pass"]

    cases = dict.fromkeys(case for row in rows for case in ((row["length"], FULL, row["pass"]), own(row)))
    peaks = {case: peak_of(prepare_warm, *case, dtype) for case in cases}
    for row in rows:
        row["full_peak"] = peaks[row["length"], FULL, row["pass"]]
        row["cca_peak"] = peaks[own(row)]


def roof(rounds: int, dtype: str = "float32") -> dict[str, Any]:
    """Return operations per second of the matrix product, and bytes per second of a copy: medians with ranges."""
    cpu = torch.device("cpu")
    made = {PRODUCT: product_call(PRODUCT_SIZE, getattr(torch, dtype), cpu), COPY: copy_call(COPY_BYTES, cpu)}
    found = interleave({name: call for name, (call, _) in made.items()}, rounds)
    rates = {name: median_and_range([made[name][1] / time for time in times]) for name, times in found.items()}
    return {"product": f"{PRODUCT_SIZE} x {PRODUCT_SIZE} {dtype}", "flops": rates[PRODUCT][0],
            "flops_range": rates[PRODUCT][1], "bandwidth": rates[COPY][0], "bandwidth_range": rates[COPY][1]}
