"""Dynamic groups, and group coding: how tokens are divided, read and coded."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from cca_lab.views.figures.heatmaps import categories
from cca_lab.views.figures.style import (
    CORE,
    DASHED,
    EMPTY,
    FAINT,
    GOOD,
    INK,
    RAW,
    WRONG,
    as_array,
    coloured,
    grid,
    legend_below,
    legend_beside,
    styled,
)

UNREAD, FOCAL, POOLED, OPEN = range(4)
_COLOURS = (EMPTY, RAW, CORE, GOOD)
_BOX = {"boxstyle": "round,pad=0.3", "edgecolor": "white", "linewidth": 1.5}


@styled
def division(tokens: Sequence[str], scores: Any, focal: Sequence[int],
             groups: Sequence[Sequence[int]], *, title: str = "") -> Figure:
    """Draw where each token goes: importance above, the text in the middle, DGA's columns below.

    `scores` (L,); `focal` are the tokens that stay as they are, `groups` the tokens of each group.
    """
    figure, (bars, drawing) = plt.subplots(2, 1, sharex=True,
                                           figsize=(max(5.0, 0.95 * len(tokens)), 4.4),
                                           gridspec_kw={"height_ratios": [1.1, 1.5]})
    colours = [RAW if t in focal else CORE for t in range(len(tokens))]
    bars.bar(range(len(tokens)), as_array(scores), color=colours, width=0.6)
    bars.set(ylabel="importance", title=title)
    bars.tick_params(length=0)
    columns = [[t] for t in focal] + [list(members) for members in groups]
    names = [" ".join(tokens[t] for t in members) for members in columns]
    widths = np.array([0.9 + 0.1 * len(name) for name in names])
    centres = (np.cumsum(widths) - widths / 2) * (len(tokens) / widths.sum()) - 0.5
    for members, centre, name in zip(columns, centres, names, strict=True):
        colour = RAW if members[0] in focal else CORE
        for t in members:
            drawing.plot([t, centre], [1, 0], color=colour, linewidth=2.0, alpha=0.6, zorder=1)
        drawing.text(centre, 0, name, ha="center", va="center", fontsize=9, zorder=3,
                     color="white" if colour == RAW else INK, bbox={**_BOX, "facecolor": colour})
    for t, name in enumerate(tokens):
        drawing.text(t, 1, name, ha="center", va="center", fontsize=9, zorder=3,
                     bbox={**_BOX, "facecolor": "white", "edgecolor": colours[t]})
    drawing.set_ylim(-0.3, 1.3)
    drawing.axis("off")
    legend_below(drawing, {"focal: a column of its own": RAW,
                           "grouped: one column for m tokens": CORE}, columns=2)
    return figure


def kinds_of(reads: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]],
             groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Return how each row reads each token, (L, L): UNREAD, FOCAL, POOLED or OPEN.

    `reads` are what `dga.row_reads` returns for each row, `groups` the tokens of each group.
    """
    kinds = np.full((len(reads), len(reads)), UNREAD)
    for i, (focal, closed, raw) in enumerate(reads):
        kinds[i, list(focal)] = FOCAL
        kinds[i, [t for z in closed for t in groups[z]]] = POOLED
        kinds[i, list(raw)] = OPEN
    return kinds


@styled
def reading(kinds: Any, *, tokens: Sequence[Any] | None = None, title: str = "") -> Figure:
    """Draw how each row reads each token.

    `kinds` is int (L, L), from `kinds_of`.
    """
    names = ("not read", "focal", "inside a group", "raw")
    return categories({title: kinds}, dict(zip(names, _COLOURS, strict=True)), rows=tokens,
                      columns=tokens)


@styled
def predicted_and_measured(x: Sequence[float], predicted: Mapping[str, Sequence[float]],
                           measured: Mapping[str, Sequence[tuple[float, float]]] | None = None, *,
                           xlabel: str, ylabel: str, reference: Mapping[str, Sequence[float]]
                           | None = None, title: str = "", base: int | None = 2) -> Figure:
    """Draw predictions as lines, and measurements as dots with intervals in their colour.

    `measured` has n pairs (value, half-width) for names in `predicted`; `reference` is grey and
    dashed. `base` is that of the horizontal axis, both logarithmic; None means linear axes.
    """
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    for (name, values), colour in coloured(predicted.items()):
        axes.plot(x, values, color=colour, linewidth=2, label=name)
        if measured and name in measured:
            values, errors = np.array(measured[name], dtype=float).T
            axes.errorbar(x, values, errors, color=colour, fmt="o", markersize=4, capsize=2,
                          linewidth=1)
    for name, values in (reference or {}).items():
        axes.plot(x, values, color=FAINT, linewidth=1.4, linestyle=DASHED, label=name)
    if base is not None:
        axes.set_xscale("log", base=base)
        axes.set_yscale("log", base=10)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    grid(axes)
    legend_beside(axes)
    return figure


@styled
def separation(spectra: Mapping[str, tuple[Any, Any]], *, m: int) -> Figure:
    """Draw the eigenvalues of H / m above those of Hbar, and the range of Poincare's theorem.

    A panel for each pair (eigenvalues of H, eigenvalues of Hbar), for groups of m tokens.
    """
    figure, panels = plt.subplots(1, len(spectra), figsize=(4.0 * len(spectra) + 0.4, 2.1),
                                  squeeze=False)
    for axes, (title, (outer, inner)) in zip(panels[0], spectra.items(), strict=True):
        outer, inner = as_array(outer).astype(float) / m, as_array(inner).astype(float)
        axes.axvspan(outer.min(), outer.max(), color="#D6E8F4", zorder=0)
        inside = (inner >= outer.min() * (1 - 1e-9)) & (inner <= outer.max() * (1 + 1e-9))
        axes.plot(outer, np.ones_like(outer), "|", color=RAW, markersize=18, markeredgewidth=1.4)
        axes.plot(inner, np.zeros_like(inner), "|", color=INK, markersize=18, markeredgewidth=1.4)
        axes.plot(inner[~inside], np.zeros((~inside).sum()), "|", color=WRONG, markersize=18,
                  markeredgewidth=2)
        axes.set(xscale="log", yticks=[0, 1], yticklabels=["grouped", "full, over $m$"],
                 ylim=(-0.6, 1.6), xlabel="eigenvalue", title=title)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
    return figure
