"""Matrices of attention as bytes: of one head, and small ones of all heads."""

import base64
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

MOST = 128  # rows and columns of a head's matrix
THUMBNAIL = 32  # of a small one


def encoded(weights: Tensor, most: int) -> tuple[int, str]:
    """Return matrices as bytes round(255 sqrt(weight)), in base64, with their size.

    Args:
        weights: (..., L, L), 0 to 1.
        most: the largest size; larger matrices become smaller, each entry the largest of those that it stands for.

    Returns:
        Rows and columns of a matrix, and all matrices, row by row.
    """
    length = weights.shape[-1]
    size = min(length, most)
    flat = weights.detach().reshape(-1, length, length).float().cpu()
    smaller = flat if size == length else adaptive_max_pool2d(flat, size)
    values = (255 * smaller.clamp(0, 1).sqrt()).round().to(torch.uint8)
    return size, base64.b64encode(values.numpy().tobytes()).decode("ascii")


def head_maps(own: Tensor, full: Tensor) -> dict[str, Any]:
    """Return the matrices of one head, (L, L) each, as the view's `Maps`."""
    size, first = encoded(own, MOST)
    return {"size": size, "own": first, "full": encoded(full, MOST)[1]}


def overview(own: Tensor, distances: Tensor) -> dict[str, Any]:
    """Return thumbnails as the view's `Overview`.

    Args:
        own: (layers, H, n, n) matrices, n at most `THUMBNAIL` (see `thumbnails`).
        distances: (layers, H) mean distance of a row from full attention's.
    """
    size, maps = encoded(own, THUMBNAIL)
    return {"layers": own.shape[0], "heads": own.shape[1], "size": size, "maps": maps,
            "distances": distances.flatten().double().cpu().numpy().round(4).tolist()}


def thumbnails(own: Tensor) -> Tensor:
    """Return (H, L, L) matrices made smaller, (H, n, n) with n at most `THUMBNAIL`."""
    return own.float() if own.shape[-1] <= THUMBNAIL else adaptive_max_pool2d(own.float(), THUMBNAIL)
