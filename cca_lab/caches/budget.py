"""Options that make a mechanism's cache as large as a budget allows, so that mechanisms compare at equal memory."""

import copy
from collections.abc import Callable

from transformers import PreTrainedConfig

from cca_lab.caches import CACHES
from cca_lab.caches.base import CHOICE, IMPLEMENTATION
from cca_lab.caches.sizes import cache_sizes
from cca_lab.mechanisms import MECHANISMS

# The one number that is fitted, and the options it stands for. Larger is never smaller in memory.
KNOBS: dict[str, Callable[[int, int], dict]] = {
    "cca": lambda n, length: {"window": n},
    "mean_pooling": lambda n, length: {"window": n},
    "random_tokens": lambda n, length: {"window": n},
    "dga": lambda n, length: {"gamma": n / length},
    "streaming_llm": lambda n, length: {"recent": n},
    "lm_infinite": lambda n, length: {"local": n},
    "h2o": lambda n, length: {"heavy": n // 2, "recent": n - n // 2},
}
LEAST = 2


def fits(name: str) -> bool:
    """Whether a mechanism's memory can be fitted to a budget."""
    return name in KNOBS or name == "lococo"


def fitted_options(config: PreTrainedConfig, name: str, entries: int, length: int) -> dict:
    """Return the options of the largest cache within a budget after `length` tokens.

    Args:
        config: of the model.
        name: a mechanism with a cache.
        entries: keys, and as many values, that one KV head may keep; what a cache keeps besides (scores,
            queries, rotary tables) counts in bytes.
        length: tokens read.

    Returns:
        The mechanism's defaults with the fitted ones in their place.

    Raises:
        ValueError: if even the smallest cache is larger.
    """
    if name == "lococo":  # M slots and B raw tokens at the most, which is all of the budget
        return {**MECHANISMS[name].defaults, "slots": entries // 2, "segment": entries - entries // 2}
    return options_with(name, fitted_knob(config, name, entries, length), length)


def fitted_knob(config: PreTrainedConfig, name: str, entries: int, length: int) -> int:
    """Return the largest n of a mechanism's knob whose cache is within a budget; n + 1 exceeds it, or the length.

    Args, Raises: those of `fitted_options`.
    """
    budget = budget_bytes(config, entries)
    fitting = [n for n in range(LEAST, length + 1) if bytes_with(config, name, n, length) <= budget]
    if not fitting:
        raise ValueError(f"entries: got {entries}, which is less than {name} keeps at least "
                         f"({bytes_with(config, name, LEAST, length)} bytes at {length} tokens); give more")
    return max(fitting)


def options_with(name: str, n: int, length: int) -> dict:
    """Return a mechanism's options with its knob at n."""
    return {**MECHANISMS[name].defaults, **KNOBS[name](n, length)}


def bytes_with(config: PreTrainedConfig, name: str, n: int, length: int) -> int:
    """Return the bytes of a mechanism's cache after `length` tokens with its knob at n."""
    trial = copy.deepcopy(config)
    trial._attn_implementation = IMPLEMENTATION
    setattr(trial, CHOICE, {"name": name, **options_with(name, n, length)})
    return CACHES[name](trial).expected_bytes(length)


def budget_bytes(config: PreTrainedConfig, entries: int) -> int:
    """Return the bytes of so many keys, and as many values, of every KV head of a model in float32."""
    sizes = cache_sizes(config)
    return 2 * entries * sizes["layers"] * sizes["kv_heads"] * sizes["head_dim"] * 4
