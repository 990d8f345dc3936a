"""What every decode-time cache of the lab shares: rows, left padding, beams, bytes.

A mechanism writes one `State`: what it keeps of the past, and how a chunk of new
tokens attends over it. `StateLayer` puts states under transformers' cache layers,
`MechanismCache` is the object that `generate(past_key_values=...)` takes.
"""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Cache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from cca_lab.attention.arguments import check_tensors

IMPLEMENTATION = "cca_lab"  # the name under which transformers knows our attention function
CHOICE = "cca_lab_attention"  # where a config keeps the mechanism's name and options

Rotation = tuple[Tensor, Tensor]  # cos and sin, (1 or B, T, D) each


class State(Protocol):
    """What one layer keeps of the past of rows that share their group borders."""

    seen: int  # real tokens read so far

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Read T new tokens: query (B, H, T, D), key and value (B, Hk, T, D) -> output (B, H, T, D)."""
        ...

    def tensors(self) -> list[Tensor]:
        """Return every tensor that is stored."""
        ...

    def select(self, rows: Tensor) -> "State":
        """Return a new state made of the given batch rows, int64, repetition allowed."""
        ...


def attention_choice(config: PreTrainedConfig) -> dict:
    """Return {"name": ..., option: value, ...} of the mechanism a config switches on, "full" if none."""
    if config._attn_implementation != IMPLEMENTATION:
        return {"name": "full"}
    return dict(getattr(config, CHOICE, {"name": "full"}))


class StateLayer(CacheLayerMixin):
    """One layer of a `MechanismCache`: one state for the batch, or one a row where left padding differs."""

    is_sliding = False

    def __init__(self, new_state: Callable[[], State]) -> None:
        super().__init__()
        self.new_state = new_state
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.states: list[State] = [self.new_state()]
        self.columns = 0  # tokens seen, padding included
        self.batch: int | None = None  # rows, once there are some
        self.expected = False  # a swapped layer is about to hand over its chunk

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to allocate ahead: the states grow with the text."""
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """Pass the chunk on; `attend`, which sees the query too, is what stores it."""
        if not self.expected:
            raise ValueError("past_key_values: the model's attention does not read this cache; "
                             "call swap_attention(model, ...) before generating with it")
        self.is_initialized, self.expected = True, False
        return key_states, value_states

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
               rotation: Rotation | None = None, mask: Tensor | None = None) -> Tensor:
        """Read a chunk of T tokens after what the cache holds.

        Args:
            query: (B, H, T, D).
            key: (B, Hk, T, D), rotated already where the model has rotary positions.
            value: (B, Hk, T, D).
            scale: of the logits.
            rotation: the tables the chunk was rotated with.
            mask: (B, columns seen + T), nonzero at real tokens; None if there is no padding.

        Returns:
            (B, H, T, D), zero at padding.

        Raises:
            ValueError: for padding anywhere but to the left of a row's first token, or another batch size than
                the cache holds.
        """
        batch, chunk = key.shape[0], key.shape[2]
        if self.batch not in (None, batch):
            raise ValueError(f"past_key_values: holds {self.batch} row(s), got {batch}; make a new cache for another "
                             "batch, or reset() this one")
        self.batch = batch
        padding = self._padding(mask, batch, chunk)
        self.columns += chunk
        if len(self.states) == 1 and min(padding) == max(padding):
            return _step(self.states[0], query, key, value, rotation, scale, slice(None), padding[0])
        if len(self.states) == 1:  # nothing is in it yet: padding comes before all tokens
            self.states = [self.new_state() for _ in range(batch)]
        parts = [_step(state, query, key, value, rotation, scale, slice(row, row + 1), pad)
                 for row, (state, pad) in enumerate(zip(self.states, padding, strict=True))]
        return torch.cat(parts)

    def _padding(self, mask: Tensor | None, batch: int, chunk: int) -> list[int]:
        """Count the padding columns with which each row of the chunk begins."""
        if mask is None:
            return [0] * batch
        real = mask[:, self.columns:].bool()
        padding = chunk - real.sum(dim=-1)  # (B,)
        column = torch.arange(chunk, device=mask.device)
        if not torch.equal(real, column >= padding[:, None]):
            raise ValueError("attention_mask: with a cache, padding may stand only before the first token of "
                             "a row; pad on the left (tokenizer.padding_side = 'left')")
        padding = padding.tolist()
        seen = [state.seen for state in self.states] * (batch // len(self.states))
        if any(pad and past for pad, past in zip(padding, seen, strict=True)):
            raise ValueError("attention_mask: padding after tokens that the cache holds; wanted it only "
                             "before the first token of a row")
        return padding

    def select(self, rows: Tensor) -> None:
        """Keep the given batch rows."""
        check_tensors(rows=rows)
        if self.batch is None:  # nothing is held
            return
        self.batch = len(rows)
        if len(self.states) == 1:
            self.states = [self.states[0].select(rows)]
        else:
            one = torch.zeros(1, dtype=torch.int64, device=rows.device)
            self.states = [self.states[row].select(one) for row in rows.tolist()]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the rows for beam search."""
        self.select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given rows."""
        self.select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        self.select(torch.arange(self.batch or 0).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse: tokens that were pooled or dropped cannot be brought back."""
        raise ValueError("crop: a cache that has pooled its past cannot take tokens back, so assisted and "
                         "speculative decoding do not work with it; generate without assistant_model")

    def tensors(self) -> list[Tensor]:
        """Return every tensor stored in this layer."""
        return [tensor for state in self.states for tensor in state.tensors()]

    def get_seq_length(self) -> int:
        """Return the number of tokens seen (padding included), not of entries stored."""
        return self.columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return length and first position of what `update` hands to the attention function."""
        return query_length, self.columns

    def get_max_length(self) -> int:
        """Return -1: there is no maximum."""
        return -1


def with_rows(state: State, rows: Tensor, *names: str) -> State:
    """Return a copy of a state in which the named tensors, those that are there, hold the given batch rows."""
    new = copy(state)
    for name in names:
        tensor = getattr(state, name)
        setattr(new, name, None if tensor is None else tensor.index_select(0, rows.to(tensor.device)))
    return new


def append(past: Tensor | None, new: Tensor) -> Tensor:
    """Concatenate along the tokens into memory of its own, which holds nothing else."""
    return torch.cat([new] if past is None else [past, new], dim=-2)


def _step(state: State, query: Tensor, key: Tensor, value: Tensor, rotation: Rotation | None, scale: float,
          rows: slice, padding: int) -> Tensor:
    """Let a state read its rows without their padding; the output is zero there."""
    query, key, value = (x[rows, :, padding:] for x in (query, key, value))
    rotation = rotation and tuple((t if len(t) == 1 else t[rows])[:, padding:] for t in rotation)
    if key.shape[2] == 0:
        return F.pad(query, (0, 0, padding, 0))
    output = state.step(query, key, value, scale=scale, rotation=rotation)
    return F.pad(output, (0, 0, padding, 0)) if padding else output


class MechanismCache(Cache):
    """The past of a model that attends with one of the lab's mechanisms, for `generate(past_key_values=...)`.

    One object serves one text (or batch of texts): make a new one, or `reset()`, for the next.

    Args:
        model: a model after `swap_attention`, or its config.

    Raises:
        ValueError: if the model's attention is not the one this cache belongs to.
    """

    mechanism: str
    state: type[State]

    def __init__(self, model: PreTrainedModel | PreTrainedConfig) -> None:
        config = getattr(model, "config", model)
        if not isinstance(config, PreTrainedConfig):
            raise ValueError(f"model: got {type(model).__name__}, wanted a model after swap_attention, or its config")
        self.choice = attention_choice(config)
        if self.choice["name"] != self.mechanism:
            raise ValueError(
                f"model: got one with {self.choice['name']!r} attention, wanted {self.mechanism!r} for a "
                f"{type(self).__name__}; call swap_attention(model, {self.mechanism!r}) first")
        self.config = config
        options = {name: value for name, value in self.choice.items() if name != "name"}
        new_state = partial(self.state, **options)
        super().__init__(layers=[StateLayer(new_state) for _ in range(config.num_hidden_layers)])

    def nbytes(self) -> int:
        """Return the bytes of memory that the cache holds, as allocated (storages, not views)."""
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
                    for layer in self.layers for t in layer.tensors()}
        return sum(storages.values())
