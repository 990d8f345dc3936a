"""What a kernel reads and writes, program by program, as Triton's interpreter runs it.

The interpreter computes the address of every lane of every load and store. Here each is noted with
its program and its line, and an address outside of all arguments is reported and switched off.
"""

import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor
from triton.runtime import interpreter


@dataclass(frozen=True)
class Access:
    """One load or store of one program.

    Attributes:
        program: its number along the first axis of the grid.
        kind: "load" or "store".
        line: the source of its line.
        elements: for each argument that it touches, the elements, counted from the argument's
            first; each once.
        outside: lanes whose mask is true and whose address is in no argument.
    """

    program: int
    kind: str
    line: str
    elements: dict[str, np.ndarray]
    outside: int


@dataclass
class Trace:
    """The accesses of a launch, in order, and the tensors that it was given, by name."""

    accesses: list[Access] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    programs: int = 0

    def counts(self, name: str, kind: str) -> np.ndarray:
        """Return how often each program loads or stores each element, (programs, elements)."""
        counts = np.zeros((self.programs, self.tensors[name].numel()), dtype=int)
        for access in self.accesses:
            if access.kind == kind and name in access.elements:
                counts[access.program, access.elements[name]] += 1
        return counts

    def stored(self) -> list[str]:
        """Return the names of the tensors that the kernel writes to."""
        return [name for name in self.tensors
                if any(access.kind == "store" and name in access.elements
                       for access in self.accesses)]

    def flaws(self) -> list[str]:
        """Return in words what is outside, written by nobody or twice, or loaded twice."""
        found = []
        for access in self.accesses:
            if access.outside:
                found.append(f"program {access.program} {access.kind}s {access.outside} places "
                             f"outside of every argument: {access.line}")
        for name in self.stored():
            writers = (self.counts(name, "store") > 0).sum(0)
            for wrong, words in ((writers == 0, "never written"), (writers > 1, "written by two "
                                                                                "programs")):
                if wrong.any():
                    found.append(f"{name}: {int(wrong.sum())} of {wrong.size} elements are "
                                 f"{words}, first element {int(wrong.argmax())}")
        for name in self.tensors:
            again = self.counts(name, "load") > 1
            if again.any():
                program = int(again.any(1).argmax())
                found.append(f"program {program} loads {int(again[program].sum())} elements of "
                             f"{name} more than once: {self._again(name, program)}")
        return found

    def _again(self, name: str, program: int) -> str:
        """Return the line of the first load that repeats an earlier one."""
        seen: set[int] = set()
        for access in self.accesses:
            if access.kind == "load" and access.program == program and name in access.elements:
                these = set(access.elements[name].tolist())
                if seen & these:
                    return access.line
                seen |= these
        return ""


@contextmanager
def traced() -> Iterator[Trace]:
    """Note what the kernels that run inside load and store; of several launches, the last."""
    trace = Trace()
    builder, launch = interpreter.InterpreterBuilder, interpreter.GridExecutor
    kept = (launch._init_args_hst, builder.create_masked_load, builder.create_masked_store)
    prepare, load, store = kept
    kernels: list[Any] = []

    def prepared(self: Any, positional: Any, named: Mapping[str, Any]) -> Any:
        on_host = prepare(self, positional, named)
        arguments = inspect.getcallargs(self.fn, *on_host[0], **on_host[1])
        trace.tensors = {name: x for name, x in arguments.items()
                         if isinstance(x, Tensor) and x.numel()}
        grid = self.grid(arguments) if callable(self.grid) else self.grid
        trace.accesses, trace.programs = [], int(np.prod(grid))
        kernels[:] = [self.fn]
        return on_host

    def noted(self: Any, kind: str, pointers: Any, mask: Any) -> Any:
        addresses, lanes = pointers.data.astype(np.int64), mask.data.astype(bool)
        elements, good = {}, np.zeros(addresses.shape, dtype=bool)
        for name, x in trace.tensors.items():
            steps = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
            offset = (addresses - x.data_ptr()) // x.element_size()
            inside = (offset >= 0) & (offset <= steps) & ~good
            good |= inside
            if (inside & lanes).any() and x.is_contiguous():
                elements[name] = np.unique(offset[inside & lanes])
        x, y, z = self.grid_idx
        columns, rows, _ = self.grid_dim
        trace.accesses.append(Access(x + columns * (y + rows * z), kind, _line(kernels[0]),
                                     elements, int((lanes & ~good).sum())))
        return interpreter.TensorHandle(lanes & good, mask.dtype)

    def noted_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        return load(self, pointers, noted(self, "load", pointers, mask), *rest)

    def noted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return store(self, pointers, value, noted(self, "store", pointers, mask), *rest)

    launch._init_args_hst = prepared
    builder.create_masked_load, builder.create_masked_store = noted_load, noted_store
    try:
        yield trace
    finally:
        launch._init_args_hst, builder.create_masked_load, builder.create_masked_store = kept


def _line(kernel: Any) -> str:
    """Return the line of the kernel that is being run."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != kernel.__name__:
        frame = frame.f_back  # type: ignore[assignment]  # None at the end of the stack
    if frame is None:
        return "(a line that is not known)"
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
