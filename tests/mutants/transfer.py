"""A wrong attention transfer; tests/models/test_transfer.py catches it."""

import torch

from cca_lab.models.plugin import attention_modules


def one_layer_after_another(model, teacher, input_ids, weights):
    """Compare the layers in one forward of the student: each reads what the one before made."""
    outputs, handles = [], [
        layer.register_forward_hook(lambda module, args, output: outputs.append(output[0]))
        for layer in attention_modules(model)]
    model.base_model(input_ids=input_ids, use_cache=False)
    for handle in handles:
        handle.remove()
    total = torch.zeros(len(input_ids))
    for output, (_, _, wanted) in zip(outputs, teacher.read(input_ids), strict=True):
        total = total + (weights * (output - wanted).square().sum(-1)).sum(1)
    return total / len(outputs)
