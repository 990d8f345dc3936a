"""Time the kernels on one GPU: `cca-lab study gpu`.

One layer has 32 heads of 128 features as in LLaMA2-7B, in bfloat16. Whether the kernels are
right is what tests/attention/test_real_sizes.py asks. The contenders of `speed`, on the same q, k,
v, in rounds of rotating order:

    flash           full causal attention, PyTorch's flash backend: the baseline
    sdpa            the same with the backend that PyTorch chooses
    full, kernel    the same on the lab's kernel
    CCA             from q, k, v to the output, pooling included
    CCA, kernel     the attention alone, over cores pooled before
    CCA, flex       the same by FlexAttention, compiled, over cores and raw tokens in one tensor
    pooling         the pooling alone

`decode` has one row against a cache, launched from Python and as a CUDA graph, as servers decode: a
row takes some microseconds, less than Python needs to launch it. `model` has 17 of LLaMA2-7B's
layers, with random weights.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import causal_intervals, pool_groups
from cca_lab.attention.sources import halves, split_intervals
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.indices import core_count
from cca_lab.reporting import device, machine, write_json
from cca_lab.studies.benchmarks.flex import flex_call
from cca_lab.studies.benchmarks.results import Section, chosen, random_tensors, words
from cca_lab.studies.benchmarks.timing import (
    interleave,
    median_and_range,
    roof,
    synchronize,
    useful_flops,
)
from cca_lab.studies.study import markdown, result_file

HEADS, HEAD_DIM, DTYPE = 32, 128, torch.bfloat16
LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
SETTINGS = ((16, 1024), (16, 4096))  # groups and windows of CCA
FLEX_LENGTHS = (32768,)  # where FlexAttention is compiled, tens of seconds each
DRAWN = ("flash", "sdpa", "full, kernel", "CCA, s = 1024", "CCA, kernel, s = 1024")
KV_HEADS = (32, 8)  # of a decoded row, without and with grouped queries
PRODUCT, COPY = 8192, 1 << 31  # rows of the square matrices, and bytes of the copy, of the roof
ROUNDS, LEAST = 3, 0.02  # interleaved rounds; seconds of one measurement
HIDDEN, INNER, VOCABULARY = 4096, 11008, 32000  # of LLaMA2-7B
LAYERS = 17  # that fit into 80 GB beside the full cache of the longest text

Attend = Callable[..., Any]
Inputs = tuple[Tensor, ...]


class Contender(NamedTuple):
    """A form of attention: the pairs of a head, CCA's group and window, and what makes its call."""

    name: str
    pairs: int
    setting: tuple[int, int] | None
    make: Callable[[], tuple[Attend, Inputs]]


@dataclass(frozen=True, kw_only=True)
class GpuBench:
    """Time the kernels on a GPU, beside PyTorch's attention."""

    section: tuple[str, ...] = ()
    """Sections to run: speed, decode, model; all without the option."""
    out: Path | None = None
    """JSON file to write; it is written after each case, as a kernel can end the process."""

    def run(self) -> None:
        """Run the sections; print their tables."""
        sections = chosen("section", self.section, SECTIONS)
        if not torch.cuda.is_available():
            raise ValueError("gpu: there is none (torch.cuda.is_available() is False); run this "
                             "where one is")
        def save() -> None:
            if self.out:
                write_json(self.out, result)

        with result_file(self.out) as result:
            result |= {"machine": machine() | gpu_facts(), "bench": "gpu", "heads": HEADS,
                       "head_dim": HEAD_DIM, "sections": {}}
            for name, (measure, _) in sections.items():
                section = Section(save)
                result["sections"][name] = section.found
                measure(section)
        for name, (_, table) in sections.items():
            print(f"\n{name}\n", table(result), sep="\n")
            for row in result["sections"][name]["rows"]:
                if "error" in row:
                    print("failed:", *(f"{key} {value}" for key, value in row.items()))


def speed(section: Section) -> None:
    """Measure the machine's peaks, then every contender at every length, forward and backward."""
    from torch._functorch import config

    def peaks() -> None:
        found = roof(PRODUCT, COPY, DTYPE, device(), 5, LEAST)
        section.found |= found | {"peak": found["flops"]}

    section.attempt("roof", peaks)
    # The backward is timed repeatedly on one graph, which compiled code allows only without donated
    # buffers. That setting is local to a thread, and on a GPU autograd would run the backward in
    # another thread.
    with config.patch(donated_buffer=False), torch.autograd.set_multithreading_enabled(False):
        for length in LENGTHS:
            section.attempt(f"length {length}", partial(measure_speed, section, length))


