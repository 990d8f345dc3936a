"""Curves: how a quantity depends on another, one line for each name."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.typing import ColorType

from cca_lab.views.figures.style import (
    DASHED,
    FAINT,
    INK,
    as_array,
    coloured,
    grid,
    legend_beside,
    styled,
)


@styled
def curves(x: Sequence[float], series: Mapping[str, Any], *, xlabel: str, ylabel: str,
           title: str = "", scales: tuple[Any, Any] = ("linear", "linear"), marker: str = "",
           reference: Mapping[str, float] | None = None, at: Sequence[float] = (),
           least: bool = False, limits: tuple[Any, Any] = (None, None),
           dots: Mapping[str, Mapping[float, float]] | None = None,
           colours: Mapping[str, ColorType] | None = None) -> Figure:
    """Draw a quantity against another, a line for each name.

    Args:
        x: (n,) of every line; a shorter line ends where its values end.
        series: by name its values, None for a gap.
        xlabel, ylabel, title: texts.
        scales: of both axes: "linear", "log" or the number 2, for powers of two.
        marker: of the points.
        reference: by name a value that is drawn as a dashed horizontal line.
        at: places of vertical dotted lines.
        least: mark the minimum of each line.
        limits: of the values.
        dots: by name measured values by their x.
        colours: by name; by default those of the mechanisms, then in order.
    """
    figure, axes = plt.subplots(figsize=(7.4, 3.6))
    for name, colour in (colours or dict(coloured(series))).items():
        if name not in series:
            continue
        values = np.array([np.nan if y is None else y for y in as_array(series[name]).tolist()])
        steps = as_array(x)[:len(values)]
        axes.plot(steps, values, color=colour, linewidth=2, marker=marker or None, markersize=4,
                  label=name)
        if least:
            lowest = int(np.argmin(values))
            axes.plot(steps[lowest], values[lowest], "o", color=colour, markersize=6)
            axes.annotate(f"{steps[lowest]:g}", (steps[lowest], values[lowest]), color=colour,
                          xytext=(0, -13), ha="center", textcoords="offset points", fontsize=8.5)
        if measured := (dots or {}).get(name):
            axes.plot(list(measured), list(measured.values()), "o", color=colour, markersize=5)
    for name, value in (reference or {}).items():
        axes.axhline(value, color=INK, linewidth=1.2, linestyle=DASHED, label=name)
    for place in at:
        axes.axvline(place, color=FAINT, linewidth=1, linestyle=":", zorder=0)
    for set_scale, scale in zip((axes.set_xscale, axes.set_yscale), scales, strict=True):
        set_scale(**({"value": "log", "base": scale} if isinstance(scale, int)
                     else {"value": scale}))
    axes.margins(y=0.12)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title, ylim=limits)
    grid(axes)
    legend_beside(axes)
    return figure
