"""Caches as after a long text, without reading one: filled with random content of the right sizes.

The cost of a cache's next token depends on the amount of its content, not on the values. Reading 128K tokens would
take minutes on a CPU; here each state gets its tensors directly. The tests compare their shapes with those of
states that did read a text.
"""

import torch

from cca_lab.mechanisms import Mechanism
from cca_lab.mechanisms.caches import CACHES
from cca_lab.mechanisms.caching.state import Draw, State


def filled_state(mechanism: Mechanism, length: int, *, heads: int, kv_heads: int, head_dim: int,
                 dtype: torch.dtype = torch.float32, seed: int = 0) -> State:
    """Return one layer's state of a mechanism's cache as after `length` tokens, its content random.

    Args:
        mechanism: a mechanism with a cache.
        length: tokens that count as read, as one prompt.
        heads, kv_heads, head_dim: H, Hk and D.
        dtype: dtype of the entries.
        seed: seed of the content.

    Raises:
        ValueError: for a mechanism without a cache.
    """
    if mechanism.name not in CACHES:
        raise ValueError(f"cache: got {mechanism.name!r}, wanted one of {', '.join(CACHES)}")
    state = CACHES[mechanism.name].state(mechanism)
    state.fill(length, heads, Draw(kv_heads, head_dim, torch.Generator().manual_seed(seed), dtype))
    return state