def measure_speed(section: Section, length: int) -> None:
    """Measure all contenders at one length: forward, then backward."""
    q, k, v = (x.requires_grad_() for x in random_tensors(*[(1, HEADS, length, HEAD_DIM)] * 3,
                                                          dtype=DTYPE))
    for kind, prepare in (("forward", forward_call), ("backward", backward_call)):
        times, errors = timed({each.name: partial(prepare, each.make)
                               for each in contenders(q, k, v)})
        for name, error in errors.items():
            section.add(length=length, contender=name, **{"pass": kind}, error=error)
        for name, pairs, setting, _ in contenders(q, k, v):
            if name not in times:
                continue
            seconds, spread = median_and_range(times[name])
            row = {"length": length, "pass": kind, "contender": name, "setting": setting,
                   "pairs": pairs, "seconds": seconds, "range": spread}
            if pairs:
                rate = useful_flops(pairs, HEADS, HEAD_DIM, kind) / seconds
                peak = section.found.get("peak")
                row |= {"rate": rate, "of_peak": peak and rate / peak}
            section.add(**row)


def contenders(q: Tensor, k: Tensor, v: Tensor) -> Iterator[Contender]:
    """Yield full attention and CCA with every setting."""
    whole, pairs = (q, k, v), q.shape[2] * (q.shape[2] + 1) // 2
    yield Contender("flash", pairs, None, lambda: (flash, whole))
    yield Contender("sdpa", pairs, None, lambda: (
        partial(F.scaled_dot_product_attention, is_causal=True), whole))
    yield Contender("full, kernel", pairs, None, lambda: (
        kernel(causal_intervals(q.shape[2])), whole))
    for setting in SETTINGS:
        yield from forms_of_cca(q, k, v, *setting)


def forms_of_cca(q: Tensor, k: Tensor, v: Tensor, group: int, window: int) -> Iterator[Contender]:
    """Yield CCA, its kernel alone and, for the first setting, pooling and FlexAttention."""
    length, setting = q.shape[2], (group, window)
    pairs, table = groups.pairs(length, *setting), groups.intervals(length, *setting)
    yield Contender(f"CCA, s = {window}", pairs, setting, lambda: (
        CCA(group=group, window=window, backend="triton").attention, (q, k, v)))
    yield Contender(f"CCA, kernel, s = {window}", pairs, setting, lambda: (
        kernel(table), sources(q, k, v, *setting)))
    if setting == SETTINGS[0]:
        yield Contender("pooling", 0, setting, lambda: (
            partial(pool_groups, group=group, backend="triton"), (q, k, v)))
        if length in FLEX_LENGTHS:
            cores = core_count(length, *setting)
            yield Contender("CCA, flex", pairs, setting, lambda: (
                flex_call(length, cores, *setting, device(), compiled=True),
                joined(*sources(q, k, v, *setting))))


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Full causal attention with PyTorch's flash backend only."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def kernel(intervals: Tensor) -> Attend:
    """Return the attention kernel alone, its intervals on the GPU before timing starts."""
    from cca_lab.attention.kernels.interval import triton_attention

    on_device = intervals.to(device())

    def attend(q: Tensor, *columns: Tensor) -> Tensor:
        keys, values = halves(columns)
        tables = split_intervals(on_device, [x.shape[2] for x in keys])
        return triton_attention(q, keys, values, tables, q.shape[-1] ** -0.5)[0]

    return attend


def sources(q: Tensor, k: Tensor, v: Tensor, group: int, window: int) -> Inputs:
    """Return q, the keys of cores and of raw tokens, and so the values, as leaf tensors."""
    count = core_count(q.shape[2], group, window)
    with torch.no_grad():
        cores = pool_groups(q, k, v, group, count=count) if count else (k[:, :, :0], v[:, :, :0])
    return q, *(x.detach().requires_grad_() for pair in zip(cores, (k, v), strict=True)
                for x in pair)


def joined(q: Tensor, *columns: Tensor) -> Inputs:
    """Return q, keys and values of one tensor each, as leaf tensors."""
    return q, *(torch.cat(tuple(x), dim=2).detach().requires_grad_() for x in halves(columns))


