"""The decode-time cache of LM-Infinite: the global tokens and the rest of the next row's local window.

    min(t, global_tokens + local - 1) entries for each KV head after t tokens

Differs from the public code, which keeps every token and rotates all keys again at each step: no later row
reads a token that has left the window and is not global, so it is dropped here. Keys are stored rotated at
their positions; a global token outside the window is re-rotated to position 0 when it is read. For that the
rotary tables of the global positions and of the limit are stored.
"""

from torch import Tensor

from cca_lab.attention.rotary import Rotation, turn
from cca_lab.mechanisms.caching.base import MechanismCache
from cca_lab.mechanisms.caching.sizes import CacheSizes
from cca_lab.mechanisms.streaming.cache import StreamingLLMState
from cca_lab.mechanisms.streaming.lm_infinite import LMInfinite


class LMInfiniteState(StreamingLLMState):
    """As StreamingLLM's state with recent = local - 1, except for the positions of global tokens."""

    prompt = "windowed"

    def __init__(self, mechanism: LMInfinite) -> None:
        self.sinks, self.recent, self.backend = mechanism.global_tokens, mechanism.local - 1, mechanism.backend
        self.limit = mechanism.distance
        self.kept_positions = kept_positions(mechanism)
        self.forget()

    def _far(self, query: Tensor, row: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Re-rotate queries to position min(i, limit) and the global keys to position 0."""
        known = [position for position in range(self.sinks) if position in self.tables]
        far_key = turn(self.key[:, :, : len(known)], self.table(*known), self.table(0))
        return self._turned(query, row, rotation, self.limit), far_key


class LMInfiniteCache(MechanismCache[LMInfinite]):
    """The cache for generating with LM-Infinite: `model.generate(ids, past_key_values=LMInfiniteCache(model))`.

    It stores at most global_tokens + local - 1 entries per layer and KV head, however long the text. Prefill
    equals decode: any chunks give what a forward over the whole text gives.
    """

    mechanism = LMInfinite
    state = LMInfiniteState

    @staticmethod
    def beside(mechanism: LMInfinite, length: int, sizes: CacheSizes) -> int:
        """Return the bytes of a layer for the rotary tables of `kept_positions` that have been read."""
        return sizes.tables(sum(position < length for position in kept_positions(mechanism)))


def kept_positions(mechanism: LMInfinite) -> set[int]:
    """Return the positions whose rotary tables a decoder needs later: none without global tokens."""
    return {*range(mechanism.global_tokens), mechanism.distance} if mechanism.global_tokens else set()
