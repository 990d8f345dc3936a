"""The decode-time caches by mechanism, for `generate(past_key_values=...)`, and caches of one size.

Mechanisms are compared at equal memory: `fitted` returns the largest within a budget.
"""

from typing import Any

import cca_lab.mechanisms.caching  # noqa: F401  says which extra is missing

# isort: split
from transformers import PreTrainedConfig

from cca_lab.mechanisms import MECHANISMS, Mechanism, class_of
from cca_lab.mechanisms.caching.base import CacheSizes, MechanismCache
from cca_lab.mechanisms.cca.cache import CCACache, MeanPoolingCache, RandomTokensCache
from cca_lab.mechanisms.dga.cache import DGACache
from cca_lab.mechanisms.h2o.cache import H2OCache
from cca_lab.mechanisms.kept_heads.cache import KeptHeadsCache
from cca_lab.mechanisms.lococo.cache import LoCoCoCache
from cca_lab.mechanisms.streaming.cache import LMInfiniteCache, StreamingLLMCache
from cca_lab.settings import check_integers

CACHES: dict[str, type[MechanismCache[Any]]] = {cache.mechanism.name: cache for cache in (
    CCACache, DGACache, H2OCache, LoCoCoCache, StreamingLLMCache, LMInfiniteCache,
    MeanPoolingCache, RandomTokensCache, KeptHeadsCache)}

__all__ = ["CACHES", "CCACache", "CacheSizes", "DGACache", "H2OCache", "KeptHeadsCache",
           "LMInfiniteCache", "LoCoCoCache", "MeanPoolingCache", "MechanismCache",
           "RandomTokensCache", "StreamingLLMCache"]


LEAST = 2


def fits(name: str) -> bool:
    """Return whether a mechanism's memory can be fitted to a budget."""
    return name in CACHES and MECHANISMS[name].sized(LEAST, LEAST) is not None


def with_sized(options: dict[str, dict[str, Any]], entries: int,
               length: int) -> dict[str, dict[str, Any]]:
    """Add the options of every other mechanism whose cache can be sized, at `entries`."""
    others = [name for name in CACHES if name not in options and fits(name)]
    return options | {name: sized(name, entries, length).options() for name in others}


def sized(name: str, entries: int, length: int) -> Mechanism:
    """Return `MECHANISMS[name].sized(entries, length)`; ValueError where there is none."""
    check_integers(1, entries=entries, length=length)
    mechanism = class_of(name).sized(entries, length)
    if mechanism is None:
        raise ValueError(
            f"name: got {name!r}, wanted a mechanism whose memory can be fitted to a budget")
    return mechanism


def fitted(config: PreTrainedConfig, name: str, entries: int, length: int) -> Mechanism:
    """Return the mechanism with the largest cache within a budget after `length` tokens.

    Args:
        config: of the model.
        name: a mechanism with a cache.
        entries: the budget: keys, and as many values, that one KV head may keep. Other tensors of a
            cache (scores, queries, rotary tables) count by their bytes.
        length: tokens read.

    Returns:
        `MECHANISMS[name].sized(n, length)` with the largest n for which it fits.

    Raises:
        ValueError: if even the smallest cache is larger.
    """
    sized(name, LEAST, length)  # refuses a name without a cache that can be fitted
    sizes, cache = CacheSizes.of(config), CACHES[name]

    def most(n: int) -> int:
        mechanism = sized(name, n, length)
        return sizes.entries(mechanism.peak_entries(length)) + cache.extra_bytes(mechanism, length,
                                                                                 sizes)

    needed, budget = {n: most(n) for n in range(LEAST, length + 1)}, sizes.entries(entries)
    fitting = [n for n, size in needed.items() if size <= budget]
    if not fitting:
        raise ValueError(f"entries: got {entries}, which is less than {name} keeps at least "
                         f"({needed[LEAST]} bytes a layer at {length} tokens); give more")
    return sized(name, max(fitting), length)
