"""Columns from one or two tensors: pooled ones first, then raw tokens, each where they lie.

A method for long contexts must not copy the context: with CCA, cores take 1/g of the memory of keys
and values, a copy of both behind the cores takes all of it again.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from cca_lab.attention.arguments import check_qkv
from cca_lab.attention.intervals import TensorCache

Source = Tensor | Sequence[Tensor]  # (B, Hk, N, D), or two of them, whose columns follow each other
MOST = 2

_SPLIT = TensorCache()


def tensors_of(source: Source) -> tuple[Tensor, ...]:
    """Return the tensors of a source, one or two."""
    return (source,) if isinstance(source, Tensor) else tuple(source)


def check_sources(q: Tensor, k: Source, v: Source) -> None:
    """Raise ValueError unless q, keys and values fit, as `check_qkv`."""
    keys, values = (tuple(x) if isinstance(x, tuple | list) else (x,) for x in (k, v))
    if len(keys) != len(values) or not 1 <= len(keys) <= MOST:
        raise ValueError(f"k, v: got {len(keys)} and {len(values)} tensors, wanted one each, or "
                         f"{MOST} each")
    for pair in zip(keys, values, strict=True):
        check_qkv(q, *pair, same_length=False)
    heads = [x.shape[1] for x in keys]
    if len(set(heads)) > 1:
        raise ValueError(f"k: got tensors of {heads[0]} and {heads[1]} KV heads, wanted as many; "
                         "repeat those of the tensor that has fewer")


def whole(source: Source) -> Tensor:
    """Return a source as one tensor, a copy if it has two."""
    tensors = tensors_of(source)
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=2)


def halves(columns: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Return the keys and the values of all tensors, which autograd takes one after the other."""
    return columns[: len(columns) // 2], columns[len(columns) // 2 :]


def split_intervals(intervals: Tensor, columns: Sequence[int]) -> tuple[Tensor, ...]:
    """Return what rows see of each tensor: intervals (b, h, L, n, 2) in its own columns.

    Args:
        intervals: int64 (b, h, L, n, 2) over the columns of all tensors.
        columns: number of columns of each tensor.

    Returns:
        A tensor for each: the intervals that some row sees there, at least one, none of which moves
        back; a row may see nothing of one tensor.
    """
    if len(columns) == 1:
        return (intervals,)
    return _SPLIT.get(intervals, tuple(columns), lambda: tuple(
        _within(intervals, end - count, count)
        for end, count in zip(accumulate(columns), columns, strict=True)))


def _within(intervals: Tensor, first: int, count: int) -> Tensor:
    """Return the intervals (b, h, L, n, 2) within `count` columns from `first` on."""
    inside = (intervals - first).clamp(0, count)
    seen = (inside[..., 1] > inside[..., 0]).flatten(0, 2).any(dim=0)  # (n,)
    seen[0] |= not seen.any()
    return inside[:, :, :, seen]
