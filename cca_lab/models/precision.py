"""The precision of a finetuning run: float32, or bfloat16 under autocast where that is faster."""

import time

import torch
from torch import Tensor, nn

from cca_lab.models.trainable import row_losses

PAYS = 0.95  # bf16 must take less than this share of float32's time
REPEATS = 2


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context for the model's forward; weights, gradients and optimizer states stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def matrix_units(device: torch.device) -> bool:
    """Return whether a device has matrix units for bfloat16: those of a GPU, or AMX on a CPU."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return device.type == "cpu" and torch.cpu._is_amx_tile_supported()


def faster_precision(model: nn.Module, input_ids: Tensor, known: Tensor) -> str:
    """Return "bf16" or "float32", whichever computes the gradient of a batch faster on this machine.

    A GPU with bf16 uses it without a trial. On a CPU with AMX both are timed, since the operations around the matrix
    products may be slower in bf16; weights and random states do not change.

    Args:
        model: the model to train; its gradients are discarded.
        input_ids, known: (rows, length), a step's batch.
    """
    device = input_ids.device
    if not matrix_units(device):
        return "float32"
    if device.type == "cuda":
        return "bf16"
    bf16, float32 = (_seconds(model, input_ids, known, precision) for precision in ("bf16", "float32"))
    return "bf16" if bf16 < PAYS * float32 else "float32"


def _seconds(model: nn.Module, input_ids: Tensor, known: Tensor, precision: str) -> float:
    """Return the shortest time of a few forward and backward passes, in seconds, after an uncounted one."""
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
