"""The part of Triton's tile language that the lab's kernels use, on PyTorch's CPU tensors.

It stands in for `triton.language` where Triton does not exist (macOS, Windows), and it runs a
kernel to trace it. A tile holds the numbers of one program; a pointer holds, for each lane of a
tile, which element of an argument it means. Types, rounding and division of integers follow
Triton; an access outside of its argument is an error here and not whatever lies in memory.
"""

import builtins
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor

float16, bfloat16, float32, float64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
int1, int8, int32, int64 = torch.bool, torch.int8, torch.int32, torch.int64

Number = bool | int | float
MEMBERS = ("sum", "max", "min", "trans")  # functions that are methods of a tile too


class constexpr:
    """Marks an argument whose value is known when the kernel is compiled: a plain number."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Tile:
    """The numbers of one program: a tensor with no or with some dimensions, powers of two."""

    __hash__ = None  # type: ignore[assignment]  # == compares element by element

    def __init__(self, data: Tensor) -> None:
        self.data = data

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers."""
        return self.data.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """How many numbers along each axis."""
        return tuple(self.data.shape)

    @property
    def T(self) -> "Tile":
        """The tile (M, N) as (N, M)."""
        return trans(self)

    def to(self, dtype: torch.dtype) -> "Tile":
        """Return the numbers, rounded to another type."""
        return Tile(self.data.to(dtype))

    def __getitem__(self, index: Any) -> "Tile":
        return Tile(_indexed(self.data, index))

    def __getattr__(self, name: str) -> Any:
        if name in MEMBERS:
            return partial(globals()[name], self)
        raise AttributeError(f"a tile has no {name!r}; it has dtype, shape, T, to, "
                             f"{', '.join(MEMBERS)}, and what stands in tl")

    def __bool__(self) -> bool:
        return bool(self._only("a condition"))

    def __index__(self) -> int:
        return int(self._only("an index"))

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._only("a number"))

    def _only(self, use: str) -> Any:
        if self.data.dim():
            raise ValueError(f"{use} is one number, got a tile of shape {self.shape}")
        return self.data.item()

    def __neg__(self) -> "Tile":
        return Tile(-self.data)

    def __invert__(self) -> "Tile":
        return Tile(~self.data)

    def __truediv__(self, other: Any) -> Any:
        return _apply(torch.true_divide, self, other, division=True)

    def __rtruediv__(self, other: Any) -> Any:
        return _apply(torch.true_divide, other, self, division=True)


def _operators() -> None:
    """Give tiles their operators, from the left and from the right."""
    # integers are divided as on a GPU: towards zero, and the remainder has the dividend's sign
    quotient = partial(torch.div, rounding_mode="trunc")
    both: dict[str, Callable[..., Tensor]] = {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": quotient,
        "mod": torch.fmod, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
        "lshift": operator.lshift, "rshift": operator.rshift}
    for name, function in both.items():
        setattr(Tile, f"__{name}__",
                lambda self, other, function=function: _apply(function, self, other))
        setattr(Tile, f"__r{name}__",
                lambda self, other, function=function: _apply(function, other, self))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        function = getattr(operator, name)
        setattr(Tile, f"__{name}__",
                lambda self, other, function=function: _apply(function, self, other))


def _apply(function: Callable[..., Tensor], a: Any, b: Any, *, division: bool = False) -> Any:
    if not (isinstance(a, Tile | Number) and isinstance(b, Tile | Number)):
        return NotImplemented
    return Tile(function(*_converted(a, b, division=division)))


def _converted(a: Tile | Number, b: Tile | Number, *, division: bool = False) -> list[Tensor]:
    """Return both operands in the type of their result: a plain number takes the tile's."""
    types = [x.dtype for x in (a, b) if isinstance(x, Tile)]
    common = torch.promote_types(types[0], types[-1]) if types else _type_of(a)
    for x in (a, b):
        if not isinstance(x, Tile) and not _holds(common, x):
            common = _type_of(x)
    if division and common not in (float32, float64):
        common = float32
    return [x.data.to(common) if isinstance(x, Tile) else torch.tensor(x, dtype=common)
            for x in (a, b)]


def _holds(dtype: torch.dtype, number: Number) -> bool:
    """Return whether a plain number can take a tile's type: not a fraction that of integers."""
    kind = 0 if isinstance(number, bool) else 2 if isinstance(number, float) else 1
    return kind <= (0 if dtype == torch.bool else 2 if dtype.is_floating_point else 1)


def _type_of(number: Any) -> torch.dtype:
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, int):
        return int32 if -2**31 <= number < 2**31 else int64
    return float32


def tile_of(x: Any) -> Tile:
    """Return a tile, or a plain number as a tile of no dimension, in the type Triton gives it."""
    return x if isinstance(x, Tile) else Tile(torch.tensor(x, dtype=_type_of(x)))


