"""Published attention for the CPU beside CCA, all in one run: `cca-lab study peers`.

Every library attends in full and, where its interface allows, to as many pairs as CCA. A call goes
from q, k, v, in the library's own layout, to the output; CCA's pooling is part of it. The rate is
useful operations a second, 4 D for a visible pair: a form that computes hidden pairs and masks them
has a low one. What cannot be measured has a row that says why.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import accumulate, pairwise, product
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention, pool_groups, visible_mask
from cca_lab.extras import EXTRAS
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
BLOCK = 64  # of SparseAttention, tokens
FULL, CORES, NEAREST, BLOCKS = "full", "CCA", "window", "first and nearest blocks"
CELL = 45.0  # seconds of a length and dtype after which no round begins, the first excepted
MOST_BYTES = 4 * 2**30  # of scores or of a mask, for every pair

Call = Callable[[], Tensor]
Make = Callable[[Tensor, Tensor, Tensor, str], Call]


class Form(NamedTuple):
    """An operator of a library with a pattern of visible pairs."""

    library: str
    operator: str
    pattern: str
    make: Make
    masked: int = 0  # bytes that it allocates for every pair of rows and columns, hidden ones too


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


def openvino(q: Tensor, k: Tensor, v: Tensor, pattern: str) -> Call:
    """Make the call of OpenVINO's operator; CCA's pairs are a mask over cores and raw tokens."""
    import openvino as ov
    import openvino.opset13 as ops

    kind, length = (ov.Type.f32 if q.dtype == torch.float32 else ov.Type.bf16), q.shape[2]
    columns = length + (_cores(length) if pattern == CORES else 0)

    def shared(x: Tensor) -> Any:
        array = x.numpy() if kind == ov.Type.f32 else x.view(torch.int16).numpy()
        return ov.Tensor(array, list(x.shape), kind)

    inputs = [ops.parameter([*x.shape[:2], rows, HEAD_DIM], kind)
              for x, rows in ((q, length), (k, columns), (v, columns))]
    given: dict[Any, Any] = dict(enumerate(map(shared, (q, k, v))))
    if pattern == FULL:
        out = ops.scaled_dot_product_attention(*inputs, causal=True)
    else:
        inputs.append(ops.parameter([1, 1, length, columns], ov.Type.boolean))
        out = ops.scaled_dot_product_attention(*inputs)
        mask = visible_mask(groups.intervals(length, GROUP, WINDOW), columns)
        given[3] = ov.Tensor(mask.numpy(), shared_memory=True)
    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "NUM_STREAMS": 1,
                "INFERENCE_PRECISION_HINT": kind}
    request = ov.Core().compile_model(ov.Model([out], inputs), "CPU", settings
                                      ).create_infer_request()

    def call() -> Tensor:
        if pattern == CORES:
            given.update(zip((1, 2), map(shared, _columns(q, k, v)), strict=True))
        request.infer(given, share_inputs=True)
        data = request.get_output_tensor(0).data
        return torch.from_numpy(data) if kind == ov.Type.f32 \
            else torch.from_numpy(data.view("int16")).view(torch.bfloat16)

    return call


def onnx(q: Tensor, k: Tensor, v: Tensor, pattern: str) -> Call:
    """Make the call of ONNX Runtime: GroupQueryAttention, or SparseAttention for blocks."""
    import onnxruntime
    from onnx import TensorProto, helper

    length, kind, whole = q.shape[2], TensorProto.FLOAT, TensorProto.INT32
    feeds = {name: x.transpose(1, 2).reshape(1, length, -1).contiguous().numpy()
             for name, x in zip("qkv", (q, k, v), strict=True)}
    options: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": HEADS}
    if pattern == BLOCKS:
        rows, columns = block_lists(length)
        operator, names = "SparseAttention", ["past_k", "past_v", "rows", "columns", "total", "end"]
        options["sparse_block_size"] = BLOCK
        past = torch.zeros(1, HEADS, length, HEAD_DIM).numpy()
        values: list[Any] = [past, past, rows, columns, _whole([length]), _whole([length])]
    else:
        operator, names = "GroupQueryAttention", ["", "", "last", "total"]
        options["local_window_size"] = -1 if pattern == FULL else nearest_window(length)
        values = [None, None, _whole([length - 1]), _whole(length)]
    feeds |= {name: value for name, value in zip(names, values, strict=True) if name}
    node = helper.make_node(operator, [*"qkv", *names], ["out", "new_k", "new_v"],
                            domain="com.microsoft", **options)
    graph = helper.make_graph(
        [node], "attention",
        [helper.make_tensor_value_info(name, kind if value.dtype == "float32" else whole,
                                       value.shape) for name, value in feeds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name in node.output])
    model = helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = torch.get_num_threads(), 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings,
                                           providers=["CPUExecutionProvider"])
    bound, kept = session.io_binding(), {}  # what is bound is read where it lies
    for name, value in feeds.items():
        kept[name] = onnxruntime.OrtValue.ortvalue_from_numpy(value)
        bound.bind_ortvalue_input(name, kept[name])
    bound.bind_output("out")
    for new, old in (("new_k", "past_k"), ("new_v", "past_v")):
        if pattern == BLOCKS:  # this operator writes keys and values into its cache
            bound.bind_ortvalue_output(new, kept[old])
        else:
            bound.bind_output(new)

    def call() -> Tensor:
        session.run_with_iobinding(bound)
        out = torch.from_numpy(bound.get_outputs()[0].numpy())
        return out.view(1, length, HEADS, HEAD_DIM).transpose(1, 2)

    return call


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
    Form("openvino", "scaled_dot_product_attention", FULL, openvino),
    Form("openvino", "scaled_dot_product_attention", CORES, openvino, masked=5),
    Form("onnxruntime", "GroupQueryAttention", FULL, onnx),
    Form("onnxruntime", "GroupQueryAttention", NEAREST, onnx),
    Form("onnxruntime", "SparseAttention", BLOCKS, onnx, masked=4 * HEADS),
    Form("cca_lab", "native", FULL, partial(lab, backend="native")),
    Form("cca_lab", "blocked", CORES, partial(lab, backend="blocked")),
    Form("cca_lab", "native", CORES, partial(lab, backend="native")))


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Measure published attention on the CPU beside CCA, at as many pairs as the library allows.

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
                       "versions": {name: version(name) for name in ("torch", *EXTRAS["peers"])
                                    if find_spec(name)},
                       "shape": {"batch": 1, "heads": HEADS, "head_dim": HEAD_DIM, "group": GROUP,
                                 "window": WINDOW}, "rows": []}
            for dtype, length in product(self.dtype, self.length):
                result["rows"] += measure(length, dtype, self.rounds)
        print(table(result))


def table(result: Mapping[str, Any]) -> str:
    """Return the table by dtype and length; below it stands what was not measured, and why."""
    cells: dict[tuple[str, ...], list[str]] = {}
    reasons: dict[str, list[str]] = {}
    pairs: dict[str, float] = {}
    for row in result["rows"]:
        name, length = (row["dtype"], row["form"], row["pattern"]), row["length"]
        if "reason" in row:
            reasons.setdefault(f"{', '.join(name)}: {row['reason']}", []).append(str(length))
        if row["pattern"] not in (FULL, CORES):
            pairs[row["pattern"]] = max(pairs.get(row["pattern"], 0), row["pairs_of_cca"])
        cells.setdefault(name, []).extend(
            [cell(row.get("seconds"), 1e-3), cell(row.get("rate"), 1e9),
             cell(row.get("sdpa_ratio"), 1, 2)])
    columns = [text for length in dict.fromkeys(row["length"] for row in result["rows"])
               for text in (f"ms, {length} tokens", "GFLOP/s", "SDPA's time / its")]
    notes = ["{cpu}, {threads} threads".format_map(result["machine"]),
             ", ".join(f"{name} {number}" for name, number in result["versions"].items()),
             " ".join(f"{name}={size}" for name, size in result["shape"].items()),
             f"medians of at most {result['rounds']} interleaved rounds",
             *(f"{pattern}: at most {ratio:.2f} times CCA's pairs"
               for pattern, ratio in pairs.items()),
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
            if (size := form.masked * length * length) > MOST_BYTES:
                reasons[form] = (f"would allocate {size / 2**30:.0f} GiB for its {length} x "
                                 f"{length} pairs")
            else:
                try:
                    call = form.make(q, k, v, form.pattern)
                    if form.operator == "flex_attention":
                        call()  # compiles here, where a missing compiler is a reason
                    calls[form] = call
                except Exception as error:  # of a library that is not there, or cannot do it
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
    if pattern == BLOCKS:
        return _in_blocks(length, block_lists(length)[0][0])
    window = nearest_window(length) if pattern == NEAREST else length
    return groups.pairs(length, GROUP, WINDOW) if pattern == CORES else _in_window(length, window)


def nearest_window(length: int) -> int:
    """Return the window whose pairs are as many as CCA's, or just more."""
    wanted = groups.pairs(length, GROUP, WINDOW)
    return 1 + bisect_left(range(1, length), wanted, key=partial(_in_window, length))


