"""Validation of what attention is given: tensors, a scale, rotary tables."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def check_tensors(**values: Any) -> None:
    """Raise ValueError naming the first argument that is not a tensor."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name}: got {type(value).__name__}, wanted a tensor; "
                             "torch.as_tensor makes one of a list or an array")


def check_device(name: str, value: Any, device: torch.device) -> None:
    """Raise ValueError unless every tensor in nested lists and tuples is on a device."""
    if isinstance(value, Tensor) and value.device != device:
        raise ValueError(f"{name}: got it on {value.device}, wanted {device} where q is; move it "
                         "there")
    for each in value if isinstance(value, list | tuple) else ():
        check_device(name, each, device)


def check_qkv(q: Any, k: Any, v: Any, *, same_length: bool = True, empty: bool = False) -> None:
    """Raise ValueError unless q, k and v fit together, in shape, dtype and device.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, N, D); H is a multiple of Hk.
        same_length: demand N = L, a query, a key and a value for each token (self-attention).
        empty: allow no text and no token; heads and head_dim are 1 or more.
    """
    check_tensors(q=q, k=k, v=v)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise ValueError(
                f"{name}: got shape {tuple(x.shape)}, wanted (batch, head, length, head_dim)")
        if not x.is_floating_point() or x.dtype.itemsize < 2:  # no sums are formed in 8 bits
            raise ValueError(f"{name}: got {x.dtype}, wanted a floating dtype of 16 bits or more; "
                             "cast it")
        if x.dtype != q.dtype:
            raise ValueError(f"{name}: got {x.dtype}, wanted {q.dtype} as q has; cast them to one")
        if x.device != q.device:
            raise ValueError(f"{name}: got it on {x.device}, wanted {q.device} where q is; move "
                             "them to one device")
        if x.is_meta or x.layout != torch.strided:
            raise ValueError(f"{name}: got a tensor of layout {x.layout} on {x.device}, wanted one "
                             "that holds its numbers side by side")
        if 0 in (x.shape[1::2] if empty else x.shape):
            raise ValueError(f"{name}: got the empty shape {tuple(x.shape)}, wanted at least 1 "
                             f"{'head and a head_dim of 1 or more' if empty else 'everywhere'}")
    if v.shape != k.shape:
        raise ValueError(f"v: got shape {tuple(v.shape)}, wanted k's, {tuple(k.shape)}")
    if (k.shape[0], k.shape[3]) != (q.shape[0], q.shape[3]):
        raise ValueError(f"k: got shape {tuple(k.shape)} for q {tuple(q.shape)}, wanted the same "
                         "batch and head_dim; check the order of the axes")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"q: got {q.shape[1]} heads for k's {k.shape[1]}, wanted a multiple, so "
                         "that each KV head serves as many query heads")
    if same_length and q.shape[2] != k.shape[2]:
        raise ValueError(f"k: got {k.shape[2]} tokens for q's {q.shape[2]}, wanted as many: every "
                         "token needs its query, key and value (to decode, use a cache)")


def scale_of(scale: Any, head_dim: int) -> float:
    """Return the factor on the dot products, D**-0.5 for None; ValueError unless it is finite."""
    if scale is None:
        return head_dim**-0.5
    if not isinstance(scale, Real) or not math.isfinite(scale):
        raise ValueError(f"scale: got {scale!r}, wanted a finite number, or None for D**-0.5")
    return float(scale)


def check_rotation(rotation: Any, q: Tensor) -> None:
    """Raise ValueError unless rotation is None or the tables (cos, sin) of the queries."""
    if rotation is None:
        return
    batch, _, length, head_dim = q.shape
    wanted = {(length, head_dim), (1, length, head_dim), (batch, length, head_dim)}
    pair = isinstance(rotation, tuple | list) and len(rotation) == 2
    shapes = [tuple(table.shape) if isinstance(table, Tensor) and table.is_floating_point()
              and not table.is_meta else type(table).__name__ for table in rotation] \
        if pair else type(rotation).__name__
    if not pair or head_dim % 2 or not wanted.issuperset(shapes):
        raise ValueError(f"rotation: got {shapes}, wanted (cos, sin) of shape (L, D) or (B, L, D) "
                         f"= ({batch}, {length}, {head_dim}), D even; pass the tables that rotated "
                         "q and k")
