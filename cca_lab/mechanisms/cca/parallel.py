"""CCA-Attention of one text over processes: cores go to everybody, raw tokens to a neighbour.

Process r holds the tokens [a, b) of a text (or two such pieces, see `shards`). Its rows read the
cores [0, n(b - 1)) and the raw tokens [g n(a), b). So three things happen, in this order:

    1. halo      the raw keys and values [g n(a), a), fewer than s + g, arrive from the processes
                 before it
    2. cores     each group is pooled where its last token is, whose query pools it (Eq. 2); the
                 halo holds the members that are elsewhere. The cores [0, n(b - 1)) that others
                 pooled arrive
    3. attention to the raw tokens while the cores travel, then to the cores; the two outputs are
                 merged by their log-sum-exps. Backward does the same in the opposite order

A process receives at most (L/g + s + g) keys and values a layer; ring attention passes on all L.
Everything travels through `fetch`, so that gradients return the same way.

In closed form a process *receives*, in the forward pass, entries (a key and a value of one KV head
each). For L tokens in R contiguous pieces, of which it holds [a, b):

    CCA      a - g n(a)  raw tokens, and  min(floor(a / g), n(b - 1))  cores
    ring     L - (b - a): the keys and values of everybody pass by (Liu et al., "Ring Attention with
             Blockwise Transformers", 2023); gathering all keys and values first receives as many

Backward sends as much again for CCA. Ring attention passes on keys and values once more, and their
gradients: twice as much again.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from cca_lab.attention import interval_attention, pool_groups
from cca_lab.attention.arguments import check_qkv, check_rotation, check_tensors, scale_of
from cca_lab.attention.interval_attention import merge
from cca_lab.attention.intervals import memoised, table_of
from cca_lab.attention.parallel import Range, Ranges, Route, Shards, fetch, merged, place
from cca_lab.attention.pooling import pooling_backend
from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.indices import core_count, first_raw, pooled_groups


@dataclass(frozen=True)
class Plan:
    """What travels for a text (`shards`), a group size and a local window, in integers."""

    shards: Shards
    group: int
    window: int

    def cores_read(self, row: int) -> int:
        """Return n(i) (Eq. 3)."""
        return core_count(row + 1, self.group, self.window)

    def raw(self, piece: Range) -> Range:
        """Return the raw tokens that the rows of a piece read: [g n(a), b)."""
        return first_raw(piece[0], self.group, self.window), piece[1]

    def pooled(self, piece: Range) -> Range:
        """Return the groups that the process of a piece pools, see `indices.pooled_groups`."""
        return pooled_groups(*piece, self.shards.length, self.group, self.window)

    def members(self, piece: Range) -> Range:
        """Return the tokens of the groups pooled by the process of a piece."""
        first, last = self.pooled(piece)
        return first * self.group, last * self.group

    def _route(self, have: tuple[Ranges, ...], want: tuple[list[Range], ...]) -> Route:
        return Route(have, tuple(merged(ranges) for ranges in want))

    @cached_property
    def halo(self) -> Route:
        """The raw keys and values that rows read, and all members of a piece's groups."""
        pieces = self.shards.pieces
        return self._route(pieces, tuple([tokens for piece in own
                                          for tokens in (self.raw(piece), self.members(piece))]
                                         for own in pieces))

    @cached_property
    def tables(self) -> Route:
        """The rotary tables: those of the members of the groups that a process pools."""
        pieces = self.shards.pieces
        return self._route(pieces, tuple([self.members(piece) for piece in own] for own in pieces))

    @cached_property
    def cores(self) -> Route:
        """The cores: each process wants all that its last row reads."""
        pieces = self.shards.pieces
        have = tuple(merged([self.pooled(piece) for piece in own]) for own in pieces)
        return self._route(
            have, tuple([(0, self.cores_read(own[-1][1] - 1))] if own else [] for own in pieces))


_plan = lru_cache(maxsize=8)(Plan)  # one object for all layers: its routes are computed once


