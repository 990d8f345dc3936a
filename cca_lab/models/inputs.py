"""Checks of the inputs of a model, and padded rows that begin at their first real token."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from cca_lab.mechanisms.caching.base import has_rotary


def check_model(model: Any) -> None:
    """Raise ValueError unless the model is a model of transformers."""
    if not isinstance(model, PreTrainedModel):
        wanted = "its model of transformers, model.get_base_model()" if hasattr(
            model, "get_base_model") else ("a model of transformers; load_pretrained(folder) "
                                           "returns one, and its tokenizer")
        raise ValueError(f"model: got {type(model).__name__}, wanted {wanted}")


def check_length(model: PreTrainedModel, name: str, length: int) -> None:
    """Raise ValueError naming the argument if it has more tokens than the model has positions.

    Rotary positions are unlimited; only a model with learned position embeddings has a limit.
    """
    if not has_rotary(model.config) and length > model.config.max_position_embeddings:
        raise ValueError(
            f"{name}: got {length} tokens, wanted at most {model.config.max_position_embeddings}, "
            "the model's positions; shorten the text, or take a model with a longer context")


def check_forward(model: PreTrainedModel, *, past: int | None, given: Tensor | None,
                  positions: Tensor | None, mask: Tensor | None) -> None:
    """Check the arguments of a forward that are given, `past` tokens being in the cache if any.

    Token ids (B, T) or embeddings (B, T, width), position ids (1 or B, T), a mask (B, past + T).
    """
    if positions is not None and int(positions.min()) < 0:
        raise ValueError(f"position_ids: got {int(positions.min())}, wanted 0 or more")
    if mask is not None and not ((mask == 0) | (mask == 1)).all():
        raise ValueError("attention_mask: got other numbers than 0 and 1, wanted 1 at real tokens "
                         "and 0 at padding")
    if past is not None and given is not None and has_rotary(model.config):
        _check_angles(model.config, past + given.shape[1])


def _check_angles(config: PreTrainedConfig, length: int) -> None:
    """Raise ValueError if the angles of positions depend on a text's length, and this one's do."""
    rope = config.rope_parameters
    most = rope.get("original_max_position_embeddings") or config.max_position_embeddings
    if rope.get("rope_type") in ("dynamic", "longrope") and length > most:
        raise ValueError(f"past_key_values: got {length} tokens, wanted at most {most} with a "
                         f"cache, as {rope['rope_type']!r} rotary positions then rotate what it "
                         "holds by other angles; pass use_cache=False to recompute")


def check_call(length: int, given: dict[str, Any]) -> None:
    """Raise ValueError for a call of an attention layer that the mechanisms do not compute.

    `given` is what the layer passes by name; the text has `length` tokens.
    """
    if (window := given.get("sliding_window")) is not None and length > window:
        raise ValueError(f"model: its own attention sees {window} tokens (config.sliding_window), "
                         f"the text has {length}; shorten the text, or set it to None and accept "
                         "another model")
    for name in ("softcap", "s_aux"):
        if given.get(name) is not None:
            raise ValueError(f"model: its attention uses {name!r}, which the mechanisms do not "
                             "compute; take a model without it")


def left_padding(mask: Tensor) -> Tensor:
    """Count the padding before the first real token of each row, (B,); 0 for a row without any.

    Padding, the zeros of the mask (B, L), may stand before and after the real tokens.
    """
    real = mask.bool()
    first = real.int().argmax(dim=-1)  # (B,), 0 where no token is real
    column = torch.arange(mask.shape[-1], device=mask.device)
    length = real.sum(dim=-1)
    block = (column >= first[:, None]) & (column < (first + length)[:, None])  # (B, L)
    if not torch.equal(block, real):
        raise ValueError(
            "attention_mask: padding stands between real tokens, wanted it only before or after "
            "them; remove the hole (groups are counted over neighbouring tokens)")
    return first


def roll_rows(x: Tensor, offset: Tensor, dim: int) -> Tensor:
    """Roll each row of x (B, ...) to the left along `dim`, cyclically, by its offset of (B,)."""
    length = x.shape[dim]
    index = (torch.arange(length, device=x.device) + offset[:, None]) % length  # (B, L)
    shape = [1] * x.ndim
    shape[0], shape[dim] = index.shape
    return x.take_along_dim(index.view(shape), dim=dim)


def check_positions(position_ids: Tensor | None, mask: Tensor | None, past: int = 0) -> None:
    """Raise ValueError for packed sequences: positions (1 or B, L) must rise by one.

    The mask (B, past + L) is nonzero at real tokens, None if all are; `past` are in the cache.
    """
    if position_ids is None or position_ids.shape[-1] < 2:
        return
    rises = position_ids.diff(dim=-1) == 1  # (1 or B, L-1)
    if mask is not None:
        real = mask[:, past:].bool()
        rises = rises | ~(real[:, 1:] & real[:, :-1])
    if not rises.all():
        raise ValueError(
            "position_ids: wanted positions that rise by one along each row, got a jump or a "
            "restart; packed sequences are not supported: give every sequence its own row")
