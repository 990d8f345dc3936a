"""What the benchmarks share beside what all studies do: cases that may fail, choices."""

from collections.abc import Callable, Iterable, Mapping
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
    """The rows of a section; an error becomes one, and the next case is run."""

    def __init__(self, save: Callable[[], object]) -> None:
        self.save = save
        self.found: dict[str, Any] = {"rows": []}

    def add(self, **row: Any) -> None:
        """Add a row."""
        self.found["rows"].append(row)

    def attempt(self, what: str, case: Callable[[], None]) -> None:
        """Run a case, and save what is found so far, as a kernel can end the process."""
        try:
            case()
        except Exception as error:
            self.add(case=what, error=words(error))
        torch.cuda.empty_cache()
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
