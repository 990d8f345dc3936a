"""What a training run needs: optimizers, trained weights, precision and Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from cca_lab.models.interface import MODULE

# c_attn and qkv_proj: the three matrices of GPT-2 and of Phi-3 side by side
QKV_MODULES = ("q_proj", "k_proj", "v_proj", "c_attn", "qkv_proj")
LORA = ".lora_"  # in the names of an adapter's weights


def make_optimizers(model: PreTrainedModel, *, muon: bool, learning_rate: float,
                    weight_decay: float, betas: tuple[float, float],
                    fused: bool | None = None) -> list[torch.optim.Optimizer]:
    """Return the optimizers for a model's trainable parameters; an empty list if there are none.

    Muon, if wanted, is for the matrices of the blocks; the embeddings stay with AdamW, whose
    options are `betas` and `fused`. Weight decay is for two dimensions or more.
    """
    common: dict[str, Any] = {"lr": learning_rate, "weight_decay": weight_decay}
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = {id(p) for _, p in block_matrices(model) if p.requires_grad} if muon else set()
    rest = [p for p in trained if id(p) not in matrices]
    groups: list[dict[str, Any]] = [{"params": [p for p in rest if p.ndim >= 2]},
                                    {"params": [p for p in rest if p.ndim < 2],
                                     "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        optimizers.append(MatrixMuon(model, adjust_lr_fn="match_rms_adamw", **common))
    if groups:
        optimizers.append(torch.optim.AdamW(groups, betas=betas, fused=fused, **common))
    return optimizers


class MatrixMuon(torch.optim.Muon):
    """Muon that treats GPT-2's fused c_attn as three separate matrices.

    Muon orthogonalises the update of a matrix as a whole. If W^Q, W^K and W^V are updated together,
    the update of W^V dominates the other two, and the model does not learn to match queries with
    keys; if each is updated separately, it does.
    """

    def __init__(self, model: PreTrainedModel, **options: Any) -> None:
        self.pieces: list[tuple[nn.Parameter, nn.Parameter, slice]] = []  # piece, whole, columns
        whole_matrices = []
        for name, matrix in block_matrices(model):
            if not matrix.requires_grad:
                continue
            width = matrix.shape[1] // 3
            if not name.endswith("c_attn.weight"):
                whole_matrices.append(matrix)
                continue
            for index in range(3):
                columns = slice(index * width, (index + 1) * width)
                # a view
                self.pieces.append((nn.Parameter(matrix.detach()[:, columns]), matrix, columns))
        super().__init__([*whole_matrices, *(piece for piece, _, _ in self.pieces)], **options)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step; before it, each piece gets its columns of the whole matrix's gradient."""
        for piece, whole, columns in self.pieces:
            piece.grad = whole.grad[:, columns]  # type: ignore[index]  # trained: has a gradient
        loss = super().step(closure)
        for _, whole, _ in self.pieces:
            whole.grad = None
        return loss


def block_matrices(model: PreTrainedModel) -> list[tuple[str, nn.Parameter]]:
    """Return name and weight of every matrix except the embeddings."""
    embeddings = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
    return [(name, p) for name, p in model.named_parameters()
            if p.ndim == 2 and id(p) not in embeddings]


def mark_trainable(model: PreTrainedModel, strategy: str) -> list[str]:
    """Freeze the weights that the strategy does not train; return the names of those it trains.

    "qkv" trains the three projection matrices and not their biases; in GPT-2 they are the columns
    of one matrix. "lora" trains the model's adapter alone, "compressor" the module that the
    mechanism added to each layer. Weights that an adapter updates are not saved, so they are not
    trained.
    """
    adapted = any(LORA in name for name, _ in model.named_parameters())
    if adapted and strategy in ("full", "qkv"):
        raise ValueError(f"strategy: got {strategy!r}, wanted 'lora', as the model has an adapter, "
                         "which alone would be saved; or begin with the base model")

    def wanted(name: str) -> bool:
        if strategy == "qkv":
            return name.endswith(tuple(f"{module}.weight" for module in QKV_MODULES))
        if strategy == "lora":
            return LORA in name
        if strategy == "compressor":
            return MODULE in name.split(".")
        return strategy == "full"

    trained = []
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(wanted(name))
        if parameter.requires_grad:
            trained.append(name)
    if strategy == "compressor" and not trained:
        raise ValueError(
            "strategy: got 'compressor', but the model's attention has no module of its own to "
            "train; swap to one that has, such as 'lococo', or choose another strategy")
    return trained


def row_losses(logits: Tensor, input_ids: Tensor, known: Tensor,
               positions: Tensor | None = None) -> Tensor:
    """Return the summed cross entropy, in nats, of each row's marked (`known`) tokens, (rows,).

    The logits (rows, T, V) are those of the tokens at `positions` (T,), or of all if None; ids and
    marks are of the whole rows, (rows, L).
    """
    # of the token after each
    following, marked = (F.pad(each[:, 1:], (0, 1)) for each in (input_ids, known))
    if positions is not None:
        following, marked = following[:, positions], marked[:, positions]
    row, column = marked.nonzero(as_tuple=True)  # (n,) each
    # one row of logits per marked token; the others are not copied
    picked = logits.flatten(0, 1).index_select(0, row * logits.shape[1] + column)  # (n, V)
    picked = picked.to(torch.promote_types(picked.dtype, torch.float32))
    losses = F.cross_entropy(picked, following[row, column], reduction="none")
    return losses.new_zeros(len(input_ids)).index_add(0, row, losses)


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context for the forward; weights, gradients and optimizer states stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def matrix_units(device: torch.device) -> bool:
    """Return whether a device multiplies in bfloat16: a GPU, or a CPU with AMX or AVX512-BF16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return device.type == "cpu" and (torch.cpu._is_amx_tile_supported()
                                     or torch.cpu._is_avx512_bf16_supported())


def auto_precision(device: torch.device) -> str:
    """Return "bf16" for a GPU that multiplies in it, else "float32".

    On a CPU the operations around the matrix products may be slower in bf16, and which of the two
    is faster changes with the load: so no run depends on it.
    """
    return "bf16" if device.type == "cuda" and matrix_units(device) else "float32"


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second one raises at once.

    Only the main thread can handle signals; in another thread the function always returns False.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
