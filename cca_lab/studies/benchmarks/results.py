"""What the benchmarks share beside what all studies do: cases within a limit of time, choices."""

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from cca_lab.reporting import device

LONGEST_ERROR = 400  # characters


def chosen(option: str, names: Iterable[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `known` by these names, or all; ValueError for a name that it lacks."""
    names = tuple(names) or tuple(known)
    for name in names:
        if name not in known:
            raise ValueError(f"{option}: got {name!r}, wanted one of {', '.join(known)}")
    return {name: known[name] for name in names}


class Section:
    """The results of a section; after `limit` seconds no case begins."""

    def __init__(self, limit: float, save: Callable[[], object]) -> None:
        self.limit, self.save, self.start = limit, save, perf_counter()
        self.found: dict[str, Any] = {"rows": [], "left_out": [], "seconds": 0.0}

    def add(self, **row: Any) -> None:
        """Add a row."""
        self.found["rows"].append(row)

    def attempt(self, what: str, case: Callable[[], None]) -> None:
        """Run a case within the time limit; an error becomes a row, and the next case runs."""
        if perf_counter() - self.start >= self.limit:
            self.found["left_out"].append(f"{what}: no time left")
            return
        try:
            case()
        except Exception as error:
            self.add(case=what, error=words(error))
        torch.cuda.empty_cache()
        self.found["seconds"] = perf_counter() - self.start
        self.save()


def words(error: BaseException) -> str:
    """Return an error as short text."""
    return f"{type(error).__name__}: {error}"[:LONGEST_ERROR]


def random_tensors(*shapes: tuple[int, ...], dtype: torch.dtype,
                   seed: int = 0) -> list[Tensor]:
    """Draw tensors on the GPU, or on the CPU if there is none."""
    generator = torch.Generator(device()).manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float32, device=device()).to(dtype)
            for shape in shapes]
