"""Attention of a decoded token: a single row over columns that lie in several pieces.

A cache keeps core tokens, sinks and raw tokens apart. One softmax goes over all of them, and no
piece is copied. `row_of_pieces` is the specification; the native op and the Triton kernel compute
the same without gradients.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from cca_lab.attention import native
from cca_lab.attention.dense import accumulation_dtype, product
from cca_lab.attention.fused import fused, needs_gradient, require_triton


def attend_row(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], *, scale: float,
               bias: Sequence[Tensor] = (), received: Tensor | None = None,
               backend: str = "auto") -> Tensor:
    """Compute softmax attention of one row to all columns of all pieces.

    Args:
        query: (B, H, 1, D).
        keys, values: pieces (B, Hp, n, D), of any strides; n may be 0, and Hp, a divisor of H, may
            differ by piece.
        scale: factor on the dot products.
        bias: for each piece what is added to the logits of its columns, (1 or B, n), such as the
            logarithm of a group's size; -inf hides a column. None of them without bias.
        received: (B, Hk, N), in at least float32, if all pieces have Hk heads: each column's
            weight, averaged over the query heads of a KV head, is added to it.
        backend: as in `interval_attention`. "native" is the C++ op and "triton" the kernel, which
            "auto" takes on their devices; every other one, and each call that needs a gradient or
            `received`, is computed as `row_of_pieces`.

    Returns:
        (B, H, 1, D) in the query's dtype.

    Raises:
        ValueError: for pieces that do not fit, or a backend that cannot run here.
    """
    if received is None and not needs_gradient(query, *keys, *values):
        if backend == "native" or (backend == "auto" and native.reads_rows(query)):
            return native.row(query, keys, values, scale, bias)
        if backend == "triton" or (backend == "auto" and fused(query)):
            require_triton()
            from cca_lab.attention.kernels.decode import triton_decode

            return triton_decode(query, keys, values, scale, bias=bias)[0]
    return row_of_pieces(query, keys, values, scale, bias, received)


def row_of_pieces(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], scale: float,
                  bias: Sequence[Tensor] = (), received: Tensor | None = None) -> Tensor:
    """Compute `attend_row` in plain PyTorch, differentiable: the specification."""
    dtype = accumulation_dtype(query.dtype)
    pieces = [product(of_key_heads(query.to(dtype), k), k.to(dtype).mT) for k in keys]
    logits = scale * torch.cat([x.flatten(1, 2) for x in pieces], dim=-1)  # (B, H, N)
    if bias:
        logits = logits + torch.cat([x.expand(len(query), -1) for x in bias], dim=1)[:, None]
    weights = logits.softmax(dim=-1)
    if received is not None:
        received += weights.detach().unflatten(1, (received.shape[1], -1)).mean(dim=2)
    each = weights[:, :, None].split([k.shape[2] for k in keys], dim=-1)
    parts = [product(of_key_heads(w, v), v.to(dtype)).reshape(query.shape)
             for w, v in zip(each, values, strict=True)]
    return torch.stack(parts).sum(dim=0).to(query.dtype)


def of_key_heads(x: Tensor, piece: Tensor) -> Tensor:
    """Return the rows (B, H, 1, n) of the query heads by a piece's heads, (B, Hp, H / Hp, n)."""
    return x.reshape(len(x), piece.shape[1], x.shape[1] // piece.shape[1], x.shape[-1])
