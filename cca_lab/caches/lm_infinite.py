"""The decode-time cache of LM-Infinite: the global tokens and the rest of the next row's local window.

    min(t, global_tokens + local - 1) entries for each KV head after t tokens

Differs from the public code, which keeps every token and rotates all keys again at each step: no later row
reads a token that has left the window without being global, so it is dropped here. Keys are kept rotated at
their positions; a global token outside the window is turned to position 0 when it is read, for which the
rotary tables of the global positions, and of the limit, are kept.
"""

from torch import Tensor

from cca_lab.caches.base import MechanismCache, Rotation
from cca_lab.caches.sizes import cache_sizes, has_rotary
from cca_lab.caches.streaming_llm import StreamingLLMState
from cca_lab.mechanisms.rotary import turn


class LMInfiniteState(StreamingLLMState):
    """What one layer keeps: that of StreamingLLM with recent = local - 1, but for the positions of sinks."""

    def __init__(self, *, local: int, global_tokens: int, limit: int | None = None,
                 backend: str = "auto") -> None:
        super().__init__(sinks=global_tokens, recent=local - 1, backend=backend)
        self.limit = local if limit is None else limit
        self.kept_positions = kept_positions(global_tokens, self.limit)

    def _far(self, query: Tensor, row: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Turn queries to position min(i, limit) and the global keys to position 0."""
        known = [position for position in range(self.sinks) if position in self.tables]
        far_key = turn(self.key[:, :, : len(known)], self.table(*known), self.table(0))
        return self._turned(query, row, rotation, self.limit), far_key


class LMInfiniteCache(MechanismCache):
    """The cache for generating with LM-Infinite: `model.generate(ids, past_key_values=LMInfiniteCache(model))`.

    Holds at most global_tokens + local - 1 entries a layer and KV head, however long the text. Prefill equals
    decode: any chunks give what a forward over the whole text gives.
    """

    mechanism = "lm_infinite"
    state = LMInfiniteState

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4) -> int:
        """Return `nbytes()` after `length` tokens, from the closed form of `lm_infinite_cache_bytes`."""
        return lm_infinite_cache_bytes(
            length, local=self.choice["local"], global_tokens=self.choice["global_tokens"],
            limit=self.choice.get("limit"), rotary=has_rotary(self.config), batch=batch, itemsize=itemsize,
            **cache_sizes(self.config))


def lm_infinite_cache_bytes(length: int, *, local: int, global_tokens: int, layers: int, kv_heads: int,
                            head_dim: int, limit: int | None = None, rotary: bool = False, batch: int = 1,
                            itemsize: int = 4) -> int:
    """Return the bytes of an LM-Infinite cache after `length` tokens.

        2 B D Hk min(t, global_tokens + local - 1) + 2 D #{kept positions p < t} [rotary]

    numbers a layer; the kept positions are those of the global tokens and the limit. The public code holds
    2 B D Hk t.

    Args:
        length: tokens read, t.
        limit: the distance of global tokens; None means `local`.
        rotary: whether the model rotates its keys.
        itemsize: bytes of an element.
    """
    entries = 2 * batch * head_dim * kv_heads * min(length, global_tokens + local - 1)
    kept = [p for p in kept_positions(global_tokens, local if limit is None else limit) if p < length]
    return layers * itemsize * (entries + (2 * head_dim * len(kept) if rotary else 0))


def kept_positions(global_tokens: int, limit: int) -> set[int]:
    """Return the positions whose rotary tables a decoder needs again: none without global tokens."""
    return {*range(global_tokens), limit} if global_tokens else set()