def _indexed(x: Tensor, index: Any) -> Tensor:
    """Return `x[:, None]` and the like: new axes only, as nothing else exists in a tile."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(part is not None and part != slice(None) for part in parts):
        raise TypeError(f"a tile was indexed with {index!r}; wanted None and : only, which add "
                        "axes: single elements cannot be taken out of a tile")
    return x[parts]


@dataclass(frozen=True)
class Argument:
    """A tensor argument of a kernel as its elements lie in memory, counted from its first."""

    name: str
    memory: Tensor  # (elements between its first and its last)

    @classmethod
    def of(cls, name: str, x: Tensor) -> "Argument":
        """Return the memory of a tensor; what lies between its rows belongs to it."""
        reach = 1 + builtins.sum((n - 1) * step for n, step in zip(x.shape, x.stride(),
                                                                   strict=True))
        return cls(name, x.detach().as_strided((reach if x.numel() else 0,), (1,)))


class Pointer:
    """For each lane, which element of an argument it means."""

    def __init__(self, argument: Argument, offset: Tensor) -> None:
        self.argument, self.offset = argument, offset

    @property
    def dtype(self) -> SimpleNamespace:
        """The type of what it points to, as Triton spells it: dtype.element_ty."""
        return SimpleNamespace(element_ty=self.argument.memory.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many lanes along each axis."""
        return tuple(self.offset.shape)

    def __add__(self, steps: Any) -> "Pointer":
        return Pointer(self.argument, self.offset + self._whole(steps))

    __radd__ = __add__

    def __sub__(self, steps: Any) -> "Pointer":
        return Pointer(self.argument, self.offset - self._whole(steps))

    def __getitem__(self, index: Any) -> "Pointer":
        return Pointer(self.argument, _indexed(self.offset, index))

    def _whole(self, steps: Any) -> Tensor:
        data = tile_of(steps).data
        if data.is_floating_point():
            raise TypeError(f"{self.argument.name}: got a pointer plus {data.dtype}, wanted a "
                            "whole number of elements")
        return data.long()


class Watcher(Protocol):
    """Who is told of the launches, loads and stores."""

    def launch(self, arguments: Mapping[str, Any], grid: tuple[int, ...]) -> None:
        """Note that programs start."""

    def access(self, kind: str, argument: Argument, offset: Tensor, lanes: Tensor,
               outside: Tensor) -> bool:
        """Note a load or store; return whether lanes outside are left out instead of an error."""


class Machine:
    """The program that is running, and who watches it."""

    program: tuple[int, ...] = (0, 0, 0)
    grid: tuple[int, ...] = (1, 1, 1)
    watcher: Watcher | None = None


def program_id(axis: int) -> Tile:
    """Return the number of the running program along an axis of the grid."""
    return tile_of(Machine.program[axis])


def num_programs(axis: int) -> Tile:
    """Return the number of programs along an axis of the grid."""
    return tile_of(Machine.grid[axis])


def arange(start: int, end: int) -> Tile:
    """Return start, ..., end - 1; how many must be a power of two."""
    if not (isinstance(start, int) and isinstance(end, int)):
        raise ValueError("tl.arange: a size must be fixed when the kernel is compiled: take an "
                         "argument that is marked tl.constexpr")
    _shape([end - start])
    return Tile(torch.arange(start, end, dtype=int32))


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tile:
    """Return a tile of zeros."""
    return Tile(torch.zeros(_shape(shape), dtype=dtype))


def full(shape: Sequence[int], value: Any, dtype: torch.dtype) -> Tile:
    """Return a tile of one value."""
    return Tile(tile_of(value).data.to(dtype).expand(_shape(shape)).clone())


def zeros_like(x: Tile) -> Tile:
    """Return zeros in the shape and type of a tile."""
    return Tile(torch.zeros_like(x.data))


def _shape(shape: Sequence[int]) -> list[int]:
    sizes = [int(size) for size in shape]
    if any(size < 1 or size & (size - 1) for size in sizes):
        raise ValueError(f"a tile's shape was {sizes}, wanted powers of two: take the next larger "
                         "one and mask what is too much")
    return sizes


def load(pointer: Pointer, mask: Any = None, other: Any = None, **hints: Any) -> Tile:
    """Return what the lanes point to; where the mask is False, `other` (0 if it is not given)."""
    offset, lanes = _lanes("load", pointer, mask)
    values = torch.full(offset.shape, 0, dtype=pointer.argument.memory.dtype)
    if other is not None:
        values.copy_(tile_of(other).data)
    values[lanes] = pointer.argument.memory[offset[lanes]]
    return Tile(values)


def store(pointer: Pointer, value: Any, mask: Any = None, **hints: Any) -> None:
    """Write a value where the lanes point to and the mask is True."""
    offset, lanes = _lanes("store", pointer, mask)
    memory = pointer.argument.memory
    memory[offset[lanes]] = tile_of(value).data.to(memory.dtype).expand(offset.shape)[lanes]


