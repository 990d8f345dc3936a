"""What a mechanism keeps and what it forgets: its columns, the coverage of each row, the effective weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cca_lab.figures.style import CORE, EMPTY, FAINT, RAW, WEIGHTS, as_array, styled, tick_labels

SHADE = 0.5  # exponent of the colour scale of weights, so that the many small ones can be seen
POOLED = LinearSegmentedColormap.from_list("pooled", ["#FCEFD3", CORE])
_SIDE = 3.1  # side of a panel in inches


@styled
def three_views(pooling: Any, held: Any, weights: Any, *, tokens: Sequence[Any], title: str = "") -> Figure:
    """Draw one mechanism on one text: its pooling matrix, its visibility and its effective attention.

    Args:
        pooling: (N, L), the pooling weights of the N columns that the last row sees; rows sum to 1.
        held: (L, L), the coverage: how row i reads token t, 1 raw, below 1 pooled, 0 not represented.
        weights: (L, L), the effective attention.
        tokens: (L,) labels, which are shown for at most 32 tokens.
        title: of the figure.

    Raises:
        ValueError: if the matrices do not fit together.
    """
    pooling, held, weights = (as_array(x).astype(float) for x in (pooling, held, weights))
    length = len(tokens)
    if held.shape != (length, length) or weights.shape != held.shape or pooling.shape[1:] != (length,):
        raise ValueError(f"pooling, held, weights: got shapes {pooling.shape}, {held.shape}, {weights.shape} for "
                         f"{length} tokens, wanted (N, L), (L, L), (L, L); pass one head of one text")
    figure, panels = plt.subplots(1, 3, figsize=(3 * _SIDE + 0.9, _SIDE + 1.1))
    _kinds(panels[0], pooling)
    _kinds(panels[1], np.ma.masked_where(~np.tri(length, dtype=bool), held))
    _cells(panels[2], weights, WEIGHTS, norm=PowerNorm(SHADE, 0, max(weights.max(), 1e-9)))
    names = tick_labels(tokens, length)
    for axes, label, rows in zip(panels, (f"columns of the last row: {len(pooling)}", "what each row holds",
                                          "effective attention"), (None, names, names), strict=True):
        _label(axes, label, rows if axes is panels[1] else None, names)
    panels[0].set_ylabel("column", color=FAINT)
    panels[1].set_ylabel("query", color=FAINT)
    legend = [Patch(facecolor=colour, edgecolor=FAINT, linewidth=0.5) for colour in (RAW, CORE, EMPTY)]
    figure.legend(legend, ["raw", "pooled, the darker the larger its share", "not held"], ncols=3,
                  loc="outside lower center", handlelength=1.1, handleheight=1.1)
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
    legend = [Patch(facecolor=colour, edgecolor=FAINT, linewidth=0.5) for colour in (RAW, CORE, EMPTY)]
    figure.legend(legend, ["raw", "pooled, the darker the larger its share", "forgotten"], ncols=3,
                  loc="outside lower center", handlelength=1.1, handleheight=1.1)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def _kinds(axes: Axes, held: np.ndarray, *, square: bool = True) -> None:
    """Colour cells by how a token is read: blue raw, orange pooled, grey not at all; masked cells stay white."""
    hidden, held = np.ma.getmaskarray(held), np.ma.getdata(held)
    raw, pooled = held > 1 - 1e-4, (held > 0) & (held <= 1 - 1e-4)
    two_colours = LinearSegmentedColormap.from_list("raw", [EMPTY, RAW])
    _cells(axes, np.ma.masked_where(hidden, np.where(raw, 1.0, 0.0)), two_colours, square=square, vmin=0, vmax=1)
    if pooled.any():
        most = max(held[pooled].max(), 0.5)
        _cells(axes, np.ma.masked_where(~pooled, held), POOLED, square=square, vmin=0, vmax=most)


def _cells(axes: Axes, matrix: Any, colours: Colormap, *, square: bool = True, **scale: Any) -> None:
    seaborn.heatmap(np.ma.filled(matrix, np.nan), mask=np.ma.getmaskarray(matrix), ax=axes, cmap=colours,
                    cbar=False, square=square, linewidths=0.4, linecolor="#DADADA", xticklabels=False,
                    yticklabels=False, **scale)


def _label(axes: Axes, title: str, rows: list[str] | None, columns: list[str]) -> None:
    """Write a panel's title and the labels of its rows and columns; `rows` None leaves the row labels out."""
    axes.set_title(title, fontsize=9.5, fontweight="normal")
    axes.set_yticks(np.arange(len(rows)) + 0.5 if rows else [], rows or [], rotation=0)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=90)
    axes.tick_params(length=0, labelsize=7)
