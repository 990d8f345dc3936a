"""The static form of a cache: buffers of fixed sizes, written at indices that are tensors.

A growing state has one more entry after each token, so that a compiled step would be compiled anew
and no CUDA graph could hold it. Here a step has the same shapes at every length: the number of
tokens read is a tensor, from which a `Plan` computes where the token is written and what it sees.

A prompt is read by the growing state, from which its form is filled; later tokens are read one at a
time. Nothing that a token writes is seen by an earlier row or by its own row in another attempt, and
the number of tokens rises with the last layer: a step that was interrupted can be repeated.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype, product
from cca_lab.attention.rotary import Rotation, at
from cca_lab.mechanisms.caching.base import Padding, StateLayer
from cca_lab.mechanisms.caching.state import State


class Form:
    """The buffers of one layer, for rows of one length; a subclass knows a mechanism's columns.

    Attributes:
        columns: N, the columns of the buffers.
        positions: P, how many positions' rotary tables are kept.
        key, value: (B, heads, N, D); heads is Hk, or H where each query head has keys of its own.
        cos, sin: (P, D); ones and zeros for positions that have not been read, and without RoPE.
    """

    columns: int
    positions = 0
    key: Tensor | None = None

    def plan(self, row: Tensor) -> Any:
        """Return where the token of a row, int64 (), is written, and what the row sees."""
        raise NotImplementedError

    def load(self, state: Any) -> None:
        """Write what a growing state has read into the buffers, which are empty."""
        raise NotImplementedError

    def step(self, query: Tensor, key: Tensor, value: Tensor, plan: Any, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process one token by its plan: query (B, H, 1, D), key and value (B, Hk, 1, D)."""
        raise NotImplementedError

    def allocate(self, key: Tensor, rotation: Rotation | None) -> None:
        """Empty the buffers, made for keys (B, heads, any, D) of this dtype if they were not."""
        shape = len(key), key.shape[1], self.columns, key.shape[3]
        if self.key is None or self.key.shape != shape or self.key.dtype != key.dtype:
            self.key, self.value = key.new_empty(shape), key.new_empty(shape)
            like = key if rotation is None else rotation[0]
            self.cos, self.sin = (like.new_empty(self.positions, key.shape[3]) for _ in range(2))
            if key.is_cuda:  # a CUDA graph may then write into them
                for buffer in self.tensors():
                    torch._dynamo.mark_static_address(buffer)
        for buffer in self.tensors():
            buffer.fill_(buffer is self.cos)

    def write(self, columns: Tensor, key: Tensor, value: Tensor) -> None:
        """Write keys and values (B, heads, n, D) into columns, int64 (n,)."""
        self.key.index_copy_(2, columns, key)  # type: ignore[union-attr]  # it was allocated
        self.value.index_copy_(2, columns, value)

    def tensors(self) -> list[Tensor]:
        """Return the buffers."""
        return [] if self.key is None else [self.key, self.value, self.cos, self.sin]


def attend(parts: Sequence[tuple[Tensor, Tensor]], value: Tensor, bias: Tensor,
           scale: float) -> Tensor:
    """Attend with one row to the columns of all parts, in one softmax.

    Args:
        parts: queries (B, H, 1, D), each with the keys (B, Hp, n, D) that it reads.
        value: (B, Hp, N, D), of the columns of all parts together.
        bias: (N,), what is added to the logits; -inf in columns that the row does not see.
        scale: factor on the dot products.

    Returns:
        (B, H, 1, D) in the query's dtype.
    """
    dtype, first = accumulation_dtype(value.dtype), parts[0][0]
    scores = [product(query.to(dtype).reshape(len(key), key.shape[1], -1, key.shape[3]),
                      key.to(dtype).mT) for query, key in parts]  # (B, Hp, H / Hp, n)
    weights = (torch.cat(scores, dim=-1) * scale + bias).softmax(dim=-1)
    return product(weights, value.to(dtype)).reshape(first.shape).to(first.dtype)


class Progress:
    """What the layers of a static cache share.

    Attributes:
        longest: tokens that the buffers can hold.
        held: whether a prompt has been read, in every layer.
        seen: int64 (), how many tokens have been read if one has.
        plans: of the tokens that are read now.
    """

    def __init__(self, longest: int) -> None:
        self.longest, self.held = longest, False
        self.seen: Tensor | None = None
        self.plans: list[Any] = []


