"""The common part of all decode-time caches: batch rows, left padding, beam search, bytes.

Each mechanism implements a state (`state.py`). `StateLayer` makes states a cache layer of
transformers, and `MechanismCache` is the object that `generate(past_key_values=...)` takes.
"""

import copy
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Generic, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Cache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from cca_lab.attention.arguments import check_tensors
from cca_lab.attention.eager import eager
from cca_lab.attention.rotary import Rotation, of_rows
from cca_lab.mechanisms import Full, Mechanism, mechanism_of
from cca_lab.mechanisms.caching.state import State
from cca_lab.settings import check_flags, check_integers

IMPLEMENTATION = "cca_lab"  # the name under which transformers knows our attention function
CHOICE = "cca_lab_attention"  # where a config keeps the mechanism's name and options

M = TypeVar("M", bound=Mechanism)


def mechanism_in(config: PreTrainedConfig) -> Mechanism:
    """Return the mechanism that a config switches on, or `Full()` if there is none."""
    return mechanism_named_in(config) if config._attn_implementation == IMPLEMENTATION else Full()


def mechanism_named_in(config: PreTrainedConfig) -> Mechanism:
    """Return the mechanism that a config names, switched on or not: one object for all layers."""
    global _latest
    choice, latest = getattr(config, CHOICE, _FULL), _latest  # another thread may replace it
    if choice is not latest[0] or choice != latest[1]:
        made = _made(json.dumps(choice, default=operator.index))
        _latest = latest = choice, copy.deepcopy(choice), made
    return latest[2]


_FULL = {"name": "full"}
_latest: tuple[dict[str, Any], dict[str, Any], Mechanism] = _FULL, _FULL, Full()


@lru_cache(maxsize=64)
def _made(choice: str) -> Mechanism:
    options = json.loads(choice)
    return mechanism_of(options.pop("name"), options)


@dataclass(frozen=True, kw_only=True)
class CacheSizes:
    """The numbers from which the bytes of a cache are computed.

    Attributes:
        layers, heads, kv_heads, head_dim: of the model; H is Hk by default.
        rotary: whether the model rotates its queries and keys (RoPE).
        batch: rows, B.
        itemsize: bytes of an element of keys and values.
    """

    layers: int
    kv_heads: int
    head_dim: int
    heads: int = field(default=0)
    rotary: bool = False
    batch: int = 1
    itemsize: int = 4

    def __post_init__(self) -> None:
        check_flags(self)
        if not self.heads:
            object.__setattr__(self, "heads", self.kv_heads)
        check_integers(1, layers=self.layers, heads=self.heads, kv_heads=self.kv_heads,
                       head_dim=self.head_dim, batch=self.batch, itemsize=self.itemsize)

    @classmethod
    def of(cls, config: PreTrainedConfig, *, batch: int = 1, itemsize: int = 4) -> Self:
        """Return the sizes of a model's config."""
        if not isinstance(config, PreTrainedConfig):
            raise ValueError(f"config: got {type(config).__name__}, wanted a model's config")
        heads = config.num_attention_heads
        return cls(layers=config.num_hidden_layers, heads=heads,
                   kv_heads=getattr(config, "num_key_value_heads", None) or heads,
                   head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
                   rotary=has_rotary(config), batch=batch, itemsize=itemsize)

    def entries(self, count: int | None) -> int:
        """Return the bytes of `count` keys and values per KV head, 2 B Hk D numbers each."""
        if count is None:
            raise ValueError("cache_entries: got None, wanted a number of entries; where it "
                             "depends on more than the length, measure the bytes with nbytes()")
        return 2 * self.batch * self.kv_heads * self.head_dim * count * self.itemsize

    def tables(self, positions: int) -> int:
        """Return the bytes of rotary tables, 2 D numbers a position; 0 without RoPE."""
        return 2 * self.head_dim * positions * self.itemsize if self.rotary else 0


def has_rotary(config: PreTrainedConfig) -> bool:
    """Return whether the model rotates its queries and keys (RoPE)."""
    return hasattr(config, "rope_parameters")


