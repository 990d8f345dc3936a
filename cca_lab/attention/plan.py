"""Cutting interval attention into few large tiles.

A block of rows and one interval meet in three kinds of columns: a core that every row of the block sees (no
mask), an edge on the left where the starts still move, and an edge on the right where the ends do. Small
blocks waste few masked pairs, large blocks make fast tiles: `_costs` weighs the two and the planner takes the
cheapest block. Neighbouring blocks of the same pattern become one `Part` whose columns slide by a constant
step, which an overlapping view serves without a copy.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import lcm

import torch
from torch import Tensor

# Costs in units of one (query, key) pair of a large unmasked tile, measured with PyTorch's CPU operator.
_MASKED = 1.1  # a pair of a masked tile
_MERGE = 64.0  # per row: one more partial output to merge
_CALL = 12288.0  # one more call, whatever its size
_SLOWNESS = ((768, 1.0), (192, 1.05), (128, 1.3), (64, 1.55), (0, 2.0))  # of a pair, by rows of a block
_BLOCKS = (32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048)
_LONGEST_PERIOD = 256
_LONG_RUN = 192  # rows with one start that are planned by themselves
_ROWS_AT_ONCE = 2048  # rows of one part, so that partial outputs stay small
_VECTOR = 16  # tiles whose columns are a multiple of this are up to 9 % faster


@dataclass(frozen=True, eq=False)
class Part:
    """`count` blocks of `rows` query rows; block u sees columns [column + u * step, ... + columns).

    Attributes:
        row: first query row.
        rows: rows of one block.
        count: number of blocks; they follow each other without a gap.
        column: first column of the first block.
        columns: columns of each block.
        step: columns by which each block's first column moves on.
        causal: row i of a block sees its columns 0 .. i (then rows == columns and there are no edges).
        edges: None if every row sees all the columns, or int64 (rows, 2): for each row of a block the
            [start, end) it sees, counted from the block's first column.
    """

    row: int
    rows: int
    count: int
    column: int
    columns: int
    step: int = 0
    causal: bool = False
    edges: Tensor | None = None

    @property
    def row_slice(self) -> slice:
        """All query rows of the part."""
        return slice(self.row, self.row + self.rows * self.count)

    def mask(self, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """Additive mask (rows, columns), 0 where visible and -inf elsewhere, or None."""
        if self.edges is None:
            return None
        starts, ends = self.edges.to(device, torch.int32).unsqueeze(-1).unbind(dim=1)  # each (rows, 1)
        column = torch.arange(self.columns, device=device, dtype=torch.int32)
        hidden = column >= ends
        if starts.any():
            hidden |= column < starts
        return torch.where(hidden, float("-inf"), torch.zeros((), dtype=dtype, device=device))

    def blind_rows(self, device: torch.device) -> Tensor | None:
        """bool (rows,), True for rows of a block that see none of the part's columns; None if none is."""
        if self.edges is None:
            return None
        blind = self.edges[:, 0] >= self.edges[:, 1]
        return blind.to(device) if blind.any() else None


def plan_of(table: Tensor, block: int | None = None) -> tuple[Part, ...]:
    """The parts that compute one head's intervals; together they cover each visible pair exactly once.

    Args:
        table: int64 (L, n, 2), already checked.
        block: query rows of a block; None takes the cheapest.

    Returns:
        Parts, interval by interval. The plan of a table seen before comes from a small cache.
    """
    table = table.detach().cpu().contiguous()
    return _cached_plan(table.numpy().tobytes(), table.shape[1], block)


@lru_cache(maxsize=32)
def _cached_plan(table: bytes, intervals: int, block: int | None) -> tuple[Part, ...]:
    columns = torch.frombuffer(bytearray(table), dtype=torch.int64).view(-1, intervals, 2)
    limit = int(columns[..., 1].max())
    plans = (_gather(_plan_interval(columns[:, index], block, limit)) for index in range(intervals))
    return tuple(part for plan in plans for part in plan)


def _plan_interval(table: Tensor, block: int | None, limit: int) -> Iterator[Part]:
    """Parts of one interval, (L, 2), before like ones are gathered; there are at least `limit` columns."""
    for row, stretch in _stretches(table):
        starts, ends = stretch.unbind(dim=-1)
        if block is None and starts[0] == starts[-1] and torch.equal(ends - ends[0], torch.arange(len(ends))):
            yield from _causal_parts(row, len(ends), int(starts[0]), int(ends[0]))
        else:
            yield from _block_parts(row, stretch, block or _cheapest_block(stretch), limit)


