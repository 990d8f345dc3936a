"""Layers of a static cache for StreamingLLM and LM-Infinite: first tokens, and a ring of near ones.

The columns are [S first tokens ; one that no row sees ; n of the ring], n being the nearest tokens
that a row sees, its own included. A first token stands in the ring as well while it is near. Where
far tokens are read at a limited distance, their keys are re-rotated for each row in place of its
query, so that all columns are read by one query.
"""

import torch
from torch import Tensor

from cca_lab.attention.rotary import Rotation, first_row, turn
from cca_lab.mechanisms.caching.base import StateLayer
from cca_lab.mechanisms.caching.static import Plan, Progress, StaticLayer, token_in
from cca_lab.mechanisms.indices import sink_columns
from cca_lab.mechanisms.streaming.cache import StreamingLLMState
from cca_lab.mechanisms.streaming.lm_infinite import LMInfinite
from cca_lab.mechanisms.streaming.streaming_llm import StreamingLLM


class StreamingLLMLayer(StaticLayer):
    """The buffers of StreamingLLM or LM-Infinite; the tables are of the limit and position 0."""

    def __init__(self, mechanism: StreamingLLM | LMInfinite, layer: StateLayer,
                 progress: Progress, **place: bool) -> None:
        self.at_start = isinstance(mechanism, LMInfinite)  # far keys are read at position 0
        self.limit: int | None = None
        if isinstance(mechanism, LMInfinite):
            self.sinks, self.near = mechanism.global_tokens, mechanism.local
            self.limit = mechanism.distance
        else:
            self.sinks, self.near = mechanism.sinks, mechanism.recent + 1
            if mechanism.positions == "cache":
                self.limit = mechanism.sinks + mechanism.recent
        self.size = self.sinks + 1 + self.near
        if self.sinks and self.limit is not None:
            self.far_size, self.positions = self.sinks + 1, 2
        super().__init__(layer, progress, **place)

    def plan(self, row: Tensor) -> Plan:
        """Return the columns among first tokens and in the ring, if it may move, and the bias."""
        (_, far), (first, _) = sink_columns(row, self.sinks, self.near)
        bias = self.bias_of(torch.arange(self.sinks + 1, device=row.device) < far,
                            token_in(self.near, row) >= first)
        columns = torch.stack([row.clamp(max=self.sinks), self.sinks + 1 + row % self.near])
        return columns, row <= (self.limit or 0), bias

    def load(self, state: StreamingLLMState) -> None:
        """Write first and near tokens and the tables, see `StaticLayer.load`."""
        held, near = min(self.sinks, state.seen), min(self.near - 1, state.seen)
        first, last = slice(held), slice(state.key.shape[2] - near, None)
        tokens = torch.arange(state.seen - near, state.seen, device=state.key.device)
        self.write(self.sinks + 1 + tokens % self.near, state.key[:, :, last],
                   state.value[:, :, last])
        self.write(tokens.new_tensor(range(held)), state.key[:, :, first],
                   state.value[:, :, first])
        if self.far_size:
            far = state.key[:, :, first]
            if self.at_start and state.tables:
                far = turn(far, state.table(*range(held)), state.table(0))
            self.far[:, :, first] = far
            for row, position in enumerate((self.limit, 0)):
                if position in state.tables:
                    self.cos[row], self.sin[row] = state.tables[position]

    def step(self, query: Tensor, key: Tensor, value: Tensor, plan: Plan, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Write the token, re-rotate the far keys, then attend, see `StaticLayer.step`."""
        assert self.key is not None
        columns, early, bias = plan
        self.write(columns, key.expand(-1, -1, 2, -1), value.expand(-1, -1, 2, -1))
        if rotation is not None and self.far_size:
            here, limit = first_row(rotation), (self.cos[:1], self.sin[:1])
            far = turn(key, here, (self.cos[1:], self.sin[1:])) if self.at_start else key
            self.far.index_copy_(2, columns[:1], far)
            for buffer, table in zip(limit, here, strict=True):
                buffer.copy_(torch.where(early, table[0], buffer))
            # the adjoint of the query's turn from its row to the limit
            (cos, sin), (cos_limit, sin_limit) = here, limit
            self.key[:, :, : self.far_size] = turn(self.far, (cos, -sin), (cos_limit, -sin_limit))
        return self.see(query, bias, scale)
