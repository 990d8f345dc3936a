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
from matplotlib.ticker import LogLocator, NullFormatter
from matplotlib.typing import ColorType

from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    FAINT,
    INK,
    RAW,
    SERIES,
    as_array,
    coloured,
    grid,
    heading,
    styled,
    tick_labels,
)

POOLED = LinearSegmentedColormap.from_list("pooled", ["#FCEFD3", CORE])
_SMALL = 2.3  # side of a small panel in inches
_RAW_FROM = 1 - 1e-4  # a coverage above this is a raw token
LEAST_SHARE = 1e-9  # a smaller share of a token is rounding error
_CELL, _ROW = 0.62, 0.32  # width of an entry and height of a row, in inches
_APART = 0.055  # least distance between names at the ends of lines, as a share of the height


@styled
def holdings(held: Mapping[str, Any], *, title: str = "") -> Figure:
    """Draw what every row of some mechanisms holds: a panel each, rows are queries.

    By title the coverage (L, L): how row i reads token t, 1 raw, below 1 pooled, 0 not at all.
    """
    arrays = {name: as_array(matrix).astype(float) for name, matrix in held.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) != 1 or len(set(shape := next(iter(shapes)))) != 1 or len(shape) != 2:
        raise ValueError(
            f"held: got shapes {sorted(shapes)}, wanted one or more of one shape (L, L); "
            "pass one head of one text")
    length = shape[0]
    figure, panels = plt.subplots(1, len(arrays), squeeze=False,
                                  figsize=(_SMALL * len(arrays) + 0.6, _SMALL + 1.3))
    ticks = np.arange(0, length, max(1, length // 4))
    past = {name: np.ma.masked_where(~np.tri(length, dtype=bool), matrix)
            for name, matrix in arrays.items()}
    for axes, (name, matrix) in zip(panels[0], past.items(), strict=True):
        _kinds(axes, matrix, lines=0.4 if length <= 16 else 0.0)
        axes.set_title(name, fontsize=9.5, fontweight="normal")
        axes.set_xticks(ticks + 0.5, ticks, rotation=0)
        axes.set_yticks(ticks + 0.5, ticks if axes is panels[0, 0] else [""] * len(ticks),
                        rotation=0)
        axes.tick_params(length=0)
        axes.set_xlabel("token", color=FAINT)
    panels[0, 0].set_ylabel("query", color=FAINT)
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
    if held.shape != (len(rows), len(tokens)) or weights.shape != (len(tokens),):
        raise ValueError(
            f"rows, weights: got shapes {held.shape} and {weights.shape}, wanted ({len(rows)}, L) "
            f"and (L,) for {len(tokens)} tokens")
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
def remembrance(curves: Mapping[str, Sequence[float]], *, half_life: Mapping[str, float]
                | None = None, xlabel: str = "compressions since", ylabel: str = "weight left",
                title: str = "") -> Figure:
    """Draw the retention of a token: its weight on a logarithmic scale.

    `curves` has the weight after 0, 1, 2 ... compressions; a half-life is drawn as a vertical line.
    """
    unknown = set(half_life or {}) - set(curves)
    if unknown:
        raise ValueError(
            f"half_life: got {sorted(unknown)}, wanted names of curves: {list(curves)}")
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for (name, curve), colour in coloured(curves.items()):
        weights = as_array(curve).astype(float)
        steps = [step for step, weight in enumerate(weights) if weight > 0]
        axes.plot(steps, weights[steps], color=colour, linewidth=2, label=name)
        if half_life and name in half_life:
            axes.axvline(half_life[name], color=colour, linestyle=":", linewidth=1.2)
    axes.set_yscale("log")
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    grid(axes, below=False)
    axes.legend()
    return figure


@styled
def entries_held(caches: Mapping[str, Sequence[Any]], *, tokens: Sequence[str],
                 waiting: Mapping[str, Sequence[Collection[int]]] | None = None) -> Figure:
    """Draw the entries of caches, one panel each: a row after every token, a cell for every entry.

    By name, after 1, 2, 3 ... tokens, the share (n, L) of each token in each of n entries; those of
    `waiting` are stored but not read by the next token.
    """
    panels = {name: [as_array(matrix).astype(float) for matrix in matrices]
              for name, matrices in caches.items()}
    for name, matrices in panels.items():
        shapes = {matrix.shape[1:] for matrix in matrices}
        if len(matrices) != len(tokens) or shapes != {(len(tokens),)}:
            raise ValueError(
                f"cache {name!r}: got {len(matrices)} matrices with rows {sorted(shapes)}, wanted "
                f"{len(tokens)}, one after each token, with a column for each")
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
def against_context(lengths: Sequence[float], series: Mapping[str, Sequence[float]], *, ylabel: str,
                    measured: Mapping[str, Mapping[float, float]] | None = None,
                    colours: Mapping[str, ColorType] | None = None, title: str = "") -> Figure:
    """Draw how a quantity grows with the context, one line per method, both axes logarithmic.

    `measured` has dots by name and length; without it, every point of the lines has a dot.
    """
    colours = _colours_of(series, colours)
    for name, values in series.items():
        if len(values) != len(lengths):
            raise ValueError(
                f"series {name!r}: got {len(values)} values for {len(lengths)} lengths, wanted one "
                "for each")
    unknown = set(measured or {}) - set(series)
    if unknown:
        raise ValueError(f"measured: got {sorted(unknown)}, wanted names of series: {list(series)}")
    figure, axes = plt.subplots(figsize=(7.0, 4.0))
    for name, values in series.items():
        colour = colours[name]
        axes.plot(lengths, values, color=colour, linewidth=1.8, marker=None if measured else "o",
                  markersize=3.5)
        dots = (measured or {}).get(name, {})
        axes.plot(list(dots), list(dots.values()), "o", color=colour, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="tokens of context", ylabel=ylabel, title=title)
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / 1024:g}K" if tokens >= 1024
                                   else f"{tokens:g}")
    grid(axes, below=False)
    _name_ends(axes, {name: values[-1] for name, values in series.items()}, colours)
    return figure


