"""A sanitizer for interpreted kernels: every address must lie in an argument of the launch.

The interpreter computes the addresses that a GPU would, for every lane of every program. Before it
touches memory, each address with a true mask is compared with the bytes of the tensors that this
launch was given, views without what lies around them. A lane outside is reported and switched off,
so that even a wild kernel cannot crash the process.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from torch import Tensor
from triton.runtime import interpreter


@dataclass
class Watch:
    """What a sanitizer saw.

    Attributes:
        lanes: addresses that were compared.
        reports: one line for each access with an address outside.
        stop: whether the first report ends the launch.
        rooms: first and last byte of each tensor of the launch.
    """

    lanes: int = 0
    reports: list[str] = field(default_factory=list)
    stop: bool = False
    rooms: list[tuple[int, int]] = field(default_factory=list)

    def allow(self, arguments) -> None:
        """Take the tensors of a launch as the only memory that it may touch."""
        self.rooms = [room_of(x) for x in arguments if isinstance(x, Tensor) and x.numel()]

    def inside(self, pointers: np.ndarray, mask: np.ndarray, size: int, what: str) -> np.ndarray:
        """Return the mask without the lanes that lie outside, which are reported."""
        first = pointers.astype(np.int64)
        good = np.zeros(first.shape, dtype=bool)
        for low, high in self.rooms:
            good |= (first >= low) & (first + size <= high)
        mask = mask.astype(bool)
        self.lanes += int(mask.sum())
        if outside := int((mask & ~good).sum()):
            self.reports.append(f"{what}: {outside} of {int(mask.sum())} lanes outside of every "
                                "argument")
            if self.stop:
                raise IndexError(self.reports[-1])
        return mask & good


def room_of(x: Tensor) -> tuple[int, int]:
    """Return the first byte of a view, and the one behind its last."""
    steps = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (steps + 1) * x.element_size()


@contextmanager
def watched(*, stop: bool = False) -> Iterator[Watch]:
    """Watch every launch of interpreted kernels; with `stop`, an address outside raises."""
    watch = Watch(stop=stop)
    builder, launch = interpreter.InterpreterBuilder, interpreter.GridExecutor
    prepare = launch._init_args_hst
    load, store = builder.create_masked_load, builder.create_masked_store

    def prepared(self, positional, named):
        on_host = prepare(self, positional, named)
        watch.allow([*on_host[0], *on_host[1].values()])
        return on_host

    def checked(pointers, mask, what):
        size = interpreter._get_np_dtype(pointers.get_element_ty()).itemsize
        return interpreter.TensorHandle(watch.inside(pointers.data, mask.data, size, what),
                                        mask.dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_init_args_hst", prepared)
        patch.setattr(builder, "create_masked_load", lambda self, pointers, mask,
                      *rest: load(self, pointers, checked(pointers, mask, "load"), *rest))
        patch.setattr(builder, "create_masked_store", lambda self, pointers, value, mask,
        *rest: store(self, pointers, value, checked(pointers, mask, "store"), *rest))
        for name in (name for name in vars(builder) if "atomic" in name or "descriptor" in name):
            patch.setattr(builder, name,
                          lambda *_: pytest.fail("an operation on memory that is not watched"))
        yield watch


def masked_accesses(kernel) -> int:
    """Return how many loads and stores of a kernel have a mask."""
    return len(_masked(_tree(kernel)))


@contextmanager
def unmasked(kernel, number: int) -> Iterator[None]:
    """Plant a mutant: one load or store of a kernel without its mask."""
    tree = _tree(kernel)
    call = _masked(tree)[number]
    call.keywords = [one for one in call.keywords if one.arg not in ("mask", "other")]
    tree = ast.fix_missing_locations(kernel.rewriter.ast_transformer.visit(tree))
    kernel.rewrite()  # lets the interpreter add its own names to the kernel's module
    names: dict = {}
    exec(compile(tree, f"<{kernel.fn.__name__} without mask {number}>", "exec"),
         kernel.fn.__globals__, names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(interpreter.InterpretedFunction.rewritten_fn, kernel.fn,
                      names[kernel.fn.__name__])
        yield


def _tree(kernel) -> ast.Module:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn)))
    tree.body[0].decorator_list = []
    return tree


def _masked(tree: ast.Module) -> list[ast.Call]:
    """Return the calls of tl.load and tl.store that have a mask, in the order of the source."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)
             and isinstance(node.func, ast.Attribute) and node.func.attr in ("load", "store")
             and any(one.arg == "mask" for one in node.keywords)]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))