class Padding:
    """The padding of a chunk, computed once for all layers of a cache: they are given one mask."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the chunk that was read last: its mask may be written into."""
        self.mask: Tensor | None = None
        self.past = 0
        self.counts: list[int] | None = None

    def of(self, mask: Tensor, past: int) -> list[int] | None:
        """Return how many columns after `past` are padding in each row, None if there are none."""
        if mask is not self.mask or past != self.past:
            self.mask, self.past, self.counts = mask, past, None
            real = mask[:, past:].bool()
            if not real.all():
                first = real.shape[1] - real.sum(dim=-1)  # (B,)
                column = torch.arange(real.shape[1], device=mask.device)
                if not torch.equal(real, column >= first[:, None]):
                    self.forget()
                    raise ValueError(
                        "attention_mask: with a cache, padding may stand only before the first "
                        "token of a row; pad on the left (tokenizer.padding_side = 'left')")
                self.counts = first.tolist()
        return self.counts


class StateLayer(CacheLayerMixin):
    """One layer of a `MechanismCache`: a state for the batch, or one per row if padding differs."""

    is_sliding = False

    def __init__(self, new_state: Callable[[], State], padding: "Padding") -> None:
        super().__init__()
        self.new_state, self.padding = new_state, padding
        self.reset()

    def reset(self) -> None:
        """Reset the layer to the empty state."""
        self.states: list[State] = [self.new_state()]
        self.columns = 0  # tokens seen, padding included
        self.batch: int | None = None  # number of rows, None before the first chunk
        self.dtype: torch.dtype | None = None  # of the first chunk, and so of what is stored
        self.expected = False  # True while a swapped layer passes its chunk
        self.reading = False  # True while the states change; it stays so where that is interrupted
        self.ids: Tensor | None = None  # (B, tokens read) where they were given as ids

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate nothing: the states grow with the text."""
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any,
               **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the chunk unchanged; `attend`, which also gets the query, stores it."""
        if not self.expected:
            raise ValueError("past_key_values: the model's attention does not read this cache; "
                             "call swap_attention(model, ...) before generating with it")
        self.is_initialized = True
        return key_states, value_states

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
               rotation: Rotation | None = None, mask: Tensor | None = None) -> Tensor:
        """Process a chunk of T tokens that follow those in the cache.

        Args:
            query: (B, H, T, D).
            key, value: (B, Hk, T, D), rotated if the model has rotary positions.
            scale: factor on the dot products.
            rotation: the rotary tables with which the chunk was rotated.
            mask: (B, columns seen + T), nonzero at real tokens; None if there is no padding.

        Returns:
            (B, H, T, D), zero at padding.

        Raises:
            ValueError: for padding that is not to the left of a row's first token, or for another
                batch size than that of the cache.
        """
        batch, chunk = key.shape[0], key.shape[2]
        if self.batch not in (None, batch):
            raise ValueError(f"past_key_values: holds {self.batch} row(s), got {batch}; make a new "
                             "cache for another batch, reset() this one, or for beams and several "
                             "continuations repeat its rows with batch_repeat_interleave(n)")
        padding, dtype = mask is not None and self.padding.of(mask, self.columns), query.dtype
        self.dtype = self.dtype or key.dtype
        if dtype != self.dtype:  # where autocast is around a part of the text only
            query, key, value = (x.to(self.dtype) for x in (query, key, value))
        self._arrange(chunk, padded=bool(padding))
        if not padding and len(self.states) == 1:
            self._begin(batch)
            output = self.states[0].step(query, key, value, scale=scale, rotation=rotation)
        else:
            output = self._attend_padded(query, key, value, rotation, scale,
                                         padding or [0] * batch)
        self.columns, self.reading = self.columns + chunk, False
        return output if dtype == self.dtype else output.to(dtype)

    def _arrange(self, chunk: int, *, padded: bool) -> None:
        """Let rows of different length go on together, one token at a time, or by themselves."""
        if chunk > 1 or padded or torch.is_grad_enabled():
            self.states = [one for state in self.states for one in state.split()]
        elif len(self.states) > 1:
            self.states = self.states[0].join(self.states)

    def _begin(self, batch: int) -> None:
        self.batch, self.expected, self.reading = batch, False, True

    def _attend_padded(self, query: Tensor, key: Tensor, value: Tensor,
                       rotation: Rotation | None, scale: float, padding: list[int]) -> Tensor:
        """Let the states process their rows without the padding at the start of each."""
        batch = len(padding)
        seen = [state.seen for state in self.states] * (batch // len(self.states))
        if any(pad and past for pad, past in zip(padding, seen, strict=True)):
            raise ValueError("attention_mask: padding after tokens that the cache holds; wanted it "
                             "only before the first token of a row")
        self._begin(batch)
        if len(self.states) == 1 and min(padding) != max(padding):
            # it is still empty, because padding comes before all tokens
            self.states = [self.new_state() for _ in range(batch)]
        if len(self.states) == 1:
            return _step(self.states[0], query, key, value, rotation, scale, slice(None),
                         padding[0])
        return torch.cat([_step(state, query, key, value, rotation, scale, slice(row, row + 1), pad)
                          for row, (state, pad) in enumerate(zip(self.states, padding,
                                                                 strict=True))])

    def select(self, rows: Tensor) -> None:
        """Keep the given batch rows."""
        check_tensors(rows=rows)
        if self.batch is None:  # empty
            return
        # looking at a GPU's numbers would stop it at each token of a beam search
        if len(rows) == 0 or (rows.device.type == "cpu"
                              and not 0 <= int(rows.min()) <= int(rows.max()) < self.batch):
            raise ValueError(f"rows: got {rows.tolist()}, wanted one or more of 0 to "
                             f"{self.batch - 1}, the rows of the cache")
        self.batch = len(rows)
        self.ids = None if self.ids is None else self.ids[rows.to(self.ids.device)]
        if len(self.states) == 1:
            self.states = [self.states[0].select(rows)]
        else:
            first_row = torch.zeros(1, dtype=torch.int64, device=rows.device)
            self.states = [self.states[row].select(first_row) for row in rows.tolist()]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the rows for beam search."""
        self.select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given rows."""
        self.select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        check_integers(1, repeats=repeats)
        self.select(torch.arange(self.batch or 0, device="cpu").repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Raise ValueError: tokens that were pooled or dropped cannot be restored."""
        raise ValueError(
            "crop: a cache that has pooled its past cannot take tokens back, so assisted and "
            "speculative decoding do not work with it; generate without assistant_model")

    def tensors(self) -> list[Tensor]:
        """Return every tensor stored in this layer."""
        return [tensor for state in self.states for tensor in state.tensors()]

    def get_seq_length(self) -> int:
        """Return the number of tokens seen (padding included), not the number of entries stored."""
        return self.columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return length and first position of the keys that `update` returns."""
        return query_length, self.columns

    def get_max_length(self) -> int:
        """Return -1: there is no maximum."""
        return -1


def _step(state: State, query: Tensor, key: Tensor, value: Tensor, rotation: Rotation | None,
          scale: float, rows: slice, padding: int) -> Tensor:
    """Let a state process its rows without their padding, where the output is zero."""
    query, key, value = (x[rows, :, padding:] for x in (query, key, value))
    rotation = rotation and of_rows(rotation, rows, slice(padding, None))
    if key.shape[2] == 0:
        return F.pad(query, (0, 0, padding, 0))
    output = state.step(query, key, value, scale=scale, rotation=rotation)
    return F.pad(output, (0, 0, padding, 0)) if padding else output


class MechanismCache(Cache, Generic[M]):
    """The past of a model that attends with a mechanism, for `generate(past_key_values=...)`.

    One object is for one text (or batch of texts) and one model: make a new one, or call `reset()`,
    for the next. A `copy.deepcopy` of one that has read a prompt reads another continuation.

    Args:
        model: a model after `swap_attention`, or its config.

    Raises:
        ValueError: if the model's attention is not that of this cache.
    """

    mechanism: type[M]
    state: Callable[[M], State]
    # the base class has a list of any kind of layer
    layers: list[StateLayer]  # type: ignore[assignment]

    def __init__(self, model: PreTrainedModel | PreTrainedConfig) -> None:
        config = getattr(model, "config", model)
        if not isinstance(config, PreTrainedConfig):
            raise ValueError(f"model: got {type(model).__name__}, wanted a model after "
                             "swap_attention, or its config")
        attention = mechanism_in(config)
        if type(attention) is not self.mechanism:
            raise ValueError(f"model: got one with {attention.name!r} attention, wanted "
                             f"{self.mechanism.name!r} for a {type(self).__name__}; call "
                             f"swap_attention(model, {self.mechanism.name!r}) first")
        self.attention, self.config = attention, config
        self.reader: PreTrainedConfig | None = None  # of the model that has read the text
        self.padding = Padding()
        super().__init__(layers=[
            StateLayer(partial(type(self).state, attention.at_layer(layer)), self.padding)
            for layer in range(config.num_hidden_layers)])

    @eager  # a compiled model would be compiled anew for each number of tokens read
    def begin_forward(self, config: PreTrainedConfig, mechanism: Mechanism) -> None:
        """Begin to read a chunk; ValueError unless a model of this config can go on here.

        It must have the sizes that the cache was made for; a cache that has read a text goes on in
        the model that read it, and only if that forward was finished in every layer.
        """
        if config is not self.config and \
                CacheSizes.of(config) != (made_for := CacheSizes.of(self.config)):
            raise ValueError(f"past_key_values: the cache was made for {made_for}, the model has "
                             f"{CacheSizes.of(config)}; make a new cache for it")
        if mechanism is not self.attention and mechanism != self.attention:
            raise ValueError(f"past_key_values: the cache was made for {self.attention}, the model "
                             f"now uses {mechanism}; make a new cache")
        read = {layer.columns for layer in self.layers}
        if len(read) > 1 or any(layer.reading for layer in self.layers):
            raise ValueError(f"past_key_values: layers have read {min(read)} to {max(read)} "
                             "tokens, as the last forward was interrupted; reset() the cache, and "
                             "read the text again")
        if read != {0} and self.reader is not None and self.reader is not config:
            raise ValueError("past_key_values: the cache holds what another model has read; make a "
                             "new cache for this one, or reset() this cache")
        self.reader = config
        self.padding.forget()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, whose model may be a copy too."""
        return {**vars(self), "reader": None}

    def record(self, ids: Tensor | None) -> None:
        """Remember the token ids that the next chunk consists of, None if they are not known."""
        first = self.layers[0]
        if first.columns == 0:
            first.ids = ids
        elif first.ids is not None and ids is not None and len(ids) == len(first.ids):
            # a chunk that was refused is recorded, but not read
            first.ids = torch.cat([first.ids[:, : first.columns], ids], dim=1)

    def check_text(self, ids: Tensor) -> None:
        """Raise ValueError unless the text (B, L) begins with the tokens that the cache has read.

        What was read as embeddings is not known, nor is a text of which the new tokens are given
        alone, with the mask of all: both pass.
        """
        known, count = self.layers[0].ids, self.get_seq_length()
        if known is None or known.shape[1] < count or len(known) != len(ids):
            return
        known = known[:, :count]
        if ids.shape[1] <= count or not torch.equal(ids[:, :count].to(known.device), known):
            raise ValueError(f"past_key_values: the cache has read {count} tokens with which this "
                             f"text of {ids.shape[1]} does not begin; make a new cache for another "
                             "text, or reset() this one")

    def __repr__(self) -> str:
        """Return attention, rows and tokens read, bytes, and their share of a full cache's."""
        rows, count = self.layers[0].batch or 0, self.get_seq_length()
        return (f"{type(self).__name__}({self.attention}; {rows} x {count} tokens read, "
                f"{self.nbytes()} bytes{f', {self.ratio():.3f} of a full cache' if count else ''})")

    def ratio(self) -> float:
        """Return the bytes that the cache stores, divided by those of all keys and values."""
        first = self.layers[0]
        if first.batch is None or first.dtype is None:
            raise ValueError("ratio: the cache has read no token; read a text first")
        full = CacheSizes.of(self.config, batch=first.batch, itemsize=first.dtype.itemsize)
        return self.nbytes() / (full.layers * full.entries(self.get_seq_length()))

    def nbytes(self) -> int:
        """Return the bytes of what the cache stores."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer.tensors())

    def allocated_bytes(self) -> int:
        """Return the bytes of memory that the cache keeps, with the room in `GrowingBuffers`."""
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
                    for layer in self.layers for t in layer.tensors()}
        return sum(storages.values())

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4) -> int:
        """Return `nbytes()` after `length` tokens, from the closed form of `bytes_of`."""
        check_integers(0, length=length)
        return self.bytes_of(self.attention, length,
                             CacheSizes.of(self.config, batch=batch, itemsize=itemsize))

    @classmethod
    def bytes_of(cls, mechanism: M, length: int, sizes: CacheSizes) -> int:
        """Return the bytes of a cache after `length` tokens: entries, and `extra_bytes`."""
        return sizes.layers * (sizes.entries(mechanism.cache_entries(length))
                               + cls.extra_bytes(mechanism, length, sizes))

    @staticmethod
    def extra_bytes(mechanism: M, length: int, sizes: CacheSizes) -> int:
        """Return the bytes of a layer besides its entries: rotary tables, scores, queries."""
        return 0
