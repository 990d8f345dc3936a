"""The effect of grouping on noise and conditioning: factors, spectra, descent paths, and the two experiments."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from cca_lab.views.figures.style import EMPTY, FAINT, INK, RAW, WRONG, as_array, coloured, styled

DASHED = (0, (5, 3))


@styled
def predicted_and_measured(x: Sequence[float], predicted: Mapping[str, Sequence[float]],
                           measured: Mapping[str, Sequence[tuple[float, float]]] | None = None, *, xlabel: str,
                           ylabel: str, reference: Mapping[str, Sequence[float]] | None = None,
                           title: str = "", base: int | None = 2) -> Figure:
    """Draw predictions as lines and measurements as dots with their intervals, in the colour of their line.

    Args:
        x: (n,) horizontal position of each value.
        predicted: (n,) values by name, in the order of the colours.
        measured: n pairs (value, half-width) by name; every name must also be in `predicted`.
        xlabel, ylabel, title: texts.
        reference: (n,) values of further lines by name, dashed and grey.
        base: of the horizontal axis, where both axes are logarithmic; None for linear axes.
    """
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    for (name, values), colour in coloured(predicted.items()):
        axes.plot(x, values, color=colour, linewidth=2, label=name)
        if measured and name in measured:
            values, errors = np.array(measured[name], dtype=float).T
            axes.errorbar(x, values, errors, color=colour, fmt="o", markersize=4, capsize=2, linewidth=1)
    for name, values in (reference or {}).items():
        axes.plot(x, values, color=FAINT, linewidth=1.4, linestyle=DASHED, label=name)
    if base is not None:
        axes.set_xscale("log", base=base)
        axes.set_yscale("log", base=10)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title)
    _grid(axes)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


@styled
def separation(spectra: Mapping[str, tuple[Any, Any]], *, m: int) -> Figure:
    """Draw the eigenvalues of H / m above those of Hbar, and shade the range of Poincare's separation theorem.

    Args:
        spectra: (eigenvalues of H, eigenvalues of Hbar) by title, positive; one panel each.
        m: tokens per group.
    """
    figure, panels = plt.subplots(1, len(spectra), figsize=(4.0 * len(spectra) + 0.4, 2.1), squeeze=False)
    for axes, (title, (outer, inner)) in zip(panels[0], spectra.items(), strict=True):
        outer, inner = as_array(outer).astype(float) / m, as_array(inner).astype(float)
        axes.axvspan(outer.min(), outer.max(), color="#D6E8F4", zorder=0)
        inside = (inner >= outer.min() * (1 - 1e-9)) & (inner <= outer.max() * (1 + 1e-9))
        axes.plot(outer, np.ones_like(outer), "|", color=RAW, markersize=18, markeredgewidth=1.4)
        axes.plot(inner, np.zeros_like(inner), "|", color=INK, markersize=18, markeredgewidth=1.4)
        axes.plot(inner[~inside], np.zeros((~inside).sum()), "|", color=WRONG, markersize=18, markeredgewidth=2)
        axes.set(xscale="log", yticks=[0, 1], yticklabels=["grouped", "full, over $m$"], ylim=(-0.6, 1.6),
                 xlabel="eigenvalue")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
        axes.set_title(title)
    return figure


@styled
def descent_paths(panels: Mapping[str, tuple[Any, Any]]) -> Figure:
    """Draw gradient descent on two-dimensional quadratics over their contour lines.

    Args:
        panels: (H, path) by title: H (2, 2); path (steps + 1, 2), the errors, the start first.
    """
    figure, row = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.2), squeeze=False)
    for axes, (title, (matrix, path)) in zip(row[0], panels.items(), strict=True):
        matrix, path = as_array(matrix).astype(float), as_array(path).astype(float)
        reach = 1.15 * np.abs(path).max(axis=0).clip(min=0.35 * np.abs(path).max())
        x, y = np.meshgrid(np.linspace(-reach[0], reach[0], 120), np.linspace(-reach[1], reach[1], 120))
        height = matrix[0, 0] * x * x + 2 * matrix[0, 1] * x * y + matrix[1, 1] * y * y
        levels = np.quantile(height, np.linspace(0.04, 0.9, 8))
        axes.contour(x, y, height, levels=levels, colors="#9CC8E3", linewidths=0.9)
        axes.plot(*path.T, color=WRONG, linewidth=1.1, marker="o", markersize=2.5)
        axes.plot(0, 0, "+", color=INK, markersize=9)
        axes.set_title(f"{title}: {len(path) - 1} steps")
        axes.set(xlabel="first mode", ylabel="second mode")
        axes.locator_params(nbins=4)
    return figure


@styled
def with_intervals(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]], x: Sequence[float], *,
                   xlabel: str, ylabel: str, logarithmic: bool = False) -> Figure:
    """Draw values with their intervals, one panel per title; a name has the same colour in every panel.

    Args:
        panels: for each title, n triples (value, low, high) by name.
        x: (n,) horizontal position of each triple.
        xlabel, ylabel: texts.
        logarithmic: whether both axes are logarithmic; otherwise a line marks zero.
    """
    figure, row = plt.subplots(1, len(panels), figsize=(3.1 * len(panels) + 1.8, 3.3), squeeze=False, sharey=True)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    colours, handles = dict(coloured(names)), {}
    for axes, (title, lines) in zip(row[0], panels.items(), strict=True):
        for name, triples in lines.items():
            value, low, high = np.array(triples, dtype=float).T
            (handles[name],) = axes.plot(x, value, color=colours[name], linewidth=1.8, marker="o", markersize=4)
            axes.fill_between(x, low, high, color=colours[name], alpha=0.18, linewidth=0)
        if logarithmic:
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(x, [f"{place:g}" for place in x])
            axes.minorticks_off()
            axes.yaxis.set_major_formatter("{x:g}")
        else:
            axes.axhline(0, color=INK, linewidth=0.8)
        axes.set(xlabel=xlabel)
        axes.set_title(title)
        _grid(axes)
    row[0, 0].set_ylabel(ylabel)
    row[0, -1].legend([handles[name] for name in names], names, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _grid(axes: Axes) -> None:
    axes.grid(color=EMPTY, linewidth=0.8)
    axes.set_axisbelow(True)
