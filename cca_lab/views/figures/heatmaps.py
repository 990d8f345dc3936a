"""Attention weights: matrices of queries and keys, shaded words, the steps of a softmax."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.patches import Rectangle

from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    FAINT,
    INK,
    MISSING,
    RAW,
    WEIGHTS,
    WRONG,
    as_array,
    legend_below,
    styled,
    tick_labels,
)

_CELL, _NUMBER_CELL, _LEAST_SIDE, _MOST_SIDE = 0.33, 0.42, 2.0, 4.6  # inches
_LETTER = 0.09  # width of a letter of a title, in inches
_BAR = 0.04  # width of the colour bar, as a share of a panel's longer side
_ROOM = 1.15  # inches for labels and colour bar
_WIDEST = 9.5  # width of a line of panels in inches; further panels go into the next line
SHADE = 0.5  # exponent of the colour scale, so that the many small weights can be seen
_WIDTH, _LINE = 0.083, 0.235  # width of a character and height of a line, in inches
_DARK = 0.45  # on darker shades the text is white


@styled
def heatmaps(matrices: Mapping[str, Any], *, rows: Sequence[Any] | None = None,
             columns: Sequence[Any] | None = None, row_name: str = "query",
             column_name: str = "key", numbers: str | None = None, smallest: float = 0.0,
             largest: float | None = None, colours: Colormap = WEIGHTS,
             bar: str | None = "weight") -> Figure:
    """Draw matrices of one shape side by side, on one colour scale.

    `numbers` is a format that writes each value but an exact 0 into its cell; `largest` is that of
    all matrices by default; `bar` is the label of the colour bar, None for no bar.
    """
    arrays = {title: as_array(matrix).astype(float) for title, matrix in matrices.items()}
    shape = next(iter(arrays.values())).shape
    largest = max(array.max() for array in arrays.values()) if largest is None else largest
    figure, panels = _panels(arrays, shape, _CELL if numbers is None else _NUMBER_CELL)
    for axes, (title, array) in zip(panels, arrays.items(), strict=True):
        written = numbers and [[format(x, numbers) if x else "" for x in line] for line in array]
        seaborn.heatmap(array, ax=axes, cmap=colours, vmin=smallest, vmax=largest, square=True,
                        cbar=False, annot=written, fmt="", annot_kws={"size": 8}, **_grid(array))
        _label(axes, shape, rows, columns, row_name, column_name)
        axes.set_title(title)
    if bar is not None:
        last = [axes for axes in panels if _spec(axes).is_first_row()][-1]
        width = _BAR * max(shape) / shape[1]  # of the panel's width; its cells are square
        scale = figure.colorbar(panels[0].collections[0], label=bar,
                                cax=last.inset_axes((1 + width, 0, width, 1)))
        scale.outline.set_visible(False)
    return figure


def heatmap(matrix: Any, *, title: str = "", **options: Any) -> Figure:
    """Draw one matrix; see `heatmaps` for the options."""
    return heatmaps({title: matrix}, **options)


@styled
def categories(panels: Mapping[str, Any], kinds: Mapping[str, str], *,
               rows: Sequence[Any] | None = None, columns: Sequence[Any] | None = None,
               written: Mapping[str, Any] | None = None, column_name: str = "token", end: int = 0,
               small: bool = False) -> Figure:
    """Draw matrices whose entries are kinds: integers that count the names of `kinds`.

    By title a matrix; `kinds` has the colours of the kinds, those that occur are in the legend.
    `written` has texts for the cells, and a line marks the `end` of the first columns. `small`
    panels, of which many stand in a line, have no labels.
    """
    arrays = {title: as_array(matrix).astype(int) for title, matrix in panels.items()}
    shape = next(iter(arrays.values())).shape
    figure, drawn = _panels(arrays, shape, **({"cell": 0.0, "room": 0.3} if small else {}))
    for axes, (title, cells) in zip(drawn, arrays.items(), strict=True):
        grid_lines = {} if small else _grid(cells)
        seaborn.heatmap(cells, ax=axes, cmap=ListedColormap(list(kinds.values())), vmin=0,
                        vmax=len(kinds) - 1, square=True, cbar=False, fmt="",
                        annot=written and written[title], annot_kws={"size": 8}, **grid_lines)
        if small:
            axes.set(xticks=[], yticks=[])
        else:
            _label(axes, shape, rows, columns, "query", column_name)
        axes.set_title(title)
        if end:
            axes.axvline(end, color="white", linewidth=7)
    legend_below(drawn[0], {name: colour for kind, (name, colour) in enumerate(kinds.items())
                            if any((cells == kind).any() for cells in arrays.values())})
    return figure


@styled
def visibility(mask: Any, cores: int, *, core_names: Sequence[Any] | None = None,
               tokens: Sequence[Any] | None = None, title: str = "") -> Figure:
    """Draw which columns each row sees: core tokens first, then raw tokens.

    `mask` is bool (L, cores + L); rows have the labels of the tokens.
    """
    mask = as_array(mask).astype(bool)
    width = mask.shape[1]
    names = [*(core_names or [f"core {p}" for p in range(cores)]),
             *(tokens or range(width - cores))]
    return categories({title: np.where(mask, np.where(np.arange(width) < cores, 1, 2), 0)},
                      {"not visible": EMPTY, "core token": CORE, "raw token": RAW}, end=cores,
                      rows=tokens, columns=names, column_name="key")


@styled
def times_read(counts: Mapping[str, Any], *, tokens: Sequence[Any] | None = None) -> Figure:
    """Draw how often each row reads each token; right is once in the past, never in the future.

    By title integers (L, L): how many times row i reads token t, raw or inside a core.
    """
    arrays = {title: as_array(matrix).astype(int) for title, matrix in counts.items()}
    past = np.tri(len(next(iter(arrays.values()))), dtype=bool)
    kinds = {"past, read once": "#D6E8F4", "future, not read": EMPTY, "past, not read": MISSING,
             "past, read twice or more": WRONG, "future, read": INK}
    cells = {title: np.select([past & (count == 1), ~past & (count == 0), past & (count == 0),
                               past], range(4), 4) for title, count in arrays.items()}
    written = {title: np.where((count == 0) & ~past, "", count.astype(str))
               for title, count in arrays.items()}
    return categories(cells, kinds, rows=tokens, columns=tokens, written=written)


def _panels(titles: Collection[str], shape: tuple[int, int],
            cell: float = _CELL, room: float = _ROOM) -> tuple[Figure, list[Axes]]:
    """Make axes side by side, in several lines if needed, for titles and square cells."""
    height, width = (min(max(cell * side, _LEAST_SIDE), _MOST_SIDE) for side in shape)
    width = max(width, _LETTER * max(map(len, titles)))
    count = len(titles)
    in_line = min(count, max(1, int(_WIDEST // width)))
    lines = -(-count // in_line)
    figure, axes = plt.subplots(lines, in_line, squeeze=False,
                                figsize=(in_line * width + room,
                                         lines * (height + 0.85 * room) + 0.3))
    for unused in axes.flat[count:]:
        unused.axis("off")
    return figure, list(axes.flat[:count])


def _spec(axes: Axes) -> SubplotSpec:
    """Return where axes stand among their figure's panels."""
    spec = axes.get_subplotspec()
    assert spec is not None
    return spec


