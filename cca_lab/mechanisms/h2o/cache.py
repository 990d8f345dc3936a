"""The decode-time cache of H2O: the last tokens, the heavy hitters, their accumulated attention.

A chunk first attends to the stored entries and its own past, and then evicts, once, down to
min(t, heavy + recent) entries for each KV head after t tokens, with a score for each.

Prefill and decode: a prompt of P tokens read at once and then single tokens give exactly what the
mechanism gives over the whole text with `prompt=P`; token by token from the first one on, with
`prompt=1`. Other chunks read more than single tokens would, because nothing is evicted inside a
chunk.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention, native
from cca_lab.attention.dense import accumulation_dtype
from cca_lab.attention.received import attention_received
from cca_lab.attention.rotary import Rotation
from cca_lab.attention.row import attend_row
from cca_lab.mechanisms.caching.base import CacheSizes, MechanismCache
from cca_lab.mechanisms.caching.state import (
    NO_TOKENS,
    Copies,
    Draw,
    State,
    Stored,
    none_of,
)
from cca_lab.mechanisms.h2o.mechanism import H2O, survivors
from cca_lab.settings import check_integers


class H2OState(Stored):
    """What one layer keeps. Entries are in time order, so the recent ones are the last.

    Attributes:
        seen: tokens read so far.
        heavy, recent: the budget in tokens; of a share, fixed by the first chunk.
        key, value: (B, Hk, n, D), n = min(seen, heavy + recent) once the prompt is read.
        score: (B, Hk, n), accumulated attention while stored, in at least float32.
    """

    key = value = score = NO_TOKENS
    stored = ("key", "value", "score")
    buffers: Copies = Copies()  # entries are copied for each token

    def __init__(self, mechanism: H2O) -> None:
        self.mechanism, self.prompt = mechanism, mechanism.prompt
        self.heavy = self.recent = self.seen = 0

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T new tokens, see `State.step`."""
        over = 0
        if self.seen + 1 >= self.prompt:
            over = self.key.shape[2] + 1 - self.heavy - self.recent
        if key.shape[2] == 1 and self.seen and over <= 1 and native.reads_rows(query) \
                and not torch.is_grad_enabled():
            older = self.key.shape[2] + 1 - self.recent if over == 1 else 0
            output, (self.key, self.value, self.score) = native.step(
                query, key, value, [self.key], [self.value], scale, (0, older), received=self.score)
            self.seen += 1
            return output
        if self.seen == 0:
            self.heavy, self.recent = self.mechanism.budget(max(self.prompt, key.shape[2]))
            self.key, self.value = none_of(key), none_of(value)
            self.score = key.new_zeros((*key.shape[:2], 0), dtype=accumulation_dtype(key.dtype))
        self.key = self.buffers.append("key", self.key, key)
        self.value = self.buffers.append("value", self.value, value)
        self.score = F.pad(self.score, (0, key.shape[2]))
        self.seen += key.shape[2]
        output = self._attend(query, scale)
        if self.seen >= self.prompt:
            self._evict()
        return output

    def _attend(self, query: Tensor, scale: float) -> Tensor:
        """Attend to the stored tokens and the chunk's own past, and update the scores."""
        if query.shape[2] == 1:  # the row sees all
            return attend_row(query, [self.key], [self.value], scale=scale, received=self.score)
        entries, kv_heads = self.key.shape[2], self.key.shape[1]
        out, lse = interval_attention(query, self.key, self.value,
                                      causal_intervals(query.shape[2], entries), scale=scale,
                                      return_lse=True)
        received = attention_received(query, self.key, scale=scale, lse=lse)       # (B, H, n)
        self.score += received.unflatten(1, (kv_heads, -1)).mean(2)
        return out

    def _evict(self) -> None:
        """Keep the budget: recent entries, and others with high scores."""
        if self.key.shape[2] <= self.heavy + self.recent:  # copies nothing
            return
        kept = survivors(self.score, self.heavy, self.recent)
        self.score = self.score.gather(2, kept)
        entries = kept[..., None].expand(-1, -1, -1, self.key.shape[3])
        self.key, self.value = self.key.gather(2, entries), self.value.gather(2, entries)

    def join(self, states: Sequence[Any]) -> list[State]:
        """Return one state once all rows are full of equally many entries."""
        budgets = {(state.heavy, state.recent) for state in states}
        full = all(state.key.shape[2] == self.heavy + self.recent and state.seen >= self.prompt
                   for state in states)
        return [self.joined(states)] if full and len(budgets) == 1 else list(states)

    def fill(self, length: int, heads: int, draw: Draw) -> None:
        """Fill the state as after a prompt of `length` tokens."""
        self.seen = length
        self.heavy, self.recent = self.mechanism.budget(max(self.prompt, length))
        entries = length if length < self.prompt else min(length, self.heavy + self.recent)
        self.key, self.value = (draw(entries) for _ in range(2))
        self.score = draw(entries)[..., 0].abs().float()


class H2OCache(MechanismCache[H2O]):
    """The cache for generating with H2O: `model.generate(ids, past_key_values=H2OCache(model))`.

    It stores at most heavy + recent entries per KV head and a score for each, however long the
    text. The prompt is read densely: the first chunk needs the memory of all its tokens. Scores
    need explicit attention weights: there is no fused kernel. Beam search works; rows of different
    length must be padded on the left, and each row then has its own prompt.
    """

    mechanism = H2O
    state = H2OState

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4,
                       first: int = 1) -> int:
        """Return `nbytes()` after `length` tokens, of which the first chunk had `first`."""
        check_integers(0, length=length)
        read = replace(self.attention, prompt=max(first, self.attention.prompt))
        return self.bytes_of(read, length, CacheSizes.of(self.config, batch=batch,
                                                         itemsize=itemsize))

    @staticmethod
    def extra_bytes(mechanism: H2O, length: int, sizes: CacheSizes) -> int:
        """Return a layer's bytes for scores, not counted in the paper: 4 an entry, 8 in float64."""
        return sizes.batch * sizes.kv_heads * mechanism.cache_entries(length) * max(4,
                                                                                    sizes.itemsize)
