"""Layers of a static cache: buffers of fixed sizes, written at indices that are tensors.

A growing state has one more entry after each token, so that a compiled step would be compiled anew
and no CUDA graph could hold it. Here a step has the same shapes at every length: from the number of
tokens read, a tensor, follows where a token is written and what its row sees.

The prompt is read by the growing state, with which the buffers are then filled; later tokens are
read one at a time. The number of tokens rises with the last layer, and what a token writes is seen
by no row before it, so that a step that was interrupted can be repeated.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention.rotary import Rotation, at
from cca_lab.mechanisms.caching.base import StateLayer

Plan = tuple[Tensor, ...]  # of a token: its indices, and what is added to the logits of its row


class Progress:
    """What the layers of a static cache share.

    Attributes:
        longest: tokens of the longest text.
        held: whether a prompt has been read, in every layer.
        seen: int64 (), the tokens read, once a prompt has been.
        plans: of the tokens that are being read.
    """

    def __init__(self, longest: int) -> None:
        self.longest, self.held = longest, False
        self.seen = torch.zeros((), dtype=torch.int64, device="cpu")
        self.plans: list[Plan] = []


class StaticLayer(StateLayer):
    """One layer of a `StaticCache`, for rows of one length; a subclass knows what its rows see.

    Attributes:
        size: N, the columns of keys and values.
        far_size: F, the columns of keys that are re-rotated for each row.
        positions: P, of which rotary tables are kept.
        key, value, far: (B, heads, N or F, D).
        cos, sin: (P, D), or (0, D) without RoPE; ones and zeros for what was not read.
    """

    is_compileable = True
    size = far_size = positions = 0
    key: Tensor | None = None

    def __init__(self, layer: StateLayer, progress: Progress, *, first: bool, last: bool) -> None:
        self.progress, self.longest, self.first, self.last = progress, progress.longest, first, last
        super().__init__(layer.new_state, layer.padding)

    def plan(self, row: Tensor) -> Plan:
        """Return the plan of the token of a row, int64 ()."""
        raise NotImplementedError

    def load(self, state: Any) -> None:
        """Write what a growing state has read into the empty buffers."""
        raise NotImplementedError

    def step(self, query: Tensor, key: Tensor, value: Tensor, plan: Plan, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process one token by its plan: query (B, H, 1, D), key and value (B, Hk, 1, D)."""
        raise NotImplementedError

    def write(self, columns: Tensor, key: Tensor, value: Tensor) -> None:
        """Write keys and values (B, heads, n, D) into columns, int64 (n,)."""
        assert self.key is not None
        self.key.index_copy_(2, columns, key)
        self.value.index_copy_(2, columns, value)

    def see(self, query: Tensor, bias: Tensor, scale: float) -> Tensor:
        """Attend with one row (B, H, 1, D) to all columns, with (N,) added to their logits."""
        assert self.key is not None
        rows = query.reshape(len(query), self.key.shape[1], -1, query.shape[3])
        return F.scaled_dot_product_attention(rows, self.key, self.value, attn_mask=bias[None],
                                              scale=scale).reshape(query.shape)

    def bias_of(self, *visible: Tensor) -> Tensor:
        """Return 0 for the columns that a row sees and -inf for others, from parts of them."""
        assert self.key is not None
        return torch.where(torch.cat(visible), 0.0, -torch.inf).to(self.key.dtype)

    def reset(self) -> None:
        """Reset the layer to the empty state; the buffers stay where they are."""
        self.progress.held = False
        super().reset()

    @property
    def columns(self) -> int:
        """The tokens seen."""
        return int(self.progress.seen) if self.progress.held else self._read

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
            # tokens of a chunk may write over what its first rows see
            self.reading = key.shape[2] > 1
            output = self.read(query, key, value, scale, rotation)
            self.reading = False
            return output
        output = super().attend(query, key, value, scale=scale, rotation=rotation)
        self._hold(key, rotation)
        return output

    def read(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T tokens behind the prompt, one at a time, without a look at any number."""
        assert self.key is not None
        progress, dtype, self.expected = self.progress, query.dtype, False
        query, key, value = (x.to(self.key.dtype) for x in (query, key, value))
        if self.first:
            progress.plans = [self.plan(progress.seen + token) for token in range(key.shape[2])]
        outputs = []
        for token, plan in enumerate(progress.plans):
            now = slice(token, token + 1)
            outputs.append(self.step(query[:, :, now], key[:, :, now], value[:, :, now], plan,
                                     scale, rotation and at(rotation, now)))
        if self.last:
            progress.seen.add_(key.shape[2])
            progress.plans = []  # no output of a graph
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)).to(dtype)

    def _hold(self, key: Tensor, rotation: Rotation | None) -> None:
        """Move what the growing state has read into the buffers."""
        state, progress = self.states.pop(), self.progress
        like = getattr(state, "core_key", key).to(self.dtype)  # cores may be those of H heads
        if self.key is None or self.key.shape[:2] != like.shape[:2] or self.key.dtype != like.dtype:
            self.key, self.value, self.far = (like.new_empty(
                *like.shape[:2], columns, like.shape[3]) for columns in (
                    self.size, self.size, self.far_size))
            table, rows = (key, 0) if rotation is None else (rotation[0], self.positions)
            self.cos, self.sin = (table.new_empty(rows, key.shape[3]) for _ in range(2))
            _keep_in_place(*self.tensors())
        for buffer in self.tensors():
            buffer.fill_(buffer is self.cos)
        self.load(state)
        if self.ids is not None:
            self.ids = F.pad(self.ids, (0, self.longest - self.ids.shape[1]))
        if self.last:
            if progress.seen.device != key.device:
                progress.seen = progress.seen.to(key.device)
                _keep_in_place(progress.seen)
            progress.seen.fill_(self._read)
            progress.held = True

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the rows for beam search, in place."""
        for buffer in self.tensors()[:3]:
            buffer.copy_(buffer.index_select(0, beam_idx))
        self.ids = None if self.ids is None else self.ids[beam_idx]

    def select(self, rows: Tensor) -> None:
        """Raise ValueError: the number of rows is fixed."""
        raise ValueError("rows: a static cache keeps its rows; repeat those of the prompt before "
                         "it is read, or take a growing cache")

    def tensors(self) -> list[Tensor]:
        """Return the buffers."""
        return [] if self.key is None else [self.key, self.value, self.far, self.cos, self.sin]

    def get_seq_length(self) -> int:
        """Return the number of tokens seen, behind the prompt as a tensor ()."""
        return cast(int, self.progress.seen) if self.progress.held else self._read

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return length and first position of the keys that `update` returns."""
        return query_length, 0


def _keep_in_place(*buffers: Tensor) -> None:
    """Let CUDA graphs write into buffers, whose addresses stay."""
    for buffer in buffers:
        if buffer.is_cuda:
            torch._dynamo.mark_static_address(buffer)


def token_in(columns: int, row: Tensor) -> Tensor:
    """Return the latest token up to a row in each column of a ring; negative where there is none.

    Token t stands in column t mod n.
    """
    return row - (row - torch.arange(columns, device=row.device)) % columns
