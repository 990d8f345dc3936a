"""Limits of differentiation: the fast backends have a first derivative at most."""

import torch
from torch import Tensor


def refuse_second_derivative(form: str) -> None:
    """Raise in a backward pass that is itself recorded.

    The second derivative would silently be wrong.

    Args:
        form: the operation whose backward calls this, such as "blocked attention".

    Raises:
        RuntimeError: if autograd was asked to build a graph of the backward (create_graph=True).
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f'{form} has no second derivative: use backend="dense" for that')


def needs_gradient(*tensors: Tensor) -> bool:
    """Return whether autograd would record an operation on these tensors."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
