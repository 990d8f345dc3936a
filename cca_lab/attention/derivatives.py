"""What the fast forms cannot differentiate: they have a first derivative at most."""

import torch
from torch import Tensor


def refuse_second_derivative(form: str) -> None:
    """Raise in a backward that is itself being recorded, which would drop its share of the second derivative.

    Args:
        form: whose backward calls, such as "blocked attention".

    Raises:
        RuntimeError: where autograd was asked to build a graph of the backward (create_graph=True).
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f'{form} has no second derivative: use backend="dense" for that')


def needs_gradient(*tensors: Tensor) -> bool:
    """Whether autograd would record an operation on these tensors."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
