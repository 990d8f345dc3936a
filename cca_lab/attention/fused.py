"""Limits of the fast backends; nothing here imports triton, which exists for Linux only."""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

KERNEL_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD_DIM = 128  # tiles with more features do not fit into shared memory together


def installed() -> bool:
    """Return whether triton can be imported."""
    return find_spec("triton") is not None


def interpreted() -> bool:
    """Return whether kernels run on the CPU: interpreted by triton or, without it, by the lab."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def require_triton() -> None:
    """Raise ValueError if no kernel can run; called before any kernel module is imported."""
    if not (installed() or interpreted()):
        raise ValueError(
            "triton is not installed, which the kernels are written in; on Linux, `pip install "
            "triton`; elsewhere set TRITON_INTERPRET=1 before Python starts, and the lab "
            'interprets them on the CPU, or take backend="auto", which does without')


def fused(x: Tensor) -> bool:
    """Return whether "auto" uses the kernels: on a GPU, for dtypes and head dims they support."""
    return (x.device.type == "cuda" and x.dtype in KERNEL_DTYPES and x.shape[-1] <= LARGEST_HEAD_DIM
            and installed())


def needs_gradient(*tensors: Tensor) -> bool:
    """Return whether autograd would record an operation on these tensors."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def refuse_second_derivative(form: str) -> None:
    """Raise RuntimeError in a backward pass that is recorded: its derivative would be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(f'{form} has no second derivative: use backend="dense" for that')