class StaticLayer(StateLayer):
    """One layer of a `StaticCache`: a growing state for the prompt, then its form."""

    is_compileable = True

    def __init__(self, new_state: Callable[[], State], padding: Padding, form: Form,
                 progress: Progress, *, last: bool) -> None:
        self.form, self.progress, self.last = form, progress, last
        super().__init__(new_state, padding)

    def reset(self) -> None:
        """Reset the layer to the empty state; the buffers stay where they are."""
        self.progress.held = False
        super().reset()

    @property
    def longest(self) -> int:
        """The tokens of the longest text."""
        return self.progress.longest

    @property
    def columns(self) -> int:
        """The tokens seen."""
        return int(self.progress.seen) if self.progress.held else self._read  # type: ignore[arg-type]

    @columns.setter
    def columns(self, count: int) -> None:
        self._read = count

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
               rotation: Rotation | None = None, mask: Tensor | None = None) -> Tensor:
        """Process a chunk, see `StateLayer.attend`; padding and too long a text are refused."""
        count = self.columns + key.shape[2]
        if count > self.longest:
            raise ValueError(f"past_key_values: the static cache has room for {self.longest} "
                             f"tokens, got {count}; make one with longest={count} or more")
        if mask is not None and not mask.all():
            raise ValueError("attention_mask: got padding, wanted rows of one length with a static "
                             "cache; leave cache_implementation out for others")
        if self.progress.held:
            self.reading = True  # a chunk may write over what its own first rows see
            output = self.read(query, key, value, scale, rotation)
            self.reading = False
            return output
        output = super().attend(query, key, value, scale=scale, rotation=rotation)
        self._hold(query, key, rotation)
        return output

    def read(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T tokens by the form, one at a time, without a look at any number."""
        progress, self.expected = self.progress, False
        if torch.is_grad_enabled() and key.requires_grad:
            raise ValueError("past_key_values: a static cache is written in place, which records "
                             "no gradient; call the model within torch.no_grad()")
        assert progress.seen is not None and self.dtype is not None
        chunk, dtype = key.shape[2], query.dtype
        query, key, value = (x.to(self.dtype) for x in (query, key, value))
        if not progress.plans:  # those of the first layer serve all
            progress.plans = [self.form.plan(progress.seen + token) for token in range(chunk)]
        outputs = [self.form.step(*(x[:, :, token : token + 1] for x in (query, key, value)), plan,
                                  scale=scale, rotation=rotation and at(
                                      rotation, slice(token, token + 1)))
                   for token, plan in enumerate(progress.plans)]
        if self.last:
            progress.seen.add_(chunk)
            progress.plans = []
        return (outputs[0] if chunk == 1 else torch.cat(outputs, dim=2)).to(dtype)

    def _hold(self, query: Tensor, key: Tensor, rotation: Rotation | None) -> None:
        """Copy what the growing state has read into the form."""
        state, progress = self.states[0], self.progress
        heads = query if getattr(state, "per_query_head", False) else key
        self.form.allocate(heads.to(self.dtype), rotation)
        self.form.load(state)
        self.states = []
        if self.ids is not None:
            ids = self.ids.new_zeros(len(self.ids), self.longest)
            ids[:, : self._read], self.ids = self.ids, ids
        if self.last:
            if progress.seen is None or progress.seen.device != key.device:
                progress.seen = torch.zeros((), dtype=torch.int64, device=key.device)
                if key.is_cuda:
                    torch._dynamo.mark_static_address(progress.seen)
            progress.seen.fill_(self._read)
            progress.held = True

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the rows for beam search, in place."""
        for buffer in self.form.tensors()[:2]:
            buffer.copy_(buffer.index_select(0, beam_idx))
        self.ids = None if self.ids is None else self.ids[beam_idx]

    def select(self, rows: Tensor) -> None:
        """Raise ValueError: the number of rows is fixed."""
        raise ValueError("rows: a static cache keeps its rows; repeat the prompt's before it is "
                         "read, or take a growing cache")

    def tensors(self) -> list[Tensor]:
        """Return the buffers of the form."""
        return self.form.tensors()

    def get_seq_length(self) -> int:
        """Return the number of tokens seen, a tensor () after the prompt."""
        return self.progress.seen if self.progress.held else self._read  # type: ignore[return-value]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return length and first position of the keys that `update` returns."""
        return query_length, 0

    def get_max_length(self) -> int:
        """Return the number of tokens of the longest text."""
        return self.longest


class FormOf(Protocol):
    """A form's class, made from a mechanism and the tokens of the longest text."""

    def __call__(self, mechanism: Any, longest: int) -> Form:
        """Return a form without buffers."""
        ...
