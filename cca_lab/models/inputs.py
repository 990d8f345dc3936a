"""Validation of a model's inputs: token ids within its vocabulary, and no more of them than it has positions."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.attention.arguments import check_tensors
from cca_lab.mechanisms.caching.sizes import has_rotary


def check_model(model: Any) -> None:
    """Raise ValueError unless the model is a model of transformers."""
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model: got {type(model).__name__}, wanted a model of transformers; load_pretrained(folder) "
                         "returns one, and its tokenizer")


def check_token_ids(model: PreTrainedModel, name: str, ids: Any) -> None:
    """Raise ValueError naming the argument unless it is a tensor of ids within the model's vocabulary."""
    check_tensors(**{name: ids})
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name}: got {ids.dtype}, wanted token ids, torch.int64; use .long()")
    vocabulary = model.config.vocab_size
    if ids.numel() and not (ids.min() >= 0 and ids.max() < vocabulary):
        raise ValueError(f"{name}: got token ids from {ids.min()} to {ids.max()}, wanted 0 to {vocabulary - 1}, the "
                         "model's vocabulary; use the model's own tokenizer")


def check_length(model: PreTrainedModel, name: str, length: int) -> None:
    """Raise ValueError naming the argument if it has more tokens than the model has positions.

    Rotary positions are unlimited; only a model with learned position embeddings has a limit.
    """
    if not has_rotary(model.config) and length > model.config.max_position_embeddings:
        raise ValueError(f"{name}: got {length} tokens, wanted at most {model.config.max_position_embeddings}, the "
                         "model's positions; shorten the text, or take a model with a longer context")


def check_forward(model: PreTrainedModel, input_ids: Tensor | None, *, past: int, embeds: Tensor | None,
                  positions: Tensor | None, mask: Tensor | None) -> None:
    """Check the arguments of a model's forward that are given.

    Args:
        input_ids: (B, T) token ids.
        past: tokens in the cache.
        embeds: (B, T, width) embeddings, in place of ids.
        positions: (1 or B, T) position ids.
        mask: (B, past + T); OPT computes its positions from it.
    """
    if input_ids is not None:
        check_token_ids(model, "input_ids", input_ids)
    given = input_ids if embeds is None else embeds
    if given is None or given.ndim < 2 or has_rotary(model.config):
        return
    length = past + given.shape[1]
    if positions is not None:
        check_tensors(position_ids=positions)
        length = int(positions.max()) + 1
    elif mask is not None and model.config.model_type == "opt":
        length = int(mask.sum(dim=-1).max())
    check_length(model, "input_ids" if embeds is None else "inputs_embeds", length)
