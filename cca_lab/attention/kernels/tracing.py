"""What a kernel reads and writes, program by program, as the lab's interpreter runs it.

The interpreter knows for every lane of every load and store which element of which argument it
means. Here each is noted with its program and its line, and lanes outside of their argument are
reported and left out.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from cca_lab.attention.kernels.tile_interpreter import instead_of_triton, line_of_kernel
from cca_lab.attention.kernels.tile_language import Argument, Machine


@dataclass(frozen=True)
class Access:
    """One load or store of one program.

    Attributes:
        program: its number, counted along the first axis of the grid, then along the others.
        kind: "load" or "store".
        line: the source of its line.
        argument: the name of the argument that its pointers come from.
        elements: which of them it touches, counted from the argument's first; each once.
        outside: lanes whose mask is true and which point outside of the argument.
    """

    program: int
    kind: str
    line: str
    argument: str
    elements: np.ndarray
    outside: int


@dataclass
class Trace:
    """The accesses of a launch, in order, and the tensors that it was given, by name."""

    accesses: list[Access] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    programs: int = 0

    def launch(self, arguments: Mapping[str, Any], grid: tuple[int, ...]) -> None:
        """Forget an earlier launch."""
        self.tensors = {name: x for name, x in arguments.items()
                        if isinstance(x, Tensor) and x.numel()}
        self.accesses, self.programs = [], int(np.prod(grid))

    def access(self, kind: str, argument: Argument, offset: Tensor, lanes: Tensor,
               outside: Tensor) -> bool:
        """Note a load or store; elements of a tensor with gaps cannot be counted."""
        x, y, z = Machine.program
        columns, rows, _ = Machine.grid
        counted = lanes & ~outside & self.tensors[argument.name].is_contiguous()
        self.accesses.append(Access(x + columns * (y + rows * z), kind, line_of_kernel(),
                                    argument.name, np.unique(offset[counted]),
                                    int(outside.sum())))
        return True

    def counts(self, name: str, kind: str) -> np.ndarray:
        """Return how often each program loads or stores each element, (programs, elements)."""
        counts = np.zeros((self.programs, self.tensors[name].numel()), dtype=int)
        for access in self.accesses:
            if (access.kind, access.argument) == (kind, name):
                counts[access.program, access.elements] += 1
        return counts

    def stored(self) -> list[str]:
        """Return the names of the tensors that the kernel writes to."""
        return [name for name in self.tensors
                if any((access.kind, access.argument) == ("store", name)
                       for access in self.accesses)]

    def flaws(self) -> list[str]:
        """Return in words what is outside, written by nobody or twice, or loaded twice."""
        flaws = []
        for access in self.accesses:
            if access.outside:
                flaws.append(f"program {access.program} {access.kind}s {access.outside} elements "
                             f"outside of {access.argument}: {access.line}")
        for name in self.stored():
            writers = (self.counts(name, "store") > 0).sum(0)
            for wrong, words in ((writers == 0, "never written"), (writers > 1, "written by two "
                                                                                "programs")):
                if wrong.any():
                    flaws.append(f"{name}: {int(wrong.sum())} of {wrong.size} elements are "
                                 f"{words}, first element {int(wrong.argmax())}")
        for name in self.tensors:
            again = self.counts(name, "load") > 1
            if again.any():
                program = int(again.any(1).argmax())
                flaws.append(f"program {program} loads {int(again[program].sum())} elements of "
                             f"{name} more than once: {self._again(name, program)}")
        return flaws

    def _again(self, name: str, program: int) -> str:
        """Return the line of the first load that repeats an earlier one."""
        seen: set[int] = set()
        for access in self.accesses:
            if (access.kind, access.program, access.argument) == ("load", program, name):
                these = set(access.elements.tolist())
                if seen & these:
                    return access.line
                seen |= these
        return ""


@contextmanager
def traced() -> Iterator[Trace]:
    """Note what the kernels that run inside load and store; of several launches, the last."""
    trace, kept = Trace(), Machine.watcher
    Machine.watcher = trace
    try:
        with instead_of_triton():
            yield trace
    finally:
        Machine.watcher = kept
