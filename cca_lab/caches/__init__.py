"""Decode-time caches, one per mechanism, for `generate(past_key_values=...)` of transformers."""

from typing import Any

from cca_lab.extras import need

need("transformers")

from cca_lab.caches.base import MechanismCache
from cca_lab.caches.cca import CCACache
from cca_lab.caches.dga import DGACache
from cca_lab.caches.h2o import H2OCache
from cca_lab.caches.lm_infinite import LMInfiniteCache
from cca_lab.caches.lococo import LoCoCoCache
from cca_lab.caches.mean_pooling import MeanPoolingCache
from cca_lab.caches.random_tokens import RandomTokensCache
from cca_lab.caches.sizes import CacheSizes
from cca_lab.caches.streaming_llm import StreamingLLMCache

CACHES: dict[str, type[MechanismCache[Any]]] = {cache.mechanism.name: cache for cache in (
    CCACache, DGACache, H2OCache, LoCoCoCache, StreamingLLMCache, LMInfiniteCache,
    MeanPoolingCache, RandomTokensCache)}

__all__ = ["CACHES", "CCACache", "CacheSizes", "DGACache", "H2OCache", "LMInfiniteCache", "LoCoCoCache",
           "MeanPoolingCache", "MechanismCache", "RandomTokensCache", "StreamingLLMCache"]
