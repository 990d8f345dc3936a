"""The static form of CCA's cache: sinks, a ring of raw tokens, and cores for the longest text.

The columns are [S sinks ; R of the ring ; C cores]. R is a multiple of g and at least s + g - 1,
what a row sees at most, so that the g tokens of a group stand side by side in the ring. A token
pools its group at once, those that are not there yet from what stands in their places; the last
token of the group leaves the core as it should be, and no row sees it before.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype, expand_heads
from cca_lab.attention.pooling import pool_checked
from cca_lab.attention.rotary import Rotation, first_row
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.caching.static import Form, attend
from cca_lab.mechanisms.cca.cache import CCAState
from cca_lab.mechanisms.indices import behind_sinks, cca_columns


class CCAPlan(NamedTuple):
    """Where a token is written, the members of its group, and what its row sees.

    Attributes:
        column, place, core: int64 (1,), of its key, of its rotary table and of its group's core.
        members: int64 (g,), the columns of its group.
        bias: (N,), see `static.attend`.
    """

    column: Tensor
    place: Tensor
    core: Tensor
    members: Tensor
    bias: Tensor


class CCAForm(Form):
    """The buffers of CCA; the tables are those of a group's places."""

    def __init__(self, mechanism: CCA, longest: int) -> None:
        self.mechanism, group = mechanism, mechanism.group
        self.sinks, self.positions = mechanism.sinks, group
        self.ring = (mechanism.window - 2) // group * group + 2 * group
        self.first_core = self.sinks + self.ring
        self.columns = self.first_core + behind_sinks(longest, self.sinks) // group + 1

    def plan(self, row: Tensor) -> CCAPlan:
        """Return where the token of a row is written, and what the row sees, see `Form.plan`."""
        assert self.key is not None
        group, behind = self.mechanism.group, row - self.sinks  # a sink is less than none behind
        (_, cores), (first, _) = cca_columns(behind, 0, group, self.mechanism.window)
        column = torch.arange(self.columns, device=row.device)
        sinks, ring, core = column.split(
            [self.sinks, self.ring, self.columns - self.first_core])
        visible = torch.cat([sinks <= row, token_in(ring - self.sinks, behind) >= first,
                             core - self.first_core < cores])
        bias = torch.where(visible, 0.0, -torch.inf).to(accumulation_dtype(self.key.dtype))
        bias[self.first_core :] += self.mechanism.bias
        number = (behind // group).clamp(min=0)
        members = number * group % self.ring + torch.arange(group, device=row.device)
        written = torch.where(behind < 0, row, self.sinks + behind % self.ring)
        return CCAPlan(written[None], (behind % group)[None], (self.first_core + number)[None],
                       self.sinks + members, bias)

    def load(self, state: CCAState) -> None:
        """Write cores, sinks, raw tokens and the open group's tables into the buffers."""
        assert self.key is not None
        device, behind = self.key.device, behind_sinks(state.seen, self.sinks)
        held, count = state.seen - behind, state.raw_key.shape[2]
        tokens = torch.arange(behind - (count - held), behind, device=device)
        columns = torch.cat([torch.arange(held, device=device), self.sinks + tokens % self.ring])
        self.write(columns, *self._expanded(state.raw_key, state.raw_value))
        cores = torch.arange(state.core_key.shape[2], device=device)
        self.write(self.first_core + cores, state.core_key, state.core_value)
        if state.rotation is not None:
            for buffer, table in zip((self.cos, self.sin), state.rotation, strict=True):
                buffer[: table.shape[1]] = table[0]

    def step(self, query: Tensor, key: Tensor, value: Tensor, plan: CCAPlan, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Write the token and its group's core, then attend, see `Form.step`."""
        assert self.key is not None
        mechanism, repeats = self.mechanism, self.key.shape[1] // key.shape[1]
        self.write(plan.column, *self._expanded(key, value))
        if rotation is not None:
            for buffer, table in zip((self.cos, self.sin), first_row(rotation), strict=True):
                buffer.index_copy_(0, plan.place, table[0])
        judge = F.pad(query, (0, 0, mechanism.group - 1, 0))  # only the last query is read
        members = [x[:, ::repeats].index_select(2, plan.members) for x in (self.key, self.value)]
        core_key, core_value, _ = pool_checked(
            judge, *members, mechanism.group, scale=scale, weights=mechanism.pooling,
            per_query_head=mechanism.per_query_head, backend="torch",
            rotation=rotation and (self.cos, self.sin))
        self.write(plan.core, core_key, core_value)
        return attend([(query, self.key)], self.value, plan.bias, scale)

    def _expanded(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return raw keys and values with as many heads as cores have."""
        assert self.key is not None
        heads = self.key.shape[1]
        return expand_heads(key, heads), expand_heads(value, heads)


def token_in(column: Tensor, row: Tensor) -> Tensor:
    """Return the latest token up to a row in each of all n columns of a ring; negative if none."""
    return row - (row - column) % len(column)
