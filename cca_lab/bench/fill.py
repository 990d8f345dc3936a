"""Caches as they are after a long text, without reading one: random content of the sizes they would hold.

What a cache's next token costs depends on how much it holds, not on what. Reading 128K tokens would take
minutes on a CPU; here each state is given its tensors directly. The tests compare their shapes with those of
states that did read a text.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.caches import CACHES
from cca_lab.caches.base import State
from cca_lab.mechanisms import dga_rows, lococo_rows
from cca_lab.mechanisms.cca_rows import core_count
from cca_lab.mechanisms.h2o import budget

Draw = Callable[[int, int], Tensor | None]  # heads, entries -> (1, heads, entries, D), None without entries


def filled_state(name: str, options: dict[str, Any], length: int, *, heads: int, kv_heads: int, head_dim: int,
                 dtype: torch.dtype = torch.float32, seed: int = 0) -> State:
    """Return one layer's state of a mechanism's cache as after `length` tokens, its content random.

    Args:
        name: a key of `CACHES`.
        options: of the mechanism.
        length: tokens that count as read, as one prompt.
        heads, kv_heads, head_dim: H, Hk and D.
        dtype: of the entries.
        seed: of the content.

    Raises:
        ValueError: for a mechanism without a cache.
    """
    if name not in FILLS:
        raise ValueError(f"cache: got {name!r}, wanted one of {', '.join(FILLS)}")
    generator = torch.Generator().manual_seed(seed)

    def draw(of: int, entries: int) -> Tensor | None:
        return torch.randn(1, of, entries, head_dim, generator=generator).to(dtype) if entries else None

    state = CACHES[name].state(**options)
    FILLS[name](state, length, heads, kv_heads, draw)
    state.seen = length
    return state


def _cores(state: Any, length: int, heads: int, kv_heads: int, draw: Draw) -> None:
    """CCA and its ablations: a core for each closed group, and the raw tokens that the next row reads."""
    state.first = state.group * core_count(length + 1, state.group, state.window)
    of = heads if state.pooling["per_query_head"] else kv_heads
    state.core_key, state.core_value = (draw(of, length // state.group) for _ in range(2))
    state.raw_key, state.raw_value = (draw(kv_heads, length - state.first) for _ in range(2))


def _sinks(state: Any, length: int, heads: int, kv_heads: int, draw: Draw) -> None:
    """StreamingLLM and LM-Infinite: the first tokens and the last ones."""
    state.key, state.value = (draw(kv_heads, min(length, state.sinks + state.recent)) for _ in range(2))


def _heavy(state: Any, length: int, heads: int, kv_heads: int, draw: Draw) -> None:
    """H2O: heavy and recent tokens, and a score for each."""
    state.heavy, state.recent = budget(*state.shares, max(state.prompt, length))
    entries = length if length < state.prompt else min(length, state.heavy + state.recent)
    state.key, state.value = (draw(kv_heads, entries) for _ in range(2))
    state.score = draw(kv_heads, entries)[..., 0].abs().float()


def _slots(state: Any, length: int, heads: int, kv_heads: int, draw: Draw) -> None:
    """LoCoCo: slots, and the raw tokens since they were filled."""
    s = state.settings
    columns = lococo_rows.cache_tokens(length, slots=s.slots, segment=s.segment, buffer=s.buffer, when=s.when)
    state.open = length % s.segment
    state.key, state.value = (draw(kv_heads, columns) for _ in range(2))
    state.received = draw(kv_heads, columns)[..., 0].abs().float() if s.scored else None


def _groups(state: Any, length: int, heads: int, kv_heads: int, draw: Draw) -> None:
    """DGA: focal tokens and groups, and with choose="blocks" the raw tokens of the open block."""
    kept, raw = dga_rows.cache_tokens(length, state.rule)
    state.kept_key, state.kept_value = (draw(kv_heads, kept) for _ in range(2))
    state.raw_key, state.raw_value, state.raw_query = draw(kv_heads, raw), draw(kv_heads, raw), draw(heads, raw)


FILLS: dict[str, Callable[[Any, int, int, int, Draw], None]] = {
    "cca": _cores, "mean_pooling": _cores, "random_tokens": _cores, "dga": _groups, "lococo": _slots,
    "h2o": _heavy, "streaming_llm": _sinks, "lm_infinite": _sinks}
