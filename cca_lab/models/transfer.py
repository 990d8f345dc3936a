"""Attention transfer: each layer learns to give with a mechanism what it gave with full attention.

Full attention reads a text once; each attention layer, given the input that it had there, attends
with the mechanism, and is trained until its projected output is the full one's:

    error_t = mean over the layers of  ||out_t - full_t||^2 / (mean over the text of ||full||^2)

A layer's input comes from the full model, so no gradient passes from one layer to another, and a
step costs little more than the forward that gives the targets (Zhang et al., "LoLCATs: On
Low-Rank Linearizing of Large Language Models", 2024, Section 3.2, for linear attention).

Differs from the paper: the tokens that predict an answer count `ANSWERS` times, since few of a
prompt's tokens read what lies far back.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel

from cca_lab.models.plugin import attention_modules, restore_attention

ANSWERS = 30.0  # weight of a token that predicts a token of an answer


def weights_of(known: Tensor, questions: Tensor) -> Tensor:
    """Return the weight of the error of each token, (rows, L).

    Args:
        known: marks of the tokens to predict, bool (rows, L).
        questions: which rows are questions, bool (rows,); in text, all tokens count alike.
    """
    predicts_answer = pad(known[:, 1:], (0, 1)) & questions[:, None]
    return torch.where(predicts_answer, ANSWERS, 1.0)


class Teacher:
    """A copy of a model as it is, with full attention, and what its attention layers compute."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = restore_attention(copy.deepcopy(model)).eval().requires_grad_(False)

    @torch.no_grad()
    def read(self, input_ids: Tensor) -> list[tuple[tuple[Any, ...], dict[str, Any], Tensor]]:
        """Return arguments and projected output (B, L, width) of each attention layer."""
        calls: list[tuple[tuple[Any, ...], dict[str, Any], Tensor]] = []

        def note(module: nn.Module, args: tuple[Any, ...], given: dict[str, Any],
                 output: tuple[Tensor, Any]) -> None:
            # texts have no padding; a mask of transformers' would be no mask of the mechanism's
            calls.append((args, given | {"attention_mask": None}, output[0]))

        handles = [layer.register_forward_hook(note, with_kwargs=True)
                   for layer in attention_modules(self.model)]
        try:
            self.model.base_model(input_ids=input_ids, use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
        return calls


def row_errors(model: PreTrainedModel, teacher: Teacher, input_ids: Tensor,
               weights: Tensor) -> Tensor:
    """Return the summed, weighted error of each row's tokens, (rows,), with a gradient.

    Args:
        model: with the mechanism; each of its attention layers gets the teacher's input.
        teacher: the full model.
        input_ids: (rows, L).
        weights: of each token, (rows, L).
    """
    layers, total = attention_modules(model), torch.zeros(len(input_ids), device=input_ids.device)
    for layer, (args, given, wanted) in zip(layers, teacher.read(input_ids), strict=True):
        wanted = wanted.float()  # (rows, L, width)
        error = (layer(*args, **given)[0].float() - wanted).square().sum(-1)
        # by the row's own size: micro-steps divide a batch by rows
        total = total + (weights * error).sum(1) / wanted.square().sum(-1).mean(1)
    return total / len(layers)
