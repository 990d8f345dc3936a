"""What launches share: where kernels run, which tensors they accept, their output buffers."""

import torch
from torch import Tensor

from cca_lab.attention.fused import KERNEL_DTYPES, LARGEST_HEAD_DIM, interpreted

LOG2_E = 1.4426950408889634
# read once: Triton reads it when kernels are defined
INTERPRETED = interpreted()


def check_tensor(name: str, x: Tensor) -> None:
    """Raise ValueError unless the kernels support a tensor's dtype, head dimension and device."""
    if x.dtype not in KERNEL_DTYPES:
        raise ValueError(
            f"{name}: got {x.dtype}, wanted float16, bfloat16 or float32; the kernels accumulate "
            'in float32, so take backend="dense" or "blocked" for float64')
    if x.shape[-1] > LARGEST_HEAD_DIM:
        raise ValueError(
            f"{name}: got head_dim {x.shape[-1]}, wanted at most {LARGEST_HEAD_DIM}; larger tiles "
            'overflow shared memory, so take backend="auto" or "blocked"')
    check_device(x)


def check_device(x: Tensor) -> None:
    """Raise ValueError unless the kernels can run on the device of a tensor."""
    if x.device.type != "cuda" and not INTERPRETED:
        raise ValueError(
            f'backend: got "triton" for tensors on {x.device.type}, wanted a GPU; set '
            "TRITON_INTERPRET=1 before Python starts to interpret the kernels on the CPU, or take "
            "another backend")


def backend_name() -> str:
    """Return "cuda", "hip" or "sm_90", which selects block sizes; "cuda" in the interpreter."""
    if INTERPRETED:
        return "cuda"
    from triton.runtime.driver import driver

    target = driver.active.get_current_target()
    return "sm_90" if (target.backend, target.arch) == ("cuda", 90) else target.backend


def new_output(shape: torch.Size, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialised contiguous tensor for a kernel to fill."""
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)


def upcast(dtype: torch.dtype) -> bool:
    """Return whether products need float32: the interpreter would multiply bits of bfloat16."""
    return INTERPRETED and dtype == torch.bfloat16
