"""Figures of decoding: the entries of a cache after each token, and bytes and times against the context."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import LogLocator, NullFormatter
from matplotlib.typing import ColorType

from cca_lab.views.figures.style import CORE, EMPTY, FAINT, INK, RAW, SERIES, as_array, coloured, styled

LEAST_SHARE = 1e-9  # a smaller share of a token is rounding error
_CELL, _LINE = 0.62, 0.32  # width of an entry and height of a row, in inches
_APART = 0.055  # least distance between names at the ends of lines, as a share of the height


@styled
def entries_held(caches: Mapping[str, Sequence[Any]], *, tokens: Sequence[str],
                 waiting: Mapping[str, Sequence[Collection[int]]] | None = None) -> Figure:
    """Draw the entries of caches, one panel each: a row after every token, a cell for every entry.

    Args:
        caches: by name, (n, L) matrices after 1, 2, 3 ... tokens: row e is the share of each token in entry e.
        tokens: (L,) the words.
        waiting: by name, after each token, the entries that are stored but not read by the next token.

    Raises:
        ValueError: if a cache does not have one matrix for each token, or a matrix does not fit the tokens.
    """
    panels = {name: [as_array(matrix).astype(float) for matrix in matrices] for name, matrices in caches.items()}
    for name, matrices in panels.items():
        shapes = {matrix.shape[1:] for matrix in matrices}
        if len(matrices) != len(tokens) or shapes != {(len(tokens),)}:
            raise ValueError(f"cache {name!r}: got {len(matrices)} matrices with rows {sorted(shapes)}, wanted "
                             f"{len(tokens)}, one after each token, with a column for each")
    widths = [max(2, *map(len, matrices)) for matrices in panels.values()]
    figure, grid = plt.subplots(1, len(panels), squeeze=False, width_ratios=widths, sharey=True,
                                figsize=(_CELL * sum(widths) + 0.9, _LINE * len(tokens) + 0.9))
    for axes, (name, matrices), width in zip(grid[0], panels.items(), widths, strict=True):
        unread_by_row = (waiting or {}).get(name, [()] * len(tokens))
        for row, (matrix, unread) in enumerate(zip(matrices, unread_by_row, strict=True)):
            for place, shares in enumerate(matrix):
                _entry(axes, row, place, shares, tokens, waits=place in unread)
        axes.set(xlim=(-0.05, width + 0.05), ylim=(len(tokens), 0), xticks=[], title=name)
        axes.set_yticks(np.arange(len(tokens)) + 0.5, tokens)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    grid[0, 0].set_ylabel("after", color=FAINT)
    looks = [Patch(facecolor=RAW), Patch(facecolor=CORE), Patch(facecolor=CORE, alpha=0.35)]
    names = ["raw", "pooled", "stored, not read yet"][: 3 if waiting else 2]
    figure.legend(looks[: len(names)], names, ncols=3, loc="outside lower center", handlelength=1.1, handleheight=1.1)
    return figure


def _entry(axes: Axes, row: int, place: int, shares: np.ndarray, tokens: Sequence[str], *, waits: bool) -> None:
    """Draw one entry and write its tokens into it, two in a line."""
    names = [tokens[token] for token in np.flatnonzero(shares > LEAST_SHARE)]
    raw = len(names) == 1
    axes.add_patch(Rectangle((place + 0.04, row + 0.06), 0.92, 0.88, facecolor=RAW if raw else CORE, linewidth=0,
                             alpha=0.35 if waits else 1.0))
    text = "\n".join(" ".join(names[first : first + 2]) for first in range(0, len(names), 2))
    axes.text(place + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7.5 if len(names) < 3 else 6,
              color="white" if raw and not waits else INK, linespacing=0.95)


@styled
def against_context(lengths: Sequence[float], series: Mapping[str, Sequence[float]], *, ylabel: str,
                    measured: Mapping[str, Mapping[float, float]] | None = None,
                    colours: Mapping[str, ColorType] | None = None, title: str = "") -> Figure:
    """Draw how a quantity grows with the context, one line per method, both axes logarithmic.

    Args:
        lengths: tokens of the context, positive, increasing.
        series: positive values by name, one for each length; at most six names, or as many as `colours`.
        ylabel: what the values are, with their unit.
        measured: by name, measured values at some lengths, drawn as dots on the computed lines; without it,
            every point of the lines has a dot.
        colours: by name, such as those of `OF_MECHANISM`; the series' own order decides by default.
        title: of the figure.

    Raises:
        ValueError: for more lines than colours, a series of the wrong length, or dots without a line.
    """
    colours = _colours_of(series, colours)
    for name, values in series.items():
        if len(values) != len(lengths):
            raise ValueError(f"series {name!r}: got {len(values)} values for {len(lengths)} lengths, wanted one "
                             "for each")
    unknown = set(measured or {}) - set(series)
    if unknown:
        raise ValueError(f"measured: got {sorted(unknown)}, wanted names of series: {list(series)}")
    figure, axes = plt.subplots(figsize=(7.0, 4.0))
    for name, values in series.items():
        colour = colours[name]
        axes.plot(lengths, values, color=colour, linewidth=1.8, marker=None if measured else "o", markersize=3.5)
        dots = (measured or {}).get(name, {})
        axes.plot(list(dots), list(dots.values()), "o", color=colour, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="tokens of context", ylabel=ylabel, title=title)
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens / 1024:g}K" if tokens >= 1024 else f"{tokens:g}")
    axes.grid(color=EMPTY, linewidth=0.8)
    _name_ends(axes, {name: values[-1] for name, values in series.items()}, colours)
    return figure


def _name_ends(axes: Axes, ends: Mapping[str, float], colours: Mapping[str, ColorType]) -> None:
    """Write each name to the right of the end of its line, and move names apart where they would overlap."""
    low, high = np.log(axes.get_ylim())
    order = sorted(ends, key=ends.get)
    places = spread([(np.log(ends[name]) - low) / (high - low) for name in order], _APART)
    for name, place in zip(order, places, strict=True):
        axes.annotate(name, (1.02, place), xycoords="axes fraction", color=colours[name], va="center", fontsize=9,
                      annotation_clip=False)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move ascending places apart until neighbours are at least `gap` apart.

    A run of places that is too dense is spread evenly around the mean of its places.
    """
    runs: list[list[float]] = []
    for place in places:
        runs.append([place])
        while len(runs) > 1 and _bottom(runs[-1], gap) - _bottom(runs[-2], gap) < gap * len(runs[-2]):
            last = runs.pop()
            runs[-1] += last
    return [_bottom(run, gap) + gap * number for run in runs for number in range(len(run))]


