"""Torch's functions on symbolic tensors.

Inside of `symbolic_torch` the calls `torch.arange(length)`, `torch.stack(...)`, ... return a `Grid` if anything in
them is symbolic, and are torch's own otherwise. Those that are not here raise NotImplementedError.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch.overrides import TorchFunctionMode

from cca_lab.theory.forall.grid import Grid, elementwise, lifted
from cca_lab.theory.forall.quantify import count
from cca_lab.theory.forall.terms import Symbol, Truth, least, most, number, truth, where

SYMBOLIC: dict[str, Callable[..., Any]] = {}  # by the name of the torch function


def symbolic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register the symbolic form of the torch function of the same name."""
    SYMBOLIC[function.__name__] = function
    return function


def _either(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Return one of two entries, truths or numbers; only the right one is computed where it is known which."""
    if isinstance(condition, bool):
        return (yes if condition else no)()
    return _entry(condition, yes(), no())


def _entry(condition: Truth, yes: Any, no: Any) -> Any:
    truths = isinstance(yes, Truth) and isinstance(no, bool | int | Truth)
    if not truths:
        return where(condition, yes, no)
    return (condition & yes) | (~condition & truth(no if isinstance(no, Truth) else bool(no)))


@symbolic
def arange(start: Any, end: Any = None, step: Any = 1, **_: Any) -> Grid:
    """torch.arange, empty for a step backwards; torch raises there, and so must a proof that it does not occur."""
    start, end = (0, start) if end is None else (start, end)
    if end < start:
        raise ValueError("arange: the end is before the start")
    length = end - start if isinstance(step, int) and step == 1 else -((start - end) // step)
    return Grid((length,), lambda k: start + k * step)


@symbolic
def stack(grids: Sequence[Any], dim: int = 0) -> Grid:
    """torch.stack."""
    parts = [elementwise(lambda x, *_: x, grid, *grids) for grid in grids]
    dim %= parts[0].dim() + 1

    def entry(*index: Any) -> Any:
        position, others = index[dim], (*index[:dim], *index[dim + 1 :])
        if isinstance(position, int):
            return parts[position].at(*others)
        value = parts[-1].at(*others)
        for k, part in reversed(list(enumerate(parts[:-1]))):
            value = _entry(position == k, part.at(*others), value)
        return value

    return Grid((*parts[0].shape[:dim], len(parts), *parts[0].shape[dim:]), entry)


@symbolic
def cat(grids: Sequence[Any], dim: int = 0) -> Grid:
    """torch.cat."""
    first, *others = map(lifted, grids)
    dim %= first.dim()
    for other in others:
        first = _joined(first, other, dim)
    return first


def _joined(a: Grid, b: Grid, dim: int) -> Grid:
    length = a.shape[dim]

    def entry(*index: Any) -> Any:
        k = index[dim]
        return _either(k < length, lambda: a.at(*index), lambda: b.at(*index[:dim], k - length, *index[dim + 1 :]))

    return Grid((*a.shape[:dim], length + b.shape[dim], *a.shape[dim + 1 :]), entry)


@symbolic
def pad(grid: Grid, amounts: Sequence[Any], **_: Any) -> Grid:
    """torch.nn.functional.pad with zeros."""
    before = [*reversed(amounts[::2])]
    after = [*reversed(amounts[1::2])]
    kept = grid.dim() - len(before)
    shape = [*grid.shape[:kept], *(a + n + b for a, n, b in zip(before, grid.shape[kept:], after, strict=True))]

    def entry(*index: Any) -> Any:
        inner = [i - a for i, a in zip(index[kept:], before, strict=True)]
        value = partial(grid.at, *index[:kept], *inner)
        for i, n in zip(inner, grid.shape[kept:], strict=True):
            value = partial(_either, (i >= 0) & (i < n), value, lambda: 0)
        return value()

    return Grid(shape, entry)


@symbolic
def tensor(values: Sequence[Any], **_: Any) -> Grid:
    """torch.tensor of a flat list; a list of one grid with an axis stands for a list of symbolic length."""
    if len(values) == 1 and isinstance(values[0], Grid) and values[0].dim() == 1:
        return values[0]
    return stack([lifted(value) for value in values])


@symbolic
def zeros_like(grid: Grid, **_: Any) -> Grid:
    """torch.zeros_like."""
    return Grid(grid.shape, lambda *_: 0)


@symbolic
def full_like(grid: Grid, value: Any, **_: Any) -> Grid:
    """torch.full_like."""
    return Grid(grid.shape, lambda *_: value)


@symbolic
def div(grid: Any, other: Any, *, rounding_mode: str) -> Grid:
    """torch.div, rounding down."""
    return lifted(grid).div(other, rounding_mode=rounding_mode)


@symbolic
def maximum(x: Any, y: Any) -> Grid:
    """torch.maximum."""
    return elementwise(most, x, y)


@symbolic
def minimum(x: Any, y: Any) -> Grid:
    """torch.minimum."""
    return elementwise(least, x, y)


@symbolic
def searchsorted(ordered: Grid, values: Any, *, right: bool = False, **_: Any) -> Grid:
    """torch.searchsorted along the last axis of ascending entries."""
    def before(x: Any, value: Any) -> Truth:
        return number(x) <= value if right else number(x) < value

    below = Grid((*values.shape, ordered.shape[-1]),
                 lambda *index: before(ordered.at(*index[:-2], index[-1]), values.at(*index[:-1])))
    return count(below, -1)


class symbolic_torch(TorchFunctionMode):
    """A context in which torch's functions take and return symbolic tensors."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not any(map(_is_symbolic, [*args, *kwargs.values()])):
            return func(*args, **kwargs)
        name = func.__name__.removeprefix("_")
        if name not in SYMBOLIC:
            raise NotImplementedError(f"torch.{name}: has no symbolic form; add one to calls.py")
        return SYMBOLIC[name](*args, **kwargs)


def _is_symbolic(x: Any) -> bool:
    return any(map(_is_symbolic, x)) if isinstance(x, list | tuple) else isinstance(x, Grid | Symbol | Truth)
