"""CCA's layer of a static cache: sinks, a ring of raw tokens, and cores for the longest text.

The columns are [S sinks ; R of the ring ; C cores]. R is a multiple of g and at least s + g - 1,
what a row sees at most, so that the g tokens of a group stand side by side. Each token pools its
group, where those that are not there yet are other tokens still; the group's last token leaves the
core as it should be, and no row sees it before.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from cca_lab.attention.pooling import pool_checked
from cca_lab.attention.rotary import Rotation, first_row
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.caching.base import StateLayer
from cca_lab.mechanisms.caching.static import Plan, Progress, StaticLayer, token_in
from cca_lab.mechanisms.cca.cache import CCAState
from cca_lab.mechanisms.indices import behind_sinks, cca_columns


class CCALayer(StaticLayer):
    """The buffers of CCA; the tables are those of the places in a group."""

    def __init__(self, mechanism: CCA, layer: StateLayer, progress: Progress,
                 **place: bool) -> None:
        self.mechanism, self.sinks, group = mechanism, mechanism.sinks, mechanism.group
        self.positions, self.ring = group, (mechanism.window - 2) // group * group + 2 * group
        self.cores = behind_sinks(progress.longest, self.sinks) // group + 1
        self.size = self.sinks + self.ring + self.cores
        super().__init__(layer, progress, **place)

    def plan(self, row: Tensor) -> Plan:
        """Return the columns of token, core and members, the place in the group, and the bias."""
        group, behind = self.mechanism.group, row - self.sinks  # negative for a sink
        (_, cores), (first, _) = cca_columns(behind, 0, group, self.mechanism.window)
        sinks, core, place = (torch.arange(size, device=row.device) for size in (
            self.sinks, self.cores, group))
        bias = self.bias_of(sinks <= row, token_in(self.ring, behind) >= first, core < cores)
        bias[self.sinks + self.ring :] += self.mechanism.bias
        number = (behind // group).clamp(min=0)
        members = self.sinks + number * group % self.ring + place
        token = torch.where(behind < 0, row, self.sinks + behind % self.ring)
        return (token[None], (self.sinks + self.ring + number)[None], members,
                (behind % group)[None], bias)

    def load(self, state: CCAState) -> None:
        """Write cores, sinks, raw tokens and the open group's tables, see `StaticLayer.load`."""
        behind, stored = behind_sinks(state.seen, self.sinks), state.raw_key.shape[2]
        sinks, core = (torch.arange(count, device=state.raw_key.device) for count in (
            state.seen - behind, state.core_key.shape[2]))
        tokens = torch.arange(behind - stored + len(sinks), behind, device=state.raw_key.device)
        heads = state.core_key.shape[1]
        self.write(torch.cat([sinks, self.sinks + tokens % self.ring]),
                   expand_heads(state.raw_key, heads), expand_heads(state.raw_value, heads))
        self.write(self.sinks + self.ring + core, state.core_key, state.core_value)
        if state.rotation is not None:
            for buffer, table in zip((self.cos, self.sin), state.rotation, strict=True):
                buffer[: table.shape[1]] = table[0]

    def step(self, query: Tensor, key: Tensor, value: Tensor, plan: Plan, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Write the token and its group's core, then attend, see `StaticLayer.step`."""
        assert self.key is not None
        mechanism, heads, (token, core, members, place, bias) = self.mechanism, self.key.shape[1], \
            plan
        self.write(token, expand_heads(key, heads), expand_heads(value, heads))
        if rotation is not None:
            for buffer, table in zip((self.cos, self.sin), first_row(rotation), strict=True):
                buffer.index_copy_(0, place, table[0])
        judge = F.pad(query, (0, 0, mechanism.group - 1, 0))  # only the last query is read
        member_key, member_value = (x[:, :: heads // key.shape[1]].index_select(2, members)
                                    for x in (self.key, self.value))
        core_key, core_value, _ = pool_checked(
            judge, member_key, member_value, mechanism.group, scale=scale,
            weights=mechanism.pooling, per_query_head=mechanism.per_query_head, backend="torch",
            rotation=rotation and (self.cos, self.sin))
        self.write(core, core_key, core_value)
        return self.see(query, bias, scale)
