"""The optimizers of a training run: AdamW, with Muon for the matrices of the blocks if requested."""

from typing import Any

import torch
from transformers import PreTrainedModel

from cca_lab.models.muon import MatrixMuon, block_matrices


def make_optimizers(model: PreTrainedModel, *, muon: bool, learning_rate: float, weight_decay: float,
                    betas: tuple[float, float], fused: bool | None = None) -> list[torch.optim.Optimizer]:
    """Return the optimizers for a model's trainable parameters; an empty list if there are none.

    Args:
        model: its parameters with `requires_grad` are trained; weight decay is for those of two dimensions or more.
        muon: use Muon for the matrices of the blocks; the embeddings stay with AdamW.
        learning_rate, weight_decay: for both optimizers.
        betas, fused: options of AdamW.
    """
    common: dict[str, Any] = {"lr": learning_rate, "weight_decay": weight_decay}
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = {id(p) for _, p in block_matrices(model) if p.requires_grad} if muon else set()
    rest = [p for p in trained if id(p) not in matrices]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in rest if p.ndim >= 2]}, {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    found: list[torch.optim.Optimizer] = []
    if matrices:
        found.append(MatrixMuon(model, adjust_lr_fn="match_rms_adamw", **common))
    if groups:
        found.append(torch.optim.AdamW(groups, betas=betas, fused=fused, **common))
    return found
