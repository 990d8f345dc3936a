"""The decode-time cache of StreamingLLM: the first tokens of the text and the most recent ones.

A chunk is appended, attends, and only then are the oldest recent tokens dropped:

    min(t, sinks + recent) entries for each KV head after t tokens

Keys are kept as they come, rotated at their original positions. With positions="cache" the query that meets
the sinks is turned instead, by one angle, which needs the rotary table of a single position.
"""

from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from cca_lab.attention import interval_attention
from cca_lab.caches.base import MechanismCache, Rotation, with_rows
from cca_lab.caches.sizes import cache_sizes, has_rotary
from cca_lab.mechanisms.rotary import at, turn
from cca_lab.mechanisms.sinks import intervals, merged_attention

PROMPTS = ("windowed", "dense")


class StreamingLLMState:
    """What one layer keeps.

    Attributes:
        seen: tokens read so far.
        key, value: (B, Hk, min(seen, sinks + recent), D): the sinks, then the recent tokens.
        tables: cos and sin, (2, D), of the positions in `kept_positions` that have been read.
    """

    def __init__(self, *, sinks: int, recent: int, positions: str = "original", prompt: str = "windowed",
                 backend: str = "auto") -> None:
        self.sinks, self.recent = sinks, recent
        self.prompt, self.backend = prompt, backend
        self.kept_positions = {sinks + recent} if positions == "cache" else set()
        self.seen = 0
        self.key = self.value = None
        self.tables: dict[int, Tensor] = {}

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Read T new tokens: query (B, H, T, D), key and value (B, Hk, T, D) -> output (B, H, T, D)."""
        row = torch.arange(self.seen, self.seen + key.shape[2])  # on the CPU, where intervals are planned
        past = (self.key, self.value) if self.seen else (key[:, :, :0], value[:, :, :0])
        self.key, self.value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        if rotation is not None and self.kept_positions:
            rotation = tuple(table[:1] for table in rotation)  # every row of the batch turns by the same angle
            self._keep_tables(rotation, row)
        else:
            rotation = None
        output = self._attend(query, row, rotation, scale)
        self.seen += len(row)
        self._evict()  # after the chunk has attended
        return output

    def _keep_tables(self, rotation: Rotation, row: Tensor) -> None:
        """Keep the tables of the positions that later chunks turn to or from."""
        for position in self.kept_positions & set(row.tolist()):
            self.tables[position] = torch.cat(at(rotation, [position - self.seen]), dim=1)[0]  # (2, D)

    def _attend(self, query: Tensor, row: Tensor, rotation: Rotation | None, scale: float) -> Tensor:
        """Attend to what is kept and the chunk's own past, the far part at its own positions."""
        dropped = max(0, self.seen - self.sinks - self.recent)
        visible = intervals(row, self.sinks, self.recent + 1, dropped)
        if self.prompt == "dense":  # every row sees all that is kept: the sinks, if apart, then the rest
            visible[..., 0, 1], visible[..., 1, 0] = (self.sinks, self.sinks) if dropped else (0, 0)
        if rotation is None:
            return interval_attention(query, self.key, self.value, visible, scale=scale, backend=self.backend)
        far_query, far_key = self._far(query, row, rotation)
        return merged_attention(query, self.key, self.value, far_query, far_key, visible, scale=scale,
                                backend=self.backend)

    def _far(self, query: Tensor, row: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Turn the queries that meet the sinks to their places in the cache.

        Row i stands at min(i, sinks + recent) if the prompt is windowed. If it is dense, the chunk stands
        behind the entries kept, in its own order: all its queries turn by one angle.
        """
        full = self.sinks + self.recent
        if self.prompt == "windowed":
            return self._turned(query, row, rotation, full), self.key
        if self.seen <= full:
            return query, self.key
        return turn(query, at(rotation, slice(0, 1)), self.table(full)), self.key

    def _turned(self, query: Tensor, row: Tensor, rotation: Rotation, limit: int) -> Tensor:
        """Turn the query of row i to position min(i, limit)."""
        if int(row[-1]) <= limit:
            return query
        beyond = (row > limit).to(rotation[0].device)[:, None]
        there = tuple(torch.where(beyond, kept, own)
                      for kept, own in zip(self.table(limit), rotation, strict=True))
        return turn(query, rotation, there)

    def table(self, *positions: int) -> Rotation:
        """Return cos and sin of kept positions, (1, n, D) each."""
        cos, sin = torch.stack([self.tables[position] for position in positions], dim=1)
        return cos[None], sin[None]

    def _evict(self) -> None:
        """Drop the oldest recent tokens, into memory of its own."""
        entries = self.key.shape[2]
        if entries > self.sinks + self.recent:
            last = slice(entries - self.recent, None)
            self.key, self.value = (torch.cat([x[:, :, : self.sinks], x[:, :, last]], dim=2)
                                    for x in (self.key, self.value))

    def tensors(self) -> list[Tensor]:
        """Return every tensor that is stored."""
        return [] if self.key is None else [self.key, self.value, *self.tables.values()]

    def select(self, rows: Tensor) -> "StreamingLLMState":
        """Return a new state made of the given batch rows, int64, repetition allowed."""
        new = with_rows(self, rows, "key", "value")
        new.tables = dict(self.tables)  # the same for all rows
        return new


class StreamingLLMCache(MechanismCache):
    """The cache for generating with StreamingLLM: `model.generate(ids, past_key_values=StreamingLLMCache(model))`.

    Holds at most sinks + recent entries a layer and KV head, however long the text.

    prompt="windowed": every row sees its sinks and recent tokens only. Prefill equals decode: any chunks give
    what a forward over the whole text gives.
    prompt="dense", as in the public code: every chunk attends in full to what is kept and to its own past,
    and tokens are dropped behind it. A text no longer than sinks + recent + 1, or one read token by token,
    gives the same as above; a longer prompt read at once gives full attention's output and other entries in
    deeper layers, so prefill does not equal decode.

    Args:
        model: a model after `swap_attention(model, "streaming_llm", ...)`, or its config.
        prompt: "windowed" or "dense".

    Raises:
        ValueError: for another attention or prompt, or positions="cache" in a model without rotary positions.
    """

    mechanism = "streaming_llm"
    state = StreamingLLMState

    def __init__(self, model: PreTrainedModel | PreTrainedConfig, *, prompt: str = "windowed") -> None:
        super().__init__(model)
        if prompt not in PROMPTS:
            raise ValueError(f"prompt: got {prompt!r}, wanted 'windowed' or 'dense'; the public code's is 'dense'")
        if self.choice.get("positions") == "cache" and not has_rotary(self.config):
            raise ValueError("positions: got 'cache', wanted 'original', because this model adds its positions "
                             "to the embeddings; call swap_attention(model, 'streaming_llm', ...) with that")
        for layer in self.layers:
            layer.new_state = partial(layer.new_state, prompt=prompt)
            layer.reset()

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4) -> int:
        """Return `nbytes()` after `length` tokens, from the closed form of `streaming_llm_cache_bytes`."""
        return streaming_llm_cache_bytes(
            length, sinks=self.choice["sinks"], recent=self.choice["recent"], batch=batch, itemsize=itemsize,
            table=self.choice.get("positions") == "cache", **cache_sizes(self.config))


def streaming_llm_cache_bytes(length: int, *, sinks: int, recent: int, layers: int, kv_heads: int,
                              head_dim: int, table: bool = False, batch: int = 1, itemsize: int = 4) -> int:
    """Return the bytes of a StreamingLLM cache after `length` tokens.

        2 B D Hk min(t, sinks + recent) + 2 D [positions="cache" and t > sinks + recent]

    numbers a layer.

    Args:
        length: tokens read, t.
        table: whether positions are those in the cache: one position's rotary table is then kept.
        itemsize: bytes of an element.
    """
    entries = 2 * batch * head_dim * kv_heads * min(length, sinks + recent)
    return layers * itemsize * (entries + 2 * head_dim * (table and length > sinks + recent))
