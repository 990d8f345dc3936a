"""Where the fused Triton kernels run: asked without importing triton, which exists for Linux only."""

from importlib.util import find_spec

import torch
from torch import Tensor

KERNEL_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def installed() -> bool:
    """Whether triton can be imported."""
    return find_spec("triton") is not None


def fused(x: Tensor) -> bool:
    """Whether the kernels are the fast path for a tensor: on a GPU, in a dtype that they know."""
    return x.device.type == "cuda" and x.dtype in KERNEL_DTYPES and installed()
