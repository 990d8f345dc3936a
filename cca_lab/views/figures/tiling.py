"""How the query-key matrix is cut into tiles, and which program of a kernel reads which tile."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cca_lab.attention.kernels.programs import Read
from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    INK,
    RAW,
    SERIES,
    as_array,
    legend_below,
    styled,
    tick_labels,
)

_MOST_UNASKED = 16  # most rows or columns that are numbered if no labels are given


class Tile(Enum):
    """How causal attention treats a tile of rows and keys."""

    SKIPPED = "in the future: never read"
    MASKED = "on the diagonal: computed with a mask"
    WHOLE = "in the past: computed whole"


_PALE = "#8FC1E0"
_TILE_COLOURS = {Tile.WHOLE: "#6DB0DA", Tile.MASKED: CORE, Tile.SKIPPED: EMPTY}


def tile_kinds(length: int, query_tile: int, key_tile: int) -> list[list[Tile]]:
    """Return for each tile of the causal matrix whether it is skipped, masked or computed whole.

    One list for each row of tiles; the last tiles may be smaller.
    """
    def kind(first_row: int, first_key: int) -> Tile:
        last_row, last_key = (min(first + size, length) - 1
                              for first, size in ((first_row, query_tile), (first_key, key_tile)))
        if first_key > last_row:
            return Tile.SKIPPED
        return Tile.WHOLE if last_key <= first_row else Tile.MASKED

    return [[kind(row, key) for key in range(0, length, key_tile)]
            for row in range(0, length, query_tile)]


@styled
def tiles(length: int, query_tile: int, key_tile: int, *, labels: Sequence[str] | None = None,
          title: str = "") -> Figure:
    """Draw which tiles of causal attention are computed, masked and skipped."""
    figure, axes = _square(length, length, labels, title)
    for row, kinds in enumerate(tile_kinds(length, query_tile, key_tile)):
        for column, kind in enumerate(kinds):
            corner = (column * key_tile, row * query_tile)
            size = (min(key_tile, length - corner[0]), min(query_tile, length - corner[1]))
            axes.add_patch(Rectangle(corner, *size, facecolor=_TILE_COLOURS[kind],
                                     edgecolor="white", linewidth=2.5))
    if length <= 40:
        rows, keys = np.tril_indices(length)
        axes.scatter(keys + 0.5, rows + 0.5, s=5, color=INK, linewidths=0)
    legend_below(axes, {kind.value: colour for kind, colour in _TILE_COLOURS.items()}, columns=1)
    return figure


def _square(rows: int, columns: int, labels: Sequence[str] | None,
            title: str) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(4.2 * max(1.0, min(columns / rows, 1.6)), 4.9))
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal", title=title, xlabel="key",
             ylabel="query")
    axes.spines[:].set_visible(False)
    row_labels = tick_labels(labels, rows)
    if row_labels:
        axes.set_yticks(np.arange(rows) + 0.5, row_labels)
        axes.set_xticks(np.arange(columns) + 0.5, tick_labels(labels, columns),
                        rotation=90 if labels is not None else 0)
    return figure, axes


@styled
def programs(reads: Iterable[Read], rows: int, columns: int, *, loaded: Any = None,
             row_name: str = "query", column_name: str = "key",
             column_labels: Sequence[Any] | None = None, title: str = "") -> Figure:
    """Draw each program's tiles in a colour of its own; masked tiles are paler and hatched.

    `reads` are those of `attention.kernels.programs`; the tensor is outlined, since tiles may reach
    beyond it. `loaded` (rows, columns) is True, and has a dot, where a number is actually read.
    """
    reads = list(reads)
    height, width = (max([size, *(getattr(read, side)[1] for read in reads)])
                     for side, size in (("rows", rows), ("columns", columns)))
    figure, axes = plt.subplots(figsize=(_inches(width, height), 1.3 + _inches(height, width)))
    for read in reads:
        (top, bottom), (left, right) = read.rows, read.columns
        axes.add_patch(Rectangle((left, top), right - left, bottom - top,
                                 facecolor=SERIES[read.program % len(SERIES)], edgecolor="white",
                                 linewidth=1.2, alpha=0.45 if read.masked else 0.9,
                                 hatch="////" if read.masked else None))
    axes.add_patch(Rectangle((0, 0), columns, rows, fill=False, edgecolor=INK, linewidth=1.2))
    if loaded is not None:
        read_rows, read_columns = np.nonzero(as_array(loaded))
        axes.scatter(read_columns + 0.5, read_rows + 0.5, s=7, color=INK, linewidths=0, zorder=3)
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal", title=title, xlabel=column_name,
             ylabel=row_name)
    axes.spines[:].set_visible(False)
    for axis, labels, size in ((axes.yaxis, None, rows), (axes.xaxis, column_labels, columns)):
        texts = tick_labels(labels, size)
        if texts and (labels is not None or size <= _MOST_UNASKED):
            upright = axis is axes.xaxis and max(map(len, texts)) > 2
            axis.set_ticks(np.arange(size) + 0.5, texts, rotation=90 if upright else 0)
    entries = {"one colour: one program, tiles read whole": RAW,
               "paler and hatched: read through a mask": _PALE}
    legend_below(axes, {name: colour for name, colour in entries.items()
                        if any(read.masked == (colour == _PALE) for read in reads)}, columns=1)
    return figure


def _inches(size: int, other: int) -> float:
    """Return the length of a side in inches, at least 1.6; the longer of two sides has 6 inches."""
    return max(1.6, 6.0 * min(1.0, size / other))
