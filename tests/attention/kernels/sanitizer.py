"""A sanitizer for kernels: every lane of every access must mean an element of its argument.

The lab's interpreter refuses all others. Here are counted those that it let pass, and masks are
taken out, one at a time, which it has to notice.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from cca_lab.attention.kernels.tile_interpreter import instead_of_triton
from cca_lab.attention.kernels.tile_language import Machine


@dataclass
class Counter:
    """How many lanes took part in loads and stores."""

    lanes: int = 0

    def launch(self, arguments, grid) -> None:
        """Count on."""

    def access(self, kind, argument, offset, lanes, outside) -> bool:
        """Count the lanes; those outside are errors."""
        self.lanes += int(lanes.sum())
        return False


@contextmanager
def watched() -> Iterator[Counter]:
    """Run kernels in the lab's interpreter: a lane outside raises IndexError."""
    counter = Counter()
    with pytest.MonkeyPatch.context() as patch, instead_of_triton():
        patch.setattr(Machine, "watcher", counter)
        yield counter


def masked_accesses(kernel) -> int:
    """Return how many loads and stores of a kernel have a mask."""
    return len(_masked(_tree(kernel)))


@contextmanager
def unmasked(kernel, number: int) -> Iterator[None]:
    """Plant a mutant: one load or store of a kernel without its mask."""
    tree = _tree(kernel)
    call = _masked(tree)[number]
    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in ("mask", "other")]
    names: dict = {}
    exec(compile(ast.fix_missing_locations(tree),
                 f"<{kernel.fn.__name__} without mask {number}>", "exec"),
         kernel.fn.__globals__, names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "fn", names[kernel.fn.__name__])
        yield


def _tree(kernel) -> ast.Module:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn)))
    tree.body[0].decorator_list = []
    return tree


def _masked(tree: ast.Module) -> list[ast.Call]:
    """Return the calls of tl.load and tl.store that have a mask, in the order of the source."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)
             and isinstance(node.func, ast.Attribute) and node.func.attr in ("load", "store")
             and any(keyword.arg == "mask" for keyword in node.keywords)]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))
