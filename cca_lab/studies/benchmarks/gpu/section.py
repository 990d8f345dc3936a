"""A section of `cca-lab study gpu`: sizes, rows written after each case, and a time limit."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from cca_lab.reporting import device, write_json
from cca_lab.studies.benchmarks.timing import interleave, synchronize

LONGEST_ERROR = 400  # characters
Case = tuple[torch.dtype, str, int]  # dtype, mechanism, head dimension
Setting = tuple[int, int]  # group, window


@dataclass(frozen=True)
class Sizes:
    """Sizes of all sections."""

    name: str
    length: int  # tokens of the correctness checks; not a multiple of any block
    check_heads: tuple[int, int]  # query and KV heads of these checks
    cases: tuple[Case, ...]  # of these checks, the most important first
    check_setting: Setting  # group and window of these checks
    check_pattern: tuple[int, dict[str, int]]  # tokens of the vertical-slash check, and its options
    lengths: tuple[int, ...]  # L of the other sections, those that may be left out last
    heads: int  # of the timed attention, query and KV alike, as in LLaMA2-7B
    head_dim: int
    settings: tuple[Setting, ...]  # groups and windows of CCA; the targets concern the first
    flex_lengths: tuple[int, ...]  # where FlexAttention is compiled, tens of seconds each
    product: int  # rows and columns of the square matrices whose product is the peak
    copy: int  # bytes of the copy that measures the bandwidth
    rounds: int  # interleaved; each time is their median
    least: float  # shortest duration of one measurement, in seconds
    kv_heads: tuple[int, ...]  # for the decode kernel, without and with grouped queries
    model: tuple[int, int, int, int, int]  # hidden, inner, heads, vocabulary, most layers


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

REAL = Sizes(name="real", length=16384 + 5, check_heads=(8, 2),
             cases=((BF16, "cca", 128), (BF16, "full", 128), (FP16, "cca", 128), (FP32, "cca", 128),
                    (BF16, "streaming_llm", 128), (BF16, "cca", 64), (BF16, "cca", 80),
                    (FP16, "cca", 64), (FP32, "full", 128), (FP32, "cca", 64)),
             check_setting=(16, 1024),
             check_pattern=(4096 + 5, {"vertical": 200, "slash": 300, "last": 64,
                                       "forced_vertical": 30, "forced_slash": 50, "block": 64}),
             lengths=(32768, 131072, 8192, 65536, 16384, 4096), heads=32, head_dim=128,
             settings=((16, 1024), (16, 4096)), flex_lengths=(32768,), product=8192,
             copy=1 << 31, rounds=3, least=0.02, kv_heads=(32, 8),
             model=(4096, 11008, 32, 32000, 32))

TOY = Sizes(
    name="toy", length=37, check_heads=(2, 1),
    cases=((BF16, "cca", 16), (FP32, "full", 16), (FP16, "streaming_llm", 20)),
    check_setting=(8, 8), check_pattern=(37, {"vertical": 4, "slash": 4, "last": 8,
                                              "forced_vertical": 1, "forced_slash": 1, "block": 8}),
    lengths=(32, 48), heads=2, head_dim=16, settings=((8, 16), ), flex_lengths=(48, ), product=64,
    copy=1 << 16, rounds=1, least=0.0, kv_heads=(2, 1), model=(32, 48, 2, 64, 2))

BY_NAME = {sizes.name: sizes for sizes in (REAL, TOY)}


class Section:
    """The results of a section, on disk as they come; after `limit` seconds no case begins."""

    def __init__(self, path: Path, limit: float) -> None:
        self.path, self.limit = path, limit
        self.start = perf_counter()
        self.found: dict[str, Any] = {"rows": [], "left_out": [], "seconds": 0.0}
        self.write()

    def write(self) -> None:
        """Write the results so far."""
        self.found["seconds"] = perf_counter() - self.start
        write_json(self.path, finite(self.found))

    def add(self, **row: Any) -> None:
        """Add a row, and write the file."""
        self.found["rows"].append(row)
        self.write()

    def note(self, **facts: Any) -> None:
        """Add facts beside the rows, and write the file."""
        self.found.update(facts)
        self.write()

    def attempt(self, what: str, case: Callable[[], None]) -> None:
        """Run a case within the time limit; an error becomes a row, and the next case runs."""
        if perf_counter() - self.start >= self.limit:
            self.found["left_out"].append(f"{what}: no time left")
            self.write()
            return
        try:
            case()
        except Exception as error:
            self.add(case=what, error=told(error))
        free_memory()


def told(error: BaseException) -> str:
    """Return an error formatted as short text."""
    return f"{type(error).__name__}: {error}"[:LONGEST_ERROR]


def free_memory() -> None:
    """Release the cached GPU memory after a case."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def timed(calls: Mapping[str, Callable[[], object]], rounds: int,
          least: float) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Interleave the calls that succeed; return their seconds, and the errors of the others."""
    ran, errors = {}, {}
    for name, call in calls.items():
        try:
            call()
            synchronize()
            ran[name] = call
        except Exception as error:
            errors[name] = told(error)
            free_memory()
    return (interleave(ran, rounds, least) if ran else {}), errors


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


def random_tensors(*shapes: tuple[int, ...], dtype: torch.dtype,
                   seed: int = 0) -> list[torch.Tensor]:
    """Draw tensors on the GPU, or on the CPU if there is none."""
    generator = torch.Generator(device()).manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float32, device=device()).to(dtype)
            for shape in shapes]


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot hold, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value
