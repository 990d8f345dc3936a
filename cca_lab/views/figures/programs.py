"""Which program of a kernel reads which tile, and which numbers in it."""

from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cca_lab.attention.kernels.programs import Read
from cca_lab.views.figures.style import FAINT, INK, RAW, SERIES, as_array, legend_below, styled, tick_labels

_PALE = "#8FC1E0"
_MOST_UNASKED = 16  # most rows or columns that are numbered if no labels are given


@styled
def programs(reads: Iterable[Read], rows: int, columns: int, *, loaded: Any = None, row_name: str = "query",
             column_name: str = "key", row_labels: Sequence[Any] | None = None,
             column_labels: Sequence[Any] | None = None, cores: int = 0, numbered: bool = True,
             title: str = "") -> Figure:
    """Draw each program's tiles in a colour of its own; masked tiles are paler and hatched.

    Args:
        reads: from `cca_lab.attention.kernels.programs`. Tiles may reach beyond the tensor, which is outlined.
        rows, columns: size of the tensor.
        loaded: bool (rows, columns), the numbers that are actually read, each drawn as a dot; None for no dots.
        row_name, column_name, row_labels, column_labels: texts; labels are one for each row or column.
        cores: number of columns, from the left, that are not raw tokens; a line marks their end.
        numbered: whether each program's number is written into its widest tile.
        title: of the figure.
    """
    reads = list(reads)
    height, width = (max([size, *(getattr(read, side)[1] for read in reads)])
                     for side, size in (("rows", rows), ("columns", columns)))
    figure, axes = plt.subplots(figsize=(_inches(width, height), 1.3 + _inches(height, width)))
    for read in reads:
        (top, bottom), (left, right) = read.rows, read.columns
        axes.add_patch(Rectangle((left, top), right - left, bottom - top, facecolor=SERIES[read.program % len(SERIES)],
                                 edgecolor="white", linewidth=1.2, alpha=0.45 if read.masked else 0.9,
                                 hatch="////" if read.masked else None))
    axes.add_patch(Rectangle((0, 0), columns, rows, fill=False, edgecolor=INK, linewidth=1.2))
    if loaded is not None:
        axes.scatter(*(np.argwhere(as_array(loaded))[:, ::-1].T + 0.5), s=7, color=INK, linewidths=0, zorder=3)
    if cores:
        axes.axvline(cores, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    if numbered:
        _number(axes, reads, 0.5 if loaded is None else 0.94)
    axes.set(xlim=(0, width), ylim=(height, 0), title=title, xlabel=column_name, ylabel=row_name)
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    for axis, labels, size in ((axes.yaxis, row_labels, rows), (axes.xaxis, column_labels, columns)):
        texts = tick_labels(labels, size)
        if texts and (labels is not None or size <= _MOST_UNASKED):
            upright = axis is axes.xaxis and max(map(len, texts)) > 2
            axis.set_ticks(np.arange(size) + 0.5, texts, rotation=90 if upright else 0)
    entries = {"one colour: one program, tiles read whole": RAW, "paler and hatched: read through a mask": _PALE}
    legend_below(axes, {name: colour for name, colour in entries.items()
                        if any(read.masked == (colour == _PALE) for read in reads)}, columns=1)
    return figure


def _inches(size: int, other: int) -> float:
    """Return the length of a side in inches, at least 1.6; the longer of two sides has 6 inches."""
    return max(1.6, 6.0 * min(1.0, size / other))


def _number(axes: Axes, reads: Sequence[Read], place: float) -> None:
    """Write each program's number into its widest tile, at the relative position `place` of its width."""
    largest: dict[int, Read] = {}
    for read in reads:
        size, best = read.columns[1] - read.columns[0], largest.get(read.program)
        if best is None or size > best.columns[1] - best.columns[0]:
            largest[read.program] = read
    for program, read in largest.items():
        left, right = read.columns
        axes.text(left + place * (right - left), sum(read.rows) / 2, str(program), ha="center", va="center",
                  fontsize=10, fontweight="bold", zorder=4,
                  bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.85})