def _grid(array: np.ndarray) -> dict[str, Any]:
    """Return the options for lines between cells, if the cells are large enough for them."""
    return {"linewidths": 0.6, "linecolor": "#D0D0D0"} if max(array.shape) <= 40 else {
        "rasterized": True}


def _label(axes: Axes, shape: tuple[int, int], rows: Sequence[Any] | None,
           columns: Sequence[Any] | None, row_name: str, column_name: str) -> None:
    """Name the axes, and label the ticks if the labels can be read."""
    row_labels, column_labels = tick_labels(rows, shape[0]), tick_labels(columns, shape[1])
    axes.set_yticks(np.arange(len(row_labels)) + 0.5, row_labels, rotation=0)
    wide = any(len(label) > 2 for label in column_labels)
    axes.set_xticks(np.arange(len(column_labels)) + 0.5, column_labels, rotation=90 if wide else 0)
    axes.tick_params(length=0, colors="#222222")
    axes.set_ylabel(row_name if _spec(axes).is_first_col() else "")
    axes.set_xlabel(column_name, color=FAINT)
    axes.yaxis.label.set_color(FAINT)


def lines_of(tokens: Sequence[str], most: int) -> list[list[int]]:
    """Return the tokens of each line, by index: at most `most` characters, or to a line end."""
    lines: list[list[int]] = [[]]
    used = 0
    for index, token in enumerate(tokens):
        if lines[-1] and used + len(printed(token)) > most:
            lines.append([])
            used = 0
        lines[-1].append(index)
        used += len(printed(token))
        if "\n" in token:
            lines.append([])
            used = 0
    return [line for line in lines if line]


