"""PyTorch's FlexAttention beside CCA on the CPU, all in one run: `cca-lab study peers`.

Each form attends in full, or to CCA's pairs. A call goes from q, k, v to the output; CCA's pooling
is part of it. The rate is useful operations a second, 4 D for a visible pair: a form that computes
hidden pairs and masks them has a low one. What cannot be measured has a row that says why.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention, pool_groups
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.indices import core_count
from cca_lab.options import Count
from cca_lab.reporting import machine
from cca_lab.studies.benchmarks.attention import backends
from cca_lab.studies.benchmarks.flex import flex_call
from cca_lab.studies.benchmarks.timing import (
    interleave,
    median_and_range,
    ratios,
    useful_flops,
)
from cca_lab.studies.study import cell, markdown, result_file

HEADS, HEAD_DIM, GROUP, WINDOW = 8, 64, 16, 256
FULL, CORES = "full", "CCA"  # patterns of visible pairs
CELL = 45.0  # seconds of a length and dtype after which no round begins, the first excepted

Call = Callable[[], Tensor]
Make = Callable[[Tensor, Tensor, Tensor, str], Call]


class Form(NamedTuple):
    """An operator of a library with a pattern of visible pairs."""

    library: str
    operator: str
    pattern: str
    make: Make


def sdpa(q: Tensor, k: Tensor, v: Tensor, pattern: str) -> Call:
    """Make the call of PyTorch's fused attention."""
    return partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)


def flex(q: Tensor, k: Tensor, v: Tensor, pattern: str) -> Call:
    """Make the call of FlexAttention, compiled with the block mask of the pattern."""
    length = q.shape[2]
    if pattern == FULL:
        table = causal_intervals(length)
        attend = flex_call(table, length, GROUP, length, q.device, compiled=True)
        return lambda: attend(q, k, v)
    table, columns = groups.intervals(length, GROUP, WINDOW), length + _cores(length)
    attend = flex_call(table, columns, GROUP, WINDOW, q.device, compiled=True)
    return lambda: attend(q, *_columns(q, k, v))


def lab(q: Tensor, k: Tensor, v: Tensor, pattern: str, backend: str) -> Call:
    """Make the call of the lab's attention."""
    if backend not in backends(str(q.dtype).removeprefix("torch.")):
        raise ValueError(f"the {backend} op cannot be built here, or not for {q.dtype}")
    if pattern == FULL:
        return partial(interval_attention, q, k, v, causal_intervals(q.shape[2]), backend=backend)
    return partial(CCA(group=GROUP, window=WINDOW, backend=backend).attention, q, k, v)


FORMS = (
    Form("torch", "scaled_dot_product_attention", FULL, sdpa),
    Form("torch", "flex_attention", FULL, flex),
    Form("torch", "flex_attention", CORES, flex),
    Form("cca_lab", "native", FULL, partial(lab, backend="native")),
    Form("cca_lab", "blocked", CORES, partial(lab, backend="blocked")),
    Form("cca_lab", "native", CORES, partial(lab, backend="native")))


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Measure PyTorch's attention on the CPU beside CCA: in full, and over CCA's pairs.

    Seconds are medians with [lowest, highest]; `rate` is useful operations a second; a ratio is
    taken within a round: another form's time over that of the row.
    """

    length: tuple[Count, ...] = (4096, 16384, 65536)
    """Sequence lengths, in tokens."""
    dtype: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
    """Numbers of q, k and v."""
    rounds: Count = 3
    """Interleaved rounds; each time is the median over them."""
    out: Path | None = None
    """JSON file to write."""

    def run(self) -> None:
        """Measure every form at every length; print the table."""
        with result_file(self.out) as result:
            result |= {"machine": machine(), "bench": "peers", "rounds": self.rounds,
                       "versions": {"torch": torch.__version__},
                       "shape": {"batch": 1, "heads": HEADS, "head_dim": HEAD_DIM, "group": GROUP,
                                 "window": WINDOW}, "rows": []}
            for dtype, length in product(self.dtype, self.length):
                result["rows"] += measure(length, dtype, self.rounds)
        print(table(result))


def table(result: Mapping[str, Any]) -> str:
    """Return the table by dtype and length; below it stands what was not measured, and why."""
    cells: dict[tuple[str, ...], list[str]] = {}
    reasons: dict[str, list[str]] = {}
    for row in result["rows"]:
        name, length = (row["dtype"], row["form"], row["pattern"]), row["length"]
        if "reason" in row:
            reasons.setdefault(f"{', '.join(name)}: {row['reason']}", []).append(str(length))
        cells.setdefault(name, []).extend(
            [cell(row.get("seconds"), 1e-3), cell(row.get("rate"), 1e9),
             cell(row.get("sdpa_ratio"), 1, 2)])
    columns = [text for length in dict.fromkeys(row["length"] for row in result["rows"])
               for text in (f"ms, {length} tokens", "GFLOP/s", "SDPA's time / its")]
    notes = ["{cpu}, {threads} threads".format_map(result["machine"]),
             ", ".join(f"{name} {number}" for name, number in result["versions"].items()),
             " ".join(f"{name}={size}" for name, size in result["shape"].items()),
             f"medians of at most {result['rounds']} interleaved rounds",
             *(f"not measured at {', '.join(where)} tokens: {reason}"
               for reason, where in reasons.items())]
    return markdown(["dtype", "operator", "sees", *columns],
                    [[*name, *row] for name, row in cells.items()], "; ".join(notes) + ".")


def measure(length: int, dtype: str, rounds: int) -> list[dict[str, Any]]:
    """Return a row for every form at one length."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, length, HEAD_DIM, generator=generator).to(
        getattr(torch, dtype)) for _ in range(3))
    calls: dict[Form, Call] = {}
    reasons: dict[Form, str] = {}
    with torch.no_grad():
        for form in FORMS:
            try:
                call = form.make(q, k, v, form.pattern)
                if form.operator == "flex_attention":
                    call()  # compiles here, where a missing compiler is a reason
                calls[form] = call
            except Exception as error:  # of an operator that is not there, or cannot do it
                reasons[form] = f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
        times = interleave(calls, rounds, most=CELL)
    return [_row(form, length, dtype, reasons.get(form), times) for form in FORMS]


def _row(form: Form, length: int, dtype: str, reason: str | None,
         times: Mapping[Form, list[float]]) -> dict[str, Any]:
    pairs = pairs_of(form.pattern, length)
    row = {"form": f"{form.library}: {form.operator}", "pattern": form.pattern, "dtype": dtype,
           "length": length, "pairs": pairs, "pairs_of_cca": pairs / pairs_of(CORES, length)}
    if reason is not None:
        return row | {"reason": reason}
    time, spread = median_and_range(times[form])
    sdpa = median(ratios(times[FORMS[0]], times[form])) if FORMS[0] in times else None
    return row | {"seconds": time, "range": spread, "rounds": len(times[form]),
                  "rate": useful_flops(pairs, HEADS, HEAD_DIM) / time, "sdpa_ratio": sdpa}


def pairs_of(pattern: str, length: int) -> int:
    """Return how many pairs of a head a pattern lets see."""
    return length * (length + 1) // 2 if pattern == FULL else groups.pairs(length, GROUP, WINDOW)


def _cores(length: int) -> int:
    return int(core_count(length, GROUP, WINDOW))


def _columns(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values of the columns: cores, then raw tokens."""
    pooled = pool_groups(q, k, v, GROUP, count=_cores(q.shape[2]))
    return torch.cat([pooled[0], k], dim=2), torch.cat([pooled[1], v], dim=2)
