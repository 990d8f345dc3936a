"""The decode-time cache of random tokens: that of CCA-Attention, with a token drawn at random for each core.

The draw of a group is fixed, so prefill equals decode: any chunks give what a forward over the whole text gives.
"""

from torch import Tensor

from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms.caching.base import MechanismCache
from cca_lab.mechanisms.cca.cache import CCAState
from cca_lab.mechanisms.cca.random_tokens import RandomTokens, kept_tokens


class RandomTokensState(CCAState):
    """Kept tokens and raw tokens of one layer; see `CCAState`, whose cores are the kept tokens here."""

    per_query_head = False

    def __init__(self, mechanism: RandomTokens) -> None:
        self.group, self.window, self.backend = mechanism.group, mechanism.window, mechanism.backend
        self.seed = mechanism.seed
        self.forget()

    def _close_groups(self, query: Tensor, rotation: Rotation | None, start: int, stop: int,
                      scale: float) -> None:
        """Keep the drawn token of each group whose last token is in the chunk [start, stop)."""
        closed = slice(start // self.group, stop // self.group)
        kept = kept_tokens(closed.stop, self.group, self.seed)[closed]
        if kept:
            entries = [token - self.first for token in kept]
            self.core_key = self.rooms.append("core_key", self.core_key, self.raw_key[:, :, entries])
            self.core_value = self.rooms.append("core_value", self.core_value, self.raw_value[:, :, entries])


class RandomTokensCache(MechanismCache[RandomTokens]):
    """The cache for generating with random tokens; sizes and use as in `CCACache`, but without rotary tables."""

    mechanism = RandomTokens
    state = RandomTokensState
