"""Muon for the matrices of a transformer's blocks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel


class MatrixMuon(torch.optim.Muon):
    """Muon that treats GPT-2's fused c_attn as three separate matrices.

    Muon orthogonalises the update of a matrix as a whole. If W^Q, W^K and W^V are
    updated together, the update of W^V dominates the other two, and the model does
    not learn to match queries with keys; if each is updated separately, it does.

    Args:
        model: the model whose matrices, except the embeddings, are updated.
        options: options of `torch.optim.Muon`.
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
                self.pieces.append((nn.Parameter(matrix.detach()[:, columns]), matrix, columns))  # a view
        super().__init__([*whole_matrices, *(piece for piece, _, _ in self.pieces)], **options)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step; before it, each piece gets its columns of the whole matrix's gradient."""
        for piece, whole, columns in self.pieces:
            piece.grad = whole.grad[:, columns]  # type: ignore[index]  # a trained weight has a gradient
        loss = super().step(closure)
        for _, whole, _ in self.pieces:
            whole.grad = None
        return loss


def block_matrices(model: PreTrainedModel) -> list[tuple[str, nn.Parameter]]:
    """Return name and weight of every matrix except the embeddings."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return [(name, p) for name, p in model.named_parameters() if p.ndim == 2 and id(p) not in embeddings]