def block_lists(length: int) -> tuple[Any, Any]:
    """Return SparseAttention's blocks: row offsets (1, n + 1), columns (1, N), with CCA's pairs.

    A row of blocks sees the first block and its nearest ones, as few as have CCA's pairs.
    """
    count, wanted = -(-length // BLOCK), groups.pairs(length, GROUP, WINDOW)
    for nearest in range(1, count + 1):
        lists = [sorted({0, *range(max(0, row - nearest + 1), row + 1)}) for row in range(count)]
        ends = [0, *accumulate(map(len, lists))]
        if _in_blocks(length, ends) >= wanted:
            break
    return _whole([ends]), _whole([[each for seen in lists for each in seen]])


def _in_blocks(length: int, ends: Sequence[int]) -> int:
    """Return the pairs of rows of blocks with these offsets; a row's last block is causal."""
    rows = [min(BLOCK, length - start) for start in range(0, length, BLOCK)]
    return sum(count * (count + 1) // 2 + count * BLOCK * int(end - start - 1)
               for count, (start, end) in zip(rows, pairwise(ends), strict=True))


def _in_window(length: int, window: int) -> int:
    return window * length - window * (window - 1) // 2


def _cores(length: int) -> int:
    return int(core_count(length, GROUP, WINDOW))


def _columns(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values of the columns: cores, then raw tokens."""
    pooled = pool_groups(q, k, v, GROUP, count=_cores(q.shape[2]))
    return torch.cat([pooled[0], k], dim=2), torch.cat([pooled[1], v], dim=2)


def _whole(values: Any) -> Any:
    return torch.tensor(values, dtype=torch.int32).numpy()