def printed(token: str) -> str:
    """Return a token in printable form: signs for a line end and a tab, and an escaped dollar."""
    return token.replace("\n", "\u21b5").replace("\t", "\u21e5").replace("$", r"\$")


@styled
def shaded_text(tokens: Sequence[str], weights: Any, *, marked: Collection[int] = (),
                most: int = 84, title: str = "") -> Figure:
    """Draw a text with each token shaded by its weight in one row (CCA, Figure 1)."""
    weights = as_array(weights).astype(float)
    lines = lines_of(tokens, most)
    longest = max(sum(len(printed(tokens[index])) for index in line) for line in lines)
    figure, axes = plt.subplots(figsize=(_WIDTH * longest + 0.2, _LINE * len(lines) + 0.45))
    axes.set(xlim=(-0.2, longest + 0.2), ylim=(len(lines), 0))
    axes.set_axis_off()
    axes.set_title(title)
    shade = PowerNorm(SHADE, 0, max(weights.max(), 1e-9))(weights)
    for number, line in enumerate(lines):
        at = 0
        for index in line:
            text = printed(tokens[index])
            axes.add_patch(Rectangle((at, number + 0.06), len(text), 0.88,
                                     facecolor=WEIGHTS(shade[index]), edgecolor="white",
                                     linewidth=0.8))
            if index in marked:
                axes.add_patch(Rectangle((at, number + 0.06), len(text), 0.88, facecolor="none",
                                         edgecolor=WRONG, linewidth=1.8, zorder=3))
            axes.text(at + len(text) / 2, number + 0.52, text, ha="center", va="center",
                      family="monospace", fontsize=9, color="white" if shade[index] > _DARK
                      else INK)
            at += len(text)
    return figure


@styled
def online_softmax_steps(shares: Sequence[Sequence[float]], maxima: Sequence[float],
                         sums: Sequence[float]) -> Figure:
    """Draw the state of a one-pass softmax after each key.

    After n keys: the n numbers exp(score_t - running maximum), the running maximum and running sum.
    """
    steps = len(shares)
    figure, panels = plt.subplots(1, steps, figsize=(1.55 * steps, 2.5), sharey=True)
    for step, axes in enumerate(np.atleast_1d(panels)):
        moved = step > 0 and maxima[step] != maxima[step - 1]
        axes.bar(np.arange(steps), np.ones(steps), color=EMPTY, width=0.8)
        axes.bar(np.arange(step + 1), shares[step], color=[CORE if moved else RAW] * step + [RAW],
                 width=0.8)
        axes.set_title(f"key {step + 1}: max {maxima[step]:g}\nsum {sums[step]:.4g}", fontsize=9,
                       fontweight="normal")
        axes.set_xticks(np.arange(steps), range(1, steps + 1))
        axes.set_ylim(0, 1.05)
        axes.spines["left"].set_visible(False)
        axes.tick_params(length=0)
        axes.set_yticks([0, 0.5, 1])
    np.atleast_1d(panels)[0].set_ylabel("power, over that of the maximum", color=FAINT)
    return figure
