"""One tile of attention, forward and backward: all the attention arithmetic of the blocked backend.

A tile is softmax attention over a rectangle of rows and columns. Its forward also returns the
log-sum-exp; its backward receives the log-sum-exp and the output of the *whole* row, so that the
gradients of all tiles of a row add up to the exact gradient:

    p = exp(s - lse_row),  ds = p * (do . v - do . out_row) * scale.

Two implementations: PyTorch's CPU flash operator, and plain matrix products for every other device.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

_ops = torch.ops.aten
_SCORES_AT_ONCE = 1 << 24  # elements of the score matrix that `MatmulTile` holds at a time


class Gradients(NamedTuple):
    """Gradients of one tile with respect to its queries, keys and values."""

    q: Tensor
    k: Tensor
    v: Tensor


class Tile(Protocol):
    """q, out, grad (A, U, R, D); k, v (A, U, C, D); lse (A, U, R); mask (R, C), 0 or -inf."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool,
                scale: float) -> tuple[Tensor, Tensor]:
        """Return out and lse of the tile."""

    def backward(self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                 mask: Tensor | None, causal: bool, scale: float) -> Gradients:
        """Return the tile's terms of the gradients, given out and lse of whole rows."""


class FlashTile:
    """PyTorch's CPU flash operator; it reads overlapping and stride-0 views without a copy.

    Its rules, which it does not check (a violation crashes or gives wrong results): the mask has
    q's dtype; there is at least one column; the features of a vector lie side by side, which is
    seen to here; `causal` is aligned at the top left; a fully masked row returns lse = 0.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool,
                scale: float) -> tuple[Tensor, Tensor]:
        """Return out and lse of the tile."""
        q, k, v = map(side_by_side, (q, k, v))
        # a quarter of the call's time less than through torch.ops
        return torch._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=mask, scale=scale)

    def backward(self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                 mask: Tensor | None, causal: bool, scale: float) -> Gradients:
        """Return the tile's terms of the gradients, given out and lse of whole rows."""
        grad, q, k, v, out = map(side_by_side, (grad, q, k, v, out))
        return Gradients(*_ops._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, causal, attn_mask=mask, scale=scale))


def side_by_side(x: Tensor) -> Tensor:
    """Return x, or a copy where the features of a vector do not lie side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


class MatmulTile:
    """Products over chunks of rows, in linear memory, for any device and floating dtype."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool,
                scale: float) -> tuple[Tensor, Tensor]:
        """Return out and lse of the tile."""
        out = torch.empty_like(q)
        lse = q.new_empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))
        for rows, scores in self._scores(q, k, mask, causal, scale):
            chunk_lse = scores.logsumexp(dim=-1)
            weights = (scores - chunk_lse.nan_to_num(neginf=0.0).unsqueeze(-1)).exp()
            out[:, :, rows] = weights.to(v.dtype) @ v
            lse[:, :, rows] = chunk_lse
        return out, lse

    def backward(self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                 mask: Tensor | None, causal: bool, scale: float) -> Gradients:
        """Return the tile's terms of the gradients, given out and lse of whole rows."""
        dtype = lse.dtype
        grads = Gradients(*(torch.zeros(x.shape, dtype=dtype, device=x.device) for x in (q, k, v)))
        delta = (grad.to(dtype) * out.to(dtype)).sum(dim=-1, keepdim=True)
        for rows, scores in self._scores(q, k, mask, causal, scale):
            weights = (scores - lse[:, :, rows].unsqueeze(-1)).exp()
            grad_rows = grad[:, :, rows].to(dtype)
            grad_scores = weights * (grad_rows @ v.to(dtype).mT - delta[:, :, rows]) * scale
            grads.q[:, :, rows] = grad_scores @ k.to(dtype)
            grads.k.add_(grad_scores.mT @ q[:, :, rows].to(dtype))
            grads.v.add_(weights.mT @ grad_rows)
        return grads

    @staticmethod
    def _scores(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool,
                scale: float) -> Iterator[tuple[slice, Tensor]]:
        """Yield the masked logits of successive chunks of rows, in at least float32."""
        dtype = torch.promote_types(q.dtype, torch.float32)
        column = torch.arange(k.shape[2], device=q.device)
        step = max(1, _SCORES_AT_ONCE // (q.shape[0] * q.shape[1] * k.shape[2]))
        for row in range(0, q.shape[2], step):
            rows = slice(row, min(row + step, q.shape[2]))
            scores = q[:, :, rows].to(dtype) @ k.to(dtype).mT * scale
            if mask is not None:
                scores = scores + mask[rows]
            if causal:
                hidden = column > torch.arange(rows.start, rows.stop, device=q.device)[:, None]
                scores = scores.masked_fill(hidden, float("-inf"))
            yield rows, scores


def tile_for(device: torch.device, dtype: torch.dtype, scale: float) -> Tile:
    """Return the fastest tile that is correct for this device, dtype and scale."""
    # The flash operator multiplies the -inf of its causal mask by the scale: NaN for scale 0, +inf
    # for scale < 0.
    flash = _HAS_FLASH and scale > 0 and dtype in _FLASH_DTYPES and device.type == "cpu"
    return _FLASH if flash else _MATMUL


_FLASH, _MATMUL = FlashTile(), MatmulTile()
_FLASH_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_HAS_FLASH = hasattr(torch, "_scaled_dot_product_flash_attention_for_cpu")
