"""What mechanisms keep and forget: columns, memories, caches, and decoding with them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.typing import ColorType

from cca_lab.views.figures.lines import curves
from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    FAINT,
    INK,
    RAW,
    as_array,
    heading,
    styled,
    tick_labels,
)

POOLED = LinearSegmentedColormap.from_list("pooled", ["#FCEFD3", CORE])
_SMALL = 2.3  # side of a small panel in inches
_RAW_FROM = 1 - 1e-4  # a coverage above this is a raw token
LEAST_SHARE = 1e-9  # a smaller share of a token is rounding error
_CELL, _ROW = 0.62, 0.32  # width of an entry and height of a row, in inches


@styled
def holdings(held: Mapping[str, Any], *, title: str = "") -> Figure:
    """Draw what every row of some mechanisms holds: a panel each, five in a line; rows are queries.

    By title the coverage (L, L): how row i reads token t, 1 raw, below 1 pooled, 0 not at all.
    """
    arrays = {name: as_array(matrix).astype(float) for name, matrix in held.items()}
    length = len(next(iter(arrays.values())))
    lines = -(-len(arrays) // 5)
    wide = -(-len(arrays) // lines)
    figure, panels = plt.subplots(lines, wide, squeeze=False,
                                  figsize=(_SMALL * wide + 0.6, (_SMALL + 0.6) * lines + 0.7))
    for axes in panels.flat[len(arrays):]:
        axes.set_axis_off()
    ticks = np.arange(0, length, max(1, length // 4))
    past = {name: np.ma.masked_where(~np.tri(length, dtype=bool), matrix)
            for name, matrix in arrays.items()}
    for axes, (name, matrix) in zip(panels.flat, past.items(), strict=False):
        _kinds(axes, matrix, lines=0.4 if length <= 16 else 0.0)
        axes.set_title(name, fontsize=9.5, fontweight="normal")
        axes.set_xticks(ticks + 0.5, ticks, rotation=0)
        axes.set_yticks(ticks + 0.5, ticks if axes in panels[:, 0] else [""] * len(ticks),
                        rotation=0)
        axes.tick_params(length=0)
        axes.set_xlabel("token", color=FAINT)
    for axes in panels[:, 0]:
        axes.set_ylabel("query", color=FAINT)
    _legend(figure, past.values(), "not read")
    heading(figure, title)
    return figure


@styled
def kept_and_forgotten(rows: Mapping[str, Any], weights: Any, *, tokens: Sequence[Any],
                       title: str = "") -> Figure:
    """Draw the tokens that one row of each mechanism reads, below full attention's weights.

    `rows` are coverages (L,) as in `holdings`, `weights` (L,) the same row of full attention.
    """
    weights, held = as_array(weights).astype(float), np.array([as_array(row)
                                                               for row in rows.values()],
                                                              dtype=float)
    height = 0.25 * len(rows) + 0.5
    figure, (top, axes) = plt.subplots(2, 1, figsize=(8.6, height + 2.1),
                                       height_ratios=(1.0, height), sharex=True)
    top.bar(np.arange(len(tokens)) + 0.5, weights, width=0.8, color=FAINT)
    top.set_ylabel("full", rotation=0, ha="right", va="center", fontsize=8.5)
    top.set_yticks([])
    top.spines[["left"]].set_visible(False)
    _kinds(axes, held, square=False)
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(rows), rotation=0)
    axes.set_xticks(np.arange(len(tokens)) + 0.5, tick_labels(tokens, len(tokens)), rotation=90)
    axes.tick_params(length=0)
    top.tick_params(length=0, labelbottom=False)
    _legend(figure, [held], "not read")
    heading(figure, title)
    return figure


def _legend(figure: Figure, matrices: Iterable[np.ndarray], nothing: str) -> None:
    """Draw the legend below the figure, of what occurs: raw, pooled, and `nothing` of both."""
    cells = np.concatenate([np.ma.compressed(matrix) for matrix in matrices])
    kinds = {"raw": (RAW, cells > _RAW_FROM), nothing: (EMPTY, cells == 0),
             "pooled, the darker the larger its share": (CORE, (cells > 0) & (cells <= _RAW_FROM))}
    names = [name for name, (_, cells) in kinds.items() if cells.any()]
    patches = [Patch(facecolor=kinds[name][0], edgecolor=FAINT, linewidth=0.5) for name in names]
    figure.legend(patches, names, ncols=3, loc="outside lower center", handlelength=1.1,
                  handleheight=1.1)


def _kinds(axes: Axes, held: np.ndarray, *, square: bool = True, lines: float = 0.4) -> None:
    """Colour cells by how a token is read: blue raw, orange pooled, grey not; masked ones white."""
    hidden, held = np.ma.getmaskarray(held), np.ma.getdata(held)
    raw, pooled = held > _RAW_FROM, (held > 0) & (held <= _RAW_FROM)
    two_colours = LinearSegmentedColormap.from_list("raw", [EMPTY, RAW])
    look = {"square": square, "linewidths": lines, "vmin": 0}
    _cells(axes, np.ma.masked_where(hidden, np.where(raw, 1.0, 0.0)), two_colours, vmax=1, **look)
    if pooled.any():
        most = max(held[pooled].max(), 0.5)
        _cells(axes, np.ma.masked_where(~pooled, held), POOLED, vmax=most, **look)


def _cells(axes: Axes, matrix: Any, colours: Colormap, **look: Any) -> None:
    seaborn.heatmap(np.ma.filled(matrix, np.nan), mask=np.ma.getmaskarray(matrix), ax=axes,
                    cmap=colours, cbar=False, linecolor="#DADADA", xticklabels=False,
                    yticklabels=False, **look)


@styled
def entries_held(caches: Mapping[str, Sequence[Any]], *, tokens: Sequence[str],
                 waiting: Mapping[str, Sequence[Collection[int]]] | None = None) -> Figure:
    """Draw the entries of caches, one panel each: a row after every token, a cell for every entry.

    By name, after 1, 2, 3 ... tokens, the share (n, L) of each token in each of n entries; those of
    `waiting` are stored but not read by the next token.
    """
    panels = {name: [as_array(matrix).astype(float) for matrix in matrices]
              for name, matrices in caches.items()}
    widths = [max(2, *map(len, matrices)) for matrices in panels.values()]
    figure, grid = plt.subplots(1, len(panels), squeeze=False, width_ratios=widths, sharey=True,
                                figsize=(_CELL * sum(widths) + 0.9, _ROW * len(tokens) + 0.9))
    for axes, (name, matrices), width in zip(grid[0], panels.items(), widths, strict=True):
        unread_by_row = (waiting or {}).get(name, [()] * len(tokens))
        for row, (matrix, unread) in enumerate(zip(matrices, unread_by_row, strict=True)):
            for entry, shares in enumerate(matrix):
                _entry(axes, row, entry, shares, tokens, waits=entry in unread)
        axes.set(xlim=(-0.05, width + 0.05), ylim=(len(tokens), 0), xticks=[], title=name)
        axes.set_yticks(np.arange(len(tokens)) + 0.5, tokens)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    grid[0, 0].set_ylabel("after", color=FAINT)
    looks = [Patch(facecolor=RAW), Patch(facecolor=CORE), Patch(facecolor=CORE, alpha=0.35)]
    names = ["raw", "pooled", "stored, not read yet"][: 3 if waiting else 2]
    figure.legend(looks[: len(names)], names, ncols=3, loc="outside lower center", handlelength=1.1,
                  handleheight=1.1)
    return figure


def _entry(axes: Axes, row: int, entry: int, shares: np.ndarray, tokens: Sequence[str], *,
           waits: bool) -> None:
    """Draw one entry and write its tokens into it, two in a line."""
    names = [tokens[token] for token in np.flatnonzero(shares > LEAST_SHARE).tolist()]
    raw = len(names) == 1
    axes.add_patch(Rectangle((entry + 0.04, row + 0.06), 0.92, 0.88, facecolor=RAW if raw else CORE,
                             linewidth=0, alpha=0.35 if waits else 1.0))
    text = "\n".join(" ".join(names[first : first + 2]) for first in range(0, len(names), 2))
    axes.text(entry + 0.5, row + 0.5, text, ha="center", va="center",
              fontsize=7.5 if len(names) < 3 else 6, color="white" if raw and not waits else INK,
              linespacing=0.95)


@styled
def remembrance(series: Mapping[str, Sequence[float]], *, half_life: Mapping[str, float],
                title: str = "") -> Figure:
    """Draw the weight of a token after each compression.

    A vertical line marks a half-life.
    """
    return curves(range(max(map(len, series.values()))),
                  {name: [weight or None for weight in as_array(values).tolist()]
                   for name, values in series.items()}, at=list(half_life.values()),
                  xlabel="compressions since", ylabel="weight left", title=title,
                  scales=("linear", "log"))


@styled
def against_context(lengths: Sequence[float], series: Mapping[str, Sequence[float]], *, ylabel: str,
                    measured: Mapping[str, Mapping[float, float]] | None = None,
                    colours: Mapping[str, ColorType] | None = None, title: str = "") -> Figure:
    """Draw how a quantity grows with the context, a line for each method, both axes logarithmic.

    `measured` has dots by name and length; without it, every point of the lines has a dot.
    """
    return curves(lengths, series, xlabel="tokens of context", ylabel=ylabel, title=title,
                  scales=(2, "log"), marker="" if measured else "o", dots=measured,
                  colours=colours)
