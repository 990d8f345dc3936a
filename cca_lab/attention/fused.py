"""Where the fused Triton kernels run: asked without importing triton, which exists for Linux only."""

from importlib.util import find_spec

import torch
from torch import Tensor

KERNEL_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD_DIM = 128  # a tile of more features does not fit into shared memory beside its partners


def installed() -> bool:
    """Whether triton can be imported."""
    return find_spec("triton") is not None


def require_triton() -> None:
    """Raise ValueError where triton is not installed; called before anything of the kernels is imported."""
    if not installed():
        raise ValueError("triton is not installed, which the kernels are written in; on Linux, `pip install "
                         'triton`; elsewhere take backend="auto", which does without')


def fused(x: Tensor) -> bool:
    """Whether the kernels are the fast path for a tensor: on a GPU, in a dtype and head dimension they know."""
    return (x.device.type == "cuda" and x.dtype in KERNEL_DTYPES and x.shape[-1] <= LARGEST_HEAD_DIM
            and installed())