def forward_call(make: Callable[[], tuple[Attend, Inputs]]) -> Callable[[], object]:
    """Return the forward as a call on inputs without gradient."""
    attend, inputs = make()
    detached = [x.detach() for x in inputs]
    return lambda: attend(*detached)


def backward_call(make: Callable[[], tuple[Attend, Inputs]]) -> Callable[[], object]:
    """Return the backward alone as a call; the forward has run, and its graph is kept."""
    attend, inputs = make()
    outputs = attend(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    grads = [torch.randn_like(output) for output in outputs]
    return lambda: torch.autograd.grad(outputs, inputs, grads, retain_graph=True)


def decode(section: Section) -> None:
    """Measure one row against all keys, and against as many as CCA's cache holds."""
    for length, kv_heads in product(LENGTHS, KV_HEADS):
        section.attempt(f"length {length}, {kv_heads} KV heads",
                     partial(measure_decode, section, length, kv_heads))


@torch.no_grad()
def measure_decode(section: Section, length: int, kv_heads: int) -> None:
    """Measure PyTorch's attention and the decode kernel at one length."""
    from cca_lab.attention.kernels.decode import triton_decode

    def sdpa(q: Tensor, k: Tensor, v: Tensor) -> object:
        return F.scaled_dot_product_attention(q.view(1, kv_heads, -1, HEAD_DIM), k, v)

    def on_kernel(q: Tensor, k: Tensor, v: Tensor) -> object:
        return triton_decode(q, k, v, HEAD_DIM**-0.5)

    q, k, v = random_tensors((1, HEADS, 1, HEAD_DIM), *[(1, kv_heads, length, HEAD_DIM)] * 2,
                             dtype=DTYPE)
    makes: dict[str, Callable[[], Callable[[], object]]] = {}
    entries = {"full": length, "CCA": groups.cache_tokens(length, *SETTINGS[0])}
    for name, attend in (("sdpa", sdpa), ("kernel", on_kernel)):
        for what, count in entries.items():
            call = partial(attend, q, *(x[:, :, :count].contiguous() for x in (k, v)))
            makes[f"{name}, {what}"] = partial(lambda each: each, call)
            makes[f"{name}, {what}, graph"] = partial(captured, call)
    times, errors = timed(makes)
    for name, error in errors.items():
        section.add(length=length, kv_heads=kv_heads, contender=name, error=error)
    for name in times:
        seconds, spread = median_and_range(times[name])
        count = entries["CCA" if "CCA" in name else "full"]
        size = 2 * kv_heads * count * HEAD_DIM * DTYPE.itemsize
        section.add(length=length, kv_heads=kv_heads, contender=name, entries=count, bytes=size,
                    seconds=seconds, range=spread, bytes_a_second=size / seconds)


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """Return a call that replays the kernels of `call` as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiling and loading must happen before the capture
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def model(section: Section) -> None:
    """Measure the first token and the next ones of a stack of layers, with each attention."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    from cca_lab.models.checkpoints import quiet
    from cca_lab.studies.benchmarks.model import TOKENS, measure_writing

    quiet()
    longest, (group, window) = max(LENGTHS) + TOKENS, SETTINGS[0]
    options = {"group": group, "window": window}
    config = LlamaConfig(hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
                         num_attention_heads=HEADS, num_key_value_heads=HEADS,
                         vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2,
                         max_position_embeddings=longest)
    torch.manual_seed(0)
    with device():
        stack = AutoModelForCausalLM.from_config(config, dtype=DTYPE, attn_implementation="sdpa")
    section.found |= {"layers": LAYERS, "tokens": TOKENS, "options": options,
                      "dtype": str(DTYPE).removeprefix("torch."),
                      "parameters": sum(p.numel() for p in stack.parameters())}

    def measure(length: int) -> None:
        # Prompt and next tokens together have `length` tokens: transformers' cache grows by copies,
        # which then fit into freed blocks. One token beyond a power of two, each layer's first copy
        # would wait for the allocator.
        for row in measure_writing(stack, ("full", "cca"), length - TOKENS, ROUNDS - 1,
                                   {"cca": options}):
            section.add(**row)

    for length in LENGTHS:
        section.attempt(f"prompt of {length}", partial(measure, length))


def timed(makes: Mapping[str, Callable[[], Callable[[], object]]]
          ) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Make and interleave calls; return the seconds of those that succeed, the others' errors."""
    calls, errors = {}, {}
    for name, make in makes.items():
        try:
            call = make()
            call()
            synchronize()
            calls[name] = call
        except Exception as error:
            errors[name] = words(error)
            torch.cuda.empty_cache()
    return (interleave(calls, ROUNDS, LEAST) if calls else {}), errors


def gpu_facts() -> dict[str, Any]:
    """Return Triton's and CUDA's version, and memory, processors and capability of the GPU."""
    import triton

    card = torch.cuda.get_device_properties(0)
    return {"triton": triton.__version__, "cuda": torch.version.cuda, "memory": card.total_memory,
            "processors": card.multi_processor_count, "capability": f"{card.major}.{card.minor}"}


def rows_of(result: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the rows of a section that are not errors."""
    return [row for row in result["sections"][name]["rows"] if "error" not in row]


def card_table(result: Mapping[str, Any], columns: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown, with the card below it."""
    return markdown(columns, rows, "{gpu}, torch {torch}, triton {triton}, CUDA {cuda}.".format_map(
        result["machine"]))


def by_length(rows: list[dict[str, Any]], keys: tuple[str, str],
              cell: Callable[[dict[str, Any]], str]) -> tuple[list[str], list[list[str]]]:
    """Return columns and a row for each pair of values of `keys`, with a column a length."""
    lengths = sorted({row["length"] for row in rows})
    cells = {(*(row[key] for key in keys), row["length"]): cell(row) for row in rows}
    names = dict.fromkeys(tuple(row[key] for key in keys) for row in rows)
    return [*keys, *map(str, lengths)], [
        [*map(str, name), *(cells.get((*name, length), "-") for length in lengths)]
        for name in names]


def speed_table(result: Mapping[str, Any], without: tuple[str, ...] = ()) -> str:
    """Return milliseconds and speed over `sdpa` by length, without contenders that begin so."""
    rows = [row for row in rows_of(result, "speed") if not row["contender"].startswith(without)]
    sdpa = {(row["pass"], row["length"]): row["seconds"] for row in rows
            if row["contender"] == "sdpa"}

    def cell(row: dict[str, Any]) -> str:
        baseline = sdpa.get((row["pass"], row["length"]))
        ratio = f" ({baseline / row['seconds']:.2f})" if baseline and row["pairs"] else ""
        return f"{1e3 * row['seconds']:.2f}{ratio}"

    return card_table(result, *by_length(rows, ("pass", "contender"), cell))


def decode_table(result: Mapping[str, Any]) -> str:
    """Return microseconds of one row against a cache, by length."""
    return card_table(result, *by_length(rows_of(result, "decode"), ("kv_heads", "contender"),
                                         lambda row: f"{1e6 * row['seconds']:.0f}"))


def model_table(result: Mapping[str, Any]) -> str:
    """Return what a stack of layers takes for the first token and for the next ones."""
    return card_table(
        result, ["attention", "prompt", "first token s", "full / it", "next token ms", "full / it",
                 "cache MiB"],
        [[row["attention"], str(row["prompt"]), f"{row['first_seconds']:.3f}",
          f"{row['first_ratio']:.2f}", f"{row['token_seconds'] * 1e3:.2f}",
          f"{row['token_ratio']:.2f}", f"{row['cache_bytes'] / 2**20:.0f}"]
         for row in rows_of(result, "model")])


SECTIONS: dict[str, tuple[Callable[[Section], None], Callable[[Mapping[str, Any]], str]]] = {
    "speed": (speed, speed_table), "decode": (decode, decode_table),
    "model": (model, model_table)}


def draw(result: Mapping[str, Any]) -> Any:
    """Draw the forward's milliseconds by length: full attention, and CCA's first setting."""
    from cca_lab.views.figures.caches import against_context

    series: dict[str, dict[int, float]] = {}
    for row in rows_of(result, "speed"):
        if row["pass"] == "forward" and row["contender"] in DRAWN:
            series.setdefault(row["contender"], {})[row["length"]] = 1e3 * row["seconds"]
    lengths = sorted(set.intersection(*map(set, series.values())))
    return against_context(
        lengths, {name: [times[n] for n in lengths] for name, times in series.items()},
        ylabel="milliseconds, forward", title=f"Attention of a layer: {result['machine']['gpu']}")