def context_parallel_cca(mechanism: CCA, q: Tensor, k: Tensor, v: Tensor, shards: Shards,
                         group: ProcessGroup, *, scale: float | None = None,
                         rotation: Rotation | None = None) -> Tensor:
    """Attend with CCA-Attention to a text of which each process of a group holds a part.

    All of them have to call it. The result is that of `mechanism.attention` on the whole text, and
    so are the gradients.

    Args:
        mechanism: its group size, local window, pooling and backend are used. No sinks.
        q: queries of this process's tokens, (B, H, T, D), T = `shards.tokens(rank)`; T may be 0.
        k, v: keys and values of these tokens, (B, Hk, T, D).
        shards: which tokens are where; the same in all processes.
        group: the processes, of a torch.distributed backend with an all-to-all (gloo, NCCL).
        scale: factor on the dot products; D ** -0.5 by default.
        rotation: the rotary tables (cos, sin) of these tokens, (T, D) or (B, T, D), with which q
            and k were rotated.

    Returns:
        (B, H, T, D), in q's dtype.

    Raises:
        ValueError: naming an argument that does not fit, before anything is sent.
    """
    rank = _check(mechanism, q, k, v, shards, group)
    check_rotation(rotation, q)
    scale, plan = scale_of(scale, q.shape[-1]), _plan(shards, mechanism.group, mechanism.window)
    own = shards.pieces[rank]
    both = torch.cat([k, v], dim=1)                                        # (B, 2 Hk, T, D)
    tokens = fetch(both.movedim(2, 0), plan.halo, rank, group)()           # (rows, B, 2 Hk, D)
    tables = None
    if rotation is not None:
        both_tables = torch.stack([x if x.dim() == 3 else x[None] for x in rotation])
        tables = fetch(both_tables.movedim(2, 0), plan.tables, rank, group)()  # (T, 2, B or 1, D)
    pooled = [_pool(mechanism, q, tokens, tables, plan, rank, piece, scale) for piece in own]
    head_count = 2 * (q.shape[1] if mechanism.per_query_head else k.shape[1])
    nothing = both.movedim(2, 0)[:0].repeat_interleave(head_count // both.shape[1], dim=2)
    # while the cores travel, the rows attend to the raw tokens
    arriving = fetch(torch.cat([nothing, *pooled]), plan.cores, rank, group)

    def attend(rows: Tensor, columns: Tensor, intervals: Tensor) -> tuple[Tensor, Tensor]:
        return interval_attention(rows, *_keys_and_values(columns), intervals, scale=scale,
                                  backend=mechanism.backend, return_lse=True)

    sizes = mechanism.group, mechanism.window
    empty, *queries = q.split([0, *(stop - start for start, stop in own)], dim=2)
    near = [attend(rows, tokens[place(plan.halo.want[rank], plan.raw(piece))],
                   raw_intervals(*piece, *sizes))
            for rows, piece in zip(queries, own, strict=True)]
    cores = arriving()                                                     # (cores, B, heads, D)
    # a process whose rows read nothing of others still has to take part in backward
    outputs = [empty + tokens[:0].sum() + cores[:0].sum()]
    for (start, stop), rows, (out, lse) in zip(own, queries, near, strict=True):
        first = min(max(start, sum(sizes) - 1), stop)  # the rows before it read no core
        (alone, out), (_, lse), (_, rows) = (x.split([first - start, stop - first], dim=2)
                                             for x in (out, lse, rows))
        outputs.append(alone)
        if first < stop:
            far = attend(rows, cores[: plan.cores_read(stop - 1)],
                         core_intervals(first, stop, *sizes))
            outputs.append(merge(*zip((out, lse), far, strict=True))[0])
    return torch.cat(outputs, dim=2)


def _pool(mechanism: CCA, q: Tensor, tokens: Tensor, tables: Tensor | None, plan: Plan, rank: int,
          piece: Range, scale: float) -> Tensor:
    """Pool the groups that end in a piece: keys and values, (groups, B, 2 Hk or 2 H, D)."""
    members, count = plan.members(piece), plan.pooled(piece)[1] - plan.pooled(piece)[0]
    keys, values = _keys_and_values(
        tokens[place(plan.halo.want[rank], members)] if count else tokens[:0])
    # tokens whose queries are elsewhere; none of them pools
    missing = max(0, piece[0] - members[0]) if count else 0
    own = place(plan.shards.pieces[rank],
                (members[0] + missing, members[1])) if count else slice(0, 0)
    queries = torch.nn.functional.pad(q[:, :, own], (0, 0, missing, 0))    # (B, H, g groups, D)
    rotation = None
    if tables is not None and count:
        cos, sin = tables[place(plan.tables.want[rank], members)].movedim(0, 2)
        rotation = cos, sin
    heads, pooling = mechanism.per_query_head, mechanism.pooling
    backend = pooling_backend(mechanism.backend, weights=pooling, per_query_head=heads, count=count)
    core_k, core_v = pool_groups(queries, keys, values, mechanism.group, weights=pooling,
                                 per_query_head=heads, scale=scale, rotation=rotation,
                                 backend=backend)
    return torch.cat([core_k, core_v], dim=1).movedim(2, 0)


@memoised
def raw_intervals(start: int, stop: int, group: int, window: int) -> Tensor:
    """Return the raw tokens [g n(i), i] of rows [start, stop), of those kept from g n(start) on."""
    row, before = torch.arange(start, stop), first_raw(start, group, window)
    return table_of(row, (group * core_count(row + 1, group, window) - before,
                          row + 1 - before))[None, None]


@memoised
def core_intervals(start: int, stop: int, group: int, window: int) -> Tensor:
    """Return the cores [0, n(i)) of rows [start, stop)."""
    row = torch.arange(start, stop)
    return table_of(row, (0, core_count(row + 1, group, window)))[None, None]


def _keys_and_values(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, B, 2 heads, D) -> keys and values, (B, heads, rows, D) each."""
    keys, values = rows.movedim(0, 2).chunk(2, dim=1)
    return keys, values


def _check(mechanism: CCA, q: Tensor, k: Tensor, v: Tensor, shards: Shards,
           group: ProcessGroup) -> int:
    """Return this process's rank; a ValueError names the first argument that does not fit."""
    if not isinstance(mechanism, CCA):
        raise ValueError(f"mechanism: got {type(mechanism).__name__}, wanted CCA; only its cores "
                         "are known to be few enough to send to everybody")
    refuse_sinks(mechanism)
    if not isinstance(shards, Shards) or not isinstance(group, ProcessGroup):
        raise ValueError(f"shards, group: got {type(shards).__name__} and {type(group).__name__}, "
                         "wanted Shards and a ProcessGroup of torch.distributed")
    check_tensors(q=q, k=k, v=v)
    if shards.ranks != group.size():
        raise ValueError(f"shards: got pieces for {shards.ranks} processes, wanted {group.size()}, "
                         "as in the group")
    rank = group.rank()
    if q.shape[2] != shards.tokens(rank):
        raise ValueError(
            f"q: got {q.shape[2]} tokens in process {rank}, wanted {shards.tokens(rank)} of the "
            f"{shards.length}; cut the text with Shards.piece")
    if q.shape[2]:
        check_qkv(q, k, v)
    return rank


def refuse_sinks(mechanism: CCA) -> None:
    """Raise ValueError for sinks: the plan of what travels has groups from token 0 on.

    And for a bias on the scores of cores, which is not passed on.
    """
    if mechanism.proportional:
        raise ValueError("proportional: got True, wanted False over several processes")
    if mechanism.sinks:
        raise ValueError(f"sinks: got {mechanism.sinks}, wanted 0 over several processes; no "
                         "process sends the others its sinks, so take them out or use one process")