def _bottom(run: Sequence[float], gap: float) -> float:
    """Return the lowest place of a run once it is spread around its mean."""
    return sum(run) / len(run) - gap * (len(run) - 1) / 2


@styled
def token_times(milliseconds: Mapping[str, Sequence[float]], *, colours: Mapping[str, ColorType] | None = None,
                title: str = "") -> Figure:
    """Draw the time of each decoded token, one panel per method, with a common logarithmic scale.

    Args:
        milliseconds: by name, the positive times of the first, second, third ... decoded token; at most six names, or
            as many as `colours`.
        colours: by name; the order decides by default.
        title: of the figure.

    Raises:
        ValueError: for more names than colours.
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
        axes.grid(axis="y", color=EMPTY, linewidth=0.8)
        axes.set_axisbelow(True)
    panels[-1, 0].set_xlabel("decoded token (milliseconds each)")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def _colours_of(series: Mapping[str, Any], colours: Mapping[str, ColorType] | None) -> Mapping[str, ColorType]:
    """Return a colour for each name.

    Raises:
        ValueError: for more names than colours, or a name without one.
    """
    if colours is not None and series and set(series) <= set(colours):
        return colours
    if colours is not None:
        raise ValueError(f"colours: got none for {sorted(set(series) - set(colours))}, wanted one for each series")
    if not 1 <= len(series) <= len(SERIES):
        raise ValueError(f"series: got {len(series)} names, wanted 1 to {len(SERIES)}, as there are colours; "
                         "leave out those whose lines would coincide")
    return dict(coloured(series))
