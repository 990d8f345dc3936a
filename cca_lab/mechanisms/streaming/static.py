"""The static form of StreamingLLM's and LM-Infinite's caches: first tokens, and a ring of near ones.

The columns are [S first tokens ; one that no row sees ; n of the ring], n being the nearest tokens
that a row sees, its own included. A first token stands in the ring as well, as long as it is near.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype
from cca_lab.attention.rotary import Rotation, first_row, turn
from cca_lab.mechanisms.caching.static import Form, attend
from cca_lab.mechanisms.cca.static import token_in
from cca_lab.mechanisms.indices import sink_columns
from cca_lab.mechanisms.streaming.cache import StreamingLLMState
from cca_lab.mechanisms.streaming.lm_infinite import LMInfinite
from cca_lab.mechanisms.streaming.streaming_llm import StreamingLLM


class SinkPlan(NamedTuple):
    """Where a token is written, and what its row sees.

    Attributes:
        columns: int64 (2,), among the first tokens or beside them, and in the ring.
        early: bool (), whether the row stands where queries to the first tokens are not re-rotated.
        bias: (N,), see `static.attend`.
    """

    columns: Tensor
    early: Tensor
    bias: Tensor


class StreamingLLMForm(Form):
    """The buffers of StreamingLLM; the table is of the position to which queries re-rotate."""

    limit: int | None = None  # that position, where they do
    positions = 2  # it, and position 0

    def __init__(self, mechanism: StreamingLLM, longest: int) -> None:
        self.sinks, self.near = mechanism.sinks, mechanism.recent + 1
        if mechanism.positions == "cache":
            self.limit = mechanism.sinks + mechanism.recent
        self.columns = self.sinks + 1 + self.near

    def plan(self, row: Tensor) -> SinkPlan:
        """Return where the token of a row is written, and what the row sees, see `Form.plan`."""
        assert self.key is not None
        (_, far), (first, _) = sink_columns(row, self.sinks, self.near)
        visible = torch.cat([torch.arange(self.sinks + 1, device=row.device) < far,
                             token_in(torch.arange(self.near, device=row.device), row) >= first])
        bias = torch.where(visible, 0.0, -torch.inf).to(accumulation_dtype(self.key.dtype))
        columns = torch.stack([row.clamp(max=self.sinks), self.sinks + 1 + row % self.near])
        return SinkPlan(columns, row <= (self.limit or 0), bias)

    def load(self, state: StreamingLLMState) -> None:
        """Write first and near tokens and the tables into the buffers."""
        assert self.key is not None
        count, seen = state.key.shape[2], state.seen
        held, near = min(self.sinks, seen), min(self.near - 1, seen)
        for row, position in enumerate((self.limit, 0)):
            if position in state.tables:
                self.cos[row], self.sin[row] = state.tables[position]
        tokens = torch.arange(seen - near, seen, device=self.key.device)
        self.write(self.sinks + 1 + tokens % self.near, state.key[:, :, count - near :],
                   state.value[:, :, count - near :])
        tables = [state.table(token) for token in range(held) if token in state.tables]
        here = (torch.cat(both, dim=1) for both in zip(*tables, strict=True)) if tables else None
        self.write(torch.arange(held, device=self.key.device),
                   self._far_key(state.key[:, :, :held], here and tuple(here)),
                   state.value[:, :, :held])

    def step(self, query: Tensor, key: Tensor, value: Tensor, plan: SinkPlan, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Write the token, then attend, to the first tokens at their positions, see `Form.step`."""
        assert self.key is not None
        if rotation is None or self.limit is None:
            self.write(plan.columns, key.expand(-1, -1, 2, -1), value.expand(-1, -1, 2, -1))
            return attend([(query, self.key)], self.value, plan.bias, scale)
        here = first_row(rotation)
        for buffer, table in zip((self.cos, self.sin), here, strict=True):
            buffer[:1] = torch.where(plan.early, table[0], buffer[:1])
        self.write(plan.columns, torch.cat([self._far_key(key, here), key], dim=2),
                   value.expand(-1, -1, 2, -1))
        far, near = self.key.split([self.sinks + 1, self.near], dim=2)
        far_query = turn(query, here, (self.cos[:1], self.sin[:1]))
        return attend([(far_query, far), (query, near)], self.value, plan.bias, scale)

    def _far_key(self, key: Tensor, here: Rotation | None) -> Tensor:
        """Return keys of first tokens, rotated with the tables `here`, as far rows read them."""
        return key


class LMInfiniteForm(StreamingLLMForm):
    """The buffers of LM-Infinite: far rows read the first tokens at position 0."""

    def __init__(self, mechanism: LMInfinite, longest: int) -> None:
        self.sinks, self.near = mechanism.global_tokens, mechanism.local
        self.limit = mechanism.distance if mechanism.global_tokens else None
        self.columns = self.sinks + 1 + self.near

    def _far_key(self, key: Tensor, here: Rotation | None) -> Tensor:
        """Return keys of first tokens, re-rotated to position 0."""
        return key if here is None else turn(key, here, (self.cos[1:], self.sin[1:]))
