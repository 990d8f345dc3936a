"""Decode-time caches, one a mechanism, for transformers' `generate(past_key_values=...)`."""

from cca_lab.caches.base import MechanismCache
from cca_lab.caches.cca import CCACache, cca_cache_bytes

CACHES: dict[str, type[MechanismCache]] = {cache.mechanism: cache for cache in (CCACache,)}

__all__ = ["CACHES", "CCACache", "MechanismCache", "cca_cache_bytes"]
