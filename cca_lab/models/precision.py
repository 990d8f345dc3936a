"""In which precision a finetuning multiplies: float32, or bfloat16 under autocast where that is faster."""

import time

import torch
from torch import Tensor, nn

from cca_lab.models.trainable import row_losses

PAYS = 0.95  # bf16 has to take less than this share of float32's time
REPEATS = 2


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context in which the model's forward runs; weights, gradients and optimizer stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def matrix_units(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 matrices in units of their own: a GPU's, or AMX of a CPU."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return device.type == "cpu" and torch.cpu._is_amx_tile_supported()


def faster_precision(model: nn.Module, input_ids: Tensor, known: Tensor) -> str:
    """Return "bf16" or "float32", whichever takes less time for the gradient of a batch here.

    On a GPU bf16 is taken without a trial. On a CPU with AMX both are timed, since what surrounds the products
    may cost more in bf16; weights and random states stay as they are.

    Args:
        model: to be trained; its gradients are dropped.
        input_ids, known: (rows, length), what a step reads.
    """
    device = input_ids.device
    if not matrix_units(device):
        return "float32"
    if device.type == "cuda":
        return "bf16"
    bf16, float32 = (_seconds(model, input_ids, known, precision) for precision in ("bf16", "float32"))
    return "bf16" if bf16 < PAYS * float32 else "float32"


def _seconds(model: nn.Module, input_ids: Tensor, known: Tensor, precision: str) -> float:
    """Return the least time of a few forwards and backwards, after one that is not counted."""
    taken = []
    with torch.random.fork_rng():
        for _ in range(1 + REPEATS):
            start = time.perf_counter()
            with autocast(precision, input_ids.device):
                logits = model(input_ids=input_ids, use_cache=False).logits
            row_losses(logits, input_ids, known).sum().backward()
            model.zero_grad(set_to_none=True)
            taken.append(time.perf_counter() - start)
    return min(taken[1:])
