"""CCA's mask for PyTorch's FlexAttention: the same intervals, as a block mask."""

from collections.abc import Callable

import torch
from torch import Tensor

Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def cca_mask(group: int, window: int, cores: int) -> Mask:
    """Return FlexAttention's mask_mod of CCA over `cores` core columns, then raw tokens."""
    def visible(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        seen = (row + 1 - window).clamp(min=0) // group  # n(i)
        token = column - cores
        return ((column < cores) & (column < seen)) | (
            (token >= group * seen) & (token <= row) & (column >= cores))

    return visible


def flex_call(length: int, cores: int, group: int, window: int, device: torch.device,
              compiled: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return FlexAttention with CCA's mask as a call on q and the columns' k and v."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.compiler.reset()  # the graphs of other lengths would count towards torch's limit
    attend, make = flex_attention, create_block_mask
    if compiled:  # uncompiled, the mask of every pair would be in memory
        attend, make = (torch.compile(each, dynamic=False) for each in (attend, make))
    mask = make(cca_mask(group, window, cores), None, None, length, cores + length, device)
    return lambda q, k, v: attend(q, k, v, block_mask=mask)
