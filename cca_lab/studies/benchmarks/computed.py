"""How many key-query pairs the implementations of CCA compute: whole tiles, of which a row sees a part.

The ratio of the pairs that are seen is what CCA could save; the ratio of the pairs in its tiles is what these blocks
can save at most. What is left between that and the measured ratio is the speed of a tile.
"""

from functools import lru_cache

import torch

from cca_lab.attention.plan import TileBatch, plan_of
from cca_lab.mechanisms.cca.groups import intervals

GROUP_ROWS, UNIT = 16, 32  # runs.h: rows with the same columns; amx.h: rows, and columns, of a unit


@lru_cache
def computed_pairs(length: int, group: int, window: int, implementation: str, dtype: str = "float32") -> int:
    """Return the pairs that one head computes for CCA's rows.

    Args:
        length, group, window: L, g and s.
        implementation: "blocked" or "native".
        dtype: in bfloat16 the native op computes whole AMX tiles.
    """
    table = intervals(length, group, window)[0, 0]  # (L, 2, 2)
    if implementation == "blocked":
        return sum(_area(tiles) for tiles in plan_of(table))
    rows, columns = (UNIT, UNIT) if dtype == "bfloat16" else (GROUP_ROWS, 1)
    first = torch.arange(0, length, rows)
    last = (first + rows - 1).clamp(max=length - 1)
    start, end = table[first, :, 0], table[last, :, 1]  # (blocks, 2)
    width = (-(-end // columns) - start // columns) * columns
    return int(torch.where(end > start, width, 0).sum()) * rows


def _area(tiles: TileBatch) -> int:
    """Return the pairs of a batch of tiles; of a causal one its lower half, since the operator skips what is above."""
    if tiles.causal:
        return tiles.count * tiles.rows * (tiles.rows + 1) // 2
    return tiles.count * tiles.rows * tiles.columns


def tile_ratio(length: int, group: int, window: int, implementation: str, dtype: str = "float32") -> float:
    """Return the pairs of full causal attention over those that an implementation of CCA computes."""
    return length * (length + 1) // 2 / computed_pairs(length, group, window, implementation, dtype)
