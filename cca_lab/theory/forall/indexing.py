"""Indexing a symbolic tensor: ints, symbols, slices, None, `...`, and a grid of indices along the first axis."""

from typing import Any

from cca_lab.theory.forall.grid import Grid
from cca_lab.theory.forall.terms import number

Axis = tuple[str, Any]


def indexed(grid: Grid, key: Any) -> Grid:
    """Return `grid[key]`, with the meaning that torch gives it.

    Raises:
        NotImplementedError: for a key of another kind.
        IndexError: on a path where an index is out of range.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(one, Grid) for one in keys):
        return _gathered(grid, keys)
    named = sum(one is not None and one is not Ellipsis for one in keys)
    if Ellipsis in keys:
        place = keys.index(Ellipsis)
        keys[place : place + 1] = [slice(None)] * (grid.dim() - named)
    else:
        keys += [slice(None)] * (grid.dim() - named)
    shape: list[Any] = []
    sources: list[Any] = []  # for each axis of the grid: ("fixed", index) or ("from", (axis of the result, start))
    lengths = iter(grid.shape)
    for one in keys:
        if one is None:
            shape.append(1)
            continue
        length = next(lengths)
        if isinstance(one, slice):
            start, stop = _bounds(one, length)
            sources.append((len(shape), start))
            shape.append(stop - start)
        else:
            sources.append((None, _position(one, length)))
    return Grid(shape, lambda *index: grid.entry(*(start if axis is None else _moved(index[axis], start)
                                                   for axis, start in sources)))


def _moved(index: Any, start: Any) -> Any:
    return index if isinstance(start, int) and start == 0 else index + start


def _gathered(grid: Grid, keys: list[Any]) -> Grid:
    """Return `grid[indices]` for one grid of indices along the first axis."""
    if len(keys) != 1 or not isinstance(keys[0], Grid):
        raise NotImplementedError("a grid of indices together with others; write one index at a time")
    index, axes = keys[0], keys[0].dim()
    return Grid((*index.shape, *grid.shape[1:]), lambda *i: grid.entry(index.at(*i[:axes]), *i[axes:]))


def _position(index: Any, length: Any) -> Any:
    """Return an index counted from 0."""
    if isinstance(index, int) and index < 0:
        index = length + index
    if not bool((number(0) <= index) & (number(index) < length)):
        raise IndexError(f"index {index} is out of range for an axis of {length}")
    return index


def _bounds(key: slice, length: Any) -> tuple[Any, Any]:
    """Return start and stop of a slice, cut to the axis as Python does."""
    if key.step is not None:
        raise NotImplementedError("a slice with a step")
    start = 0 if key.start is None else _cut(key.start, length)
    stop = length if key.stop is None else _cut(key.stop, length)
    return start, (stop if key.stop is None and key.start is None else start if bool(number(stop) < start) else stop)


def _cut(bound: Any, length: Any) -> Any:
    if isinstance(bound, int) and bound == 0:
        return 0
    if bool(number(bound) < 0):
        bound = length + bound
        return 0 if bool(number(bound) < 0) else bound
    return length if bool(number(bound) > length) else bound
