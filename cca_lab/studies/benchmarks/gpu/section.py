"""A section of `cca-lab bench gpu`: its rows, written to disk after each one, and its time limit."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from cca_lab.reporting import device, write_json
from cca_lab.studies.benchmarks.timing import interleave, synchronize

LONGEST_ERROR = 400  # characters


class Section:
    """Collects the results of a section; if the process dies, the results so far are on disk.

    Args:
        path: JSON file, written after every change of the results.
        limit: seconds after which no new case begins.
    """

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

    def leave_out(self, what: str, why: str = "no time left") -> None:
        """Record that a case was not run, and why."""
        self.found["left_out"].append(f"{what}: {why}")
        self.write()

    def spent(self, what: str) -> bool:
        """Return whether the time limit is reached; if so, record the case as left out."""
        if perf_counter() - self.start < self.limit:
            return False
        self.leave_out(what)
        return True

    def attempt(self, what: str, case: Callable[[], None]) -> None:
        """Run a case unless the time limit is reached; an error becomes a row, and the next case still runs."""
        if self.spent(what):
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


def usable(calls: Mapping[str, Callable[[], object]]) -> tuple[dict[str, Callable[[], object]], dict[str, str]]:
    """Call each once; return the calls that succeed, and the errors of the others."""
    ran, errors = {}, {}
    for name, call in calls.items():
        try:
            call()
            synchronize()
            ran[name] = call
        except Exception as error:
            errors[name] = told(error)
            free_memory()
    return ran, errors


def timed(calls: Mapping[str, Callable[[], object]], rounds: int,
          least: float) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Interleave the calls that succeed; return their seconds, and the errors of the others."""
    ran, errors = usable(calls)
    return (interleave(ran, rounds, least) if ran else {}), errors


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """Return a call that replays the kernels of `call` as one CUDA graph, without Python's overhead."""
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


def random_tensors(*shapes: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
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
