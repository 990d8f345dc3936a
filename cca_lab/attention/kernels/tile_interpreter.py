"""Kernels of the tile language, run program after program with `tile_language`.

Where Triton is not installed this module stands in for it: `jit`, `cdiv`, `next_power_of_2`. Where
it is, `instead_of_triton` runs the same kernels here, to trace them or to compare.
"""

import inspect
import itertools
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CellType, FunctionType, ModuleType
from typing import Any

from torch import Tensor

from cca_lab.attention.kernels import tile_language
from cca_lab.attention.kernels.tile_language import Argument, Machine, Pointer, tile_of

COMPILER_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
OURS = "__tile_kernel__"  # a global name of every function that runs here, and of no other
KERNELS = ("Kernel", "InterpretedFunction", "JITFunction")  # the classes with the function as fn


class Kernel:
    """A kernel: `kernel[grid](arguments)` starts its programs."""

    def __init__(self, fn: FunctionType) -> None:
        self.fn, self.__name__, self.__doc__ = fn, fn.__name__, fn.__doc__
        self.__module__, self.__wrapped__ = fn.__module__, fn

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            run(self.fn, grid, args, kwargs)

        return launch

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Refuse the call: programs are started with a grid."""
        raise RuntimeError(f"{self.__name__} was called like a function, wanted "
                           f"{self.__name__}[grid](...): the grid says how many programs start")


def jit(fn: FunctionType | None = None, **options: Any) -> Any:
    """Make a function a kernel, or a part of kernels; options for the compiler change nothing."""
    return Kernel if fn is None else Kernel(fn)


def cdiv(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is not below n."""
    return 1 << max(n - 1, 0).bit_length()


def run(fn: FunctionType, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Run the programs of a launch one after the other.

    Args:
        fn: the kernel, with tensors as pointers; arguments of `tl.constexpr` stay plain numbers.
        grid: programs along one to three axes, or a function of the arguments that returns them.
        args, kwargs: as in Triton; the compiler's options are left out.

    Raises:
        IndexError: a lane that is not masked points outside of its argument.
    """
    signature = inspect.signature(fn)
    bound = signature.bind(*args, **{name: value for name, value in kwargs.items()
                                     if name in signature.parameters
                                     or name not in COMPILER_OPTIONS})
    bound.apply_defaults()
    arguments = {name: _argument(name, value, signature.parameters[name].annotation)
                 for name, value in bound.arguments.items()}
    sizes = grid(bound.arguments) if callable(grid) else grid
    sizes = (*(int(size) for size in sizes), 1, 1)[:3]
    body = _translated(fn, {})
    if Machine.watcher is not None:
        Machine.watcher.launch(bound.arguments, sizes)
    kept = Machine.program, Machine.grid
    try:
        Machine.grid = sizes
        for z, y, x in itertools.product(*map(range, reversed(sizes))):
            Machine.program = (x, y, z)
            body(**arguments)
    finally:
        Machine.program, Machine.grid = kept


def _argument(name: str, value: Any, annotation: Any) -> Any:
    if "constexpr" in str(annotation) or value is None:
        return value
    if isinstance(value, Tensor):
        if value.device.type != "cpu":
            raise ValueError(f"{name}: got a tensor on {value.device}, wanted one on the CPU")
        return Pointer(Argument.of(name, value), tile_of(0).data.long())
    return tile_of(value)


def _translated(fn: FunctionType, done: dict[FunctionType, FunctionType]) -> FunctionType:
    """Return a kernel's function with `tl` and the kernels that it calls exchanged for ours."""
    if fn not in done:
        names: dict[str, Any] = {"__builtins__": fn.__globals__["__builtins__"],
                                 "__name__": fn.__module__, OURS: True,
                                 "range": tile_language.range, "min": tile_language.minimum,
                                 "max": tile_language.maximum}
        cells = tuple(CellType() for _ in fn.__closure__ or ())
        # known before its parts are translated: kernels may call each other in a circle
        done[fn] = FunctionType(fn.__code__, names, fn.__name__, fn.__defaults__, cells)
        done[fn].__kwdefaults__ = fn.__kwdefaults__
        names |= {name: _ours(fn.__globals__[name], done) for name in fn.__code__.co_names
                  if name in fn.__globals__}
        for new, cell in zip(cells, fn.__closure__ or (), strict=True):
            new.cell_contents = _ours(cell.cell_contents, done)
    return done[fn]


def _ours(value: Any, done: dict[FunctionType, FunctionType]) -> Any:
    if isinstance(value, ModuleType):
        return {"triton.language": tile_language,
                "triton": sys.modules[__name__]}.get(value.__name__, value)
    kind = type(value).__name__
    if kind in KERNELS:
        return _translated(value.fn, done)
    return value.value if kind == "constexpr" else value


@contextmanager
def instead_of_triton() -> Iterator[None]:
    """Run the kernels that Triton would interpret here instead; without Triton, they do so anyway.

    Kernels have to be defined under TRITON_INTERPRET=1: compiled ones are not concerned.
    """
    interpreter = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None:
        yield
        return
    kept = interpreter.InterpretedFunction.run
    interpreter.InterpretedFunction.run = (
        lambda self, *args, grid, warmup=False, **kwargs: run(self.fn, grid, args, kwargs))
    try:
        yield
    finally:
        interpreter.InterpretedFunction.run = kept


def line_of_kernel() -> str:
    """Return the source of the line that a kernel is at: the innermost, of it or its parts."""
    frame = sys._getframe(1)
    while frame is not None and OURS not in frame.f_globals:
        frame = frame.f_back  # type: ignore[assignment]  # None at the end of the stack
    if frame is None:
        return "(a line that is not known)"
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