def _stretches(table: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows planned by themselves: each long run of rows with one start, and what lies between such runs."""
    seen = (table[:, 1] > table[:, 0]).nonzero().flatten()
    if seen.numel() == 0:
        return
    row, last = int(seen[0]), int(seen[-1]) + 1
    _, runs = table[row:last, 0].unique_consecutive(return_counts=True)
    for is_long, group in groupby(runs.tolist(), key=lambda length: length >= _LONG_RUN):
        for length in group if is_long else [sum(group)]:
            yield row, table[row : row + length]
            row += length


def _causal_parts(row: int, rows: int, start: int, end: int) -> Iterator[Part]:
    """Rows that share a start and see one column more than the row before; the first sees [start, end)."""
    for first in range(0, rows if end - 1 > start else 0, _ROWS_AT_ONCE):
        yield Part(row + first, min(_ROWS_AT_ONCE, rows - first), 1, start, end - 1 - start)
    yield Part(row, rows, 1, end - 1, rows, causal=True)


def _block_parts(row: int, table: Tensor, block: int, limit: int) -> Iterator[Part]:
    """Parts of consecutive blocks: a single masked tile, or core and edges apart, whichever costs less."""
    corners = _corners(table, block)
    cheaper = (corners[:, 1] < corners[:, 2]) & (_costs(corners, block).diff(dim=1)[:, 0] < 0)
    for index, (split, spans) in enumerate(zip(cheaper.tolist(), corners.tolist(), strict=True)):
        first, rows = row + index * block, table[index * block : (index + 1) * block]
        low, core_low, core_high, high = spans
        cuts = [(low, core_low), (core_low, core_high), (core_high, high)] if split else [(low, high)]
        for left, right in cuts:
            if left < right:
                seen = rows.clamp(left, right)
                if (seen == torch.tensor([left, right])).all():
                    yield Part(first, len(rows), 1, left, right - left)
                else:
                    column, columns = _widen(left, right, limit)
                    yield Part(first, len(rows), 1, column, columns, edges=seen - column)


def _widen(left: int, right: int, limit: int) -> tuple[int, int]:
    """First column and number of columns of a masked tile, in full vectors if there are columns enough."""
    columns = -(-(right - left) // _VECTOR) * _VECTOR
    last = min(left + columns, limit)
    column = max(0, last - columns)
    return column, last - column


def _cheapest_block(table: Tensor) -> int:
    """Rows per block that compute a stretch at the least estimated cost."""
    period = lcm(*(_period(ends) for ends in table.unbind(dim=-1)))
    period = period if period <= _LONGEST_PERIOD else 1  # only blocks of one pattern can be gathered
    blocks = sorted({min(len(table), -(-block // period) * period) for block in _BLOCKS})
    return min(blocks, key=lambda block: float(_costs(_corners(table, block), block).amin(dim=1).sum()))


def _period(ends: Tensor) -> int:
    """Rows after which a staircase repeats its shape, taken from its first two jumps (1 if it has fewer)."""
    jumps = ends.diff().nonzero().flatten()[:2].tolist()
    return jumps[1] - jumps[0] if len(jumps) == 2 else 1


def _corners(table: Tensor, block: int) -> Tensor:
    """(blocks, 4): first and last start, first and last end of each block of rows."""
    first = torch.arange(0, len(table), block)
    last = (first + block - 1).clamp(max=len(table) - 1)
    return torch.stack([table[first, 0], table[last, 0], table[first, 1], table[last, 1]], dim=-1)


def _costs(corners: Tensor, rows: int) -> Tensor:
    """Estimated cost of each block as one masked tile and as core plus edges: (blocks, 4) -> (blocks, 2)."""
    low, core_low, core_high, high = corners.unbind(dim=-1)
    width, core = high - low, core_high - core_low
    slides = bool(low[0] < low[-1])  # then small blocks are gathered into one call
    call = _CALL / max(rows, _ROWS_AT_ONCE if slides else 1)
    edges = (core_low > low).int() + (high > core_high).int()
    whole = width * torch.where(edges > 0, _MASKED, 1.0) + call
    split = core + (width - core) * _MASKED + edges * (_MERGE + call) + call
    split = split.masked_fill(core <= 0, float("inf"))
    slowness = next(factor for least, factor in _SLOWNESS if rows >= least)
    return torch.stack([whole, split], dim=-1) * slowness * rows


def _gather(parts: Iterable[Part]) -> list[Part]:
    """Join each part with the last one of its shape, where it continues that one's pattern and step."""
    done: list[Part] = []
    latest: dict[tuple[int, int, bool], int] = {}
    for part in parts:
        shape = (part.rows, part.columns, part.causal)
        joined = _join(done[latest[shape]], part) if shape in latest else None
        if joined:
            done[latest[shape]] = joined
        else:
            latest[shape] = len(done)
            done.append(part)
    return done


def _join(part: Part, after: Part) -> Part | None:
    """Two parts of one shape as one, if `after` follows on with the same edges and step."""
    step = after.column - part.column - (part.count - 1) * part.step
    follows = after.row == part.row_slice.stop and (part.count == 1 or step == part.step)
    if not follows or part.rows * (part.count + 1) > _ROWS_AT_ONCE or not _same(part.edges, after.edges):
        return None
    return replace(part, count=part.count + 1, step=step)


def _same(edges: Tensor | None, others: Tensor | None) -> bool:
    if edges is None or others is None:
        return edges is others
    return torch.equal(edges, others)
