"""CCA's mask for PyTorch's FlexAttention: the same intervals, as a block mask.

The intervals' ends alone tell which blocks are seen; `create_block_mask` evaluates every pair.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BLOCK = 128


def cca_mask(group: int, window: int,
             cores: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return FlexAttention's mask_mod of CCA over `cores` core columns, then raw tokens."""
    def visible(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        seen = (row + 1 - window).clamp(min=0) // group  # n(i)
        token = column - cores
        return ((column < cores) & (column < seen)) | (
            (token >= group * seen) & (token <= row) & (column >= cores))

    return visible


def blocks_seen(intervals: Tensor, columns: int, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """Return which blocks of columns each block of rows sees, in part and as a whole.

    The ends of intervals (1, 1, L, n, 2) never decrease from row to row; the two bool tensors are
    (row blocks, column blocks): blocks that need the mask, and blocks that need none.
    """
    rows = intervals[0, 0].cpu()
    first = torch.arange(0, len(rows), block)
    last = (first + block - 1).clamp_max(len(rows) - 1)
    low, high = rows[first, :, 0], rows[last, :, 1]  # for the union of the rows, (row blocks, n)
    every_low, every_high = rows[last, :, 0], rows[first, :, 1]  # for what all rows see
    start = torch.arange(0, columns, block)
    end = (start + block).clamp_max(columns)
    some = ((low[..., None] < end) & (high[..., None] > start)).any(dim=1)
    whole = ((every_low[..., None] <= start) & (every_high[..., None] >= start + block)).any(dim=1)
    return some & ~whole, whole


def block_mask(intervals: Tensor, columns: int, group: int, window: int,
               device: torch.device) -> Any:
    """Return the BlockMask of CCA's intervals."""
    from torch.nn.attention.flex_attention import BlockMask

    length = intervals.shape[2]
    lists: list[Any] = []
    for seen in blocks_seen(intervals, columns):
        order = seen.int().argsort(dim=1, descending=True, stable=True)  # those seen come first
        lists += [seen.sum(dim=1)[None, None].int().to(device), order[None, None].int().to(device)]
    facts: dict[str, Any] = {"BLOCK_SIZE": BLOCK, "seq_lengths": (length, columns),
                             "mask_mod": cca_mask(group, window, columns - length)}
    return BlockMask.from_kv_blocks(*lists, **facts)


def flex_call(intervals: Tensor, columns: int, group: int, window: int, device: torch.device,
              compiled: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return FlexAttention with CCA's mask as a call on q and the columns' k and v."""
    from torch.nn.attention.flex_attention import flex_attention

    torch.compiler.reset()  # the graphs of other lengths would count towards torch's limit
    attend = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention
    mask = block_mask(intervals, columns, group, window, device)
    return lambda q, k, v: attend(q, k, v, block_mask=mask)
