"""The decode-time cache of random tokens: CCA's, with a token drawn by lot for each core.

The lot of a group is fixed, so prefill equals decode: any chunks give what a forward over the whole text gives.
"""

from typing import Any

from torch import Tensor

from cca_lab.caches.base import Rotation, append
from cca_lab.caches.cca import CCACache, CCAState, cca_cache_bytes
from cca_lab.caches.sizes import cache_sizes
from cca_lab.mechanisms.random_tokens import kept_tokens


class RandomTokensState(CCAState):
    """Kept tokens and raw tokens of one layer; see `CCAState`, whose cores are the kept tokens here."""

    def __init__(self, *, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.seed = seed

    def _close_groups(self, query: Tensor, rotation: Rotation | None, start: int, stop: int,
                      scale: float) -> None:
        """Keep the drawn token of each group whose last token is in the chunk [start, stop)."""
        closed = slice(start // self.group, stop // self.group)
        kept = kept_tokens(closed.stop, self.group, self.seed)[closed]
        if kept:
            entries = [token - self.first for token in kept]
            self.core_key = append(self.core_key, self.raw_key[:, :, entries])
            self.core_value = append(self.core_value, self.raw_value[:, :, entries])


class RandomTokensCache(CCACache):
    """The cache for generating with random tokens; sizes and use are those of `CCACache`."""

    mechanism = "random_tokens"
    state = RandomTokensState

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4) -> int:
        """Return `nbytes()` after `length` tokens: a CCA cache's, whose groups need no rotary tables."""
        return cca_cache_bytes(length, group=self.choice["group"], window=self.choice["window"], batch=batch,
                               itemsize=itemsize, **cache_sizes(self.config))
