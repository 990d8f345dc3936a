"""What mechanisms keep and what they forget: the coverage of each row, and the columns of one row."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cca_lab.views.figures.style import CORE, EMPTY, FAINT, RAW, as_array, styled, tick_labels

POOLED = LinearSegmentedColormap.from_list("pooled", ["#FCEFD3", CORE])
_SMALL = 2.3  # side of a small panel in inches
_LINE = 0.14  # height of a column's line in inches
_RAW_FROM = 1 - 1e-4  # a coverage above this is a raw token


@styled
def holdings(held: Mapping[str, Any], *, title: str = "") -> Figure:
    """Draw what every row of some mechanisms holds: one panel each, a row for each query, a column for each token.

    Args:
        held: (L, L) by the panel's title, the coverage: how row i reads token t, 1 raw, below 1 pooled, 0 not at all.
        title: of the figure.

    Raises:
        ValueError: for no panel, or matrices that are not of one square shape.
    """
    arrays = {name: as_array(matrix).astype(float) for name, matrix in held.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) != 1 or len(set(shape := next(iter(shapes)))) != 1 or len(shape) != 2:
        raise ValueError(f"held: got shapes {sorted(shapes)}, wanted one or more of one shape (L, L); "
                         "pass one head of one text")
    length = shape[0]
    figure, panels = plt.subplots(1, len(arrays), squeeze=False, figsize=(_SMALL * len(arrays) + 0.6, _SMALL + 1.3))
    ticks = np.arange(0, length, max(1, length // 4))
    past = {name: np.ma.masked_where(~np.tri(length, dtype=bool), matrix) for name, matrix in arrays.items()}
    for axes, (name, matrix) in zip(panels[0], past.items(), strict=True):
        _kinds(axes, matrix, lines=0.4 if length <= 16 else 0.0)
        axes.set_title(name, fontsize=9.5, fontweight="normal")
        axes.set_xticks(ticks + 0.5, ticks, rotation=0)
        axes.set_yticks(ticks + 0.5, ticks if axes is panels[0, 0] else [""] * len(ticks), rotation=0)
        axes.tick_params(length=0)
        axes.set_xlabel("token", color=FAINT)
    panels[0, 0].set_ylabel("query", color=FAINT)
    _legend(figure, past.values(), "not read")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


@styled
def last_columns(pooling: Mapping[str, Any], *, tokens: Sequence[Any], title: str = "") -> Figure:
    """Draw the columns that one row of some mechanisms reads: a line for each column, and the tokens that it holds.

    Args:
        pooling: (N, L) by the panel's title, weights of the tokens in each of N columns; rows sum to 1.
        tokens: (L,) labels.
        title: of the figure.

    Raises:
        ValueError: if a matrix does not have a column for each token.
    """
    arrays = {name: as_array(matrix).astype(float) for name, matrix in pooling.items()}
    if not arrays or any(array.ndim != 2 or array.shape[1] != len(tokens) for array in arrays.values()):
        raise ValueError(f"pooling: got shapes {[array.shape for array in arrays.values()]}, "
                         f"wanted (N, {len(tokens)}), a column for each token")
    heights = [len(array) for array in arrays.values()]
    figure, panels = plt.subplots(len(arrays), 1, squeeze=False, sharex=True, height_ratios=heights,
                                  figsize=(8.6, _LINE * sum(heights) + 0.55 * len(arrays) + 1.4))
    for axes, (name, matrix) in zip(panels[:, 0], arrays.items(), strict=True):
        _kinds(axes, matrix, square=False)
        axes.set_title(f"{name}: {len(matrix)} columns", fontsize=9.5, fontweight="normal")
        axes.tick_params(length=0, labelbottom=axes is panels[-1, 0])
    panels[-1, 0].set_xticks(np.arange(len(tokens)) + 0.5, tick_labels(tokens, len(tokens)), rotation=90)
    _legend(figure, arrays.values(), "not in the column")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


@styled
def kept_and_forgotten(rows: Mapping[str, Any], weights: Any, *, tokens: Sequence[Any], title: str = "") -> Figure:
    """Draw the tokens that one row of each mechanism attends to, below the weights of full attention.

    Args:
        rows: (L,) by mechanism, the coverage of the row: 1 raw, below 1 pooled, 0 forgotten.
        weights: (L,), the same row of full attention.
        tokens: (L,) labels.
        title: of the figure.

    Raises:
        ValueError: if a row does not fit the tokens.
    """
    weights, held = as_array(weights).astype(float), np.array([as_array(row) for row in rows.values()], dtype=float)
    if held.shape != (len(rows), len(tokens)) or weights.shape != (len(tokens),):
        raise ValueError(f"rows, weights: got shapes {held.shape} and {weights.shape}, wanted ({len(rows)}, L) and "
                         f"(L,) for {len(tokens)} tokens")
    height = 0.25 * len(rows) + 0.5
    figure, (top, axes) = plt.subplots(2, 1, figsize=(8.6, height + 2.1), height_ratios=(1.0, height), sharex=True)
    top.bar(np.arange(len(tokens)) + 0.5, weights, width=0.8, color=FAINT)
    top.set_ylabel("full", rotation=0, ha="right", va="center", fontsize=8.5)
    top.set_yticks([])
    top.spines[["left"]].set_visible(False)
    _kinds(axes, held, square=False)
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(rows), rotation=0)
    axes.set_xticks(np.arange(len(tokens)) + 0.5, tick_labels(tokens, len(tokens)), rotation=90)
    axes.tick_params(length=0)
    top.tick_params(length=0, labelbottom=False)
    _legend(figure, [held], "forgotten")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def _legend(figure: Figure, matrices: Iterable[np.ndarray], nothing: str) -> None:
    """Draw the legend below the figure: what occurs of raw, pooled, and neither, for which a name is given."""
    cells = np.concatenate([np.ma.compressed(matrix) for matrix in matrices])
    found = {"raw": (RAW, cells > _RAW_FROM), nothing: (EMPTY, cells == 0),
             "pooled, the darker the larger its share": (CORE, (cells > 0) & (cells <= _RAW_FROM))}
    names = [name for name, (_, cells) in found.items() if cells.any()]
    patches = [Patch(facecolor=found[name][0], edgecolor=FAINT, linewidth=0.5) for name in names]
    figure.legend(patches, names, ncols=3, loc="outside lower center", handlelength=1.1, handleheight=1.1)


def _kinds(axes: Axes, held: np.ndarray, *, square: bool = True, lines: float = 0.4) -> None:
    """Colour cells by how a token is read: blue raw, orange pooled, grey not at all; masked cells stay white."""
    hidden, held = np.ma.getmaskarray(held), np.ma.getdata(held)
    raw, pooled = held > _RAW_FROM, (held > 0) & (held <= _RAW_FROM)
    two_colours = LinearSegmentedColormap.from_list("raw", [EMPTY, RAW])
    look = {"square": square, "linewidths": lines, "vmin": 0}
    _cells(axes, np.ma.masked_where(hidden, np.where(raw, 1.0, 0.0)), two_colours, vmax=1, **look)
    if pooled.any():
        most = max(held[pooled].max(), 0.5)
        _cells(axes, np.ma.masked_where(~pooled, held), POOLED, vmax=most, **look)


def _cells(axes: Axes, matrix: Any, colours: Colormap, **look: Any) -> None:
    seaborn.heatmap(np.ma.filled(matrix, np.nan), mask=np.ma.getmaskarray(matrix), ax=axes, cmap=colours,
                    cbar=False, linecolor="#DADADA", xticklabels=False, yticklabels=False, **look)
