"""Decode-time caches, one a mechanism, for transformers' `generate(past_key_values=...)`."""

from cca_lab.extras import need

need("transformers")

from cca_lab.caches.base import MechanismCache
from cca_lab.caches.cca import CCACache, cca_cache_bytes
from cca_lab.caches.dga import DGACache, dga_cache_bytes
from cca_lab.caches.h2o import H2OCache, h2o_cache_bytes
from cca_lab.caches.lm_infinite import LMInfiniteCache, lm_infinite_cache_bytes
from cca_lab.caches.lococo import LoCoCoCache, lococo_cache_bytes
from cca_lab.caches.mean_pooling import MeanPoolingCache
from cca_lab.caches.random_tokens import RandomTokensCache
from cca_lab.caches.streaming_llm import StreamingLLMCache, streaming_llm_cache_bytes

CACHES: dict[str, type[MechanismCache]] = {cache.mechanism: cache for cache in (
    CCACache, DGACache, H2OCache, LoCoCoCache, StreamingLLMCache, LMInfiniteCache,
    MeanPoolingCache, RandomTokensCache)}

__all__ = ["CACHES", "CCACache", "DGACache", "H2OCache", "LMInfiniteCache", "LoCoCoCache", "MeanPoolingCache",
           "MechanismCache", "RandomTokensCache", "StreamingLLMCache", "cca_cache_bytes", "dga_cache_bytes",
           "h2o_cache_bytes", "lm_infinite_cache_bytes", "lococo_cache_bytes", "streaming_llm_cache_bytes"]
