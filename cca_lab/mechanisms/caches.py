"""Decode-time caches, one per mechanism, for `generate(past_key_values=...)` of transformers."""

from typing import Any

from cca_lab.mechanisms.caching.base import MechanismCache
from cca_lab.mechanisms.caching.sizes import CacheSizes
from cca_lab.mechanisms.cca.cache import CCACache
from cca_lab.mechanisms.cca.mean_pooling_cache import MeanPoolingCache
from cca_lab.mechanisms.cca.random_tokens_cache import RandomTokensCache
from cca_lab.mechanisms.dga.cache import DGACache
from cca_lab.mechanisms.h2o.cache import H2OCache
from cca_lab.mechanisms.lococo.cache import LoCoCoCache
from cca_lab.mechanisms.streaming.cache import StreamingLLMCache
from cca_lab.mechanisms.streaming.lm_infinite_cache import LMInfiniteCache

CACHES: dict[str, type[MechanismCache[Any]]] = {cache.mechanism.name: cache for cache in (
    CCACache, DGACache, H2OCache, LoCoCoCache, StreamingLLMCache, LMInfiniteCache,
    MeanPoolingCache, RandomTokensCache)}

__all__ = ["CACHES", "CCACache", "CacheSizes", "DGACache", "H2OCache", "LMInfiniteCache", "LoCoCoCache",
           "MeanPoolingCache", "MechanismCache", "RandomTokensCache", "StreamingLLMCache"]
