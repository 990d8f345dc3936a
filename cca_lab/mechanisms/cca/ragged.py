"""CCA's cache for rows of different length that go on one token at a time: all rows in one call.

Rows close their groups at different tokens, so the entries of a row are fewer than there is place
for: cores stand at the left of theirs, raw tokens and rotary tables at the right, where the newest
token is the last of every row. A mask says what a row sees; all layers share it. A core is read s
tokens after its group was closed, so that the groups of all rows are pooled together, once in g
tokens.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import native
from cca_lab.attention.dense import accumulation_dtype
from cca_lab.attention.pooling import pool_checked
from cca_lab.attention.rotary import Rotation
from cca_lab.attention.row import attend_row
from cca_lab.mechanisms.caching import segmented
from cca_lab.mechanisms.caching import state as caching
from cca_lab.mechanisms.caching.segmented import aligned, hiding
from cca_lab.mechanisms.caching.state import NO_TOKENS, GrowingBuffers, State, Stored
from cca_lab.mechanisms.cca.cache import CCAState
from cca_lab.mechanisms.indices import core_count, first_raw

ROOM = 16  # cores by which the place for them grows


def joined(states: Sequence[CCAState]) -> list[State]:
    """Return one state for all rows if that is faster and possible, else the states."""
    first = states[0]
    width = first.window + first.group - 1
    places = width + first.sinks + max(state.core_key.shape[2] for state in states) + ROOM
    few = len(states) * first.raw_key[:, :, :1].numel() * places < segmented.TIMES_FEW * caching.FEW
    fits = first.backend == "auto" and not first.per_query_head and first.raw_key.is_cpu
    if not (few and fits and all(state.seen > first.sinks for state in states)):
        return list(states)
    return [RaggedState(states)]


class RaggedState(CCAState):
    """What `CCAState` holds of each row, for rows of different length.

    Attributes:
        behind: tokens of each row that were read behind the sinks.
        core_key, core_value: (B, Hk, places, D), floor(t / g) of a row at the left.
        sink_key, sink_value: (B, Hk, S, D).
        raw_key, raw_value: (B, Hk, s + g - 1, D), those of a row at the right.
        cos, sin: (B, 2 g - 1, D), those of the last tokens; None without rotary positions.
        later: those of the tokens after them, until groups are pooled.
        waiting: the query that pools the last closed group, of each row where it is still to pool.
    """

    stored: tuple[str, ...] = ("core_key", "core_value", "sink_key", "sink_value", "raw_key",
                               "raw_value", "cos", "sin")
    sink_key = sink_value = NO_TOKENS
    cos: Tensor | None
    sin: Tensor | None
    row = Stored.row  # what a text reads differs

    def __init__(self, states: Sequence[CCAState]) -> None:
        vars(self).update(vars(states[0]))  # the options
        self.buffers, self.visible, self.chunk_tables = GrowingBuffers(), (NO_TOKENS,) * 3, ()
        self.behind = [state.seen - self.sinks for state in states]
        self.waiting: dict[int, Tensor] = {}
        self.later: tuple[Rotation, ...] = ()
        self.seen = max(state.seen for state in states)
        places = max(state.core_key.shape[2] for state in states) + ROOM
        width = self.window + self.group - 1
        for name in ("key", "value"):
            cores, raw = ([getattr(state, kind + name) for state in states]
                          for kind in ("core_", "raw_"))
            setattr(self, "core_" + name, aligned(cores, places, left=True))
            setattr(self, "sink_" + name, torch.cat([x[:, :, : self.sinks] for x in raw]))
            setattr(self, "raw_" + name, aligned([x[:, :, self.sinks:] for x in raw], width))
        tables = [state.rotation for state in states]
        self.cos, self.sin = (
            aligned([table[place] for table in tables if table is not None], 2 * self.group - 1)
            if tables[0] is not None else None for place in (0, 1))

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process one new token of each row, see `State.step`."""
        if self.raw_key.numel() < caching.FEW and native.reads_rows(key):
            self.raw_key, self.raw_value = native.slide([self.raw_key, self.raw_value],
                                                        [key, value], 0, 1)
        else:
            for name, new in (("raw_key", key), ("raw_value", value)):
                longer = self.buffers.append(name, getattr(self, name), new)
                setattr(self, name, self.buffers.drop(name, longer, 0, 1))
        if rotation is not None:
            self.later += (rotation,)
        self.behind = [count + 1 for count in self.behind]
        self.seen += 1
        for row, count in enumerate(self.behind):
            if count % self.group == 0:
                self.waiting[row] = query[row : row + 1] * scale
        latest = min(self.group, self.window) - 1
        if any(self.behind[row] % self.group >= latest for row in self.waiting):
            self._pool()
        return attend_row(query, [self.core_key, self.sink_key, self.raw_key],
                          [self.core_value, self.sink_value, self.raw_value], scale=scale,
                          bias=_masks(tuple(self.behind), self.core_key.shape[2], self.sinks,
                                      self.group, self.window, self.bias,
                                      accumulation_dtype(query.dtype)))

    def _pool(self) -> None:
        """Pool the groups that wait for it, and bring the rotary tables up to date."""
        if self.later and self.cos is not None and self.sin is not None:
            self.cos, self.sin = (
                torch.cat([past, *(x.expand(len(past), -1, -1) for x in new)], dim=1)[:, len(new):]
                for past, new in zip((self.cos, self.sin), zip(*self.later, strict=True),
                                     strict=True))
            self.later = ()
        if not self.waiting:
            return
        rows = torch.tensor(list(self.waiting), device="cpu")
        behind = torch.tensor(self.behind, device="cpu")[rows]
        places = behind // self.group - 1
        # of a row's last tokens, the newest being -1; behind mod g of them came after the group
        members = torch.arange(-self.group, 0, device="cpu") - (behind % self.group)[:, None]
        k, v = (x[rows[:, None], :, members].transpose(1, 2)
                for x in (self.raw_key, self.raw_value))  # (n, Hk, g, D)
        cos, sin = self.cos, self.sin
        rotation = None if cos is None or sin is None else (cos[rows[:, None], members],
                                                            sin[rows[:, None], members])
        queries = torch.cat(list(self.waiting.values())).expand(-1, -1, self.group, -1)
        core_key, core_value, _ = pool_checked(queries, k, v, self.group, scale=1.0,
                                               rotation=rotation, weights=self.weights)
        self.waiting = {}
        more = ROOM if int(places.max()) >= self.core_key.shape[2] else 0
        for name, core in (("core_key", core_key), ("core_value", core_value)):
            cores = F.pad(getattr(self, name), (0, 0, 0, more)).clone()
            cores[rows, :, places] = core[:, :, 0]
            setattr(self, name, cores)

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the state stores."""
        return [*super().tensors(), *chain(*self.later)]

    def split(self) -> list[State]:
        """Return a state for each row, for chunks of more than one token."""
        self._pool()
        states: list[State] = []
        for row, count in enumerate(self.behind):
            one, of_row = CCAState.__new__(CCAState), slice(row, row + 1)
            vars(one).update({name: value for name, value in vars(self).items()
                              if name not in RaggedState.stored + ("behind", "waiting", "later")})
            one.buffers = GrowingBuffers()
            one.seen = count + self.sinks
            raw = self.raw_key.shape[2] - (count - first_raw(count, self.group, self.window))
            for name in ("key", "value"):
                sinks, tokens = getattr(self, "sink_" + name), getattr(self, "raw_" + name)
                cores = getattr(self, "core_" + name)[of_row, :, : count // self.group]
                setattr(one, "core_" + name, cores.clone())
                setattr(one, "raw_" + name, torch.cat((sinks[of_row], tokens[of_row, :, raw:]),
                                                      dim=2))
            if self.cos is not None and self.sin is not None:
                open_group = slice(2 * self.group - 1 - count % self.group, None)
                one.chunk_tables = ((self.cos[of_row, open_group].clone(),
                                     self.sin[of_row, open_group].clone()),)
            states.append(one)
        return states

    def select(self, rows: Tensor) -> Self:
        """Return a new state with the given batch rows."""
        self._pool()
        new = super().select(rows)
        new.behind, new.waiting = [self.behind[row] for row in rows.tolist()], {}
        new.seen = max(new.behind) + self.sinks
        return new


@lru_cache(maxsize=2)
def _masks(behind: tuple[int, ...], places: int, sinks: int, group: int, window: int,
           bias: float, dtype: torch.dtype) -> list[Tensor]:
    """Return what is added to the logits of cores, sinks and raw tokens, (B or 1, n) each."""
    count = torch.tensor(behind, device="cpu")[:, None]
    cores, width = core_count(count, group, window), window + group - 1
    core, raw = torch.arange(places, device="cpu"), torch.arange(width, device="cpu")
    return [hiding(core >= cores, dtype, bias), torch.zeros(1, sinks, dtype=dtype, device="cpu"),
            hiding(raw < width - (count - group * cores), dtype)]
