"""The attention maps of a model under any attention."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.models.inputs import check_length, check_model, check_token_ids
from cca_lab.models.plugin import attention_of


def attention_maps(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Return how strongly each token attends to each earlier one, in every layer and head.

    With full attention these are the softmax weights; with a mechanism that pools,
    the effective attention E = A P, in which the weight of a pooled token is distributed
    over its members. Every row sums to 1. Needs O(layers H L^2) memory.

    Args:
        model: a causal language model; its attention implementation is restored afterwards.
        input_ids: (L,) or (1, L) token ids.

    Returns:
        (layers, H, L, L) in the model's dtype: [layer, head, row, token].

    Raises:
        ValueError: for several texts, ids outside the model's vocabulary, or a text longer than its positions.
    """
    check_model(model)
    check_token_ids(model, "input_ids", input_ids)
    check_length(model, "input_ids", input_ids.shape[-1])
    input_ids = input_ids.view(1, -1) if input_ids.ndim == 1 else input_ids
    if input_ids.ndim != 2 or len(input_ids) != 1:
        raise ValueError(f"input_ids: got shape {tuple(input_ids.shape)}, wanted (L,) or (1, L); "
                         "pass one text at a time")
    implementation, training = model.config._attn_implementation, model.training
    full = attention_of(model).name == "full"
    try:
        model.eval()
        if full:  # only the eager implementation returns its weights
            model.set_attn_implementation("eager")
        with torch.no_grad():
            outputs = model.base_model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids),
                                       use_cache=False, output_attentions=True)
    finally:
        model.train(training)
        if full:
            model.set_attn_implementation(implementation)
    return torch.cat(outputs.attentions)  # (layers, H, L, L)
