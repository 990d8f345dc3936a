"""The decode-time cache of LoCoCo: M slots, and the raw tokens since they were last filled.

The columns [slots ; raw] of the mechanism, kept in that order. A segment is closed when
its B tokens are there, or, with borders="calls", when a call ends. Closed columns that
exceed M + buffer are compressed at once ("eager") or before the next token ("lazy").
"""

from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.caches.base import MechanismCache, Rotation, append, with_rows
from cca_lab.caches.sizes import cache_sizes
from cca_lab.mechanisms.lococo_compressor import Compressor
from cca_lab.mechanisms.lococo_memory import Memory, attention_received, compress
from cca_lab.mechanisms.lococo_rows import Settings, cache_tokens


class Borrowed:
    """A module that a cache reads and does not own: copying the cache does not copy it."""

    def __init__(self, module: nn.Module | None) -> None:
        self.module = module

    def __deepcopy__(self, memo: dict) -> "Borrowed":
        return self


class LoCoCoState:
    """Slots and raw tokens of one layer, for rows that share their segment borders.

    Attributes:
        seen: tokens read so far.
        open: tokens of the segment that is not closed yet.
        key, value: of the columns [slots ; raw], (B, Hk, N, D) each.
        received: attention that the columns received, (B, Hk, N), where the mechanism needs it, else None.
    """

    def __init__(self, *, compressor: Borrowed | None = None, backend: str = "auto", **options) -> None:
        self.compressor = compressor or Borrowed(None)
        self.settings = Settings(**options)
        if isinstance(self.settings.segment, list | tuple):
            raise ValueError(f"segment: got {self.settings.segment}, wanted one number for a cache; with "
                             "borders='calls' each call begins a segment")
        self.backend = backend
        self.seen = self.open = 0
        self.key = self.value = self.received = None

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None = None) -> Tensor:
        """Read T new tokens: query (B, H, T, D), key and value (B, Hk, T, D) -> output (B, H, T, D)."""
        outputs, start, length = [], 0, key.shape[2]
        while start < length:
            stop = min(length, start + self.settings.segment - self.open)
            part = slice(start, stop)
            outputs.append(self._read(query[:, :, part], key[:, :, part], value[:, :, part], scale))
            start = stop
        if self.settings.borders == "calls" and self.open:
            self._close()
        return torch.cat(outputs, dim=2)

    def _read(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Read tokens of one segment."""
        if self.open == 0:
            self._compress_if_full()  # of a lazy cache; an eager one has done so already
            if self.settings.scores == "last" and self.received is not None:
                self.received = torch.zeros_like(self.received)
        self.key, self.value = append(self.key, key), append(self.value, value)
        rows, columns = key.shape[2], self.key.shape[2]
        if self.settings.scored:
            received = attention_received(query, self.key, scale)
            if self.received is not None:
                received[..., : columns - rows] += self.received
            self.received = received
        output = interval_attention(query, self.key, self.value, causal_intervals(rows, columns), scale=scale,
                                    backend=self.backend)
        self.seen += rows
        self.open += rows
        if self.open == self.settings.segment:
            self._close()
        return output

    def _close(self) -> None:
        self.open = 0
        if self.settings.when == "eager":
            self._compress_if_full()

    def _compress_if_full(self) -> None:
        """Mix all columns into the slots, if they are more than M + buffer."""
        if self.key is None or self.key.shape[2] <= self.settings.slots + self.settings.buffer:
            return
        nothing = Memory(self.key[:, :, :0], self.value[:, :, :0])
        memory = compress(nothing, self.key, self.value, self.received, self.settings, self.compressor.module)
        self.key, self.value = memory.keys, memory.values
        if self.received is not None:
            self.received = (memory.weights.detach() @ self.received[..., None])[..., 0]

    def tensors(self) -> list[Tensor]:
        """Return every tensor that is stored."""
        return [tensor for tensor in (self.key, self.value, self.received) if tensor is not None]

    def select(self, rows: Tensor) -> "LoCoCoState":
        """Return a new state made of the given batch rows, int64, repetition allowed."""
        return with_rows(self, rows, "key", "value", "received")


class LoCoCoCache(MechanismCache):
    """The cache for generating with LoCoCo: `model.generate(ids, past_key_values=LoCoCoCache(model))`.

    Holds at most M + buffer entries between segments, and up to B more of an open segment,
    whatever the length of the text. It reads the compressors of the model it was made for.

    What it promises: the outputs are those of one forward over the whole text in which the
    segments have the same borders. With borders="text" segments are counted from the first
    token, so that prefill and decoding, in chunks of any size, always agree with it. With
    borders="calls" each call begins a segment, so a decoded token is a segment of its own, as
    in the paper (Section 3.3) and the public code: they agree with a forward with segment=
    the list of these sizes, and not with one in which the text is prefilled.

    Raises:
        ValueError: also if it is given a config, which has no compressors.
    """

    mechanism = "lococo"
    state = LoCoCoState

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        parts = model.modules() if isinstance(model, nn.Module) else ()
        modules = [part for part in parts if isinstance(part, Compressor)]
        wanted = len(self.layers) if self.settings.convolved else 0
        if len(modules) != wanted:
            raise ValueError(f"model: got a {type(model).__name__} with {len(modules)} compressors, wanted "
                             f"one with {wanted}; pass the model itself, after swap_attention")
        for layer, module in zip(self.layers, modules, strict=False):
            layer.new_state = partial(layer.new_state, compressor=Borrowed(module))
            layer.reset()

    @property
    def settings(self) -> Settings:
        """The mechanism's options."""
        return Settings(**{option: value for option, value in self.choice.items()
                           if option not in ("name", "backend")})

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4) -> int:
        """Return `nbytes()` after `length` tokens, from the closed form of `lococo_cache_bytes`.

        Raises:
            ValueError: with borders="calls", where the size depends on the calls.
        """
        settings = self.settings
        if settings.borders == "calls":
            raise ValueError("borders: with 'calls' the size depends on the calls, wanted 'text'; measure it "
                             "with nbytes()")
        return lococo_cache_bytes(
            length, slots=settings.slots, segment=settings.segment, buffer=settings.buffer,
            when=settings.when, scored=settings.scored, batch=batch, itemsize=itemsize, **cache_sizes(self.config))


def lococo_cache_bytes(length: int, *, slots: int, segment: int, layers: int, kv_heads: int, head_dim: int,
                       buffer: int = 0, when: str = "eager", scored: bool = False, batch: int = 1,
                       itemsize: int = 4) -> int:
    """Return the bytes of a LoCoCo cache after `length` tokens: 2 B Hk D N a layer, N = `cache_tokens`.

    Differs from the paper, which counts the M slots only: the raw tokens of the open segment
    are counted too, and the received attention, one number of at least four bytes for each
    column, where heavy hitters need it.

    Args:
        length: tokens read.
        scored: whether received attention is kept.
        itemsize: bytes of an element.
    """
    columns = cache_tokens(length, slots=slots, segment=segment, buffer=buffer, when=when)
    entry = 2 * head_dim * itemsize + (max(itemsize, 4) if scored else 0)
    return layers * batch * kv_heads * columns * entry
