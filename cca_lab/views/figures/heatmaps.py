"""Matrices whose rows are queries: attention weights, visible columns, and how often each token is read."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure

from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    FAINT,
    MISSING,
    RAW,
    WEIGHTS,
    WRONG,
    as_array,
    legend_below,
    styled,
    tick_labels,
)

HIDDEN_CELL, CORE_CELL, RAW_CELL = range(3)
_PAST, _FUTURE, _TOO_RARELY, _TOO_OFTEN = range(4)
_CELL, _NUMBER_CELL, _LEAST_SIDE, _MOST_SIDE = 0.33, 0.42, 2.0, 4.6  # inches
_LETTER = 0.09  # width of a letter of a title, in inches
_BAR = 0.04  # width of the colour bar, as a share of a panel's longer side
_ROOM = 1.15  # inches for labels and colour bar
_WIDEST = 9.5  # width of a line of panels in inches; further panels go into the next line


@styled
def heatmaps(
    matrices: Mapping[str, Any], *, rows: Sequence[Any] | None = None, columns: Sequence[Any] | None = None,
    row_name: str = "query", column_name: str = "key", numbers: str | None = None,
    smallest: float = 0.0, largest: float | None = None, colours: Colormap = WEIGHTS, bar: str | None = "weight",
) -> Figure:
    """Draw matrices of one shape side by side, on one colour scale.

    Args:
        matrices: (R, C) each, by title.
        rows, columns: labels, such as the tokens; at most 32 are shown.
        row_name, column_name: what rows and columns are.
        numbers: a format such as ".2f" to write each value into its cell, except an exact 0.
        smallest, largest: ends of the colour scale; `largest` is the largest value of all matrices by default.
        colours: the colour map.
        bar: label of the colour bar; None for no colour bar, if cells have only two values.

    Raises:
        ValueError: if there is no matrix, their shapes differ, or a list of labels does not fit.
    """
    arrays = {title: as_array(matrix).astype(float) for title, matrix in matrices.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 2:
        raise ValueError(f"matrices: got shapes {[array.shape for array in arrays.values()]}, wanted one or "
                         "more of one shape (rows, columns); index batch and head away first")
    largest = max(array.max() for array in arrays.values()) if largest is None else largest
    figure, panels = _panels(arrays, shape, _CELL if numbers is None else _NUMBER_CELL)
    for axes, (title, array) in zip(panels, arrays.items(), strict=True):
        written = numbers and [[format(x, numbers) if x else "" for x in line] for line in array]
        seaborn.heatmap(array, ax=axes, cmap=colours, vmin=smallest, vmax=largest, square=True, cbar=False,
                        annot=written, fmt="", annot_kws={"size": 8}, **_grid(array))
        _label(axes, shape, rows, columns, row_name, column_name)
        axes.set_title(title)
    if bar is not None:
        _colour_bar(figure, panels, shape, bar)
    return figure


def heatmap(matrix: Any, *, title: str = "", **options: Any) -> Figure:
    """Draw one matrix; see `heatmaps` for the options."""
    return heatmaps({title: matrix}, **options)


@styled
def visibility(mask: Any, cores: int, *, rows: Sequence[Any] | None = None,
               core_names: Sequence[Any] | None = None, tokens: Sequence[Any] | None = None,
               title: str = "") -> Figure:
    """Draw which columns each row sees: core tokens first, then raw tokens.

    Args:
        mask: bool (L, cores + L), True where the row sees the column.
        cores: how many of the columns, from the left, are core tokens.
        rows: labels of the rows; `tokens` by default.
        core_names: labels of the core tokens.
        tokens: labels of the raw tokens.
        title: of the figure.
    """
    mask = as_array(mask).astype(bool)
    kinds = np.where(np.arange(mask.shape[1]) < cores, CORE_CELL, RAW_CELL)
    cells = np.where(mask, kinds, HIDDEN_CELL)
    figure, (axes,) = _panels([title], mask.shape)
    seaborn.heatmap(cells, ax=axes, cmap=ListedColormap([EMPTY, CORE, RAW]), vmin=0, vmax=2, square=True,
                    cbar=False, **_grid(cells))
    names = [f"core {p}" for p in range(cores)] if core_names is None else list(core_names)
    raw_names = list(range(mask.shape[1] - cores)) if tokens is None else list(tokens)
    _label(axes, mask.shape, tokens if rows is None else rows, names + raw_names, "query", "key")
    if cores:
        axes.axvline(cores, color="white", linewidth=7)
    axes.set_title(title)
    core_entry = {"core token": CORE} if cores else {}
    legend_below(axes, {**core_entry, "raw token": RAW, "not visible": EMPTY})
    return figure


@styled
def times_read(counts: Mapping[str, Any], *, tokens: Sequence[Any] | None = None) -> Figure:
    """Draw how often each row reads each token; correct is once for the past and never for the future.

    Args:
        counts: integers (L, L) by title: how many times row i reads token t, raw or inside a core.
        tokens: labels of rows and columns.
    """
    arrays = {title: as_array(matrix).astype(int) for title, matrix in counts.items()}
    length = len(next(iter(arrays.values())))
    past = np.tri(length, dtype=bool)
    figure, panels = _panels(arrays, (length, length))
    colours = ListedColormap(["#D6E8F4", EMPTY, MISSING, WRONG])
    for axes, (title, count) in zip(panels, arrays.items(), strict=True):
        cells = np.where(count == past, np.where(past, _PAST, _FUTURE),
                         np.where(count < past, _TOO_RARELY, _TOO_OFTEN))
        shown = np.where((count == 0) & ~past, "", count.astype(str))
        seaborn.heatmap(cells, ax=axes, cmap=colours, vmin=0, vmax=3, square=True, cbar=False, annot=shown,
                        fmt="", annot_kws={"size": 8}, **_grid(cells))
        _label(axes, (length, length), tokens, tokens, "query", "token")
        axes.set_title(title)
    legend_below(panels[0], {"past, read once": "#D6E8F4", "future, never read": EMPTY,
                             "past, not read": MISSING, "read twice, or future": WRONG}, columns=4)
    return figure


def _panels(titles: Collection[str], shape: tuple[int, int],
            cell: float = _CELL) -> tuple[Figure, list[Axes]]:
    """Make axes side by side, in several lines if needed, each sized for its title and a matrix of square cells."""
    height, width = (min(max(cell * side, _LEAST_SIDE), _MOST_SIDE) for side in shape)
    width = max(width, _LETTER * max(map(len, titles)))
    count = len(titles)
    in_line = min(count, max(1, int(_WIDEST // width)))
    lines = -(-count // in_line)
    figure, axes = plt.subplots(lines, in_line, squeeze=False,
                                figsize=(in_line * width + _ROOM, lines * (height + 0.85 * _ROOM) + 0.3))
    for unused in axes.flat[count:]:
        unused.axis("off")
    return figure, list(axes.flat[:count])


def _colour_bar(figure: Figure, panels: list[Axes], shape: tuple[int, int], label: str) -> None:
    """Draw the colour bar of all panels, as tall as the last panel of the first line."""
    last = max((axes for axes in panels if axes.get_subplotspec().is_first_row()), key=panels.index)
    width = _BAR * max(shape) / shape[1]  # of the panel's width; its cells are square
    scale = figure.colorbar(panels[0].collections[0], cax=last.inset_axes((1 + width, 0, width, 1)), label=label)
    scale.outline.set_visible(False)


def _grid(array: np.ndarray) -> dict[str, Any]:
    """Return the options for lines between cells, if the cells are large enough for them."""
    return {"linewidths": 0.6, "linecolor": "#D0D0D0"} if max(array.shape) <= 40 else {"rasterized": True}


def _label(axes: Axes, shape: tuple[int, int], rows: Sequence[Any] | None, columns: Sequence[Any] | None,
           row_name: str, column_name: str) -> None:
    """Name the axes, and label the ticks if the labels can be read."""
    row_labels, column_labels = tick_labels(rows, shape[0]), tick_labels(columns, shape[1])
    axes.set_yticks(np.arange(len(row_labels)) + 0.5, row_labels, rotation=0)
    wide = any(len(label) > 2 for label in column_labels)
    axes.set_xticks(np.arange(len(column_labels)) + 0.5, column_labels, rotation=90 if wide else 0)
    axes.tick_params(length=0, colors="#222222")
    axes.set_ylabel(row_name if axes.get_subplotspec().is_first_col() else "")
    axes.set_xlabel(column_name, color=FAINT)
    axes.yaxis.label.set_color(FAINT)