def _name_ends(axes: Axes, ends: Mapping[str, float], colours: Mapping[str, ColorType]) -> None:
    """Write each name to the right of its line's end; move names apart where they overlap."""
    low, high = np.log(axes.get_ylim())
    order = sorted(ends, key=lambda name: ends[name])
    positions = spread([(np.log(ends[name]) - low) / (high - low) for name in order], _APART)
    for name, position in zip(order, positions, strict=True):
        axes.annotate(name, (1.02, position), xycoords="axes fraction", color=colours[name],
                      va="center", fontsize=9, annotation_clip=False)


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move ascending positions at least `gap` apart; a run that is too dense keeps its mean."""
    runs: list[list[float]] = []
    for position in positions:
        runs.append([position])
        while len(runs) > 1 and _bottom(runs[-1], gap) - _bottom(runs[-2],
                                                                 gap) < gap * len(runs[-2]):
            last = runs.pop()
            runs[-1] += last
    return [_bottom(run, gap) + gap * number for run in runs for number in range(len(run))]


def _bottom(run: Sequence[float], gap: float) -> float:
    """Return the lowest position of a run once it is spread around its mean."""
    return sum(run) / len(run) - gap * (len(run) - 1) / 2


@styled
def token_times(milliseconds: Mapping[str, Sequence[float]], *,
                colours: Mapping[str, ColorType] | None = None, title: str = "") -> Figure:
    """Draw the time of each decoded token, one panel per method, with a common logarithmic scale.

    `milliseconds` are those of the first, second, third ... decoded token, by name.
    """
    colours = _colours_of(milliseconds, colours)
    figure, panels = plt.subplots(len(milliseconds), 1, sharex=True, sharey=True, squeeze=False,
                                  figsize=(7.0, 0.72 * len(milliseconds) + 0.9))
    for axes, (name, times) in zip(panels[:, 0], milliseconds.items(), strict=True):
        colour = colours[name]
        axes.bar(np.arange(1, len(times) + 1), times, width=0.8, color=colour, linewidth=0)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel(name, rotation=0, ha="right", va="center", color=colour)
        grid(axes, axis="y")
    panels[-1, 0].set_xlabel("decoded token (milliseconds each)")
    heading(figure, title)
    return figure


def _colours_of(series: Mapping[str, Any], colours: Mapping[str, ColorType]
                | None) -> Mapping[str, ColorType]:
    """Return a colour for each name, given or in order; ValueError for a name without one."""
    if colours is not None and series and set(series) <= set(colours):
        return colours
    if colours is not None:
        raise ValueError(
            f"colours: got none for {sorted(set(series) - set(colours))}, "
            "wanted one for each series"
        )
    if not 1 <= len(series) <= len(SERIES):
        raise ValueError(
            f"series: got {len(series)} names, wanted 1 to {len(SERIES)}, as there are colours; "
            "leave out those whose lines would coincide")
    return dict(coloured(series))
