"""Cutting interval attention into few large tiles.

The columns of one interval that a block of rows sees are of three kinds: an interior that every row
of the block sees (no mask), a left boundary where the starts differ, and a right boundary where the
ends differ. Small blocks compute few masked pairs, and large blocks make fast tiles: the planner
takes the block whose cost, from `_costs`, is least. Neighbouring blocks of one pattern become a
`TileBatch`, whose columns move on by a constant step: an overlapping view reads them without a
copy.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import lcm

import torch
from torch import Tensor

# Costs in units of one (query, key) pair of a large unmasked tile, measured with PyTorch's CPU
# operator.
_MASKED = 1.1  # a pair of a masked tile
_MERGE = 64.0  # for each row: one more partial output to merge
_CALL = 12288.0  # one more call of any size
# factor on a pair, by rows of a block
_SLOWNESS = ((768, 1.0), (192, 1.05), (128, 1.3), (64, 1.55), (0, 2.0))
_BLOCKS = (32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048)
_LONGEST_PERIOD = 256
_LONG_RUN = 192  # rows with one start that are planned by themselves
_ROWS_AT_ONCE = 2048  # rows of one tile batch, so that partial outputs stay small
_VECTOR = 16  # tiles whose columns are a multiple of this are up to 9 % faster


@dataclass(frozen=True, eq=False)
class TileBatch:
    """`count` tiles of `rows` x `columns`; tile u begins at row + u * rows and column + u * step.

    Attributes:
        row, column: first query row, and first column of the first tile.
        causal: row i of a tile sees its columns 0 .. i (then rows == columns and `edges` is None).
        edges: None if every row sees all columns of its tile (or `causal`), else int64 (rows, 2):
            the [start, end) that each row of a tile sees, from the tile's first column.
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
        """All query rows of the batch."""
        return slice(self.row, self.row + self.rows * self.count)

    def mask(self, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """Return the additive mask (rows, columns), 0 where visible and -inf elsewhere, or None."""
        if self.edges is None:
            return None
        # each (rows, 1)
        starts, ends = self.edges.to(device, torch.int32).unsqueeze(-1).unbind(dim=1)
        column = torch.arange(self.columns, device=device, dtype=torch.int32)
        hidden = column >= ends
        if starts.any():
            hidden |= column < starts
        return torch.where(hidden, float("-inf"), torch.zeros((), dtype=dtype, device=device))

    def blind_rows(self, device: torch.device) -> Tensor | None:
        """Return the fully masked rows of each tile, bool (rows,), or None if there are none."""
        if self.edges is None:
            return None
        masked = self.edges[:, 0] >= self.edges[:, 1]
        return masked.to(device) if masked.any() else None


def plan_of(table: Tensor, block: int | None = None) -> tuple[TileBatch, ...]:
    """Return the tile batches of one head's intervals (L, n, 2); each visible pair is in one.

    `block` is the query rows of a block; None takes the cheapest. The latest 32 plans are cached.
    """
    table = table.detach().cpu().contiguous()
    return _cached_plan(table.numpy().tobytes(), table.shape[1], block)


@lru_cache(maxsize=32)
def _cached_plan(table: bytes, intervals: int, block: int | None) -> tuple[TileBatch, ...]:
    bounds = torch.frombuffer(bytearray(table), dtype=torch.int64).view(-1, intervals, 2)
    limit = int(bounds[..., 1].max())
    plans = (_gather(_plan_interval(bounds[:, index], block, limit)) for index in range(intervals))
    return tuple(tiles for plan in plans for tiles in plan)


def _plan_interval(interval: Tensor, block: int | None, limit: int) -> Iterator[TileBatch]:
    """Yield the tiles of one interval (L, 2) of at least `limit` columns, not yet joined."""
    for row, bounds in _row_ranges(interval):
        starts, ends = bounds.unbind(dim=-1)
        if block is None and starts[0] == starts[-1] and torch.equal(ends - ends[0],
                                                                     torch.arange(len(ends))):
            yield from _causal_tiles(row, len(ends), int(starts[0]), int(ends[0]))
        else:
            yield from _block_tiles(row, bounds, block or _cheapest_block(bounds), limit)


def _row_ranges(interval: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the ranges of rows to plan: long runs with one start, and the rows between."""
    seen = (interval[:, 1] > interval[:, 0]).nonzero().flatten()
    if seen.numel() == 0:
        return
    row, last = int(seen[0]), int(seen[-1]) + 1
    _, runs = interval[row:last, 0].unique_consecutive(return_counts=True)
    for is_long, group in groupby(runs.tolist(), key=lambda length: length >= _LONG_RUN):
        for length in group if is_long else [sum(group)]:
            yield row, interval[row : row + length]
            row += length


def _causal_tiles(row: int, rows: int, start: int, end: int) -> Iterator[TileBatch]:
    """Plan rows with one start that each see one column more; the first sees [start, end)."""
    for first in range(0, rows if end - 1 > start else 0, _ROWS_AT_ONCE):
        yield TileBatch(row + first, min(_ROWS_AT_ONCE, rows - first), 1, start, end - 1 - start)
    yield TileBatch(row, rows, 1, end - 1, rows, causal=True)


def _block_tiles(row: int, bounds: Tensor, block: int, limit: int) -> Iterator[TileBatch]:
    """Plan consecutive blocks: one masked tile, or interior and boundaries if that costs less."""
    corners = _corners(bounds, block)
    cheaper = (corners[:, 1] < corners[:, 2]) & (_costs(corners, block).diff(dim=1)[:, 0] < 0)
    for index, (split, corner) in enumerate(zip(cheaper.tolist(), corners.tolist(), strict=True)):
        first, rows = row + index * block, bounds[index * block : (index + 1) * block]
        low, inner_low, inner_high, high = corner
        cuts = [(low, inner_low), (inner_low, inner_high),
                (inner_high, high)] if split else [(low, high)]
        for left, right in cuts:
            if left < right:
                seen = rows.clamp(left, right)
                if (seen == torch.tensor([left, right])).all():
                    yield TileBatch(first, len(rows), 1, left, right - left)
                else:
                    column, columns = _widen(left, right, limit)
                    yield TileBatch(first, len(rows), 1, column, columns, edges=seen - column)


def _widen(left: int, right: int, limit: int) -> tuple[int, int]:
    """Return first column and width of a masked tile, widened to full vectors if possible."""
    columns = -(-(right - left) // _VECTOR) * _VECTOR
    last = min(left + columns, limit)
    column = max(0, last - columns)
    return column, last - column


def _cheapest_block(bounds: Tensor) -> int:
    """Return the rows per block that compute a range of rows at the least estimated cost."""
    period = lcm(*(_period(column) for column in bounds.unbind(dim=-1)))
    period = period if period <= _LONGEST_PERIOD else 1  # only blocks of one pattern can be joined
    blocks = sorted({min(len(bounds), -(-block // period) * period) for block in _BLOCKS})
    return min(blocks,
               key=lambda block: float(_costs(_corners(bounds, block), block).amin(dim=1).sum()))


def _period(ends: Tensor) -> int:
    """Return the rows after which a staircase repeats, from two jumps (1 if it has fewer)."""
    jumps = ends.diff().nonzero().flatten()[:2].tolist()
    return jumps[1] - jumps[0] if len(jumps) == 2 else 1


def _corners(bounds: Tensor, block: int) -> Tensor:
    """Return (blocks, 4): first and last start, first and last end of each block of rows."""
    first = torch.arange(0, len(bounds), block)
    last = (first + block - 1).clamp(max=len(bounds) - 1)
    return torch.stack([bounds[first, 0], bounds[last, 0], bounds[first, 1], bounds[last, 1]],
                       dim=-1)


def _costs(corners: Tensor, rows: int) -> Tensor:
    """Return the cost of blocks (n, 4) as one masked tile, and as interior plus boundary."""
    low, inner_low, inner_high, high = corners.unbind(dim=-1)
    width, interior = high - low, inner_high - inner_low
    slides = bool(low[0] < low[-1])  # then small blocks are joined into one call
    call = _CALL / max(rows, _ROWS_AT_ONCE if slides else 1)
    boundaries = (inner_low > low).int() + (high > inner_high).int()
    whole = width * torch.where(boundaries > 0, _MASKED, 1.0) + call
    split = interior + (width - interior) * _MASKED + boundaries * (_MERGE + call) + call
    split = split.masked_fill(interior <= 0, float("inf"))
    slowness = next(factor for least, factor in _SLOWNESS if rows >= least)
    return torch.stack([whole, split], dim=-1) * slowness * rows


def _gather(tiles: Iterable[TileBatch]) -> list[TileBatch]:
    """Join each tile with the last batch of its shape if it continues pattern and step."""
    batches: list[TileBatch] = []
    latest: dict[tuple[int, int, bool], int] = {}
    for tile in tiles:
        shape = (tile.rows, tile.columns, tile.causal)
        joined = _join(batches[latest[shape]], tile) if shape in latest else None
        if joined:
            batches[latest[shape]] = joined
        else:
            latest[shape] = len(batches)
            batches.append(tile)
    return batches


def _join(batch: TileBatch, tile: TileBatch) -> TileBatch | None:
    """Return the batch with one more tile, or None if it does not continue edges and step."""
    step = tile.column - batch.column - (batch.count - 1) * batch.step
    follows = tile.row == batch.row_slice.stop and (batch.count == 1 or step == batch.step)
    if not follows or batch.rows * (batch.count + 1) > _ROWS_AT_ONCE or not _same(batch.edges,
                                                                                  tile.edges):
        return None
    return replace(batch, count=batch.count + 1, step=step)


def _same(edges: Tensor | None, others: Tensor | None) -> bool:
    if edges is None or others is None:
        return edges is others
    return torch.equal(edges, others)