def _lanes(kind: str, pointer: Any, mask: Any) -> tuple[Tensor, Tensor]:
    """Return the offsets of an access and which lanes take part, after a look at the bounds."""
    if not isinstance(pointer, Pointer):
        raise TypeError(f"tl.{kind}: got {type(pointer).__name__}, wanted a pointer: an argument "
                        "of the kernel plus the numbers of elements")
    lanes = torch.tensor(True) if mask is None else tile_of(mask).data.bool()
    offset, lanes = torch.broadcast_tensors(pointer.offset, lanes)
    outside = lanes & ((offset < 0) | (offset >= len(pointer.argument.memory)))
    allowed = Machine.watcher is not None and Machine.watcher.access(
        kind, pointer.argument, offset, lanes, outside)
    if bool(outside.any()) and not allowed:
        wrong = int(offset[outside][0])
        raise IndexError(
            f"program {Machine.program} {kind}s {int(outside.sum())} elements outside of "
            f"{pointer.argument.name}: element {wrong} of {len(pointer.argument.memory)}")
    return offset, lanes & ~outside


def where(condition: Any, a: Any, b: Any) -> Tile:
    """Return a where the condition is True, and else b."""
    first, second = _converted(a, b)
    return Tile(torch.where(tile_of(condition).data.bool(), first, second))


def maximum(a: Any, b: Any) -> Tile:
    """Return the larger of two; of a number and NaN, the number."""
    return Tile(torch.fmax(*_converted(a, b)))


def minimum(a: Any, b: Any) -> Tile:
    """Return the smaller of two; of a number and NaN, the number."""
    return Tile(torch.fmin(*_converted(a, b)))


def cdiv(a: Any, b: Any) -> Any:
    """Return a / b, rounded up."""
    return (a + b - 1) // b


def sum(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the sum along an axis, or of all."""
    data = x.data.to(int32) if x.dtype in (int1, int8) else x.data
    axes = tuple(builtins.range(data.dim())) if axis is None else (axis,)
    return Tile(data.sum(axes, keepdim=keep_dims, dtype=data.dtype))


def max(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the largest along an axis, or of all."""
    return _extreme(torch.amax, x, axis, keep_dims)


def min(x: Tile, axis: int | None = None, keep_dims: bool = False) -> Tile:
    """Return the smallest along an axis, or of all."""
    return _extreme(torch.amin, x, axis, keep_dims)


def _extreme(function: Callable[..., Tensor], x: Tile, axis: int | None, keep_dims: bool) -> Tile:
    data = x.data.float() if x.dtype == bfloat16 else x.data
    axes = tuple(builtins.range(data.dim())) if axis is None else (axis,)
    return Tile(function(data, axes, keepdim=keep_dims))


def dot(a: Tile, b: Tile, acc: Tile | None = None, **hints: Any) -> Tile:
    """Return the matrix product of two tiles (+ acc), added up in float32."""
    if a.dtype != b.dtype or a.data.dim() != 2 or b.data.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"tl.dot: got {a.shape} {a.dtype} and {b.shape} {b.dtype}, wanted (M, K) "
                         "and (K, N) of one type")
    product = a.data.float() @ b.data.float()
    return Tile(product if acc is None else product + acc.data)


def trans(x: Tile) -> Tile:
    """Return a tile (M, N) as (N, M)."""
    return Tile(x.data.mT)


def _of_one(name: str, function: Callable[[Tensor], Tensor]) -> Callable[[Any], Tile]:
    def apply(x: Any) -> Tile:
        return Tile(function(tile_of(x).data))

    apply.__name__, apply.__doc__ = name, f"Return {name} of each element."
    return apply


exp, exp2, log, log2 = (_of_one(name, getattr(torch, name))
                        for name in ("exp", "exp2", "log", "log2"))
sqrt, rsqrt, sigmoid, abs = (_of_one(name, getattr(torch, name))
                             for name in ("sqrt", "rsqrt", "sigmoid", "abs"))


def range(start: Any, end: Any = None, step: Any = 1, **hints: Any) -> Iterator[Tile]:
    """Count as Python's range does, with tiles of no dimension; hints for the compiler are free."""
    bounds = (0, start) if end is None else (start, end)
    first, last = map(operator.index, bounds)
    return map(tile_of, builtins.range(first, last, operator.index(step)))


def static_range(start: int, end: int | None = None, step: int = 1) -> Iterator[int]:
    """Count with plain numbers: the compiler writes the loop out, once for each."""
    return iter(builtins.range(start, end, step) if end is not None else builtins.range(start))


def __getattr__(name: str) -> Any:
    known = sorted(key for key, value in globals().items()
                   if not key.startswith("_") and (callable(value) or isinstance(value,
                                                                                 torch.dtype))
                   and getattr(value, "__module__", __name__) in (__name__, "torch"))
    raise AttributeError(f"tl.{name} is not in the lab's tile language; it has {', '.join(known)}")


_operators()
