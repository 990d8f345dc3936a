"""The decode-time cache of CCA-Attention: all core tokens, and the raw tokens no core covers yet.

Sizes: n(i) = max(0, floor((i + 1 - s) / g)) cores are visible to row i, so after t
tokens the next row needs raw tokens from g n(t) on, at most s + g - 2 of them.
A group is pooled when its last token arrives, because that token's query, the judge
of eq. 2, is at hand then and need not be stored; its core waits until it is visible.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import interval_attention, pool_groups
from cca_lab.attention.pooling import pooling_backend
from cca_lab.caches.base import MechanismCache, Rotation, append, with_rows
from cca_lab.caches.parts import attend_row
from cca_lab.caches.sizes import cache_sizes, has_rotary
from cca_lab.mechanisms.cca_rows import chunk_intervals, core_count
from cca_lab.mechanisms.inputs import expand_heads


class CCAState:
    """Cores and raw tokens of one layer, for rows that share their group borders.

    Attributes:
        seen: tokens read so far.
        first: index of the first raw token kept.
        core_key, core_value: (B, Hc, floor(seen / g), D); Hc is Hk, or H with a core per query head.
        raw_key, raw_value: (B, Hk, seen - first, D).
        rotation: cos and sin of the tokens of the open group, (1, seen mod g, D) each, or None.
    """

    def __init__(self, *, group: int, window: int, pooling: str = "softmax", per_query_head: bool = False,
                 backend: str = "auto") -> None:
        self.group, self.window = group, window
        self.pooling = dict(weights=pooling, per_query_head=per_query_head)
        self.backend = backend
        self.seen = self.first = 0
        self.core_key = self.core_value = self.raw_key = self.raw_value = self.rotation = None

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Read T new tokens: query (B, H, T, D), key and value (B, Hk, T, D) -> output (B, H, T, D)."""
        start, stop = self.seen, self.seen + key.shape[-2]
        self.raw_key = append(self.raw_key, key)
        self.raw_value = append(self.raw_value, value)
        self._close_groups(query, rotation, start, stop, scale)
        output = self._attend(query, start, stop, scale)
        self._evict(self.group * core_count(stop + 1, self.group, self.window))  # what the next row will need
        self.seen = stop
        return output

    def _close_groups(self, query: Tensor, rotation: Rotation | None, start: int, stop: int,
                      scale: float) -> None:
        """Pool the groups whose last token is in the chunk [start, stop)."""
        begin, end = start // self.group * self.group, stop // self.group * self.group
        if rotation is not None:  # every row turns by the same relative angle, so one row's table will do
            past = self.rotation or (None, None)
            rotation = tuple(append(old, new[:1]) for old, new in zip(past, rotation, strict=True))
            self.rotation = tuple(table[:, end - begin:].clone() for table in rotation)
        if end == begin:
            return
        # only the last query of a group is read, and that one is in the chunk: the others may be zeros
        judge = F.pad(query, (0, 0, start - begin, 0))[:, :, :end - begin]
        raw = slice(begin - self.first, end - self.first)
        rotation = rotation and tuple(table[:, :end - begin] for table in rotation)
        core_key, core_value = pool_groups(judge, self.raw_key[:, :, raw], self.raw_value[:, :, raw],
                                           self.group, scale=scale, rotation=rotation,
                                           backend=pooling_backend(self.backend, **self.pooling), **self.pooling)
        self.core_key = append(self.core_key, core_key)
        self.core_value = append(self.core_value, core_value)

    def _attend(self, query: Tensor, start: int, stop: int, scale: float) -> Tensor:
        """Attend to the visible cores and, after them, the raw tokens, in one softmax."""
        cores = core_count(stop, self.group, self.window)
        key, value = self.raw_key, self.raw_value
        if cores and stop == start + 1:
            visible = self.core_key[:, :, :cores], self.core_value[:, :, :cores]
            return attend_row(query, [visible, (key, value)], scale=scale, backend=self.backend)
        if cores:
            heads = self.core_key.shape[1]  # H with a core per query head, else Hk
            key = torch.cat([self.core_key[:, :, :cores], expand_heads(key, heads)], dim=2)
            value = torch.cat([self.core_value[:, :, :cores], expand_heads(value, heads)], dim=2)
        intervals = chunk_intervals(start, stop, self.group, self.window)
        return interval_attention(query, key, value, intervals, scale=scale, backend=self.backend)

    def _evict(self, first: int) -> None:
        """Drop the raw tokens before `first`; clone, for a slice would keep the memory of the whole."""
        if first > self.first:
            self.raw_key = self.raw_key[:, :, first - self.first:].clone()
            self.raw_value = self.raw_value[:, :, first - self.first:].clone()
            self.first = first

    def tensors(self) -> list[Tensor]:
        """Return every tensor that is stored."""
        stored = [self.core_key, self.core_value, self.raw_key, self.raw_value, *(self.rotation or ())]
        return [tensor for tensor in stored if tensor is not None]

    def select(self, rows: Tensor) -> "CCAState":
        """Return a new state made of the given batch rows, int64, repetition allowed."""
        # the rotary tables are the same for all rows
        return with_rows(self, rows, "core_key", "core_value", "raw_key", "raw_value")


class CCACache(MechanismCache):
    """The cache for generating with CCA-Attention: `model.generate(ids, past_key_values=CCACache(model))`.

    Holds floor(t / g) core tokens and at most s + g - 2 raw tokens a layer after t
    tokens, O(L / g + s), where a full cache holds t. Decoding with it gives what a
    forward over the whole text gives. Concatenation copies what is kept, which costs
    no more than reading it, which attention does anyway.

    Beam search and prefill in chunks of any size work. Rows of different length must
    be padded on the left; they are then kept and computed row by row, which is slower.
    """

    mechanism = "cca"
    state = CCAState

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4) -> int:
        """Return `nbytes()` after `length` tokens, from the closed form of `cca_cache_bytes`."""
        core_heads = self.config.num_attention_heads if self.choice.get("per_query_head") else None
        return cca_cache_bytes(length, group=self.choice["group"], window=self.choice["window"],
                               core_heads=core_heads, rotary=has_rotary(self.config), batch=batch,
                               itemsize=itemsize, **cache_sizes(self.config))


def cca_cache_bytes(length: int, *, group: int, window: int, layers: int, kv_heads: int, head_dim: int,
                    core_heads: int | None = None, rotary: bool = False, batch: int = 1,
                    itemsize: int = 4) -> int:
    """Return the bytes of a CCA cache after `length` tokens.

        2 B D (Hc floor(t/g) + Hk (t - g n(t))) + 2 D (t mod g) [rotary]

    numbers a layer, with n(t) = max(0, floor((t + 1 - s) / g)).

    Differs from the paper, which counts O(L/g + s) (section 3.6): cores that wait inside
    the window, and the rotary tables of the open group, are counted too.

    Args:
        length: tokens read, t.
        core_heads: heads that have their own cores; the key-value heads by default.
        rotary: whether the tables of the open group's positions are kept.
        itemsize: bytes of an element.
    """
    cores = length // group
    raw = length - group * core_count(length + 1, group, window)
    entries = 2 * batch * head_dim * ((core_heads or kv_heads) * cores + kv_heads * raw)
    tables = 2 * head_dim * (length % group) if rotary else 0
    return layers * itemsize * (entries + tables)
