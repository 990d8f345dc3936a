"""A mechanism as plain functions of q, k, v and options, as the bench takes them."""

import json
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from cca_lab.mechanisms import Mechanism

OF_A_CALL = ("scale", "rotation", "selection", "module")  # keywords that are no options


def form(cls: type[Mechanism], method: str, **fixed: Any) -> Callable[..., Any]:
    """Return a method of a mechanism as a function (q, k, v, **options), `fixed` always given."""
    def call(*tensors: Tensor, **keywords: Any) -> Any:
        of_a_call = {name: keywords.pop(name) for name in OF_A_CALL if name in keywords}
        return getattr(cls(**fixed, **keywords), method)(*tensors, **of_a_call)

    return call


def trains_a_module(cls: type[Mechanism]) -> bool:
    """Whether the mechanism has something to train."""
    return cls.new_module is not Mechanism.new_module


def with_module(cls: type[Mechanism], method: str, **fixed: Any) -> Callable[..., Any]:
    """As `form`; a module that the mechanism trains has fixed weights that fit q and k."""
    call = form(cls, method, **fixed)
    if not trains_a_module(cls):
        return call

    def with_one(q: Tensor, k: Tensor, *v: Tensor, **keywords: Any) -> Any:
        options = {name: value for name, value in keywords.items() if name not in OF_A_CALL}
        module = seeded_module(cls, q.shape[1], k.shape[1], q.shape[3],
                               json.dumps(options, default=int))
        return call(q, k, *v, **{"module": module, **keywords})

    return with_one


@lru_cache
def seeded_module(cls: type[Mechanism], heads: int, kv_heads: int, head_dim: int,
                  options: str) -> nn.Module:
    """Make the module of one layer, always with the same weights; options as JSON."""
    config = SimpleNamespace(num_attention_heads=heads, num_key_value_heads=kv_heads,
                             head_dim=head_dim, hidden_size=heads * head_dim, num_hidden_layers=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return cls(**json.loads(options)).new_module(config).double()
