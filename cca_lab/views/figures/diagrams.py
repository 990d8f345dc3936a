"""Diagrams: how information mixes and travels, how far a row reaches, the map of the lab."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from cca_lab.views.figures.heatmaps import categories
from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    FAINT,
    GOOD,
    INK,
    MISSING,
    RAW,
    SKY,
    WRONG,
    as_array,
    legend_beside,
    styled,
    tick_labels,
)

_THICKEST = 9.0  # line width in points for a weight of 1
_ON_LINE = {"facecolor": "white", "edgecolor": "none", "pad": 1}
FUTURE, NEVER, ONE_LAYER, TWO_LAYERS, MORE_LAYERS = range(5)
_REACHED = {"future": EMPTY, "never": WRONG, "one layer": RAW, "two": SKY, "three or more": CORE}


@styled
def mixing(weights: Any, *, outputs: Sequence[Any] | None = None,
           inputs: Sequence[Any] | None = None, numbers: bool = True, title: str = "") -> Figure:
    """Draw a mixing matrix as lines from the inputs (below) to the outputs, as wide as weights.

    Output m of (M, L) is a mean of the inputs with weights[m], each written at its line unless 1.
    """
    weights = as_array(weights).astype(float)
    count, length = weights.shape
    width = max(count, length)
    below = np.linspace(0, width - 1, length) if length > 1 else np.array([(width - 1) / 2])
    above = [float(below[np.flatnonzero(row)].mean())
             for row in weights] if count < length else range(count)
    longest = max(map(len, tick_labels(outputs, count) + tick_labels(inputs, length)), default=0)
    figure, axes = plt.subplots(figsize=(max(3.6, max(0.95, 0.1 * longest + 0.25) * width), 2.5))
    for row, top in zip(weights, above, strict=True):
        for token in np.flatnonzero(row):
            axes.plot([below[token], top], [0, 1], color=FAINT, alpha=0.55,
                      linewidth=_THICKEST * row[token], zorder=1, solid_capstyle="butt")
            if numbers and row[token] != 1:
                axes.text(below[token] + 0.4 * (top - below[token]), 0.4, f"{row[token]:.2g}",
                          fontsize=8.5, ha="center", va="center", bbox=_ON_LINE)
    _nodes(axes, above, 1, tick_labels(outputs, count), CORE)
    _nodes(axes, below, 0, tick_labels(inputs, length), RAW)
    axes.set(xlim=(-0.6, width - 0.4), ylim=(-0.25, 1.25), title=title)
    axes.axis("off")
    return figure


@styled
def vectors_in_circle(vectors: Mapping[str, tuple[float, float]], *, bold: Iterable[str] = (),
                      title: str = "") -> Figure:
    """Draw vectors in the plane from the origin, with the unit circle."""
    bold = set(bold)
    figure, axes = plt.subplots(figsize=(5.6, 3.6))
    axes.add_patch(Circle((0, 0), 1, fill=False, color="#D0D0D0", linewidth=1))
    bold_first = sorted(vectors, key=lambda name: name not in bold)
    colours = dict(zip(bold_first, (CORE, GOOD, RAW, SKY, MISSING, WRONG), strict=False))
    # the shorter ones on top
    for name in sorted(vectors, key=lambda name: -np.hypot(*vectors[name])):
        width = 3.2 if name in bold else 1.6
        axes.plot(*zip((0, 0), vectors[name], strict=True), color=colours[name], linewidth=width,
                  label=name)
        axes.plot(*vectors[name], "o", color=colours[name], markersize=2.4 * width)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    legend_beside(axes, [handles[name] for name in vectors], list(vectors), at=1.0)
    axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal", title=title)
    axes.axis("off")
    return figure


def _nodes(axes: Axes, positions: Iterable[float], height: float, names: Sequence[str],
           colour: str) -> None:
    """Draw named boxes in one line, one for each name; without names nothing is drawn."""
    for x, name in zip(positions, names, strict=False):
        box = {"boxstyle": "round,pad=0.32", "facecolor": colour, "edgecolor": "white",
               "linewidth": 1.5}
        axes.text(x, height, name, ha="center", va="center", fontsize=9, zorder=3, bbox=box,
                  color="white" if colour == RAW else INK)


@styled
def layers_to_reach(needed: Mapping[str, Any]) -> Figure:
    """Draw after how many layers each token reaches each row, one small panel per mechanism.

    By title integers (L, L): layers needed until token t reaches row i, 0 for never.
    """
    def kinds(layers: np.ndarray) -> np.ndarray:
        """A later token is future unless it is reached."""
        codes = np.select([layers == 0, layers == 1, layers == 2], [NEVER, ONE_LAYER, TWO_LAYERS],
                          MORE_LAYERS)
        return np.where(np.tri(len(codes), dtype=bool) | (layers > 0), codes, FUTURE)

    return categories({title: kinds(as_array(matrix).astype(int))
                       for title, matrix in needed.items()}, _REACHED, small=True)
